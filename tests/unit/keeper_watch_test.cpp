// What KeeperWatch notices of a tarn-keeper; the test plays that one, and those who come after it.
#include "daemon/keeper/keeper_watch.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/scratch_directory.hpp"
#include "tests/support/turns.hpp"
#include "utils/broadcast.hpp"
#include "utils/unix_socket.hpp"

namespace tarn {
namespace {

class KeeperWatchTest : public testing::Test {
  protected:
    // A keeper begins to be watched. It may be given up before it has answered.
    static UniqueFd accept_watch(const UniqueFd& listening) {
        UniqueFd client(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
        const Result<keeper::Said> said = keeper::hear(client.get());
        EXPECT_TRUE(said && said->word == keeper::Word::watch);
        (void)keeper::say(client.get(), keeper::Word::done);
        return client;
    }
    UniqueFd accept_watch() const { return accept_watch(listening_); }
    // A socket there that nobody can connect to, though it exists.
    static UniqueFd bind_unfit(const std::string& path) {
        UniqueFd unfit(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        const sockaddr_un address = *unix_address(path);
        EXPECT_EQ(::bind(unfit.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
        return unfit;
    }
    // It says so, and lasts until nobody watches it.
    static void cut_and_wait(const UniqueFd& client, const std::string& name) {
        EXPECT_TRUE(keeper::say(client.get(), keeper::Word::cut, name));
        EXPECT_FALSE(keeper::hear(client.get()));
    }
    // Watches until this many were cut.
    void watch_until_cut(size_t count) {
        KeeperWatch watch(keeper_, *loop_, notices());
        const auto all = [&]() -> Task<> {
            watch.begin();
            while (cut_.size() < count) co_await heard_.next(heard_.count());
            co_await watch.stop();
        };
        loop_->run_until_done(all());
    }
    KeeperWatch::Notices notices() {
        return {.cut =
                    [this](const std::string& name) {
                        cut_.push_back(name);
                        heard_.announce();
                    },
                .lost = [this]() -> Task<Result<>> { co_return lost_(++lost_count_); }};
    }

    const std::unique_ptr<Loop> loop_ = std::move(*Loop::create());
    ScratchDirectory directory_;
    const std::string path_ = directory_ / "keeper";
    const UniqueFd listening_ = std::move(*listen_unix(path_, 0600));
    Keeper keeper_{path_};
    Broadcast heard_;
    std::vector<std::string> cut_;
    int lost_count_ = 0;
    std::function<Result<>(int)> lost_ = [](int) { return Result<>(); };
};

TEST_F(KeeperWatchTest, what_was_cut_is_told_and_nothing_else) {
    std::thread other([&] {
        const UniqueFd client = accept_watch();
        EXPECT_TRUE(keeper::say(client.get(), keeper::Word::drop, "nbd1"));
        EXPECT_TRUE(keeper::say(client.get(), keeper::Word::done, "nbd2"));
        EXPECT_TRUE(keeper::say(client.get(), keeper::Word::cut, "nbd3"));
        cut_and_wait(client, "nbd4");
    });
    watch_until_cut(2);
    other.join();
    EXPECT_EQ(cut_, (std::vector<std::string>{"nbd3", "nbd4"}));
    EXPECT_EQ(lost_count_, 0);
}

TEST_F(KeeperWatchTest, the_successor_of_one_that_has_ended_is_watched) {
    std::thread other([&] {
        for (const char* const name : {"nbd0", "nbd1"})
            EXPECT_TRUE(keeper::say(accept_watch().get(), keeper::Word::cut, name));
        cut_and_wait(accept_watch(), "nbd2");
    });
    watch_until_cut(3);
    other.join();
    EXPECT_EQ(cut_, (std::vector<std::string>{"nbd0", "nbd1", "nbd2"}));
    EXPECT_EQ(lost_count_, 2) << "what each is to keep";
}

// As while there is no descriptor left to start one with.
TEST_F(KeeperWatchTest, what_nobody_keeps_is_told_again_until_somebody_does) {
    lost_ = [](int count) -> Result<> {
        if (count == 1) return fail(Errc::io, EMFILE, "played");
        return {};
    };
    std::thread other([&] {
        (void)accept_watch();
        cut_and_wait(accept_watch(), "nbd0");
    });
    watch_until_cut(1);
    other.join();
    EXPECT_EQ(lost_count_, 2);
}

// As a keeper that is killed between two tries: somebody has to tell its successor what it kept.
TEST_F(KeeperWatchTest, one_that_cannot_be_watched_and_then_ends_is_lost) {
    const std::string path = directory_ / "other";
    const UniqueFd unfit = bind_unfit(path);
    Keeper keeper(path);
    lost_ = [this](int) -> Result<> {
        heard_.announce();
        return {};
    };
    KeeperWatch watch(keeper, *loop_, notices());
    const auto all = [&]() -> Task<> {
        watch.begin();
        ::unlink(path.c_str());
        while (lost_count_ == 0) co_await heard_.next(heard_.count());
        co_await watch.stop();
    };
    loop_->run_until_done(all());
    EXPECT_EQ(lost_count_, 1);
}

// Another one may have begun between two tries.
TEST_F(KeeperWatchTest, one_that_could_not_be_watched_for_a_while_is_told_all_again) {
    const std::string path = directory_ / "other";
    const UniqueFd unfit = bind_unfit(path);
    Keeper keeper(path);
    KeeperWatch watch(keeper, *loop_, notices());
    UniqueFd listening;
    std::thread other;
    const auto all = [&]() -> Task<> {
        watch.begin();
        ::unlink(path.c_str());
        listening = std::move(*listen_unix(path, 0600));
        other = std::thread([&] {
            const UniqueFd first = accept_watch(listening);
            (void)keeper::say(first.get(), keeper::Word::cut, "nbd9");  // nobody hears it any more
            cut_and_wait(accept_watch(listening), "nbd0");
        });
        while (cut_.empty()) co_await heard_.next(heard_.count());
        co_await watch.stop();
    };
    loop_->run_until_done(all());
    ::shutdown(listening.get(), SHUT_RDWR);
    other.join();
    EXPECT_EQ(lost_count_, 1);
    EXPECT_EQ(cut_, std::vector<std::string>{"nbd0"});
}

// It has nothing to keep; one that is started later is watched.
TEST_F(KeeperWatchTest, where_there_is_none_nothing_is_lost) {
    Keeper keeper(directory_ / "later");
    KeeperWatch watch(keeper, *loop_, notices());
    watch.begin();
    loop_->run_until_done(turns(*loop_));
    EXPECT_EQ(lost_count_, 0);
    const UniqueFd listening = std::move(*listen_unix(directory_ / "later", 0600));
    std::thread other([&] { cut_and_wait(accept_watch(listening), "nbd0"); });
    const auto all = [&]() -> Task<> {
        watch.begin();
        while (cut_.empty()) co_await heard_.next(heard_.count());
        co_await watch.stop();
    };
    loop_->run_until_done(all());
    other.join();
    EXPECT_EQ(cut_, std::vector<std::string>{"nbd0"});
}

}  // namespace
}  // namespace tarn
