// Links to other hosts, and what comes over them.
#include <cstring>

#include "coherence/cache/cache.hpp"
#include "coherence/cache/extents.hpp"
#include "coherence/cache/flusher.hpp"
#include "coherence/cache/page_provider.hpp"
#include "coherence/protocol/admission.hpp"

namespace tarn {

using protocol::Incarnation;
using protocol::Message;
using protocol::MessageKind;

void Cache::on_link_up(HostId host, Incarnation incarnation) {
    Incarnation previous = 0;
    {
        const std::lock_guard guard(links_lock_);
        previous = std::exchange(met_[host], incarnation);
        // What it reported over an earlier link is forgotten.
        if (recovering()) greeted_ &= ~protocol::set_of(host);
    }
    for (const auto& slot : stripes_) {
        Deferred deferred;
        {
            const std::lock_guard guard(slot->latch);
            slot->linked |= protocol::set_of(host);
            ++slot->link_counts[host];
            step_latched(*slot, protocol::Event::peer_up_of(host, incarnation, previous), deferred);
        }
        finish(deferred);
    }
    flusher_->on_peer_up(host, previous != 0 && previous != incarnation);
    hosts_changed_.announce();
}

Incarnation Cache::incarnation_of(HostId host) {
    if (host == self_) return incarnation_;
    const std::lock_guard guard(links_lock_);
    return met_[host];
}

void Cache::on_link_down(HostId host) {
    for (const auto& slot : stripes_) {
        const std::lock_guard guard(slot->latch);
        slot->linked &= ~protocol::set_of(host);
    }
    hosts_changed_.announce();
}

void Cache::on_greeted(HostId host) {
    {
        const std::lock_guard guard(links_lock_);
        greeted_ |= protocol::set_of(host) | protocol::set_of(self_);
        for (const HostId each : hosts_)
            if (!protocol::contains(greeted_, each)) return;
        if (!recovering_.load(std::memory_order_relaxed)) return;
        recovering_.store(false, std::memory_order_relaxed);
    }
    for (const auto& slot : stripes_) {
        Deferred deferred;
        {
            const std::lock_guard guard(slot->latch);
            protocol::Event recovered;
            recovered.kind = protocol::Event::Kind::recovered;
            step_latched(*slot, recovered, deferred);
        }
        finish(deferred);
    }
    flusher_->on_recovered();
    hosts_changed_.announce();
}

std::byte* Cache::lend_page(HostId from) {
    FrameId frame = pool_->try_take(use_holder, 0);
    if (frame == no_frame) {
        starved_links_.fetch_or(protocol::set_of(from), std::memory_order_seq_cst);
        frame = pool_->try_take(use_holder, 0);  // one may have come free before we said so
    }
    if (pool_->free_count() < provider_->low_mark()) provider_->kick();
    return frame == no_frame ? nullptr : pool_->bytes(frame);
}

void Cache::return_page(std::byte* page) {
    give_frame(pool_->id_of(page));
}

Result<> Cache::on_message(const Message& message, std::byte* page) {
    counters_.messages_received.fetch_add(1, std::memory_order_relaxed);
    const HostId home = home_of(message.page);
    const protocol::Link link{.self = self_,
                              .peer = message.from,
                              .incarnation = incarnation_of(message.from),
                              .hosts = host_set_,
                              .view_epoch = view_epoch,
                              .map_epoch = ranges_.epoch()};
    if (const Result<> admitted = protocol::admit(message, link, home); !admitted) {
        if (page) return_page(page);
        return admitted;
    }
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
    protocol::Event event = protocol::Event::message_of(message, frame);
    if (message.kind == MessageKind::get_exclusive || message.kind == MessageKind::get_exclusive_no_read)
        event.no_space = !store_.reserve(message.page).has_value();
    if (message.kind == MessageKind::hello) event.stored_tenure = store_.tenure_of(message.page);
    Deferred deferred;
    {
        StripeSlot& slot = slot_of(message.page);
        const std::lock_guard guard(slot.latch);
        step_latched(slot, event, deferred);
        if (abandoned() && frame != no_frame) release(frame, use_holder, deferred);
    }
    finish(deferred);
    if (deferred.refused) return fail(Errc::protocol, 0, deferred.refused);
    return {};
}

Task<Result<std::string>> Cache::on_call(HostId from, std::string request) {
    if (!request.empty() && request.front() == stored_runs_call) co_return answer_stored_runs(*this, request);
    if (request.size() == 1 && (request.front() == verifier_call || request.front() == present_verifier_call)) {
        if (recovering() && request.front() == present_verifier_call)
            co_return fail(Errc::unavailable, 0, "cache.call: recovering");
        for (uint64_t seen = hosts_changed_.count(); recovering(); seen = hosts_changed_.count()) {
            if (abandoned()) co_return fail(Errc::unavailable, 0, "cache.call: stopping");
            co_await hosts_changed_.next(seen);
        }
        const protocol::Verifier verifier = flusher_->own_verifier();
        co_return std::string(reinterpret_cast<const char*>(&verifier), sizeof verifier);
    }
    if (!call_handler_) co_return fail(Errc::unavailable, 0, "cache.call");
    co_return co_await call_handler_(call_context_, from, std::move(request));
}

}  // namespace tarn
