// PieceMarker: marks the pieces of 1 MiB, homed here, that may have newer bytes in some memory than in the store.
//
// Home waits for the mark of a page before it makes anybody its owner; while one write of the store is under way, the
// requests that follow share the next. A sweep removes the marks of pieces that nobody has changed for a while, that
// are in the store completely, and that nobody may write without asking. A host without peers marks nothing, since
// everybody who could have seen its memory ends with it.
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <vector>

#include "coherence/executor/host_parts.hpp"
#include "coherence/home_store/home_frames.hpp"
#include "coherence/home_store/waiting_flushes.hpp"
#include "coherence/protocol/loss_ranges.hpp"
#include "coherence/protocol/marks.hpp"
#include "tiers/page.hpp"
#include "utils/loop.hpp"
#include "utils/task.hpp"

namespace tarn {

// The state of a piece at one moment.
struct PieceRest {
    bool is_stored = true;  // all bytes that this host knows of
    bool is_free = true;    // and nobody may write it without asking
    uint64_t changes = 0;   // differs after each change
};

class PieceMarker final : public protocol::Marks {
  public:
    struct Parts : HostParts {
        HomeFrames& home;
        WaitingFlushes& flushes;
    };
    explicit PieceMarker(const Parts& parts) : parts_(parts) {}

    // The catalog's pages need no mark, since nobody is told of an unflushed change of it.
    bool has(PageId page) const override { return page.volume() == catalog_volume || parts_.store.is_marked(page); }
    // Each page is answered by the event `marked`. Outside any latch, on a shard.
    void add(std::vector<PageId> pages);

    // Pages that may have lost writes if memory was lost.
    std::vector<protocol::LossRange> possibly_lost() const;
    // Whether any of these pages lies in an unmarked piece.
    bool lacks_any(std::span<const PageId> pages) const;

    // What a sweep found.
    struct Sweep {
        bool any_marked = false;
        bool any_changed = false;  // since the last sweep that looked at the piece
    };
    // Checks some of the marked pieces and unmarks those that nobody wrote to for `rest`. One call at a time.
    Task<Sweep> sweep(std::chrono::milliseconds rest);
    Broadcast& more_is_marked() { return parts_.store.more_is_marked(); }
    // Unmarks the pieces of a deleted volume.
    Task<> forget(VolumeId volume);
    // Looks at the piece that begins with this page, homed here. gives_up: gives up pages that only this host may write
    // and has not changed, so that it must ask before it writes them.
    PieceRest rest_of(PageId piece, bool gives_up);

  private:
    struct Rest {
        uint64_t changes = 0;
        uint64_t since_ns = 0;
    };
    Task<> mark();
    bool unmark(PageId piece);

    const Parts parts_;
    std::mutex mutex_;  // never held across a wait
    std::vector<PageId> pending_;
    bool running_ = false;
    // Used by the sweep only.
    std::map<PageId, Rest> rests_;
    PageId swept_{};  // where the last sweep ended
};

// Sweeps as long as anything is marked, more seldom while nothing changes. Belongs to one loop.
class MarkSweeper {
  public:
    // Off the hot path, but not free: checking a piece takes about 20 µs.
    struct Times {
        std::chrono::milliseconds every{1000};
        std::chrono::milliseconds every_max{16'000};
        std::chrono::milliseconds rest{20'000};
    };
    MarkSweeper(PieceMarker& marker, Loop& loop) : MarkSweeper(marker, loop, Times()) {}
    MarkSweeper(PieceMarker& marker, Loop& loop, Times times) : marker_(marker), times_(times), pause_(loop) {
        gate_.spawn(run());
    }
    // Must be the last call.
    Task<> close();

  private:
    Task<> run();

    PieceMarker& marker_;
    const Times times_;
    Timer pause_;
    Gate gate_;
};

}  // namespace tarn
