// HomeWriter: writes home's bytes into the store: batches of frames, groups, and the rest at shutdown.
//
// A frame is `storing` from the moment a batch takes it until the store's flush that covers it, or its failure. If its
// bytes change meanwhile, so does its version, and the frame stays dirty.
#pragma once

#include <atomic>
#include <span>
#include <vector>

#include "coherence/executor/host_parts.hpp"
#include "coherence/home_store/home_frames.hpp"
#include "coherence/home_store/older_copies.hpp"
#include "coherence/home_store/waiting_flushes.hpp"
#include "utils/broadcast.hpp"
#include "utils/task.hpp"

namespace tarn {

class HomeWriter {
  public:
    struct Parts : HostParts {
        FrameSupply& supply;
        HomeFrames& home;
        OlderCopies& older_copies;
        WaitingFlushes& flushes;
    };
    explicit HomeWriter(const Parts& parts) : parts_(parts) {}

    // Makes durable what the store lacks of these pages, homed here; or of a whole volume. Errors: io.
    Task<Result<>> store_pages(std::vector<PageId> pages);
    Task<Result<>> store_volume(VolumeId volume);
    // As store_pages(), but atomic: a power cut leaves all or none. No more pages than the store takes at once, and
    // none that clients trim.
    Task<Result<>> store_group(std::vector<PageId> pages);
    // Makes home's bytes in these `storing` frames durable, and frees the frames that have no other use.
    Task<Result<>> store_and_free(std::vector<FrameId> ids);
    // After Stripes::abandon(): stores all bytes that only this home's memory has, even unflushed writes. Errors: io.
    Task<Result<>> store_rest();
    // Volumes with pages here that are not in the store, or not at home; including those without a name.
    std::vector<VolumeId> dirty_volumes();
    // Announced when a frame's `storing` has ended.
    Broadcast& stored() { return stored_; }
    // How many pages were given to the store so far.
    uint64_t write_count() const { return writes_.load(std::memory_order_relaxed); }

  private:
    struct Stored {
        FrameId frame;
        uint32_t version;  // of its bytes, as they were written
    };
    DirtyMask snapshot(Frame& frame, std::byte* into);
    Task<std::vector<OlderCopies::Page>> may_be_zeroed(std::span<const FrameId> ids);
    std::vector<FrameId> take(std::span<const PageId>& pages, std::vector<PageId>& others);
    Task<Result<>> write(std::vector<FrameId> ids, Atomicity atomicity, std::vector<Stored>& stored);
    Task<Result<>> settle(std::vector<Stored>& stored, Result<> result, bool free_after);
    void bring_own_writes_home();

    const Parts parts_;
    Broadcast stored_;
    std::atomic<uint64_t> writes_{0};
};

}  // namespace tarn
