#include "daemon/process/dead_hosts.hpp"

#include <algorithm>
#include <memory>

#include "utils/log.hpp"
#include "utils/run_on.hpp"

namespace tarn {

using namespace std::chrono_literals;

namespace {

constexpr auto answer_within = 5s;

// Both requests, and the answer to the first.
struct Notice {
    HostId host = 0;
    uint8_t linked = 0;
    uint16_t reserved = 0;
    protocol::Incarnation incarnation = 0;
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

// Who is asked, and who waits for the answers; the last of either ends it.
struct DeadHosts::Asking {
    explicit Asking(Loop& loop) : patience(loop) {}
    unsigned missing = 0;
    Timer patience;
    std::vector<std::pair<HostId, Result<std::string>>> answers;
};

Task<> DeadHosts::ask(Fabric& fabric, HostId peer, CallKind kind, std::string request, std::shared_ptr<Asking> asking) {
    Result<std::string> answer = co_await fabric.call(peer, kind, std::move(request));
    asking->answers.emplace_back(peer, std::move(answer));
    if (--asking->missing == 0) asking->patience.cancel();
}

Task<std::vector<Result<std::string>>> DeadHosts::ask_all(HostId but, CallKind kind, std::string request) {
    Loop& loop = *Loop::current();
    const auto asking = std::make_shared<Asking>(loop);
    for (const HostId peer : peers_) {
        if (peer == but || !cache_.fabric()->linked(peer)) continue;
        ++asking->missing;
        loop.spawn(ask(*cache_.fabric(), peer, kind, request, asking));
    }
    if (asking->missing > 0) (void)co_await asking->patience.sleep(answer_within);
    std::vector<Result<std::string>> answers;
    for (const HostId peer : peers_) {
        const auto found = std::ranges::find(asking->answers, peer, [](const auto& each) { return each.first; });
        if (found == asking->answers.end())
            answers.emplace_back(fail(Errc::unavailable));
        else
            answers.push_back(found->second);
    }
    co_return answers;
}

bool DeadHosts::is_another(HostId host, HostId from) const {
    return host != from && std::ranges::find(peers_, host) != peers_.end();
}

Task<Result<std::string>> DeadHosts::tell_what_is_known(HostId from, std::string request) const {
    std::optional<Notice> notice = unpack<Notice>(request);
    if (!notice || !is_another(notice->host, from)) co_return fail(no_other_host);
    notice->linked = cache_.fabric()->linked(notice->host) ? 1 : 0;
    notice->incarnation = cache_.incarnation_of(notice->host);
    co_return pack(*notice);
}

Task<Result<std::string>> DeadHosts::hear_of_death(HostId from, std::string request) {
    const std::optional<Notice> notice = unpack<Notice>(request);
    if (!notice || !is_another(notice->host, from)) co_return fail(no_other_host);
    // What we know to be younger is not meant.
    if (cache_.incarnation_of(notice->host) <= notice->incarnation && !cache_.is_forgotten(notice->host))
        CO_TRY_VOID(co_await cache_.forget_host(notice->host, notice->incarnation));
    co_return std::string();
}

Task<Result<DeadHosts::Outcome>> DeadHosts::forget(HostId host) {
    if (cache_.fabric()->linked(host)) co_return fail(Errc::busy, 0, "it is connected; stop it first");
    Notice notice{.host = host, .incarnation = cache_.incarnation_of(host)};
    protocol::Incarnation newest = notice.incarnation;
    for (const Result<std::string>& answer : co_await ask_all(host, CallKind::knows_of_host, pack(notice))) {
        const std::optional<Notice> theirs = answer ? unpack<Notice>(*answer) : std::nullopt;
        if (!theirs) continue;
        if (theirs->linked != 0) co_return fail(Errc::busy, 0, "another host is connected with it; stop it first");
        newest = std::max(newest, theirs->incarnation);
    }
    notice.incarnation = newest;
    CO_TRY_VOID(co_await cache_.forget_host(host, newest));
    const std::vector<Result<std::string>> answers = co_await ask_all(host, CallKind::host_is_dead, pack(notice));
    Outcome outcome;
    for (size_t i = 0; i < peers_.size(); ++i)
        if (peers_[i] != host) (answers[i] ? outcome.told : outcome.not_told).push_back(peers_[i]);
    co_return outcome;
}

Task<> DeadHosts::tell(Cache& cache, HostId peer, std::string request) {
    if (const auto told = co_await cache.fabric()->call(peer, CallKind::host_is_dead, std::move(request));
        !told && !cache.abandoned())
        log::warning("host {} did not take it that another host is dead: {}", cache.fabric()->name_of(peer),
                     log::describe(told.error()));
}

Task<> DeadHosts::keep_told() {
    Broadcast& changed = cache_.hosts_changed();
    protocol::HostSet known = 0;  // links that are up and were told
    for (uint64_t seen = changed.count(); !cache_.abandoned(); seen = changed.count()) {
        for (const HostId peer : peers_) {
            const bool linked = cache_.fabric()->linked(peer);
            if (linked && !protocol::contains(known, peer)) {
                for (const HostId dead : peers_) {
                    if (dead == peer || !cache_.is_forgotten(dead)) continue;
                    const Notice notice{.host = dead, .incarnation = cache_.forgotten_incarnation(dead)};
                    Loop::current()->spawn(tell(cache_, peer, pack(notice)));
                }
            }
            known = linked ? known | protocol::set_of(peer) : known & ~protocol::set_of(peer);
        }
        co_await changed.next(seen);
    }
}

}  // namespace tarn
