#include "coherence/pages/page_accesses.hpp"

#include <array>

#include "coherence/pages/page_access.hpp"

namespace tarn {

using protocol::Want;

void PageAccesses::acquire(PageId page, Want want, PageAccess& access, FrameId spare) {
    protocol::Event event =
        protocol::Event::acquire_of(page, want, reinterpret_cast<protocol::WaiterToken>(&access), spare);
    const bool needs_space = want != Want::shared && parts_.membership.home_of(page) == parts_.membership.self();
    if (needs_space) event.store_failed = parts_.membership.refuses_writes_of(page);
    // Under the latch: HomeWriter takes the space of pages that nobody may write.
    parts_.stripes.wait(event, access, [&] {
        event.no_space = needs_space && !event.store_failed && !parts_.store.reserve(page).has_value();
    });
}

bool PageAccesses::served(PageId page, PageReceipt& receipt) {
    protocol::Event event = protocol::Event::about(protocol::Event::Kind::served, page);
    if (receipt.is_awaited()) event.receipt = &receipt;
    parts_.stripes.step(event);
    if (!receipt.is_awaited()) return true;
    receipt.end_stage();
    return false;
}

Stripes::Cancelled PageAccesses::cancel(PageAccess& access) {
    return parts_.stripes.cancel(access.page(), reinterpret_cast<protocol::WaiterToken>(&access), access,
                                 access.want() != Want::exclusive_no_read);
}

void PageAccesses::prefetch(std::span<const PageId> pages) {
    parts_.stripes.prefetch(pages, std::array{&parts_.pages.index(), &parts_.home_index});
}

bool PageAccesses::wake(const protocol::Action& action, bool may_resume) {
    PageAccess& access = *reinterpret_cast<PageAccess*>(action.waiter);
    Stripes::leave(access);
    access.wake(action.frame, action.lost);
    if (may_resume && access.shard == Loop::current()) return true;
    access.shard->post(access);
    return false;
}

void PageAccesses::refuse(const protocol::Action& action) {
    PageAccess& access = *reinterpret_cast<PageAccess*>(action.waiter);
    Stripes::leave(access);
    access.post_failed(parts_.membership.refuses_writes_of(action.page) ? Errc::io : Errc::no_space);
}

void PageAccesses::resume(protocol::WaiterToken waiter) {
    reinterpret_cast<PageAccess*>(waiter)->run();
}

}  // namespace tarn
