#include "daemon/process/dead_hosts.hpp"

#include <algorithm>
#include <memory>

#include "coherence/fabric/call_all.hpp"
#include "utils/log.hpp"
#include "utils/run_on.hpp"

namespace tarn {

using namespace std::chrono_literals;

namespace {

constexpr auto host_answers_within = 5s;

// Both requests, and the answer to the first.
struct Notice {
    HostId host = 0;
    uint8_t linked = 0;
    uint16_t reserved = 0;
    Incarnation incarnation = 0;
};

constexpr Error no_other_host{Errc::protocol, 0, "forget: no other host of this cluster"};

}  // namespace

DeadHosts::DeadHosts(Cache& cache, std::vector<HostId> peers) : cache_(cache), peers_(std::move(peers)) {
    Loop& loop = *Loop::current();
    CallHandlers& calls = cache_.fabric()->calls();
    calls.set(CallKind::knows_of_host, [this, &loop](HostId from, std::string request) {
        return run_on(loop, tell_what_is_known(from, std::move(request)));
    });
    calls.set(CallKind::host_is_dead, [this, &loop](HostId from, std::string request) {
        return run_on(loop, hear_of_death(from, std::move(request)));
    });
}

std::vector<HostId> DeadHosts::peers_but(HostId host) const {
    std::vector<HostId> peers = peers_;
    std::erase(peers, host);
    return peers;
}

bool DeadHosts::is_another(HostId host, HostId from) const {
    return host != from && std::ranges::find(peers_, host) != peers_.end();
}

Task<Result<std::string>> DeadHosts::tell_what_is_known(HostId from, std::string request) const {
    std::optional<Notice> notice = unpack<Notice>(request);
    if (!notice || !is_another(notice->host, from)) co_return fail(no_other_host);
    notice->linked = cache_.fabric()->linked(notice->host) ? 1 : 0;
    notice->incarnation = cache_.membership().incarnation_of(notice->host);
    co_return pack(*notice);
}

Task<Result<std::string>> DeadHosts::hear_of_death(HostId from, std::string request) {
    const std::optional<Notice> notice = unpack<Notice>(request);
    if (!notice || !is_another(notice->host, from)) co_return fail(no_other_host);
    // What we know to be younger is not meant.
    if (cache_.membership().incarnation_of(notice->host) <= notice->incarnation &&
        !cache_.membership().is_dead(notice->host))
        CO_TRY_VOID(co_await cache_.inbox().forget_host(notice->host, notice->incarnation));
    co_return std::string();
}

Task<Result<DeadHosts::Outcome>> DeadHosts::forget(HostId host) {
    if (cache_.fabric()->linked(host)) co_return fail(Errc::busy, 0, "it is connected; stop it first");
    Notice notice{.host = host, .incarnation = cache_.membership().incarnation_of(host)};
    Incarnation newest = notice.incarnation;
    Fabric& fabric = *cache_.fabric();
    for (const HostAnswer& answer :
         co_await call_all(fabric, peers_but(host), CallKind::knows_of_host, pack(notice), host_answers_within)) {
        const std::optional<Notice> theirs = answer.said ? unpack<Notice>(*answer.said) : std::nullopt;
        if (!theirs) continue;
        if (theirs->linked != 0) co_return fail(Errc::busy, 0, "another host is connected with it; stop it first");
        newest = std::max(newest, theirs->incarnation);
    }
    notice.incarnation = newest;
    CO_TRY_VOID(co_await cache_.inbox().forget_host(host, newest));
    Outcome outcome;
    for (const HostAnswer& answer :
         co_await call_all(fabric, peers_but(host), CallKind::host_is_dead, pack(notice), host_answers_within))
        (answer.said ? outcome.told : outcome.not_told).push_back(answer.host);
    co_return outcome;
}

Task<> DeadHosts::tell(Cache& cache, HostId peer, std::string request) {
    if (const auto told = co_await cache.fabric()->call(peer, CallKind::host_is_dead, std::move(request));
        !told && !cache.abandoned())
        log::warning("host {} did not take it that another host is dead: {}", cache.fabric()->name_of(peer),
                     log::describe(told.error()));
}

Task<> DeadHosts::keep_told() {
    Broadcast& changed = cache_.membership().changed();
    HostSet known = 0;  // links that are up and were told
    for (uint64_t seen = changed.count(); !cache_.abandoned(); seen = changed.count()) {
        for (const HostId peer : peers_) {
            const bool linked = cache_.fabric()->linked(peer);
            if (linked && !contains(known, peer)) {
                for (const HostId dead : peers_) {
                    if (dead == peer || !cache_.membership().is_dead(dead)) continue;
                    const Notice notice{.host = dead, .incarnation = cache_.membership().dead_incarnation(dead)};
                    Loop::current()->spawn(tell(cache_, peer, pack(notice)));
                }
            }
            known = linked ? known | set_of(peer) : known & ~set_of(peer);
        }
        co_await changed.next(seen);
    }
}

}  // namespace tarn
