// Checks when everything is durable: then a restart may find only one state, to the last slab. A device with one of two
// copies wrong, or one that is too short, changes nothing about that, or is refused.
#include <fmt/format.h>

#include <algorithm>

#include "tests/sim/store/crash_run.hpp"
#include "tests/support/store_identity.hpp"
#include "tiers/nvme/journal/scan.hpp"

namespace tarn::store_sim {

namespace {

bool same_space(const StoreSpace& a, const StoreSpace& b) {
    return a.total_bytes == b.total_bytes && a.allocated_bytes == b.allocated_bytes &&
           a.stored_bytes == b.stored_bytes && a.free_bytes == b.free_bytes;
}

}  // namespace

// From the slabs that volumes have and the pages that are in them.
StoreSpace CrashRun::recount(Store& store) {
    StoreSpace counted{.total_bytes = store.space().total_bytes};
    for (const VolumeId volume : store.volumes()) {
        counted.allocated_bytes += store.allocated_bytes(volume);
        for (const PageRun& run : store.extents(volume, 0, pages_per_client * 2))
            if (run.present) counted.stored_bytes += run.count * page_size;
    }
    counted.free_bytes = counted.total_bytes - counted.allocated_bytes;
    return counted;
}

void CrashRun::check_journal_reaches(const Image& image, uint64_t position) {
    Disk seen(Image(image), 1, true);
    const Result<Superblock> superblock = read_superblock(seen);
    if (!superblock) return;  // open() reports why
    const Result<JournalScan> scan = scan_journal(seen, *superblock, [](const FoundRecord&) -> Result<> { return {}; });
    if (scan && scan->end < position)
        fail(fmt::format("the journal ends at {}, and had been durable up to {}", scan->end, position));
}

// A slab whose block says that it has only kept space, and then nothing.
Task<> CrashRun::keep_and_give_back(Store& store) {
    constexpr VolumeId volume = client_count + 1;
    constexpr uint64_t count = 4;
    const uint64_t first = random_.below(pages_per_slab - count);
    co_await write_run(store, volume, first, count);
    co_await zero(store, volume, first, count, true);
    if (!co_await store.close(loop_) && !may_fail()) fail("close failed");
    co_await zero(store, volume, first, count, false);
}

void CrashRun::check_at_rest(Store& store) {
    if (keeps_space_ && random_.chance(50)) loop_.run_until_done(keep_and_give_back(store));
    loop_.run_until_done(flush(store));
    loop_.run_until_done(store.settle(loop_));
    if (store.failure() || !failure_.empty()) return;
    const StoreSpace space = store.space();
    if (!same_space(space, recount(store))) return fail("the books do not agree with a recount");
    const Image rest = disk_->durable();
    check_journal_reaches(rest, store.standing().position);
    check_exactly(Image(rest), space, "at rest");
    for (int i = 0; i < 3 && failure_.empty(); ++i) check_bad_place(Image(rest), space);
    if (failure_.empty()) check_bad_block(Image(rest));
    if (failure_.empty()) check_short(rest);
    ++counts_.at_rest;
}

void CrashRun::check_exactly(Image image, const StoreSpace& space, const char* what) {
    auto disk = std::make_unique<Disk>(std::move(image), cuts_.next(), true);
    Result<std::unique_ptr<Store>> store = other_.run_until_done(Store::open(other_, std::move(disk), store_identity));
    if (!store) return fail(fmt::format("{}: recovery failed: {}", what, store.error().where));
    bool readable = true;
    const auto found = read_all(other_, **store, readable);
    other_.run_until_done((*store)->settle(other_));
    if (!readable) return;
    if (std::string wrong = model_.check(found); !wrong.empty()) fail(fmt::format("{}: {}", what, wrong));
    check_losses(**store);
    const StoreSpace now = (*store)->space();
    if (failure_.empty() && !same_space(now, space))
        fail(fmt::format("{}: {} MiB are allocated and {} pages stored; they had been {} and {}", what,
                         now.allocated_bytes >> 20, now.stored_bytes / page_size, space.allocated_bytes >> 20,
                         space.stored_bytes / page_size));
    if (failure_.empty() && !same_space(now, recount(**store))) fail(fmt::format("{}: the recount differs", what));
}

// The expected result for a misplaced, or an older, block.
void CrashRun::replace_block(Image& image, uint64_t offset) {
    std::array<std::byte, page_size> bytes;
    const std::vector<uint64_t> used = image.used_blocks();
    if (begun_ && cuts_.chance(60))
        begun_->read(offset, bytes);  // a write that the device lost
    else
        image.read(used[cuts_.below(used.size())] * page_size, bytes);  // one that went astray
    image.write(offset, bytes);
}

// Everything is there twice, and one copy is enough.
void CrashRun::check_bad_place(Image image, const StoreSpace& space) {
    const uint64_t place = cuts_.below(2);
    const uint64_t slab_count = (image.size_bytes() - layout_.data_offset) / slab_size;
    switch (cuts_.below(4)) {
        case 0: replace_block(image, StoreLayout::superblock_offsets[place]); break;
        case 1:
            replace_block(image, loss_list_offsets[place] + cuts_.below(loss_list_size_max / page_size) * page_size);
            break;
        default:
            for (uint64_t slab = 0; slab < slab_count; ++slab)
                if (cuts_.chance(60)) replace_block(image, layout_.table_offsets[place] + slab * page_size);
    }
    ++counts_.bad_places;
    check_exactly(std::move(image), space, "with one place of two wrong");
}

void CrashRun::check_bad_block(Image image) {
    const std::vector<uint64_t> used = image.used_blocks();
    for (uint64_t left = cuts_.between(1, 5); left > 0; --left) {
        const uint64_t offset = used[cuts_.below(used.size())] * page_size;
        const bool in_journal = offset >= StoreLayout::journal_offset && offset < layout_.table_offsets[0];
        if (in_journal || offset >= layout_.data_offset) replace_block(image, offset);
    }
    check_bad_image(std::move(image), model_, false);
}

// The device may lack any part of its end.
void CrashRun::check_short(const Image& image) {
    const uint64_t size =
        cuts_.chance(30) ? image.size_bytes() - page_size : cuts_.below(image.size_bytes() / page_size) * page_size;
    Image part(size);
    std::array<std::byte, page_size> bytes;
    for (const uint64_t block : image.used_blocks()) {
        if (block * page_size >= size) continue;
        image.read(block * page_size, bytes);
        part.write(block * page_size, bytes);
    }
    auto disk = std::make_unique<Disk>(std::move(part), cuts_.next(), true);
    const Result<std::unique_ptr<Store>> store =
        other_.run_until_done(Store::open(other_, std::move(disk), store_identity));
    if (store) return fail(fmt::format("a device of {} of {} bytes is opened", size, image.size_bytes()));
    if (store.error().code != Errc::corrupt && store.error().code != Errc::invalid)
        fail(fmt::format("a short device is reported as {}", store.error().where));
}

void CrashRun::check_full(Store& store) {
    const PageId page = PageId::of(1, 1);
    Batch batch(1);
    const Contents contents = change(page, all_sectors);
    const Tenure tenure = next_value_++;
    batch.add(page, contents, tenure, all_sectors, model_.begin(page, contents, tenure));
    loop_.run_until_done(write_batch(store, batch));
    if (loop_.run_until_done(store.flush(loop_)) || loop_.run_until_done(store.flush(loop_)))
        return fail("a flush succeeds on a full device");
    if (!store.failed()) return fail("a device is full, and the store does not say so");
    for (VolumeId volume = 1; volume <= client_count; ++volume) loop_.run_until_done(read_some(store, volume));
}

// Positions that need more than 38 bits are near.
void CrashRun::start_journal_late(Disk& disk, uint64_t journal_size) {
    const PageBuffer buffer = make_page_buffer(1);
    const BlockBytes block(buffer.get(), page_size);
    Result<Superblock> superblock = read_superblock(disk);
    if (!superblock) return fail(fmt::format("no superblock: {}", superblock.error().where));
    superblock->journal_tail =
        (uint64_t{1} << 38) * random_.between(1, 3) - random_.below(4 * journal_size / page_size) * page_size;
    encode_superblock(*superblock, block);
    bool written = true;
    for (const uint64_t offset : StoreLayout::superblock_offsets) written &= disk.write_now(block, offset).has_value();
    if (!written || !disk.flush_now()) fail("the disk fails before its time");
}

}  // namespace tarn::store_sim
