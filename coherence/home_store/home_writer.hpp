// HomeWriter: home's bytes on their way into the store: batches of frames, groups, what is left at the end.
//
// A frame is `storing` from the moment a batch takes it until the store's flush that covers it, or its failure. Its
// bytes may change meanwhile; its version tells, and then it stays dirty.
#pragma once

#include <atomic>
#include <span>
#include <vector>

#include "coherence/home_store/home_frames.hpp"
#include "coherence/home_store/waiting_flushes.hpp"
#include "utils/broadcast.hpp"
#include "utils/task.hpp"

namespace tarn {

class HomeWriter {
  public:
    struct Parts {
        const Membership& membership;
        Store& store;
        FramePool& pool;
        Pages& pages;
        Stripes& stripes;
        FrameSupply& supply;
        HomeFrames& home;
        WaitingFlushes& flushes;
    };
    explicit HomeWriter(const Parts& parts) : parts_(parts) {}

    // Makes durable what the store lacks of these pages, homed here; of all of a volume. Errors: io.
    Task<Result<>> store_pages(std::vector<PageId> pages);
    Task<Result<>> store_volume(VolumeId volume);
    // As store_pages(), and after a power cut all of it is there or none; no more pages than the store takes at once.
    Task<Result<>> store_group(std::vector<PageId> pages);
    // Makes home's bytes in these frames durable, and the frames that are nothing else become free. The caller has made
    // them `storing`.
    Task<Result<>> store_and_free(std::vector<FrameId> ids);
    // After Stripes::abandon(): whatever only this home's memory has, what was written here since the last flush
    // included. Errors: io.
    Task<Result<>> store_rest();
    // Volumes with pages here that are not in the store, or not at home; also such as have no name any more.
    std::vector<VolumeId> dirty_volumes();
    // Announced when `storing` of some frame has ended.
    Broadcast& stored() { return stored_; }
    // Pages given to the store so far.
    uint64_t write_count() const { return writes_.load(std::memory_order_relaxed); }

  private:
    struct Stored {
        FrameId frame;
        uint32_t version;  // of its bytes, as they were written
    };
    DirtyMask snapshot(Frame& frame, std::byte* into);
    std::vector<FrameId> take(std::span<const PageId>& pages, std::vector<PageId>& others);
    Task<Result<>> write(std::vector<FrameId> ids, Atomicity atomicity, std::vector<Stored>& stored);
    Task<Result<>> settle(std::vector<Stored>& stored, Result<> result, bool free_after);
    void bring_own_writes_home();

    const Parts parts_;
    Broadcast stored_;
    std::atomic<uint64_t> writes_{0};
};

}  // namespace tarn
