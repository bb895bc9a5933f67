// Links to other hosts, and what comes over them.
#include <algorithm>
#include <bitset>
#include <cstring>

#include "coherence/cache/cache.hpp"
#include "coherence/cache/flusher.hpp"
#include "coherence/protocol/admission.hpp"
#include "utils/clock.hpp"
#include "utils/log.hpp"

namespace tarn {

using protocol::Incarnation;
using protocol::Message;
using protocol::MessageKind;
using protocol::Process;

void Cache::on_link_up(HostId host, Process process) {
    const Process previous = membership_.begin_meeting(host, process);
    stripes_.for_each([&](Stripes::Turn& turn) {
        turn.result().lost_host = host;
        turn.links().up |= protocol::set_of(host);
        ++turn.links().counts[host];
        turn.step(protocol::Event::peer_up_of(host, process, previous));
    });
    membership_.end_meeting(host, process, previous);
    flusher_->on_peer_up(host, process, previous);
    membership_.changed().announce();
}

void Cache::on_link_down(HostId host) {
    membership_.on_link_down(host);
    stripes_.for_each([&](Stripes::Turn& turn) { turn.links().up &= ~protocol::set_of(host); });
    membership_.changed().announce();
}

void Cache::on_greeted(HostId host) {
    membership_.on_reported(host);
    recover_if_all_have_reported();
}

void Cache::recover_if_all_have_reported() {
    if (abandoned()) return;  // the loop takes no new tasks any more
    for (;;) {
        const Recovery::Moment moment = membership_.moment();
        const bool all_marked = membership_.is_alone() || !marker_.lacks_any(pages_to_mark());
        switch (membership_.next(moment, all_marked)) {
            case Recovery::Next::wait: return;
            case Recovery::Next::look_again: continue;
            case Recovery::Next::record: return Loop::current()->spawn(record_and_recover());
            case Recovery::Next::serve: return recover();
        }
    }
}

void Cache::recover() {
    protocol::Event recovered;
    recovered.kind = protocol::Event::Kind::recovered;
    recovered.has_memory = membership_.has_memory();
    std::vector<protocol::LossRange> on_record;
    for (const Loss& loss : store_.losses())
        on_record.push_back({.first = loss.first, .last = loss.last, .generation = loss.generation});
    losses_before_ = protocol::LossRanges(on_record);
    recovered.losses = &losses_before_;
    stripes_.step_all(recovered);
    flusher_->on_recovered();
    membership_.changed().announce();
}

Fabric::Receiver::LinkDecision Cache::decide_on_link(HostId host, Incarnation incarnation) {
    if (!membership_.is_dead(host)) return LinkDecision::accept;
    if (incarnation <= membership_.dead_incarnation(host)) return LinkDecision::refuse;
    if (abandoned()) return LinkDecision::retry;
    // Another process. That it is back must be remembered first: after a restart of ours it is waited for again.
    if (membership_.begin_return(host)) Loop::current()->spawn(remember_again(host));
    return LinkDecision::retry;
}

Result<> Cache::accepts_memory(HostId of, const StoreStanding& of_us) {
    const Result<> good = store_.has_come_as_far_as(of_us);
    if (good) return good;
    const StoreStanding now = store_.standing();
    log::error(
        "store: host {} remembers home epoch {} with the journal at {}; here it is {} at {}: {}. It was copied back or "
        "made anew, and serves nothing",
        Fabric::name_of(fabric(), of), of_us.epoch, of_us.position, now.epoch, now.position, good.error().where);
    if (!abandoned()) Loop::current()->spawn(end_as_older(of_us));
    return good;
}

// The next start is refused at once, whether or not that host can be reached then.
Task<> Cache::end_as_older(StoreStanding remembered) {
    if (const Result<> noted = co_await store_.set_outdone(*Loop::current(), remembered); !noted)
        log::error("store: that it is older could not be recorded: {}; the next start has to be told by a host again",
                   log::describe(noted.error()));
    if (older_handler_) older_handler_(older_context_);
}

void Cache::on_standing(HostId host, const StoreStanding& standing) {
    if (!abandoned()) Loop::current()->spawn(remember_standing(host, standing));
}

Task<> Cache::remember_standing(HostId host, StoreStanding standing) {
    if (const Result<> remembered = co_await store_.set_heard(*Loop::current(), host, standing);
        !remembered && !abandoned() && !store_.failed())
        log::warning(
            "store: how far the store of host {} has come could not be recorded: {}; an old copy of it may be accepted",
            Fabric::name_of(fabric(), host), log::describe(remembered.error()));
}

Task<> Cache::remember_again(HostId host) {
    if (const Result<> remembered = co_await membership_.declare_alive(host); !remembered)
        log::error("store: that host {} is back could not be recorded: {}; after a restart it counts as dead",
                   Fabric::name_of(fabric(), host), log::describe(remembered.error()));
}

Task<Result<>> Cache::forget_host(HostId host, Incarnation incarnation) {
    const bool is_news = !membership_.is_dead(host);
    if (fabric()->linked(host)) co_return fail(Errc::busy, EBUSY, "host: it is connected; stop it first");
    CO_TRY_VOID(co_await membership_.declare_dead(host, incarnation));
    if (fabric()->linked(host)) {  // it came back meanwhile
        membership_.on_returned(host);
        CO_TRY_VOID(co_await membership_.declare_alive(host));
        co_return fail(Errc::busy, EBUSY, "host: it is connected; stop it first");
    }
    if (!is_news) co_return Result<>{};
    log::warning("host {} (incarnation {}) was declared dead: what only it had is lost", fabric()->name_of(host),
                 incarnation);
    membership_.begin_unrecorded_losses();
    stripes_.step_all(protocol::Event::host_forgotten_of(host), host);
    membership_.forget_meeting(host);
    if (!membership_.recovering()) membership_.end_unrecorded_losses();
    flusher_->on_host_forgotten(host);
    recover_if_all_have_reported();
    membership_.changed().announce();
    co_return Result<>{};
}

// What this host knows of volumes may be older than the message, so a name that is new is looked up in the catalog,
// which is coherent. The next id may be in use before the catalog says so: a volume is whole before it has a name.
void Cache::check_volume(HostId peer, VolumeId volume) {
    if (volume < next_volume_id_.load(std::memory_order_relaxed) || volume == 0 || !ask_next_volume_id_) return;
    if (abandoned()) return;  // the loop takes no new tasks any more
    if (!protocol::contains(under_suspicion_.fetch_or(protocol::set_of(peer)), peer))
        Loop::current()->spawn(verify_volume(peer, volume));
}

Task<> Cache::verify_volume(HostId peer, VolumeId volume) {
    const Result<VolumeId> next = co_await ask_next_volume_id_(next_volume_id_context_);
    under_suspicion_ &= ~protocol::set_of(peer);
    if (!next || abandoned()) co_return;
    next_volume_id_.store(*next, std::memory_order_relaxed);
    if (volume <= *next) co_return;
    log::error("fabric: closed the link with host {}: message.page: no such volume ({})", fabric()->name_of(peer),
               volume);
    fabric()->disconnect(peer);
    // What it may have taken there is nobody's: neither pages nor space.
    stripes_.step_all(protocol::Event::volume_unknown_of(volume));
    if (const Result<> dropped = co_await store_.drop_volume(*Loop::current(), volume); !dropped)
        log::error("store: volume {}, which is not in the catalog, could not be dropped: {}; its space stays taken",
                   volume, log::describe(dropped.error()));
}

// What they ask of the store goes to it together: neighbours of a scan in one operation.
void Cache::on_batch(std::span<const PageId> pages, Batch& batch) {
    if (pages.size() > 1) prefetch(pages);
    const Stripes::ReadBatch reads(stripes_);
    batch.deliver();
}

Result<> Cache::on_message(const Message& message, std::byte* page) {
    if (membership_.is_dead(message.from)) {
        if (page) return_page(page);
        return fail(Errc::refused, 0, "message.from: declared dead");
    }
    const HostId home = home_of(message.page);
    const protocol::Link link{.self = self(),
                              .peer = message.from,
                              .process = membership_.process_of(message.from),
                              .hosts = membership_.host_set(),
                              .view_epoch = Membership::view_epoch,
                              .map_epoch = membership_.ranges().epoch()};
    const bool is_data = message.page.number() != page_number_mask;
    const Result<> admitted =
        protocol::admit(message, link, home, is_data ? volume_size_max / page_size : protocol::any_page);
    if (!admitted) {
        if (page) return_page(page);
        return admitted;
    }
    check_volume(message.from, message.page.volume());
    if (protocol::is_from_home(message.kind))
        flusher_->heard(message.from, protocol::verifier_of(message.incarnation, message.loss_generation));
    if (protocol::is_about_flush(message.kind)) {
        if (!flusher_->accepts(message)) return fail(Errc::protocol, 0, "flush: too many at once");
        flusher_->on_message(message);
        return {};
    }
    FrameId frame = no_frame;
    if (page) {
        frame = pool_->id_of(page);
        const bool zeros = message.has(protocol::flag_zero);
        const bool lost = message.has(protocol::flag_lost);
        if (zeros) std::memset(page, 0, page_size);
        pool_->frame(frame).zeroed.store(zeros && !lost, std::memory_order_relaxed);
        pool_->frame(frame).broken.store(lost, std::memory_order_relaxed);
    }
    static_assert(protocol::run_pages_max == 1 << FrameIndex::block_bits, "a run is of one stripe");
    std::bitset<protocol::run_pages_max> no_space;
    const bool asks_to_write =
        message.kind == MessageKind::get_exclusive || message.kind == MessageKind::get_exclusive_no_read;
    const bool store_failed = (asks_to_write || message.kind == MessageKind::evict ||
                               message.kind == MessageKind::write_back || message.kind == MessageKind::home_copy) &&
                              membership_.refuses_writes_of(message.page);
    // What is refused here, a flush under way may be waiting for, whoever noticed the failure.
    if (store_failed && home == self()) heed_store_failure();
    // Of no use to the protocol, which keeps the page: only how long to keep it.
    if ((message.kind == MessageKind::no_space || message.kind == MessageKind::refused) &&
        message.has(protocol::flag_lost)) {
        membership_.on_store_failed(message.from);
        writable_share_.let_in_all(message.from);
    }
    if (asks_to_write && !store_failed)
        for (uint32_t i = 0; i <= message.run; ++i)
            no_space[i] = !store_.reserve(protocol::part_of(message, i).page).has_value();
    Stripes::Turn turn(stripes_, message.page);
    turn.result().of_message = true;
    bool stepped = false;
    for (uint32_t i = 0; i <= message.run; ++i) {
        protocol::Event event = protocol::Event::message_of(protocol::part_of(message, i), frame);
        event.no_space = no_space[i];
        event.store_failed = store_failed;
        if (message.kind == MessageKind::hello) {
            say_what_home_has(event);
            // What it writes must find room, as it was promised to the process before.
            if (membership_.recovering() && message.has(protocol::flag_exclusive)) (void)store_.reserve(message.page);
        }
        event.wants_copy = wants_copy(event.message);
        if (event.wants_copy && frame != no_frame)
            pages_.replacement().set_age(pool_->frame(frame), static_cast<uint32_t>(message.hosts));
        stepped |= turn.step(event);
    }
    // Not by abandoned(), which may have come true since: the protocol has the frame then.
    if (!stepped && frame != no_frame) turn.result().frames_freed |= held_frames_.release(frame);
    turn.end();
    if (!turn.result().refused.empty()) return fail(Errc::protocol, 0, turn.result().refused);
    return {};
}

void Cache::heed_store_failure() {
    if (store_.failed() && !store_failure_told_.exchange(true)) flusher_->on_store_failed();
}

Task<Result<>> Cache::recovered() {
    Broadcast& changed = membership_.changed();
    for (uint64_t seen = changed.count(); membership_.recovering(); seen = changed.count()) {
        if (abandoned()) co_return fail(Errc::unavailable, 0, "cache: stopping");
        co_await changed.next(seen);
    }
    co_return Result<>{};
}

void Cache::set_fabric(Fabric& fabric) {
    peers_.set_fabric(fabric);
    CallHandlers& calls = fabric.calls();
    calls.set(CallKind::verifier, [this](HostId, const std::string&) { return tell_verifier(); });
    calls.set(CallKind::settled_verifier, [this](HostId, const std::string&) { return tell_settled_verifier(); });
}

// Of this home, once it has recovered.
Task<Result<std::string>> Cache::tell_verifier() {
    CO_TRY_VOID(co_await recovered());
    co_return pack(flusher_->own_verifier());
}

// At once: an error while it recovers, or a loss may be about to be found out.
Task<Result<std::string>> Cache::tell_settled_verifier() {
    if (!membership_.is_settled()) co_return fail(Errc::unavailable, 0, "cache.call: a loss may be found out");
    co_return co_await tell_verifier();
}

}  // namespace tarn
