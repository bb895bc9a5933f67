#include "daemon/process/standings.hpp"

namespace tarn {

using namespace std::chrono_literals;

namespace {

// What is lost with a store that is copied back is told from what was lost before, but for so long.
constexpr auto told_every = 10s;

struct Notice {
    uint32_t reserved = 0;
    uint32_t epoch = 0;
    uint64_t nonce = 0;
    uint64_t position = 0;
};

}  // namespace

Standings::Standings(Cache& cache, Loop& loop, std::vector<HostId> peers)
    : cache_(cache), peers_(std::move(peers)), pause_(loop) {
    cache_.fabric()->calls().set(CallKind::standing,
                                 [this](HostId from, std::string request) { return hear(from, std::move(request)); });
}

Task<Result<std::string>> Standings::hear(HostId from, std::string request) {
    const std::optional<Notice> notice = unpack<Notice>(request);
    if (!notice) co_return fail(Errc::protocol, 0, "standing.request");
    cache_.inbox().on_standing(from, {.epoch = notice->epoch, .nonce = notice->nonce, .position = notice->position});
    co_return std::string();
}

Task<> Standings::tell_one(Fabric& fabric, HostId peer, std::string request) {
    (void)co_await fabric.call(peer, CallKind::standing,
                               std::move(request));  // who is away hears it with the next link
}

void Standings::tell() {
    const StoreStanding now = cache_.store().standing();
    if (now == told_ || cache_.abandoned()) return;
    told_ = now;
    const Notice notice{.epoch = now.epoch, .nonce = now.nonce, .position = now.position};
    for (const HostId peer : peers_)
        if (cache_.fabric()->linked(peer)) Loop::current()->spawn(tell_one(*cache_.fabric(), peer, pack(notice)));
}

Task<> Standings::keep_told() {
    while (co_await pause_.sleep(told_every)) tell();
}

}  // namespace tarn
