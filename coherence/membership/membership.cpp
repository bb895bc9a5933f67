#include "coherence/membership/membership.hpp"

#include <mutex>
#include <numeric>
#include <utility>

#include "utils/assert.hpp"
#include "utils/clock.hpp"

namespace tarn {

Membership::Membership(HostId self, std::span<const HostId> hosts, ArenaHeader& header, Store& store)
    : self_(self),
      hosts_(hosts.begin(), hosts.end()),
      host_set_(std::accumulate(hosts.begin(), hosts.end(), HostSet{0},
                                [](HostSet set, HostId host) { return set | set_of(host); })),
      process_{.incarnation = header.incarnation,
               .epoch = static_cast<uint32_t>(store.home_epoch()),
               .intact_since = header.intact_since},
      header_(header),
      store_(store),
      changed_at_ns_(monotonic_ns()),
      recovery_(self, host_set_, header.memory_was_lost) {
    publish(RangeMap(1, hosts_));
    for (HostId host = 0; host < hosts_max; ++host) {
        const uint64_t met = header.met[host].load(std::memory_order_relaxed);
        met_[host] = {.incarnation = static_cast<uint32_t>(met >> 32), .epoch = static_cast<uint32_t>(met)};
        if (!contains(host_set_, host) || store.forgotten(host) == 0) continue;
        dead_ |= set_of(host);
        recovery_.on_dead(host);
        // The host was declared dead after the previous process had died.
        if (met != 0) header.losses_unrecorded.store(true, std::memory_order_relaxed);
    }
    if (header.losses_unrecorded.load(std::memory_order_relaxed)) recovery_.begin_unrecorded_losses();
}

void Membership::publish(const RangeMap& ranges) {
    const std::lock_guard guard(lock_);
    TARN_ASSERT(published_.empty() || ranges.epoch() > published_.back()->epoch());
    published_.push_back(std::make_unique<const RangeMap>(ranges));
    ranges_.store(published_.back().get(), std::memory_order_release);
}

Process Membership::process_of(HostId host) const {
    if (host == self_) return process_;
    const std::lock_guard guard(lock_);
    return met_[host];
}

bool Membership::has_just_changed() const {
    constexpr uint64_t while_ns = 5'000'000'000;
    return monotonic_ns() - changed_at_ns_.load(std::memory_order_relaxed) < while_ns;
}

Membership::Meeting Membership::begin_meeting(HostId host, Process process) {
    Meeting meeting;
    {
        const std::lock_guard guard(lock_);
        meeting.previous = std::exchange(met_[host], process);
        recovery_.on_link_up(host);
    }
    if (has_lost_memory(meeting.previous, process)) meeting.lost = begin_unrecorded_losses();
    return meeting;
}

void Membership::end_meeting(HostId host, Process process, Meeting meeting) {
    if (process.epoch != meeting.previous.epoch) failed_stores_ &= ~set_of(host);  // another process, another try
    remember_met(host, process);
    {
        const std::lock_guard guard(lock_);
        met_now_ |= set_of(host);
    }
    if (meeting.lost && !recovering()) end_unrecorded_losses(*meeting.lost);
    changed_at_ns_.store(monotonic_ns(), std::memory_order_relaxed);
}

void Membership::on_link_down(HostId host) {
    const std::lock_guard guard(lock_);
    met_now_ &= ~set_of(host);
    changed_at_ns_.store(monotonic_ns(), std::memory_order_relaxed);
}

void Membership::on_reported(HostId host) {
    const std::lock_guard guard(lock_);
    recovery_.on_reported(host);
}

void Membership::remember_met(HostId host, Process process) {
    header_.met[host].store(uint64_t{process.incarnation} << 32 | process.epoch, std::memory_order_release);
}

Incarnation Membership::dead_incarnation(HostId host) const {
    const uint32_t remembered = store_.forgotten(host);
    return remembered == 0 ? 0 : remembered - 1;
}

// A home that starts must not serve between the two: it would take the bytes that it has for the newest.
Task<Result<std::optional<Recovery::Moment>>> Membership::declare_dead(HostId host, Incarnation incarnation) {
    CO_TRY_VOID(co_await store_.set_forgotten(*Loop::current(), host, incarnation + 1));
    const std::lock_guard guard(lock_);
    std::optional<Recovery::Moment> lost;
    if (!contains(dead_.fetch_or(set_of(host)), host)) lost = begin_unrecorded_losses_locked();
    recovery_.on_dead(host);
    co_return lost;
}

Task<Result<>> Membership::declare_alive(HostId host) {
    const Result<> remembered = co_await store_.set_forgotten(*Loop::current(), host, 0);
    if (remembered) on_returned(host);
    returning_ &= ~set_of(host);
    co_return remembered;
}

void Membership::on_returned(HostId host) {
    dead_ &= ~set_of(host);
    const std::lock_guard guard(lock_);
    recovery_.on_returned(host);
}

Recovery::Moment Membership::moment() const {
    const std::lock_guard guard(lock_);
    return recovery_.moment();
}

Recovery::Next Membership::next(Recovery::Moment moment, bool all_marked) {
    const std::lock_guard guard(lock_);
    const Recovery::Next next = recovery_.next(moment, all_marked);
    recovering_.store(recovery_.recovering(), std::memory_order_relaxed);
    return next;
}

Membership::Lack Membership::lack() const {
    const std::lock_guard guard(lock_);
    return {.moment = recovery_.moment(), .losses = recovery_.lacks_losses()};
}

bool Membership::recorded(Recovery::Moment moment, bool losses) {
    const std::lock_guard guard(lock_);
    if (!recovery_.recorded(moment, losses)) return false;
    if (losses) {
        // First: once the flags say that all is on record, only this tells the next process of the doubt.
        header_.last_in_doubt.store(process_.epoch, std::memory_order_release);
        header_.losses_unrecorded.store(false, std::memory_order_release);
        header_.memory_was_lost.store(false, std::memory_order_release);
    }
    return true;
}

bool Membership::has_memory() const {
    const std::lock_guard guard(lock_);
    return process_.incarnation != process_.epoch && !recovery_.has_recorded_losses();
}

Recovery::Moment Membership::begin_unrecorded_losses() {
    const std::lock_guard guard(lock_);
    return begin_unrecorded_losses_locked();
}

Recovery::Moment Membership::begin_page_losses() {
    header_.last_loss.store(process_.epoch, std::memory_order_release);
    return begin_unrecorded_losses();
}

Recovery::Moment Membership::begin_unrecorded_losses_locked() {
    header_.losses_unrecorded.store(true, std::memory_order_release);
    return recovery_.begin_unrecorded_losses();
}

void Membership::end_unrecorded_losses(Recovery::Moment begun) {
    const std::lock_guard guard(lock_);
    if (recovery_.has_unrecorded_losses() && recovery_.end_unrecorded_losses(begun))
        header_.losses_unrecorded.store(false, std::memory_order_release);
}

bool Membership::is_settled() const {
    const std::lock_guard guard(lock_);
    const HostSet accounted = met_now_ | dead_.load() | set_of(self_);
    return !recovering() && !recovery_.has_unrecorded_losses() && (is_alone() || (host_set_ & ~accounted) == 0);
}

}  // namespace tarn
