#include "coherence/executor/stripes.hpp"

#include <utility>

namespace tarn {

Stripes::Stripes(const Membership& membership, ArenaHeader& header, size_t frame_count, std::span<Loop* const> shards,
                 const Effects& effects, Recorder& recorder)
    : membership_(membership),
      executor_(membership.self(), effects),
      home_store_(effects.home_store),
      recorder_(recorder),
      read_batches_(shards) {
    // The stripes' shares of the frames differ a little.
    const size_t pages_per_stripe = frame_count / count * 9 / 8;
    for (size_t i = 0; i < count; ++i) {
        slots_.push_back(std::make_unique<Slot>(membership, header, header.request_ids[i]));
        slots_.back()->stripe.expect(pages_per_stripe);
    }
}

void Stripes::set_marks(const protocol::Marks& marks) {
    for (const auto& slot : slots_) slot->stripe.set_marks(marks);
}

void Stripes::adopt_request_ids() {
    for (const auto& slot : slots_)
        slot->stripe.adopt_request_ids(slot->last_request_id.load(std::memory_order_relaxed));
}

class Stripes::Observer final : public StepObserver {
  public:
    Observer(Stripes& stripes, Turn& turn) : stripes_(stripes), turn_(turn) {}
    void on_decided(const protocol::Event& event, const protocol::Actions& actions) override {
        turn_.slot_.last_request_id.store(turn_.holder().last_request_id(), std::memory_order_relaxed);
        stripes_.recorder_.record(turn_.holder(), event, actions);
        const VolumeId volume = event.page.volume();
        if (volume != 0 && volume == stripes_.watched_.load(std::memory_order_relaxed)) ++turn_.watched_steps_;
    }

  private:
    Stripes& stripes_;
    Turn& turn_;
};

bool Stripes::Turn::step(const protocol::Event& event) {
    if (stripes_.abandoned()) return false;
    slot_.stripe.use(stripes_.membership_.ranges());
    Observer observer(stripes_, *this);
    stripes_.executor_.step(slot_.stripe, slot_.links, slot_.scratch, event, result_, observer);
    return true;
}

void Stripes::Turn::end() {
    if (!latch_.owns_lock()) return;
    latch_.unlock();
    stripes_.finish(result_, watched_steps_);
}

void Stripes::finish(StepResult& result, uint64_t watched_steps) {
    // Together with this shard's other reads.
    if (!result.home_reads.empty())
        if (ReadBatch** const batch = read_batches_.here(); batch && *batch) {
            std::vector<HomeRead>& gathered = (*batch)->reads_;
            gathered.insert(gathered.end(), result.home_reads.begin(), result.home_reads.end());
            result.home_reads.clear();
        }
    executor_.finish(result);
    if (watched_steps != 0) count_watched(watched_steps);
}

void Stripes::count_watched(uint64_t steps) {
    watched_steps_.fetch_add(steps, std::memory_order_relaxed);
    watched_stepped_.announce();
}

Stripes::ReadBatch::ReadBatch(Stripes& stripes)
    : home_store_(stripes.home_store_), current_(stripes.read_batches_.here()) {
    if (current_) outer_ = std::exchange(*current_, this);
}

Stripes::ReadBatch::~ReadBatch() {
    if (current_) *current_ = outer_;
    if (!reads_.empty()) home_store_.read(std::move(reads_));
}

void Stripes::step(const protocol::Event& event) {
    Turn turn(*this, event.page);
    turn.step(event);
}

void Stripes::step_all(const protocol::Event& event, HostId lost_host) {
    for_each([&](Turn& turn) {
        turn.result().lost_host = lost_host;
        turn.step(event);
    });
    // The event may have been about any page.
    if (watched_.load(std::memory_order_relaxed) != 0) count_watched(UINT32_MAX);
}

void Stripes::wait(Turn& turn, const protocol::Event& event, StripeWaiter& waiter) {
    Slot& slot = turn.slot_;
    waiter.next_ = slot.waiting;
    waiter.link_ = &slot.waiting;
    if (waiter.next_) waiter.next_->link_ = &waiter.next_;
    slot.waiting = &waiter;
    if (turn.step(event)) return;
    leave(waiter);
    waiter.post_failed(Errc::cancelled);
}

Stripes::Cancelled Stripes::cancel(PageId page, protocol::WaiterToken token, StripeWaiter& waiter, bool may_cancel) {
    Turn turn(*this, page);
    if (waiter.link_ == nullptr) return Cancelled::too_late;
    if (!may_cancel) return Cancelled::never;
    leave(waiter);
    turn.step(protocol::Event::about(protocol::Event::Kind::cancel, page, token));
    return Cancelled::yes;
}

void Stripes::leave(StripeWaiter& waiter) {
    *waiter.link_ = waiter.next_;
    if (waiter.next_) waiter.next_->link_ = waiter.link_;
    waiter.link_ = nullptr;
}

void Stripes::prefetch(std::span<const PageId> pages, std::span<FrameIndex* const> indexes) {
    // Neighbours share a stripe: its latch is taken once for all of them; if another thread has it they are skipped.
    const auto for_each_latched = [&](auto&& visit) {
        for (size_t first = 0; first < pages.size();) {
            Slot& slot = slot_of(pages[first]);
            const std::unique_lock latch(slot.latch, std::try_to_lock);
            for (; first < pages.size() && &slot_of(pages[first]) == &slot; ++first)
                if (latch) visit(slot.stripe, pages[first]);
        }
    };
    for_each_latched([&](const protocol::Stripe& stripe, PageId page) {
        stripe.prefetch(page);
        for (FrameIndex* const index : indexes) index->prefetch(page);
    });
    for_each_latched([&](const protocol::Stripe& stripe, PageId page) {
        stripe.prefetch_records(page);
        for (FrameIndex* const index : indexes) index->prefetch_frame(page);
    });
}

void Stripes::abandon() {
    abandoned_.store(true, std::memory_order_seq_cst);
    for (const auto& slot : slots_) {
        const std::lock_guard guard(slot->latch);
        while (StripeWaiter* const waiter = slot->waiting) {
            leave(*waiter);
            waiter->post_failed(Errc::cancelled);
        }
    }
    watched_stepped_.announce();
}

}  // namespace tarn
