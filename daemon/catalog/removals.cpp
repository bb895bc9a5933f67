#include "daemon/catalog/removals.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "coherence/fabric/call_all.hpp"
#include "utils/log.hpp"
#include "utils/run_on.hpp"
#include "utils/with_timeout.hpp"

namespace tarn {

using nlohmann::json;

namespace {
constexpr std::string_view users_request = "users";
// Who asks for the users waits for them; a host that is slower has none to tell of.
constexpr std::chrono::milliseconds users_timeout{500};
}  // namespace

Task<Result<std::string>> Removals::on_call(std::string request, bool of_registrar) {
    if (!of_registrar && !request.starts_with(users_request))
        co_return fail(Errc::protocol, 0, "catalog: a removal by another than the registrar");
    co_return co_await run_on(*shards_.front(), answer(std::move(request)));
}

Task<Result<std::string>> Removals::answer(std::string request) {
    ++steps_under_way_;
    Result<std::string> answer = co_await take_step(std::move(request));
    --steps_under_way_;
    step_ended_.notify_all();
    co_return answer;
}

Task<Result<std::string>> Removals::take_step(std::string request) {
    const std::string_view rest = request;
    const size_t space = rest.find(' ');
    VolumeId volume = 0;
    if (space == std::string_view::npos) co_return fail(Errc::protocol, 0, "removal.request");
    const std::string_view number = rest.substr(space + 1);
    const std::string_view step = rest.substr(0, space);
    const auto [end, error] = std::from_chars(number.begin(), number.end(), volume);
    if (error != std::errc{} || end != number.end() || volume == 0 || volume > volume_id_max)
        co_return fail(Errc::protocol, 0, "removal.request: volume");
    if (step == users_request) {
        json users = json::array();
        if (clients_)
            for (const std::string& user : co_await clients_->clients_of(volume)) users.push_back(user);
        co_return users.dump(-1, ' ', false, json::error_handler_t::replace);
    }
    if (step == steps[0]) {
        if (clients_) co_await clients_->end_clients_of(volume);
        co_await cache_.uses().none_of(volume);
    } else if (step == steps[1]) {
        CO_TRY_VOID(co_await cache_.volume_end().discard(volume));
    } else if (step == steps[2]) {
        CO_TRY_VOID(co_await cache_.volume_end().erase(volume));
    } else {
        co_return fail(Errc::protocol, 0, "removal.request: unknown");
    }
    co_return std::string();
}

Task<Result<std::string>> Removals::ask(HostId host, std::string request) {
    if (host == cache_.self()) return on_call(std::move(request), true);
    return cache_.fabric()->call(host, CallKind::removal, std::move(request));
}

Task<std::vector<std::string>> Removals::users_of(VolumeId volume) {
    const std::string request = fmt::format("{} {}", users_request, volume);
    std::vector<HostId> others;
    for (HostId host = 0; host < static_cast<HostId>(host_names_.size()); ++host)
        if (host != cache_.self() && cache_.fabric() && cache_.fabric()->answers(host)) others.push_back(host);
    std::vector<HostAnswer> answers;
    if (!others.empty())
        answers = co_await call_all(*cache_.fabric(), std::move(others), CallKind::removal, request, users_timeout);
    Result<std::string> own = co_await with_timeout(users_timeout, on_call(request, true));
    answers.push_back({.host = cache_.self(), .said = std::move(own)});
    std::ranges::sort(answers, {}, &HostAnswer::host);
    std::vector<std::string> users;
    for (const HostAnswer& answer : answers) {
        const json list = answer.said ? json::parse(*answer.said, nullptr, false) : json();
        if (!list.is_array()) continue;
        for (const json& each : list)
            if (each.is_string())
                users.push_back(fmt::format("{} (host {})", each.get<std::string>(), host_names_[answer.host]));
    }
    co_return users;
}

Task<> Removals::ask_until_done(HostId host, std::string_view step, VolumeId volume, bool& failed) {
    for (;;) {
        const uint64_t seen = cache_.membership().changed().count();
        if (cache_.abandoned()) {
            failed = true;
            break;
        }
        if (cache_.membership().is_dead(host)) break;
        const Result<std::string> answer = co_await ask(host, fmt::format("{} {}", step, volume));
        if (answer) break;
        const Errc code = answer.error().code;
        if (code != Errc::unavailable && code != Errc::closed && code != Errc::cancelled) {
            log::warning(
                "catalog: host {} does not {} the deleted volume {}: {}; it is asked again after a restart of "
                "this host",
                host_names_[host], step, volume, log::describe(answer.error()));
            failed = true;
            break;
        }
        if (!cache_.abandoned()) co_await cache_.membership().changed().next(seen);
    }
    const std::lock_guard guard(mutex_);
    pending_[volume].hosts &= ~set_of(host);
}

Task<bool> Removals::perform(VolumeId volume) {
    bool failed = false;
    for (const std::string_view step : steps) {
        Gate gate;
        {
            const std::lock_guard guard(mutex_);
            pending_[volume] = {.step = step, .hosts = cache_.membership().host_set()};
        }
        for (HostId host = 0; host < static_cast<HostId>(host_names_.size()); ++host)
            gate.spawn(ask_until_done(host, step, volume, failed));
        co_await gate.close();
        if (failed) co_return false;
    }
    const std::lock_guard guard(mutex_);
    pending_.erase(volume);
    co_return true;
}

void Removals::explain(Deletion& deletion) const {
    const std::lock_guard guard(mutex_);
    const auto found = pending_.find(deletion.id);
    if (found == pending_.end()) return;
    for (HostId host = 0; host < static_cast<HostId>(host_names_.size()); ++host) {
        if (!contains(found->second.hosts, host)) continue;
        const bool answers = host == cache_.self() || (cache_.fabric() && cache_.fabric()->answers(host));
        if (!answers)
            deletion.silent_hosts.push_back(host_names_[host]);
        else if (found->second.step == steps[0])
            deletion.in_use_on.push_back(host_names_[host]);
    }
}

}  // namespace tarn
