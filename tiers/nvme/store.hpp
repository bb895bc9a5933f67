// Store: the durable pages of one host, in one file or block device.
//
// Thin: a volume takes slabs of 1 MiB as it is written, and gives them back as it is zeroed. What read() returns was
// written or is zeros, and matches its checksum. What write() and zero() did is durable after the next flush() that was
// called later; after a power cut each page has its last durable contents or newer ones (D5).
//
//   store.cpp             reading, space, extents
//   store_write.cpp       writing and zeroing: into the journal, or straight into place
//   store_flush.cpp       flush rounds: one write and one device flush for all who wait
//   store_checkpoint.cpp  so that the ring can go round, in the background
//   store_move.cpp        from the journal into place
//   store_open.cpp        format, open, replay, close
//   store_marks.cpp       which pieces may have newer bytes in memory
//   store_salvage.cpp     what a damaged journal still tells
//   store_standing.cpp    how far it has come, and what others remember of that
//   store_upgrade.cpp     from an older format
//
// Any shard may call anything, and passes its own loop. The tables lie behind one lock, never held across a wait. Calls
// on different pages are independent; the caller orders calls on the same page.
//
// Buffers are page-sized and aligned to pages (O_DIRECT). What comes back as no_space changed nothing. A write or flush
// that failed stays failed (D6): nobody knows what the device dropped; only a restart looks again.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tiers/nvme/device/block_device.hpp"
#include "tiers/nvme/device/superblock.hpp"
#include "tiers/nvme/journal/group_commit.hpp"
#include "tiers/nvme/journal/journal.hpp"
#include "tiers/nvme/page_loader.hpp"
#include "tiers/nvme/store_state.hpp"
#include "tiers/nvme/table/loss_list.hpp"
#include "tiers/nvme/table/piece_marks.hpp"
#include "tiers/page.hpp"
#include "utils/broadcast.hpp"

namespace tarn {

struct PageWrite {
    PageId page;
    Tenure tenure = 0;                 // stored with the page's checksum
    uint32_t sequence = 0;             // of the write within its tenure; in the journal only
    DirtyMask dirty = all_sectors;     // what changed since the page was last written here
    const std::byte* bytes = nullptr;  // the whole page, whatever is dirty
};

enum class Atomicity : uint8_t {
    page,   // after a power cut each page is old or new
    group,  // all of them are; at most Store::group_pages_max()
};

// A run of pages that were all written, or all not.
struct PageRun {
    uint64_t first = 0;  // page number
    uint64_t count = 0;
    bool present = false;
    bool operator==(const PageRun&) const = default;
};

struct BadPage {
    PageId page;
    Error why;
};

struct StoreSpace {
    uint64_t total_bytes = 0;
    uint64_t allocated_bytes = 0;  // slabs in use
    uint64_t stored_bytes = 0;     // pages that were written
    uint64_t free_bytes = 0;
};

struct OpenOptions {
    // A store of an older format is brought to the present one first, in place; else it is refused.
    bool upgrade = false;
    // Of a store that is older than what another host remembers of it all pages are lost, and it goes on in an epoch
    // that nobody knows; else it is refused.
    bool accept_older = false;
    // Its use begins with Store::begin_use(): for a process that first looks at the memory that the one before left.
    bool use_later = false;
    // Reads of a device that has queues for it are polled.
    bool poll_reads = false;
};

struct StoreFormat {
    StoreIdentity identity;
    Uuid store{};
    uint64_t size_bytes = 0;
    uint64_t journal_size = 0;  // 0: by the size
    uint64_t data_alignment = slab_size;
};

struct JournalStatus {
    uint64_t size_bytes = 0;
    uint64_t used_bytes = 0;
    uint64_t rounds = 0;   // device flushes that made writes durable
    uint64_t changes = 0;  // records of writes and zeroes since the start
    uint64_t checkpoints = 0;
    uint64_t waits = 0;  // writes that waited for room on the ring
};

// Whether its host never met another one. No other host has its number then, so the number may change.
bool has_met_nobody(const Superblock& superblock);

// What a salvaged journal had lost.
struct SalvageReport {
    uint64_t bits_mended = 0;    // flipped ones, turned back: nothing is lost by them
    uint64_t bytes_damaged = 0;  // of the journal, beyond that
    uint64_t records_kept = 0;   // of what is damaged
    bool any_page = false;       // nothing tells which pages the rest was about: any that later records say nothing of
    std::vector<Loss> losses;    // pages that may have had newer bytes there

    bool found_damage() const { return bits_mended > 0 || bytes_damaged > 0; }
};

class Store {
  public:
    // Makes a store and sets aside its space. size_bytes 0 takes a whole device. Without force only where there is
    // nothing yet. Errors: exists, invalid (too small), busy, no_space, refused, io; the text says which.
    static Result<> format(const std::string& path, uint64_t size_bytes, const StoreIdentity& identity, bool force);
    // The store itself, on whatever was there. Errors: invalid (too small), io.
    static Result<> format_device(BlockDevice& device, const StoreFormat& format);

    // Opens, checks and recovers it, and raises the home epoch durably. Waits 2 s for another process to let go. A
    // store that was made for another number of the expected host, by name, takes the new one if it stores nothing, was
    // closed in order, and its host never met another.
    // Errors: not_found, busy, refused (another cluster's or host's, permissions), corrupt, unsupported (another
    // format), invalid, io.
    static Task<Result<std::unique_ptr<Store>>> open(Loop& loop, std::string path, StoreIdentity expected,
                                                     OpenOptions options = {});
    static Task<Result<std::unique_ptr<Store>>> open(Loop& loop, std::unique_ptr<BlockDevice> device,
                                                     StoreIdentity expected, OpenOptions options = {});
    // Of a store that was opened with use_later, before anything else that changes it. Durable when it returns.
    // Errors: io.
    Task<Result<>> begin_use(Loop& loop);
    // The home epoch of the last process before this one that used the store: memory of an earlier one is older than
    // the store.
    uint64_t used_before() const { return used_before_; }
    // What salvage() would do; nothing is written.
    static Task<Result<SalvageReport>> plan_salvage(Loop& loop, BlockDevice& device);
    // Opens a store whose journal is damaged as far as it can be proved, has what may be lost on the list of losses,
    // and closes it; the home epoch stays, so that a memory that outlived the process before is still its. Changes
    // nothing when nothing is damaged. A salvage that is cut short begins anew. Errors: as open.
    static Task<Result<SalvageReport>> salvage(Loop& loop, std::unique_ptr<BlockDevice> device);
    Store(const Store&) = delete;
    // Nothing may be in flight: after close() or settle(), or after the loops that called have ended.
    ~Store();
    // Nobody writes at the moment: brings pages into place, beyond what is due, until a write comes or most of the ring
    // is free. Returns at once.
    void catch_up(Loop& loop);
    // Announced by the first write that comes after catch_up().
    Broadcast& writes_again() { return writes_again_; }
    // Waits until no checkpoint runs.
    Task<> settle(Loop& loop);
    // Makes everything durable and in place, and ends the work in the background. Errors: io.
    // complete: all that anybody was told is in the store, and nothing was in memory alone; the next start may rely on
    // it.
    Task<Result<>> close(Loop& loop, bool complete = false);
    // Whether the process before closed it so. Of an upgraded store: whether its journal was empty.
    bool was_complete() const { return was_complete_; }
    // The home epoch since which this home has lost nothing but what is on its list of losses, if the process has
    // nothing but the store. set_intact_since: as it is with the memory that the process found; kept by close().
    uint32_t intact_since() const;
    void set_intact_since(uint32_t epoch) {
        locked([&] { superblock_.intact_since = epoch; });
    }

    // Errors: io, corrupt (a checksum is wrong).
    Task<Result<>> read(Loop& loop, PageId page, std::span<std::byte, page_size> into);
    // into[i] gets the page first + i; as few device reads as the slabs allow. After an error they are undefined.
    Task<Result<>> read_run(Loop& loop, PageId first, std::span<std::byte* const> into);
    // The runs of a volume's pages that were written.
    Task<std::vector<PageRun>> stored_runs(Loop& loop, VolumeId volume) const;
    // Reads that many pages, and says which of them are bad; each has its line in the log.
    Task<std::vector<BadPage>> check_run(Loop& loop, PageId first, size_t count);
    // Whole pages, in any order, none twice. Errors: no_space, io, invalid (a group too large); after an error each
    // page has its old or its new bytes, and after no_space its old ones.
    Task<Result<>> write(Loop& loop, std::span<const PageWrite> pages, Atomicity atomicity = Atomicity::page);
    size_t group_pages_max() const;
    // Whether the page was written, and not zeroed since.
    bool present(PageId page) const;
    // Of the page's last write; 0 when it is not present.
    Tenure tenure_of(PageId page) const;
    // Makes count pages read as zeros; slabs without pages are given back unless keep_space. Errors: io.
    Task<Result<>> zero(Loop& loop, PageId first, uint64_t count, bool keep_space = false);
    // The same of one page, which stays reserved if it is.
    Task<Result<>> zero_page(Loop& loop, PageId page);
    // Everything that returned before the call is durable when it returns. Errors: io, for good.
    Task<Result<>> flush(Loop& loop);

    // Sets space aside for a page that is about to become writable, so that no_space comes at the write, never at
    // write-back. Ends when the page is written, zeroed or unreserved. Errors: no_space.
    Result<> reserve(PageId page);
    void unreserve(PageId page);
    bool has_room_for(PageId page) const;
    // As reserve, and flushes first if that is what it takes to get freed slabs back.
    Task<Result<>> make_room(Loop& loop, PageId page);

    // The runs of [first, first + count), in order, neighbours merged; ends early after runs_max runs, or once it has
    // looked at pages_max pages of slabs in use; a slab that is not counts as one.
    std::vector<PageRun> extents(VolumeId volume, uint64_t first, uint64_t count, size_t runs_max = 65536,
                                 uint64_t pages_max = UINT64_MAX) const;
    // Zeroes a whole volume; when it returns, the space is free. No write to it may be in flight. Errors: io.
    Task<Result<>> drop_volume(Loop& loop, VolumeId volume);
    std::vector<VolumeId> volumes() const;
    uint64_t allocated_bytes(VolumeId volume) const;
    StoreSpace space() const;

    const Uuid& uuid() const { return superblock_.store; }
    uint64_t home_epoch() const { return superblock_.home_epoch; }
    uint64_t loss_generation() const { return loss_generation_.load(std::memory_order_relaxed); }
    // Begins a new loss generation and records these losses in it; returns it. Durable when it returns, losses first.
    // Errors: io.
    Task<Result<uint32_t>> record_losses(Loop& loop, std::vector<Loss> losses);
    // By their first pages.
    std::vector<Loss> losses() const {
        return locked([&] { return losses_.losses; });
    }

    // Whether it is durably on record that memory may have newer bytes of the page's piece of 1 MiB than the store.
    bool is_marked(PageId page) const;
    // Puts that on record. Durable when it returns. Errors: io.
    Task<Result<>> mark(Loop& loop, std::vector<PageId> pages);
    // The same for a store without marks, in which every piece counts as marked: from here on only those do that were
    // marked one by one.
    Task<Result<>> mark_nothing_but(Loop& loop, std::vector<PageId> pages);
    // The first page of each marked piece; nothing: any may be.
    std::optional<std::vector<PageId>> marked_pieces() const;
    // Announced when there are more of them.
    Broadcast& more_is_marked() { return more_is_marked_; }
    uint64_t marked_bytes() const;
    // Takes the piece's mark away for as long as the caller finds out whether it may go, until end_unmark(). Whoever
    // marks the piece meanwhile keeps the mark. Durable at some time, or with write_marks().
    bool begin_unmark(PageId page);
    void end_unmark(PageId page, bool clears);
    Task<Result<>> write_marks(Loop& loop);

    // By host, as the superblock says it.
    uint32_t forgotten(HostId host) const { return forgotten_[host].load(std::memory_order_relaxed); }
    // Durable when it returns. Errors: io.
    Task<Result<>> set_forgotten(Loop& loop, HostId host, uint32_t value);
    // How far this store has come.
    StoreStanding standing() const;
    // Whether this store has all that another host remembers of it. Errors: refused (it is older, or another line of
    // starts; the text says which).
    Result<> has_come_as_far_as(const StoreStanding& remembered) const;
    // Once this store turned out to be older: its next start is refused, unless accept_older. Durable when it returns.
    // Errors: io.
    Task<Result<>> set_outdone(Loop& loop, const StoreStanding& remembered);
    // What this host remembers of others' stores; the newest counts. Durable when it returns. Errors: io.
    StoreStanding heard(HostId host) const {
        return locked([&] { return superblock_.heard[host]; });
    }
    Task<Result<>> set_heard(Loop& loop, HostId host, const StoreStanding& standing);

    // Why flushes fail, once one failed.
    std::optional<Error> failure() const {
        return locked([&] { return failure_; });
    }
    bool failed() const { return failed_.load(std::memory_order_relaxed); }
    // False when the file system refused O_DIRECT: worth a line in the log.
    bool direct() const { return device_->direct(); }
    bool polls_reads() const { return device_->polls_reads(); }
    JournalStatus journal_status() const;
    // Pages that failed their checksum since the start.
    uint64_t bad_page_count() const { return bad_pages_.load(std::memory_order_relaxed); }
    // Memory for the books, at most: when every slab is in use and the journal is full.
    uint64_t books_bytes_max() const { return books_bytes_max(superblock_.geometry); }
    static uint64_t books_bytes_max(const StoreGeometry& geometry);

  private:
    Store(std::unique_ptr<BlockDevice> device, const Superblock& superblock);

    // What work() returns, which runs under the lock.
    template <class Work>
    std::invoke_result_t<Work> locked(Work work) const {
        const std::lock_guard lock(mutex_);
        return work();
    }

    // store.cpp
    // Under the lock, after an allocation: the mark that was just passed, in percent, or 0.
    unsigned mark_passed();
    void warn_of_space();
    PageLoader::Source source_of(PageId page, SlabIndex slab) const;
    std::optional<std::pair<PageLoader::Source, SlabIndex>> pin_in_place(PageId page);
    // bad: takes the pages that do not match, and the others are read all the same.
    Task<Result<>> load_run(Loop& loop, PageId first, std::span<std::byte* const> into, std::vector<BadPage>* bad);
    Task<Result<>> read_again(Loop& loop, PageLoader::Source bad, uint32_t found, std::byte* into);
    void report_bad(const PageLoader::Source& source, uint32_t found);
    // Each slab of the volume, and its number.
    std::vector<std::pair<SlabIndex, uint64_t>> slabs_of(VolumeId volume) const;
    uint64_t device_offset(SlabIndex slab, uint64_t page) const;
    std::vector<PageRun> runs_by_number(VolumeId volume, uint64_t first, uint64_t count, size_t runs_max,
                                        uint64_t pages_max) const;

    // store_write.cpp
    Result<> pin_for_write(std::span<const PageWrite> pages, std::vector<SlabIndex>& slabs);
    Task<Result<>> write_pinned(Loop& loop, std::span<const PageWrite> pages, std::span<const SlabIndex> slabs);
    Task<Result<>> write_group(Loop& loop, std::span<const PageWrite> pages, std::span<const SlabIndex> slabs);
    size_t fresh_run(std::span<const PageWrite> pages, std::span<const SlabIndex> slabs) const;
    Task<Result<>> append_in_place(Loop& loop, std::span<const PageWrite> pages, SlabIndex slab);
    uint64_t append_change(const JournalRecord& record, std::span<const std::span<const std::byte>> payload);
    void append_delta(const PageWrite& write, SlabIndex slab, uint32_t checksum, uint32_t group_left);
    Task<Result<>> clear(Loop& loop, SlabIndex slab, PageId first, uint64_t count, Cleared then);
    // Waits until records of that size fit, and until then makes room. Another caller may take it first: has_room()
    // under the lock decides.
    Task<Result<>> wait_for_room(Loop& loop, uint64_t size_bytes);
    bool has_room(uint64_t size_bytes) const;

    // store_flush.cpp
    // One round serves all who wait for what it does.
    Task<Result<>> share_round(Loop& loop, GroupCommit& commit, Task<Result<>> (Store::*round)(Loop&));
    Task<Result<>> run_flush_round(Loop& loop);
    void want_superblock();
    Task<Result<>> write_superblock(Loop& loop);
    Task<Result<>> write_losses(Loop& loop, const LossList& list);
    Task<Result<>> write_copies(Loop& loop, const std::array<uint64_t, 2>& offsets, std::span<const std::byte> bytes);
    Task<Result<>> flush_device(Loop& loop);

    // store_marks.cpp
    bool knows_marks() const;
    Task<Result<>> run_marks_round(Loop& loop);
    Result<> note_failure(const Result<>& result);

    // store_checkpoint.cpp
    Task<> await_progress(Loop& loop, bool wants_room);
    bool checkpoint_is_due() const;
    void start_checkpoint(Loop& loop);
    Task<> run_checkpoints(Loop& loop);
    Task<Result<>> move_tail(Loop& loop);
    Task<Result<>> write_table(Loop& loop, std::span<const SlabIndex> slabs);
    // Their blocks, encoded, into these places of the table; durable when it returns.
    Task<Result<>> write_blocks(Loop& loop, std::span<const SlabIndex> slabs, const std::byte* blocks,
                                std::span<const uint64_t> table_offsets);

    // store_move.cpp
    struct InPlace {
        PageId page;
        JournaledPage journaled;
        SlabIndex slab;
    };
    struct Turns;
    Task<Result<>> move_pages(Loop& loop, std::vector<PageId> pages, uint64_t end, bool record,
                              std::vector<InPlace>& unrecorded);
    static Task<> run_turn(Store& store, Loop& loop, std::span<const PageId> pages, uint64_t end, Turns& turns);
    void sort_by_journal(std::vector<PageId>& pages) const;
    Task<Result<>> bring_into_place(Loop& loop, std::span<const PageId> pages, uint64_t end,
                                    std::vector<InPlace>& written);
    Task<Result<>> record_moves(Loop& loop, std::span<const InPlace> moved, std::vector<InPlace>& unrecorded);
    size_t unchanged_run(std::span<const InPlace> moved) const;
    void append_move(const JournalRecord& move, std::span<const InPlace> moved);
    Task<Result<>> prove_moves(Loop& loop);

    // store_open.cpp
    Result<> load_losses();
    Result<> write_losses_now();
    Result<> load_marks(bool has_marks);
    Result<> rewrite_marks_now();
    Result<> accept_as_older();
    void begin_epoch();
    void note_use();
    Result<> load_table();
    class Salvage;
    static Task<Result<std::unique_ptr<Store>>> open_with(Loop& loop, std::unique_ptr<BlockDevice> device,
                                                          StoreIdentity expected, OpenOptions options,
                                                          SalvageReport* report);
    Result<bool> replay(std::vector<PageId>& unsure, Salvage* salvage);
    Result<> rewrite_journal(uint64_t from, uint64_t end);
    Task<Result<>> settle_unsure(Loop& loop, std::span<const PageId> unsure, std::vector<PageId>& unwritten);
    Task<Result<>> prove(Loop& loop, std::span<const PageId> unwritten);
    Result<> write_superblock_now();

    std::unique_ptr<BlockDevice> device_;
    Superblock superblock_;  // the leader of a flush round writes it; what others change is under the lock
    StoreLayout layout_;
    bool was_complete_ = false;
    uint64_t used_before_ = 0;
    std::atomic<uint64_t> loss_generation_;
    std::array<std::atomic<uint32_t>, hosts_max> forgotten_{};
    std::atomic<uint64_t> bad_pages_{0};
    std::atomic<bool> failed_{false};
    GroupCommit flushes_;
    GroupCommit marks_rounds_;

    mutable std::mutex marks_mutex_;  // guards the marks alone
    PieceMarks marks_;

    mutable std::mutex mutex_;  // guards what follows
    StoreState state_;
    Journal journal_;
    Journal::Boundary wanted_tail_;
    bool in_place_unflushed_ = false;  // pages went straight into place since the last round
    uint64_t superblock_wanted_ = 0;   // counts what it was to say
    uint64_t superblock_written_ = 0;  // and what it durably says
    LossList losses_;
    uint64_t loss_generation_wanted_ = 0;
    uint64_t losses_written_ = 0;  // the sequence of the list that is durable
    bool checkpointing_ = false;
    bool closing_ = false;
    bool catching_up_ = false;
    Broadcast writes_again_;
    Broadcast more_is_marked_;
    Broadcast progress_;           // of the checkpoint under way
    bool room_is_wanted_ = false;  // by one of those who wait for it
    uint64_t table_sequence_ = 0;
    uint64_t moved_until_ = 0;  // where the last record of a move ends
    size_t journaled_pages_max_;
    JournalStatus counts_;
    unsigned marked_percent_ = 0;  // the highest mark that use has passed
    std::optional<Error> failure_;
};

}  // namespace tarn
