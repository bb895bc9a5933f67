// PageAccesses: the cold path of local operations: how they ask the protocol for pages, wait, and are woken, each on
// the shard that asked; and what a PageAccess uses on its way.
#pragma once

#include <span>

#include "coherence/executor/host_parts.hpp"
#include "coherence/executor/stripes.hpp"
#include "coherence/pages/frame_supply.hpp"
#include "coherence/pages/page_provider.hpp"
#include "coherence/pages/verifiers.hpp"
#include "coherence/pages/volume_uses.hpp"
#include "coherence/pages/writable_share.hpp"

namespace tarn {

class PageAccess;
class PageReceipt;

class PageAccesses final : public Accesses {
  public:
    struct Parts : HostParts {
        FrameIndex& home_index;  // of home's bytes: only for prefetch()
        FrameSupply& supply;
        WritableShare& writable_share;
        PageProvider& provider;
        Verifiers& verifiers;
        VolumeUses& uses;
    };
    explicit PageAccesses(const Parts& parts) : parts_(parts) {}
    const Parts& parts() const { return parts_; }

    // Asks for the page; the access goes on by PageAccess::run.
    void acquire(PageId page, protocol::Want want, PageAccess& access, FrameId spare);
    // Ends the access's wait. too_late: it was woken, or failed. never: it writes a whole page; such a write, once
    // requested, is carried out.
    Stripes::Cancelled cancel(PageAccess& access);
    void served(PageId page) { parts_.stripes.step(protocol::Event::about(protocol::Event::Kind::served, page)); }
    // The same after a write. False: nothing is stepped any more, and the next process would drop what was written.
    bool served(PageId page, PageReceipt& receipt);
    // Brings the tables' entries of pages that are about to be requested into the CPU's caches.
    void prefetch(std::span<const PageId> pages);

    bool wake(const protocol::Action& action, bool may_resume) override;
    void refuse(const protocol::Action& action) override;
    void resume(protocol::WaiterToken waiter) override;

  private:
    const Parts parts_;
};

}  // namespace tarn
