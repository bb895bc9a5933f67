// LossView: which lost pages a session may read (CONTRACT: no live session silently reads back in time).
//
// Each home counts its losses. A session that began before a loss may have seen what was lost: its reads of the page
// fail until it has written the whole page itself. One that began later sees what home has, and no error.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <mutex>

#include "coherence/protocol/host_set.hpp"
#include "tiers/page.hpp"

namespace tarn {

class LossView {
  public:
    LossView() {
        for (auto& each : known_) each.store(everything, std::memory_order_relaxed);
    }
    // The losses of this home that lie before the session. Until it is told, everything does: a home that this host
    // has never heard of has served nothing that could be lost.
    void began_after(HostId home, uint32_t generation) { known_[home].store(generation, std::memory_order_relaxed); }
    bool knows(HostId home) const { return known_[home].load(std::memory_order_relaxed) != everything; }

    // lost: the generation of its home in which the page last lost writes.
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

    std::array<std::atomic<uint32_t>, hosts_max> known_;
    mutable std::mutex mutex_;  // never held across a wait; lost pages only
    std::map<PageId, uint32_t> rewritten_;
};

}  // namespace tarn
