#include "coherence/adoption/arena_recorder.hpp"

#include "tiers/dram/write_receipts.hpp"

namespace tarn {

using protocol::Ownership;

void ArenaRecorder::record(const protocol::Holder& holder, const protocol::Event& event,
                           const protocol::Actions& actions) {
    if (event.kind == protocol::Event::Kind::peer_greeted) return;  // it changes no holding
    const bool is_about_page = event.kind != protocol::Event::Kind::peer_up &&
                               event.kind != protocol::Event::Kind::host_forgotten &&
                               event.kind != protocol::Event::Kind::recovered;
    if (!is_about_page)
        holder.for_each([&](PageId page, const protocol::Holding& each) { record_holding(page, each); });
    else if (const protocol::Holding* const holding = holder.find(event.page))
        record_holding(event.page, *holding);
    // Once others know that the page is gone from here they write it, and the next process must not say that it has it.
    for (const protocol::Action& action : actions)
        if (action.kind == protocol::Action::Kind::release_frame) pool_.record(action.frame).clear();
    if (event.receipt) event.receipt->settle();  // before anybody else can write the page
}

void ArenaRecorder::record_holding(PageId page, const protocol::Holding& holding) {
    const auto record_frame = [&](const protocol::FrameHeld& held, FrameRecord::Role role) {
        if (held.frame == no_frame) return;
        const FrameRecord::State state{.page = page.value,
                                       .tenure = held.tenure,
                                       .order = held.order,
                                       .anchor_since = held.anchor_since,
                                       .sequence = held.sequence,
                                       .lost = held.lost,
                                       .evict_id = held.evict_id,
                                       .role = role};
        FrameRecord& record = pool_.record(held.frame);
        if (record.state() != state) record.set(state);
    };
    const auto [held, kept] = holding.recorded();
    record_frame(held,
                 held.ownership == Ownership::exclusive ? FrameRecord::Role::exclusive : FrameRecord::Role::shared);
    record_frame(kept, FrameRecord::Role::kept);
}

}  // namespace tarn
