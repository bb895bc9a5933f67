// LossView: which lost pages a session may read (D4: no session silently reads back in time).
//
// Each home counts its losses. A session that began before a loss may have seen what was lost: its reads of the page
// fail until it has written the whole page itself. One that began later sees what home has, and no error.
//
// A session may open while a home is unreachable, does not know yet what it has lost, or waits for a host whose memory
// may be gone. It has not seen what it has not used: so losses count from its first use of a page of that home, by what
// this host has heard until then. A host goes on serving the pages it holds, and the home may have lost those.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <mutex>

#include "coherence/membership/host_set.hpp"
#include "tiers/page.hpp"
#include "utils/atomic.hpp"

namespace tarn {

class LossView {
  public:
    // Until it is told otherwise, all losses lie before the session.
    LossView() {
        for (auto& each : known_) each.store(everything, std::memory_order_relaxed);
    }
    // The losses of these homes count from the first use of one of their pages, unless began_after() comes before.
    void await(HostSet homes) { unheard_.store(homes, std::memory_order_relaxed); }
    // Where each generation is written down, plus one, before a page of its home is used.
    using Record = std::array<std::atomic<uint32_t>, hosts_max>;
    void record_in(Record& record) { record_ = &record; }
    // Homes that still lack began_after(): it must come before a page of one is used. Whoever does not find a home here
    // sees what began_after() said of it.
    HostSet unheard() const { return unheard_.load(std::memory_order_acquire); }
    // Losses of this home up to the generation lie before the session. Only after await(); the first call counts.
    void began_after(HostId home, uint32_t generation) {
        uint32_t untold = everything;
        if (known_[home].compare_exchange_strong(untold, generation, std::memory_order_relaxed) && record_)
            (*record_)[home].store(generation + 1, std::memory_order_relaxed);
        unheard_.fetch_and(~set_of(home), std::memory_order_release);
    }

    // lost: the generation, of its home, in which the page last lost writes.
    bool may_read(PageId page, HostId home, uint32_t lost) const {
        return lost <= known_[home].load(std::memory_order_relaxed) || has_rewritten(page, lost);
    }
    void wrote_whole(PageId page, uint32_t lost) {
        const std::lock_guard guard(mutex_);
        rewritten_[page] = lost;
    }

  private:
    static constexpr uint32_t everything = UINT32_MAX;

    bool has_rewritten(PageId page, uint32_t lost) const {
        const std::lock_guard guard(mutex_);
        const auto found = rewritten_.find(page);
        return found != rewritten_.end() && found->second >= lost;
    }

    Record* record_ = nullptr;
    Atomic<HostSet> unheard_{0};
    std::array<Atomic<uint32_t>, hosts_max> known_;
    mutable std::mutex mutex_;  // never held across a wait; lost pages only
    std::map<PageId, uint32_t> rewritten_;
};

}  // namespace tarn
