// FlushHolder and FlushRequester: the sides of a flush that are not home.
#include <algorithm>

#include "coherence/protocol/flush.hpp"
#include "utils/assert.hpp"

namespace tarn::protocol {

WaiterToken FlushHolder::on_ask(const Message& ask) {
    asks_.push_back({
        .waiter = ++last_waiter_,
        .home = ask.from,
        .volume = ask.page.volume(),
        .ask_id = ask.request_id,
    });
    return last_waiter_;
}

void FlushHolder::begun(WaiterToken waiter, uint32_t write_back_count, FlushActions& actions) {
    const auto ask = std::ranges::find(asks_, waiter, &Ask::waiter);
    if (ask == asks_.end()) return;
    ask->missing += write_back_count;
    ask->has_begun = true;
    answer_if_complete(waiter, actions);
}

void FlushHolder::on_written(WaiterToken waiter, FlushActions& actions) {
    const auto ask = std::ranges::find(asks_, waiter, &Ask::waiter);
    if (ask == asks_.end()) return;
    --ask->missing;
    answer_if_complete(waiter, actions);
}

void FlushHolder::answer_if_complete(WaiterToken waiter, FlushActions& actions) {
    const auto ask = std::ranges::find(asks_, waiter, &Ask::waiter);
    if (!ask->has_begun || ask->missing != 0) return;
    FlushAction& action = actions.emplace_back();
    action.kind = FlushAction::Kind::send;
    action.to = ask->home;
    action.message.kind = MessageKind::flush_answer;
    action.message.from = self_;
    action.message.page = PageId::of(ask->volume, 0);
    action.message.request_id = ask->ask_id;
    asks_.erase(ask);
}

void FlushHolder::on_peer_up(HostId host) {
    std::erase_if(asks_, [&](const Ask& ask) { return ask.home == host; });
}

FlushRequester::Known& FlushRequester::known_of(VolumeId volume, HostId home) {
    const auto found =
        std::ranges::find_if(known_, [&](const Known& known) { return known.volume == volume && known.home == home; });
    if (found != known_.end()) return *found;
    known_.push_back({.volume = volume, .home = home});
    return known_.back();
}

bool FlushRequester::knows(VolumeId volume, HostId home) const {
    return std::ranges::any_of(
        known_, [&](const Known& known) { return known.volume == volume && known.home == home && known.current != 0; });
}

void FlushRequester::heard(VolumeId volume, HostId home, Verifier verifier) {
    known_of(volume, home).current = verifier;
}

Verifier FlushRequester::wrote(VolumeId volume, HostId home) {
    Known& known = known_of(volume, home);
    ++known.writes;
    if (known.noted == 0) known.noted = known.current;
    known.mixed |= known.noted != known.current;
    return known.current;
}

void FlushRequester::start(VolumeId volume, HostSet homes, WaiterToken waiter, FlushActions& actions) {
    Flush flush;
    flush.request_id = ++last_request_id_;
    flush.volume = volume;
    flush.waiter = waiter;
    flush.unanswered = homes;
    for_each_host(homes, [&](HostId home) {
        const Known& known = known_of(volume, home);
        // Writes under two verifiers: at least one of them is not the present one.
        flush.lost |= known.mixed;
        flush.parts.push_back({.home = home, .noted = known.noted, .known = known.current, .writes = known.writes});
        send(flush, flush.parts.back(), actions);
    });
    flushes_.push_back(std::move(flush));
}

void FlushRequester::send(const Flush& flush, const Part& part, FlushActions& actions) const {
    FlushAction& action = actions.emplace_back();
    action.kind = FlushAction::Kind::send;
    action.to = part.home;
    action.message.kind = MessageKind::flush;
    action.message.from = self_;
    action.message.page = PageId::of(flush.volume, 0);
    action.message.request_id = flush.request_id;
    action.message.hosts = part.noted;
    action.message.tenure = part.known;
}

void FlushRequester::on_message(const Message& message, FlushActions& actions) {
    const auto flush = std::ranges::find(flushes_, message.request_id, &Flush::request_id);
    if (flush == flushes_.end() || !contains(flush->unanswered, message.from)) return;
    flush->unanswered &= ~set_of(message.from);
    flush->lost |= message.has(flag_lost);
    if (!message.has(flag_lost)) {
        const auto part = std::ranges::find(flush->parts, message.from, &Part::home);
        Known& known = known_of(flush->volume, message.from);
        // Later writes are noted for the next flush; they were made under the verifier that has just been confirmed,
        // or under one that wrote() will find mixed.
        if (known.writes == part->writes && !known.mixed) known.noted = 0;
    }
    if (flush->unanswered != 0) return;
    FlushAction& action = actions.emplace_back();
    action.kind = FlushAction::Kind::complete;
    action.volume = flush->volume;
    action.waiter = flush->waiter;
    action.lost = flush->lost;
    flushes_.erase(flush);
}

void FlushRequester::reset(VolumeId volume) {
    for (Known& known : known_) {
        if (known.volume != volume) continue;
        known.noted = 0;
        known.mixed = false;
    }
}

void FlushRequester::on_peer_up(HostId host, FlushActions& actions) {
    for (const Flush& flush : flushes_) {
        if (!contains(flush.unanswered, host)) continue;
        send(flush, *std::ranges::find(flush.parts, host, &Part::home), actions);
    }
}

void FlushRequester::give_up_on(HostId host, FlushActions& actions) {
    std::erase_if(flushes_, [&](const Flush& flush) {
        if (!contains(flush.unanswered, host)) return false;
        FlushAction& action = actions.emplace_back();
        action.kind = FlushAction::Kind::complete;
        action.volume = flush.volume;
        action.waiter = flush.waiter;
        action.lost = true;
        return true;
    });
}

}  // namespace tarn::protocol
