#include "daemon/process/standings.hpp"

#include <cstring>

namespace tarn {

using namespace std::chrono_literals;

namespace {

// What is lost with a store that is copied back is told from what was lost before, but for so long.
constexpr auto told_every = 10s;

struct Notice {
    char kind = 'P';
    std::array<char, 3> reserved{};
    uint32_t epoch = 0;
    uint64_t nonce = 0;
    uint64_t position = 0;
};
static_assert(sizeof(Notice) == 24);

}  // namespace

bool Standings::is_call(const std::string& request) {
    return request.size() == sizeof(Notice) && request.front() == Notice{}.kind;
}

Result<std::string> Standings::on_call(HostId from, const std::string& request) {
    Notice notice;
    std::memcpy(&notice, request.data(), sizeof notice);
    cache_.on_standing(from, {.epoch = notice.epoch, .nonce = notice.nonce, .position = notice.position});
    return std::string();
}

Task<> Standings::tell_one(Fabric& fabric, HostId peer, std::string request) {
    (void)co_await fabric.call(peer, std::move(request));  // who is away hears it with the next link
}

void Standings::tell() {
    const StoreStanding now = cache_.store().standing();
    if (now == told_ || cache_.abandoned()) return;
    told_ = now;
    const Notice notice{.epoch = now.epoch, .nonce = now.nonce, .position = now.position};
    for (const HostId peer : peers_)
        if (cache_.fabric()->linked(peer))
            Loop::current()->spawn(
                tell_one(*cache_.fabric(), peer, std::string(reinterpret_cast<const char*>(&notice), sizeof notice)));
}

Task<> Standings::keep_told() {
    while (co_await pause_.sleep(told_every)) tell();
}

}  // namespace tarn
