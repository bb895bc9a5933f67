#include "coherence/cache/inbox.hpp"

#include <array>
#include <bitset>
#include <cstring>

#include "coherence/protocol/admission.hpp"
#include "utils/log.hpp"

namespace tarn {

using protocol::Message;
using protocol::MessageKind;

void Inbox::register_calls(CallHandlers& calls) {
    calls.set(CallKind::verifier, [this](HostId, const std::string&) { return tell_verifier(); });
    calls.set(CallKind::settled_verifier, [this](HostId, const std::string&) { return tell_settled_verifier(); });
}

void Inbox::on_link_up(HostId host, Process process) {
    const Membership::Meeting meeting = parts_.membership.begin_meeting(host, process);
    {
        const auto alone = parts_.home_start.hold_off();
        parts_.stripes.for_each([&](Stripes::Turn& turn) {
            turn.result().lost_host = host;
            turn.links().up |= set_of(host);
            ++turn.links().counts[host];
            turn.step(protocol::Event::peer_up_of(host, process, meeting.previous));
        });
    }
    parts_.membership.end_meeting(host, process, meeting);
    parts_.flusher.on_peer_up(host, process, meeting.previous);
    parts_.membership.changed().announce();
}

void Inbox::on_link_down(HostId host) {
    parts_.membership.on_link_down(host);
    parts_.stripes.for_each([&](Stripes::Turn& turn) { turn.links().up &= ~set_of(host); });
    parts_.membership.changed().announce();
}

void Inbox::on_greeted(HostId host) {
    parts_.stripes.step_all(protocol::Event::peer_greeted_of(host));
    parts_.membership.on_reported(host);
    parts_.home_start.go_on();
}

Fabric::Receiver::LinkDecision Inbox::decide_on_link(HostId host, Incarnation incarnation) {
    if (!parts_.membership.is_dead(host)) return LinkDecision::accept;
    if (incarnation <= parts_.membership.dead_incarnation(host)) return LinkDecision::refuse;
    if (parts_.stripes.abandoned()) return LinkDecision::retry;
    // Another process. Its return must be recorded first: after a restart of ours it is waited for again.
    if (parts_.membership.begin_return(host)) Loop::current()->spawn(remember_again(host));
    return LinkDecision::retry;
}

Result<> Inbox::accepts_memory(HostId of, const StoreStanding& of_us) {
    const Result<> good = parts_.store.has_come_as_far_as(of_us);
    if (good) return good;
    const StoreStanding now = parts_.store.standing();
    log::error(
        "store: host {} remembers home epoch {} with the journal at {}; here it is {} at {}: {}. It was copied back or "
        "made anew, and serves nothing",
        Fabric::name_of(parts_.peers.fabric(), of), of_us.epoch, of_us.position, now.epoch, now.position,
        good.error().where);
    if (!parts_.stripes.abandoned()) Loop::current()->spawn(end_as_older(of_us));
    return good;
}

// Recorded so that the next start is refused at once, whether or not that host can be reached then.
Task<> Inbox::end_as_older(StoreStanding remembered) {
    if (const Result<> noted = co_await parts_.store.set_outdone(*Loop::current(), remembered); !noted)
        log::error("store: that it is older could not be recorded: {}; the next start has to be told by a host again",
                   log::describe(noted.error()));
    if (older_handler_) older_handler_();
}

void Inbox::on_standing(HostId host, const StoreStanding& standing) {
    if (!parts_.stripes.abandoned()) Loop::current()->spawn(remember_standing(host, standing));
}

Task<> Inbox::remember_standing(HostId host, StoreStanding standing) {
    if (const Result<> remembered = co_await parts_.store.set_heard(*Loop::current(), host, standing);
        !remembered && !parts_.stripes.abandoned() && !parts_.store.failed())
        log::warning(
            "store: how far the store of host {} has come could not be recorded: {}; an old copy of it may be accepted",
            Fabric::name_of(parts_.peers.fabric(), host), log::describe(remembered.error()));
}

Task<> Inbox::remember_again(HostId host) {
    if (const Result<> remembered = co_await parts_.membership.declare_alive(host); !remembered)
        log::error("store: that host {} is back could not be recorded: {}; after a restart it counts as dead",
                   Fabric::name_of(parts_.peers.fabric(), host), log::describe(remembered.error()));
}

Task<Result<>> Inbox::forget_host(HostId host, Incarnation incarnation) {
    if (parts_.peers.fabric()->linked(host)) co_return fail(Errc::busy, EBUSY, "host: it is connected; stop it first");
    CO_TRY(const std::optional<Recovery::Moment> lost, co_await parts_.membership.declare_dead(host, incarnation));
    if (parts_.peers.fabric()->linked(host)) {  // it came back meanwhile
        parts_.membership.on_returned(host);
        if (lost) parts_.membership.end_unrecorded_losses(*lost);
        CO_TRY_VOID(co_await parts_.membership.declare_alive(host));
        co_return fail(Errc::busy, EBUSY, "host: it is connected; stop it first");
    }
    if (!lost) co_return Result<>{};
    log::warning("host {} (incarnation {}) was declared dead: what only it had is lost",
                 parts_.peers.fabric()->name_of(host), incarnation);
    {
        const auto alone = parts_.home_start.hold_off();
        parts_.stripes.step_all(protocol::Event::host_forgotten_of(host), host);
    }
    parts_.membership.forget_meeting(host);
    if (!parts_.membership.recovering()) parts_.membership.end_unrecorded_losses(*lost);
    parts_.flusher.on_host_forgotten(host);
    parts_.home_start.go_on();
    parts_.membership.changed().announce();
    co_return Result<>{};
}

// This host's list of volumes may be older than the message, so an unknown volume is looked up in the catalog, which is
// coherent. The next id may be in use before the catalog says so: a volume is complete before it has a name.
void Inbox::check_volume(HostId peer, VolumeId volume) {
    if (volume < next_volume_id_.load(std::memory_order_relaxed) || volume == 0 || !ask_next_volume_id_) return;
    if (parts_.stripes.abandoned()) return;  // the loop takes no new tasks any more
    if (!contains(under_suspicion_.fetch_or(set_of(peer)), peer)) Loop::current()->spawn(verify_volume(peer, volume));
}

Task<> Inbox::verify_volume(HostId peer, VolumeId volume) {
    const Result<VolumeId> next = co_await ask_next_volume_id_();
    under_suspicion_ &= ~set_of(peer);
    if (!next || parts_.stripes.abandoned()) co_return;
    next_volume_id_.store(*next, std::memory_order_relaxed);
    if (volume <= *next) co_return;
    log::error("fabric: closed the link with host {}: message.page: no such volume ({})",
               parts_.peers.fabric()->name_of(peer), volume);
    parts_.peers.fabric()->disconnect(peer);
    // Pages and space that the peer may have taken there belong to nobody.
    parts_.stripes.step_all(protocol::Event::volume_unknown_of(volume));
    if (const Result<> dropped = co_await parts_.store.drop_volume(*Loop::current(), volume); !dropped)
        log::error("store: volume {}, which is not in the catalog, could not be dropped: {}; its space stays taken",
                   volume, log::describe(dropped.error()));
}

// The reads that they need from the store go to it together: neighbours of a scan in one operation.
void Inbox::on_batch(std::span<const PageId> pages, Batch& batch) {
    if (pages.size() > 1) parts_.stripes.prefetch(pages, std::array{&parts_.pages.index(), &parts_.home.index()});
    const Stripes::ReadBatch reads(parts_.stripes);
    batch.deliver();
}

Result<> Inbox::on_message(const Message& message, std::byte* page) {
    if (parts_.membership.is_dead(message.from)) {
        if (page) return_page(page);
        return fail(Errc::refused, 0, "message.from: declared dead");
    }
    const RangeMap& ranges = parts_.membership.ranges();
    const HostId home = ranges.home_of(message.page);
    const protocol::Link link{.self = parts_.membership.self(),
                              .peer = message.from,
                              .process = parts_.membership.process_of(message.from),
                              .hosts = parts_.membership.host_set(),
                              .view_epoch = parts_.membership.view_epoch(),
                              .map_epoch = ranges.epoch()};
    const bool is_data = message.page.number() != page_number_mask;
    const Result<> admitted =
        protocol::admit(message, link, home, is_data ? volume_size_max / page_size : protocol::any_page);
    if (!admitted) {
        if (page) return_page(page);
        return admitted;
    }
    check_volume(message.from, message.page.volume());
    if (protocol::is_from_home(message.kind))
        parts_.flusher.heard(message.from, protocol::verifier_of(link.process.first_intact(), message.loss_generation));
    if (protocol::is_about_flush(message.kind)) {
        if (!parts_.flusher.accepts(message)) return fail(Errc::protocol, 0, "flush: too many at once");
        parts_.flusher.on_message(message);
        return {};
    }
    FrameId frame = no_frame;
    if (page) {
        frame = parts_.pool.id_of(page);
        const bool zeros = message.has(protocol::flag_zero);
        const bool lost = message.has(protocol::flag_lost);
        if (zeros) std::memset(page, 0, page_size);
        parts_.pool.frame(frame).zeroed.store(zeros && !lost, std::memory_order_relaxed);
        parts_.pool.frame(frame).broken.store(lost, std::memory_order_relaxed);
    }
    static_assert(protocol::run_pages_max == 1 << FrameIndex::block_bits, "a run is of one stripe");
    std::bitset<protocol::run_pages_max> no_space;
    const bool asks_to_write =
        message.kind == MessageKind::get_exclusive || message.kind == MessageKind::get_exclusive_no_read;
    const bool store_failed = (asks_to_write || message.kind == MessageKind::evict ||
                               message.kind == MessageKind::write_back || message.kind == MessageKind::home_copy) &&
                              parts_.membership.refuses_writes_of(message.page);
    // A flush under way may be waiting for bytes that are refused here, whoever noticed the failure.
    if (store_failed && home == parts_.membership.self()) parts_.flusher.check_store_failure();
    // The protocol keeps the page in any case: this only tells for how long.
    if ((message.kind == MessageKind::no_space || message.kind == MessageKind::refused) &&
        message.has(protocol::flag_lost)) {
        parts_.membership.on_store_failed(message.from);
        parts_.writable_share.let_in_all(message.from);
    }
    Stripes::Turn turn(parts_.stripes, message.page);
    turn.result().of_message = true;
    if (asks_to_write && !store_failed)  // under the latch: HomeWriter takes the space of pages that nobody may write
        for (uint32_t i = 0; i <= message.run; ++i)
            no_space[i] = !parts_.store.reserve(protocol::part_of(message, i).page).has_value();
    bool stepped = false;
    for (uint32_t i = 0; i <= message.run; ++i) {
        protocol::Event event = protocol::Event::message_of(protocol::part_of(message, i), frame);
        event.no_space = no_space[i];
        event.store_failed = store_failed;
        if (message.kind == MessageKind::hello) {
            parts_.home.tell(event);
            // Its writes must find room, as the previous process promised.
            if (parts_.membership.recovering() && message.has(protocol::flag_exclusive))
                (void)parts_.store.reserve(message.page);
        }
        event.wants_copy = parts_.home.wants_copy(event.message);
        if (event.wants_copy && frame != no_frame)
            parts_.pages.replacement().set_age(parts_.pool.frame(frame), static_cast<uint32_t>(message.hosts));
        stepped |= turn.step(event);
    }
    // Not parts_.stripes.abandoned(), which may have become true since: then the protocol has the frame.
    if (!stepped && frame != no_frame) turn.result().frames_freed |= parts_.held_frames.release(frame);
    turn.end();
    if (!turn.result().refused.empty()) return fail(Errc::protocol, 0, turn.result().refused);
    return {};
}

// Answers with this home's verifier, once it has recovered.
Task<Result<std::string>> Inbox::tell_verifier() {
    CO_TRY_VOID(co_await parts_.home_start.ended());
    co_return pack(parts_.verifiers.own());
}

// Answers at once: with an error while the home recovers, or may be about to discover a loss.
Task<Result<std::string>> Inbox::tell_settled_verifier() {
    if (!parts_.membership.is_settled()) co_return fail(Errc::unavailable, 0, "cache.call: a loss may be found out");
    co_return co_await tell_verifier();
}

}  // namespace tarn
