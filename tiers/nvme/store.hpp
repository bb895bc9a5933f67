// Store: the durable pages of one host, in one file or block device.
//
// Thin: a volume takes slabs of 1 MiB as it is written, and gives them back as it is zeroed. What read() returns was
// written or is zeros. What write() and zero() did is durable after the next flush() that was called later; what was
// flushed survives a power cut. Until there is a journal, a page that was being overwritten in place when the power
// failed may be torn, and stored bytes that rot are not noticed: pages get their checksums with the journal.
//
// Any shard may call anything, and passes its own loop. The tables lie behind one lock, never held across a wait.
// Calls that name the same page at the same time are the caller's to order; calls on other pages never mind.
//
// Buffers are page-sized and aligned to pages (O_DIRECT). What comes back as no_space changed nothing. A failed flush
// stays failed (D6): nobody knows what the device dropped; only a restart looks again.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tiers/nvme/group_commit.hpp"
#include "tiers/nvme/slab_table.hpp"
#include "tiers/nvme/store_file.hpp"
#include "tiers/nvme/superblock.hpp"
#include "tiers/nvme/transfer.hpp"
#include "tiers/page.hpp"
#include "utils/mapping.hpp"

namespace tarn {

struct PageWrite {
    PageId page;
    Tenure tenure = 0;              // stored beside the page's checksum, once there is one
    DirtyMask dirty = all_sectors;  // what the journal will need to log; the bytes are the whole page all the same
    const std::byte* bytes = nullptr;
};

// A run of pages that were all written, or all not.
struct PageRun {
    uint64_t first = 0;  // page number
    uint64_t count = 0;
    bool present = false;
    bool operator==(const PageRun&) const = default;
};

struct StoreSpace {
    uint64_t total_bytes = 0;
    uint64_t allocated_bytes = 0;
    uint64_t free_bytes = 0;
};

class Store {
  public:
    // Makes a store and sets aside its space. size_bytes 0 takes a whole device. Without force only where there is
    // nothing yet. Errors: exists, invalid (too small), busy, no_space, refused, io; the text says which.
    static Result<> format(const std::string& path, uint64_t size_bytes, const StoreIdentity& identity, bool force);

    // Opens and checks it, and raises the home epoch durably. Waits 2 s for another process to let go. Errors:
    // not_found, busy, refused (another cluster's or host's, permissions), corrupt, unsupported (a newer format),
    // invalid, io.
    static Task<Result<std::unique_ptr<Store>>> open(Loop& loop, std::string path, StoreIdentity expected);
    Store(const Store&) = delete;
    // Nothing may be in flight.
    ~Store();

    // Errors: io.
    Task<Result<>> read(Loop& loop, PageId page, std::span<std::byte, page_size> into);
    // into[i] gets the page first + i; as few device reads as the slabs allow.
    Task<Result<>> read_run(Loop& loop, PageId first, std::span<std::byte* const> into);
    // Whole pages, in any order, none twice. In the device's write cache when it returns. Errors: no_space, io; after
    // an error each page has its old or its new bytes, or a mix (until the journal).
    Task<Result<>> write(Loop& loop, std::span<const PageWrite> pages);
    // Whether the page was written, and not zeroed since.
    bool present(PageId page) const;
    // Makes count pages read as zeros; slabs without pages are given back unless keep_space. Errors: none today.
    Task<Result<>> zero(Loop& loop, PageId first, uint64_t count, bool keep_space = false);
    // Everything that returned before the call is durable when it returns. Errors: io, for good.
    Task<Result<>> flush(Loop& loop);

    // Sets space aside for a page that is about to become writable, so that no_space comes at the write, never at
    // write-back. Ends when the page is written, zeroed or unreserved. Errors: no_space.
    Result<> reserve(PageId page);
    void unreserve(PageId page);
    bool has_room_for(PageId page) const;
    // As reserve, and flushes first if that is what it takes to get freed slabs back.
    Task<Result<>> make_room(Loop& loop, PageId page);

    // The runs of [first, first + count), in order, neighbours merged; ends early after runs_max runs.
    std::vector<PageRun> extents(VolumeId volume, uint64_t first, uint64_t count, size_t runs_max = 65536) const;
    // Zeroes a whole volume. No write to it may be in flight.
    Task<Result<>> drop_volume(Loop& loop, VolumeId volume);
    std::vector<VolumeId> volumes() const;
    uint64_t allocated_bytes(VolumeId volume) const;
    StoreSpace space() const;

    uint64_t home_epoch() const { return superblock_.home_epoch; }
    uint64_t loss_generation() const { return loss_generation_.load(std::memory_order_relaxed); }
    // Durable when it returns. Errors: io.
    Task<Result<>> raise_loss_generation(Loop& loop);
    // Why flushes fail, once one failed.
    std::optional<Error> failure() const;
    // False when the file system refused O_DIRECT: worth a line in the log.
    bool direct() const { return file_.direct(); }

  private:
    Store(StoreFile file, const Superblock& superblock);

    Task<Result<>> load_table(Loop& loop);
    Task<Result<>> write_superblock(Loop& loop);
    Result<> pin_for_write(std::span<const PageWrite> pages, std::vector<SlabIndex>& slabs);
    Task<Result<>> run_flush_round(Loop& loop);
    Task<Result<>> write_table(Loop& loop, const SlabTable::Changes& changes);
    template <class Visit>
    void for_each_slab(VolumeId volume, Visit visit) const;
    uint64_t device_offset(SlabIndex slab, uint64_t page) const;
    std::vector<PageRun> runs_by_number(VolumeId volume, uint64_t first, uint64_t count, size_t runs_max) const;

    StoreFile file_;
    Superblock superblock_;  // the leader of a flush round writes it
    StoreLayout layout_;
    Mapping scratch_;  // encoded blocks: the leader's
    std::atomic<uint64_t> loss_generation_;
    GroupCommit flushes_;

    mutable std::mutex mutex_;  // guards what follows
    SlabTable table_;
    uint64_t writes_ = 0;          // that returned
    uint64_t durable_writes_ = 0;  // of them
    std::optional<Error> failure_;
};

}  // namespace tarn
