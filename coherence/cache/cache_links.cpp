// Links to other hosts, and what comes over them.
#include <algorithm>
#include <bitset>
#include <cstring>

#include "coherence/cache/cache.hpp"
#include "coherence/cache/extents.hpp"
#include "coherence/cache/flusher.hpp"
#include "coherence/cache/home_read_batch.hpp"
#include "coherence/cache/page_provider.hpp"
#include "coherence/protocol/admission.hpp"
#include "coherence/protocol/coalescing.hpp"
#include "coherence/volume.hpp"
#include "utils/clock.hpp"
#include "utils/log.hpp"

namespace tarn {

using protocol::Incarnation;
using protocol::Message;
using protocol::MessageKind;
using protocol::Process;

void Cache::on_link_up(HostId host, Process process) {
    Process previous;
    bool may_lose = false;
    {
        const std::lock_guard guard(links_lock_);
        previous = std::exchange(met_[host], process);
        may_lose = previous.incarnation != 0 && previous.incarnation != process.incarnation;
        // What it reported over an earlier link is forgotten.
        if (recovering()) greeted_ &= ~protocol::set_of(host);
        ++reports_;
    }
    if (may_lose) begin_doubt();
    for (const auto& slot : stripes_) {
        Deferred deferred{.lost_host = host};
        {
            const std::lock_guard guard(slot->latch);
            slot->linked |= protocol::set_of(host);
            ++slot->link_counts[host];
            step_latched(*slot, protocol::Event::peer_up_of(host, process, previous), deferred);
        }
        finish(deferred);
    }
    if (process.epoch != previous.epoch) failed_stores_ &= ~protocol::set_of(host);  // another process, another try
    // Not before every stripe has heard of it: until then the next process must hear of it, too.
    remember_met(host, process);
    {
        const std::lock_guard guard(links_lock_);
        met_now_ |= protocol::set_of(host);
    }
    if (may_lose && !recovering()) end_doubt();
    changed_at_ns_.store(monotonic_ns(), std::memory_order_relaxed);
    flusher_->on_peer_up(host, process, previous);
    hosts_changed_.announce();
}

bool Cache::has_just_changed() const {
    constexpr uint64_t while_ns = 5'000'000'000;
    return monotonic_ns() - changed_at_ns_.load(std::memory_order_relaxed) < while_ns;
}

bool Cache::is_settled() const {
    const std::lock_guard guard(links_lock_);
    const protocol::HostSet accounted = met_now_ | forgotten_.load() | protocol::set_of(self_);
    return !recovering() && doubts_ == 0 && (hosts_.size() == 1 || (host_set_ & ~accounted) == 0);
}

Process Cache::process_of(HostId host) {
    if (host == self_) return process_;
    const std::lock_guard guard(links_lock_);
    return met_[host];
}

void Cache::on_link_down(HostId host) {
    {
        const std::lock_guard guard(links_lock_);
        met_now_ &= ~protocol::set_of(host);
    }
    for (const auto& slot : stripes_) {
        const std::lock_guard guard(slot->latch);
        slot->linked &= ~protocol::set_of(host);
    }
    changed_at_ns_.store(monotonic_ns(), std::memory_order_relaxed);
    hosts_changed_.announce();
}

void Cache::on_greeted(HostId host) {
    {
        const std::lock_guard guard(links_lock_);
        greeted_ |= protocol::set_of(host);
    }
    recover_if_all_are_accounted_for();
}

// Every other host has told what it holds of the pages homed here, or was declared dead.
void Cache::recover_if_all_are_accounted_for() {
    for (;;) {
        uint64_t reports = 0;
        {
            const std::lock_guard guard(links_lock_);
            if (!all_are_accounted_for()) return;
            reports = reports_;
        }
        const bool lacks_marks = hosts_.size() > 1 && marker_.lacks_any(pages_to_mark());
        const std::lock_guard guard(links_lock_);
        if (!all_are_accounted_for()) return;
        if (reports != reports_) continue;
        if (is_in_doubt() || lacks_marks) {
            if (!std::exchange(recording_doubts_, true)) Loop::current()->spawn(recover_in_doubt());
            return;
        }
        recovering_.store(false, std::memory_order_relaxed);
        break;
    }
    recover();
}

// Under links_lock_.
bool Cache::all_are_accounted_for() const {
    const protocol::HostSet known = greeted_ | forgotten_.load() | protocol::set_of(self_);
    const bool all = std::ranges::all_of(hosts_, [&](HostId each) { return protocol::contains(known, each); });
    return all && recovering_.load(std::memory_order_relaxed);
}

void Cache::recover() {
    protocol::Event recovered;
    recovered.kind = protocol::Event::Kind::recovered;
    recovered.has_memory = process_.incarnation != process_.epoch && !doubts_are_recorded_;
    std::vector<protocol::LossRange> on_record;
    for (const Loss& loss : store_.losses())
        on_record.push_back({.first = loss.first, .last = loss.last, .generation = loss.generation});
    losses_before_ = protocol::LossRanges(on_record);
    recovered.losses = &losses_before_;
    step_all(recovered, no_host);
    flusher_->on_recovered();
    hosts_changed_.announce();
}

void Cache::step_all(const protocol::Event& event, HostId lost_host) {
    for (const auto& slot : stripes_) {
        Deferred deferred{.lost_host = lost_host};
        {
            const std::lock_guard guard(slot->latch);
            step_latched(*slot, event, deferred);
        }
        finish(deferred);
    }
    if (discarding_.load(std::memory_order_relaxed) != 0) count_discard_steps(pool_->frame_count());  // any page's
}

Fabric::Receiver::LinkDecision Cache::decide_on_link(HostId host, Incarnation incarnation) {
    if (!is_forgotten(host)) return LinkDecision::accept;
    if (incarnation <= forgotten_incarnation(host)) return LinkDecision::refuse;
    if (abandoned()) return LinkDecision::retry;
    // Another process. That it is back must be remembered first: after a restart of ours it is waited for again.
    if (!protocol::contains(returning_.fetch_or(protocol::set_of(host)), host))
        Loop::current()->spawn(remember_again(host));
    return LinkDecision::retry;
}

Result<> Cache::accepts_memory(HostId of, const StoreStanding& of_us) {
    const Result<> good = store_.has_come_as_far_as(of_us);
    if (good) return good;
    const StoreStanding now = store_.standing();
    log::error(
        "store: host {} remembers home epoch {} with the journal at {}; here it is {} at {}: {}. It was copied back or "
        "made anew, and serves nothing",
        Fabric::name_of(fabric_, of), of_us.epoch, of_us.position, now.epoch, now.position, good.error().where);
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
            Fabric::name_of(fabric_, host), log::describe(remembered.error()));
}

Task<> Cache::remember_again(HostId host) {
    const Result<> remembered = co_await store_.set_forgotten(*Loop::current(), host, 0);
    if (remembered)
        forgotten_ &= ~protocol::set_of(host);
    else
        log::error("store: that host {} is back could not be recorded: {}; after a restart it counts as dead",
                   Fabric::name_of(fabric_, host), log::describe(remembered.error()));
    returning_ &= ~protocol::set_of(host);
}

Task<Result<>> Cache::forget_host(HostId host, Incarnation incarnation) {
    const bool is_news = !is_forgotten(host);
    if (fabric_->linked(host)) co_return fail(Errc::busy, EBUSY, "host: it is connected; stop it first");
    CO_TRY_VOID(co_await store_.set_forgotten(*Loop::current(), host, incarnation + 1));
    forgotten_ |= protocol::set_of(host);
    if (fabric_->linked(host)) {  // it came back meanwhile
        forgotten_ &= ~protocol::set_of(host);
        CO_TRY_VOID(co_await store_.set_forgotten(*Loop::current(), host, 0));
        co_return fail(Errc::busy, EBUSY, "host: it is connected; stop it first");
    }
    if (!is_news) co_return Result<>{};
    log::warning("host {} (incarnation {}) was declared dead: what only it had is lost", fabric_->name_of(host),
                 incarnation);
    begin_doubt();
    step_all(protocol::Event::host_forgotten_of(host), host);
    remember_met(host, {});
    if (!recovering()) end_doubt();
    flusher_->on_host_forgotten(host);
    recover_if_all_are_accounted_for();
    hosts_changed_.announce();
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
    log::error("fabric: closed the link with host {}: message.page: no such volume ({})", fabric_->name_of(peer),
               volume);
    fabric_->disconnect(peer);
    // What it may have taken there is nobody's: neither pages nor space.
    step_all(protocol::Event::volume_unknown_of(volume), no_host);
    if (const Result<> dropped = co_await store_.drop_volume(*Loop::current(), volume); !dropped)
        log::error("store: volume {}, which is not in the catalog, could not be dropped: {}; its space stays taken",
                   volume, log::describe(dropped.error()));
}

std::byte* Cache::lend_page(HostId from) {
    const size_t leave = any_store_failed() ? 0 : lending_reserve_count();
    FrameId frame = pool_->try_take(use_holder, leave);
    if (frame == no_frame) {
        starved_links_.fetch_or(protocol::set_of(from), std::memory_order_seq_cst);
        frame = pool_->try_take(use_holder, leave);  // one may have come free before we said so
    }
    if (pool_->free_count() < provider_->low_mark()) provider_->kick();
    return frame == no_frame ? nullptr : pool_->bytes(frame);
}

void Cache::return_page(std::byte* page) {
    give_frame(pool_->id_of(page));
}

// What they ask of the store goes to it together: neighbours of a scan in one operation.
void Cache::on_batch(std::span<const PageId> pages, Batch& batch) {
    if (pages.size() > 1) prefetch(pages);
    const HomeReadBatch reads(*this);
    batch.deliver();
}

Result<> Cache::on_message(const Message& message, std::byte* page) {
    if (is_forgotten(message.from)) {
        if (page) return_page(page);
        return fail(Errc::refused, 0, "message.from: declared dead");
    }
    const HostId home = home_of(message.page);
    const protocol::Link link{.self = self_,
                              .peer = message.from,
                              .process = process_of(message.from),
                              .hosts = host_set_,
                              .view_epoch = view_epoch,
                              .map_epoch = ranges_.epoch()};
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
                              refuses_writes_of(message.page);
    // What is refused here, a flush under way may be waiting for, whoever noticed the failure.
    if (store_failed && home == self_) heed_store_failure();
    // Of no use to the protocol, which keeps the page: only how long to keep it.
    if ((message.kind == MessageKind::no_space || message.kind == MessageKind::refused) &&
        message.has(protocol::flag_lost)) {
        failed_stores_ |= protocol::set_of(message.from);
        writable_share_.let_in_all(message.from);
    }
    if (asks_to_write && !store_failed)
        for (uint32_t i = 0; i <= message.run; ++i)
            no_space[i] = !store_.reserve(protocol::part_of(message, i).page).has_value();
    Deferred deferred;
    deferred.of_message = true;
    {
        StripeSlot& slot = slot_of(message.page);
        const std::lock_guard guard(slot.latch);
        bool stepped = false;
        for (uint32_t i = 0; i <= message.run; ++i) {
            protocol::Event event = protocol::Event::message_of(protocol::part_of(message, i), frame);
            event.no_space = no_space[i];
            event.store_failed = store_failed;
            if (message.kind == MessageKind::hello) {
                say_what_home_has(event);
                // What it writes must find room, as it was promised to the process before.
                if (recovering() && message.has(protocol::flag_exclusive)) (void)store_.reserve(message.page);
            }
            event.wants_copy = wants_copy(event.message);
            if (event.wants_copy && frame != no_frame)
                replacement_.set_age(pool_->frame(frame), static_cast<uint32_t>(message.hosts));
            stepped |= step_latched(slot, event, deferred);
        }
        // Not by abandoned(), which may have come true since: the protocol has the frame then.
        if (!stepped && frame != no_frame) release(frame, use_holder, deferred);
    }
    finish(deferred);
    if (!deferred.refused.empty()) return fail(Errc::protocol, 0, deferred.refused);
    return {};
}

void Cache::heed_store_failure() {
    if (store_.failed() && !store_failure_told_.exchange(true)) flusher_->on_store_failed();
}

Task<Result<>> Cache::recovered() {
    for (uint64_t seen = hosts_changed_.count(); recovering(); seen = hosts_changed_.count()) {
        if (abandoned()) co_return fail(Errc::unavailable, 0, "cache: stopping");
        co_await hosts_changed_.next(seen);
    }
    co_return Result<>{};
}

void Cache::set_fabric(Fabric& fabric) {
    fabric_ = &fabric;
    CallHandlers& calls = fabric.calls();
    calls.set(CallKind::verifier, [this](HostId, const std::string&) { return tell_verifier(); });
    calls.set(CallKind::settled_verifier, [this](HostId, const std::string&) { return tell_settled_verifier(); });
    calls.set(CallKind::stored_runs,
              [this](HostId, std::string request) { return tell_stored_runs(std::move(request)); });
    calls.set(CallKind::zeroing_over,
              [this](HostId, std::string request) { return tell_zeroing_over(std::move(request)); });
}

// Of this home, once it has recovered.
Task<Result<std::string>> Cache::tell_verifier() {
    CO_TRY_VOID(co_await recovered());
    co_return pack(flusher_->own_verifier());
}

// At once: an error while it recovers, or a loss may be about to be found out.
Task<Result<std::string>> Cache::tell_settled_verifier() {
    if (!is_settled()) co_return fail(Errc::unavailable, 0, "cache.call: a loss may be found out");
    co_return co_await tell_verifier();
}

Task<Result<std::string>> Cache::tell_stored_runs(std::string request) {
    CO_TRY_VOID(co_await recovered());
    co_return answer_stored_runs(*this, request);
}

// Once this host zeroes nothing of the volume.
Task<Result<std::string>> Cache::tell_zeroing_over(std::string request) {
    const std::optional<VolumeId> volume = unpack<VolumeId>(request);
    if (!volume) co_return fail(Errc::protocol, 0, "zeroing.request");
    co_await cutting_turns_.idle(*volume);
    co_return std::string();
}

}  // namespace tarn
