// CrashRun: one seed. A store on a simulated disk, clients that change it, and power cuts at any instant.
//
// At random operations of the disk, during work and recovery, an image is cut: a second store recovers from it, is
// checked against the model, and on some images is itself cut during recovery. Sometimes the power really fails, and
// the run goes on with the same disk.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "tests/sim/store/disk.hpp"
#include "tests/sim/store/model.hpp"
#include "tests/sim/support/random.hpp"
#include "tiers/nvme/device/page_buffer.hpp"
#include "tiers/nvme/store.hpp"
#include "utils/loop.hpp"

namespace tarn::store_sim {

struct Counts {
    uint64_t seeds = 0;
    uint64_t crash_points = 0;
    uint64_t recovery_cuts = 0;
    uint64_t operations = 0;  // of the disk
    uint64_t changes = 0;     // by clients
    uint64_t flushes = 0;
    uint64_t groups = 0;
    uint64_t checkpoints = 0;
    uint64_t waits = 0;  // for room on the ring
    uint64_t failed_disks = 0;
    uint64_t no_space = 0;
    uint64_t spoiled = 0;  // images with rot
    uint64_t refused = 0;  // of them
    uint64_t losses = 0;   // put on record
    uint64_t marks = 0;    // of pieces that may have newer bytes in memory
    uint64_t upgrades = 0;
    uint64_t lies = 0;  // images with wrong contents and right checksums
    uint64_t lies_refused = 0;
    uint64_t at_rest = 0;     // images with everything durable
    uint64_t bad_places = 0;  // of these, with one of two copies stale or misplaced
    uint64_t full_disks = 0;
};

// Pages with their bytes, in the form that the store takes.
struct Batch {
    explicit Batch(size_t count) : buffer(make_page_buffer(count)) {}
    void add(PageId page, const Contents& contents, Tenure tenure, DirtyMask dirty, size_t version) {
        std::byte* const bytes = buffer.get() + writes.size() * page_size;
        encode(page, contents, bytes);
        writes.push_back({.page = page, .tenure = tenure, .dirty = dirty, .bytes = bytes});
        versions.push_back(version);
    }
    PageBuffer buffer;
    std::vector<PageWrite> writes;
    std::vector<size_t> versions;
};

// The habits of this seed's clients: bugs hide where one operation is frequent and another never happens.
struct Habits {
    explicit Habits(Random& random);
    static constexpr size_t kinds = 7;
    std::array<unsigned, kinds> weights;  // of flushes, writes, runs, groups, zeroes, replacements, reads
    uint64_t pages;                       // the range of writes and groups
    unsigned whole_percent;               // of writes of all sectors; most others are of one
};

class CrashRun {
  public:
    CrashRun(uint64_t seed, Loop& loop, Loop& other, Counts& counts);
    // Empty, or what went wrong.
    std::string run();
    uint64_t hash() const { return hash_; }

  private:
    static constexpr VolumeId client_count = 3;
    static constexpr uint64_t pages_per_client = 2 * pages_per_slab + 40;

    Task<> life(Store& store);
    Task<> client(Store& store, VolumeId volume, uint64_t steps);
    Task<> step(Store& store, VolumeId volume);
    Task<> write_batch(Store& store, const Batch& batch);
    Task<> write_some(Store& store, VolumeId volume);
    Task<> write_run(Store& store, VolumeId volume, uint64_t first, uint64_t count);
    Task<> write_group(Store& store, VolumeId volume);
    Task<> zero_some(Store& store, VolumeId volume);
    Task<> zero(Store& store, VolumeId volume, uint64_t first, uint64_t count);
    Task<> zero(Store& store, VolumeId volume, uint64_t first, uint64_t count, bool keep_space);
    Task<> replace_some(Store& store, VolumeId volume);
    Task<> flush(Store& store);
    Task<> record_loss(Store& store);
    Task<> mark_or_unmark(Store& store);
    Task<> read_some(Store& store, VolumeId volume);
    DirtyMask draw_dirty(PageId page);
    Contents change(PageId page, DirtyMask dirty);
    // Between two lives the disk is turned into format 2, with garbage where format 3 has new structures.
    void make_format_2();
    // The record has everything that it must have, and nothing that was never recorded.
    void check_losses(const Store& store);
    // A piece stays marked until the mark is removed.
    void check_marks(const Store& store);
    // Like a start with --upgrade. A half-upgraded store is refused without it, but never as damaged.
    Result<std::unique_ptr<Store>> open_image(std::unique_ptr<Disk> disk);
    bool may_fail() const { return disk_fails_ || died_.has_value() || (disk_ && disk_->full()); }
    // The store takes nothing any more, for good, and everything it took can be read.
    void check_full(Store& store);

    void on_operation();
    // Recovers from the image and checks what it finds; the model is as it was when the image was cut.
    struct Before {
        uint64_t position = 0;               // up to which the journal was durable
        std::optional<uint64_t> free_bytes;  // of an image with only durable bytes
    };
    void check_image(Image image, const Before& before);
    void check_recovery_cut(Image image);
    // Data, errors or a refusal; never other bytes. of_any_time: the page may have had them before this life, too.
    void check_bad_image(Image image, const Model& model, bool of_any_time);
    // Bits are flipped in every structure, or in data only.
    void check_spoiled(Image image, const Model& model, bool data_only);
    // Structures have arbitrary contents with correct checksums.
    void check_lies(Image image);
    void lie_in_superblocks(Image& image);
    void lie_in_table(Image& image);
    void lie_in_journal(Image& image);
    static Uuid store_of(const Image& image);
    // A copy made while the store was in use: its beginning is older than its end.
    void check_copied_while_running();
    // rest.cpp
    void check_at_rest(Store& store);
    Task<> keep_and_give_back(Store& store);
    void check_exactly(Image image, const StoreSpace& space, const char* what);
    void check_journal_reaches(const Image& image, uint64_t position);
    void check_bad_place(Image image, const StoreSpace& space);
    void check_bad_block(Image image);
    void check_short(const Image& image);
    void replace_block(Image& image, uint64_t offset);
    void start_journal_late(Disk& disk, uint64_t journal_size);
    static StoreSpace recount(Store& store);
    // Writes and flushes on the recovered store, and cuts the disk after each.
    void go_on(Store& store, const Disk& disk, const std::map<uint64_t, Model::Found>& found);
    std::map<uint64_t, Model::Found> read_all(Loop& loop, Store& store, bool& readable);
    bool check_books(Store& store, const std::map<uint64_t, Model::Found>& found);
    void fail(std::string what) {
        if (failure_.empty()) failure_ = std::move(what);
    }

    Random random_;
    Random cuts_;
    Random marks_;
    Habits habits_;
    Loop& loop_;
    Loop& other_;  // for recoveries in the middle of the work
    Counts& counts_;
    Model model_;
    Disk* disk_ = nullptr;
    Store* store_ = nullptr;  // while its clients work
    StoreLayout layout_;
    uint64_t next_value_ = 1;
    uint64_t cut_every_;
    bool keeps_space_;     // this seed's clients keep space when they zero
    bool disk_fails_;      // and its disks
    uint64_t atomic_max_;  // the largest write that is atomic
    bool records_losses_;  // this seed's clients put losses on record, and its disks were of an older format
    std::vector<Loss> losses_begun_;
    std::vector<Loss> losses_recorded_;
    bool marks_pieces_;  // this seed's clients do
    std::set<PageId> marked_;
    bool upgrading_ = false;
    bool cutting_ = false;
    uint64_t cut_count_ = 0;
    uint64_t dies_in_ = UINT64_MAX;   // operations until the power goes for good
    uint64_t fills_in_ = UINT64_MAX;  // operations until the disk is full
    bool fills_;                      // this seed's disks are full at some time
    std::optional<Image> begun_;      // at the beginning of this life
    std::optional<Image> earlier_;    // of this life
    std::optional<Image> died_;       // at its end
    std::string failure_;
    uint64_t hash_ = 0;
};

}  // namespace tarn::store_sim
