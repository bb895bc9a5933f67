#include "daemon/keeper/keeper_watch.hpp"

#include <poll.h>

#include <utility>

#include "utils/log.hpp"

namespace tarn {

namespace {
constexpr std::chrono::seconds try_again_after{1};
}

void KeeperWatch::begin() {
    if (stopping_ || watches_) return;
    watches_ = true;
    gate_.spawn(watch());
}

// False: there is no tarn-keeper, so nothing is kept there. True without a connection: it has ended, or may have while
// it was not watched.
Task<bool> KeeperWatch::connect() {
    for (bool has_said = false; !stopping_;) {
        Result<UniqueFd> connection = keeper_.watch();
        if (connection && !has_said) connection_ = std::move(*connection);
        if (connection || connection.error().code == Errc::not_found) co_return connection || has_said;
        if (!std::exchange(has_said, true))
            log::warning("tarn-keeper is not watched: {}; should it be killed, nobody would notice; it is tried again",
                         log::describe(connection.error()));
        co_await loop_.sleep(try_again_after);
    }
    co_return false;
}

Task<> KeeperWatch::watch() {
    const bool is_there = co_await connect();
    while (connection_ && !stopping_ && co_await hear()) {
    }
    watches_ = false;
    connection_ = {};
    if (!is_there) co_return;
    // It also ends by itself, when it has nothing more to keep.
    for (bool has_said = false; !stopping_;) {
        const Result<> kept = co_await notices_.lost();
        if (kept) co_return begin();
        if (!std::exchange(has_said, true))
            log::warning(
                "tarn-keeper has ended, and nobody keeps what it kept: {}; should this process end, too, "
                "requests to its block devices wait for tarn detach --force; it is tried again",
                log::describe(kept.error()));
        co_await loop_.sleep(try_again_after);
    }
}

// False: it has ended.
Task<bool> KeeperWatch::hear() {
    const Result<size_t> readable = co_await loop_.poll(connection_.get(), POLLIN);
    if (!readable || stopping_) co_return false;
    const Result<keeper::Said> said = keeper::hear(connection_.get());
    if (said && said->word == keeper::Word::cut) notices_.cut(said->name);
    co_return said.has_value();
}

Task<> KeeperWatch::stop() {
    stopping_ = true;
    if (connection_) loop_.cancel_fd(connection_.get());
    co_await gate_.close();
}

}  // namespace tarn
