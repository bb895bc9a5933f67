#include "daemon/process/shutdown_barrier.hpp"

#include <algorithm>

namespace tarn {

using namespace std::chrono_literals;

namespace {
// Whoever stops all hosts of a cluster does not reach them in the same instant.
constexpr auto others_stop_within = 300ms;
}  // namespace

ShutdownBarrier::ShutdownBarrier(Cache& cache, std::vector<HostId> peers) : cache_(cache), peers_(std::move(peers)) {
    for (const CallKind what : {CallKind::stopping, CallKind::flushed})
        cache_.fabric()->calls().set(what, [this, what](HostId from, const std::string&) { return hear(from, what); });
}

Task<Result<std::string>> ShutdownBarrier::hear(HostId from, CallKind what) {
    if (what == CallKind::stopping) {
        stopping_.fetch_or(set_of(from), std::memory_order_relaxed);
    } else {
        stopping_.fetch_and(~set_of(from), std::memory_order_relaxed);
        flushed_[from].store(cache_.membership().incarnation_of(from), std::memory_order_relaxed);
    }
    cache_.membership().changed().announce();
    co_return std::string();
}

// A host that cannot be told has no link to us, and we do not wait for it.
Task<> ShutdownBarrier::tell(Fabric& fabric, HostId peer, CallKind what) {
    (void)co_await fabric.call(peer, what);
}

void ShutdownBarrier::say(CallKind what) {
    for (const HostId peer : peers_)
        if (linked(peer)) Loop::current()->spawn(tell(*cache_.fabric(), peer, what));
}

bool ShutdownBarrier::all_flushed() const {
    const HostSet stopping = stopping_.load(std::memory_order_relaxed);
    return std::none_of(peers_.begin(), peers_.end(),
                        [&](HostId peer) { return contains(stopping, peer) && linked(peer); });
}

HostSet ShutdownBarrier::gone() const {
    HostSet gone = 0;
    for (const HostId peer : peers_) {
        const Incarnation flushed = flushed_[peer].load(std::memory_order_relaxed);
        if (!linked(peer) && flushed != 0 && flushed == cache_.membership().incarnation_of(peer)) gone |= set_of(peer);
    }
    return gone;
}

Task<> ShutdownBarrier::say_flushed_and_wait() {
    say(CallKind::flushed);
    if (std::none_of(peers_.begin(), peers_.end(), [&](HostId peer) { return linked(peer); })) co_return;
    co_await Loop::current()->sleep(others_stop_within);
    Broadcast& changed = cache_.membership().changed();
    for (uint64_t seen = changed.count(); !all_flushed() && !cache_.abandoned(); seen = changed.count())
        co_await changed.next(seen);
}

}  // namespace tarn
