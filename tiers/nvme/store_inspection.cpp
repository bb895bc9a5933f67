#include "tiers/nvme/store_inspection.hpp"

#include <blkid/blkid.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "tiers/nvme/device/overlay_device.hpp"
#include "tiers/nvme/journal/scan.hpp"
#include "utils/log.hpp"
#include "utils/mapping.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {

namespace {

constexpr size_t bad_pages_max = 100;
constexpr size_t run_pages_max = 256;

Result<> read_copies(BlockDevice& device, StoreInspection& found) {
    TRY(const Mapping scratch, Mapping::create(page_size));
    for (size_t i = 0; i < found.superblock_copies.size(); ++i) {
        TRY_VOID(device.read_now(scratch.bytes(), StoreLayout::superblock_offsets[i]));
        const Result<Superblock> copy = decode_superblock(ConstBlockBytes(scratch.bytes()));
        found.superblock_copies[i] = copy ? "good" : copy.error().where;
    }
    return {};
}

Task<Result<std::unique_ptr<Store>>> open_above(Loop& loop, BlockDevice& device, StoreInspection& found) {
    CO_TRY(found.superblock, read_superblock(device));
    found.layout = StoreLayout::of(found.superblock.geometry);
    CO_TRY_VOID(read_copies(device, found));
    CO_TRY(const JournalScan scan,
           scan_journal(device, found.superblock, [](const FoundRecord&) -> Result<> { return {}; }));
    found.journal_end = scan.end;
    found.journal_closed = scan.closed;
    found.journal_batches = scan.boundaries.size();
    found.journal_records = scan.record_count;
    CO_TRY(std::unique_ptr<Store> store,
           co_await Store::open(loop, std::make_unique<OverlayDevice>(device), found.superblock.identity));
    found.space = store->space();
    for (const VolumeId volume : store->volumes())
        found.volumes.push_back({.id = volume, .allocated_bytes = store->allocated_bytes(volume)});
    co_return store;
}

Task<> check_run(Loop& loop, Store& store, VolumeId volume, PageRun run, StoreInspection& found) {
    const PageBuffer buffer = make_page_buffer(run_pages_max);
    for (uint64_t done = 0; done < run.count;) {
        const PageId first = PageId::of(volume, run.first + done);
        std::vector<std::byte*> into;
        for (size_t i = 0; i < std::min<uint64_t>(run_pages_max, run.count - done); ++i)
            into.push_back(buffer.get() + i * page_size);
        found.pages_checked += into.size();
        done += into.size();
        const std::vector<BadPage> bad_pages = co_await store.check_run(loop, first, into);
        for (const BadPage& bad : bad_pages) {
            ++found.bad_page_count;
            if (found.bad_pages.size() < bad_pages_max) found.bad_pages.push_back(bad);
        }
    }
}

}  // namespace

Task<Result<StoreInspection>> inspect_store(Loop& loop, BlockDevice& device) {
    StoreInspection found;
    CO_TRY(const std::unique_ptr<Store> store, co_await open_above(loop, device, found));
    co_await store->settle(loop);
    co_return found;
}

Task<Result<StoreInspection>> check_store(Loop& loop, BlockDevice& device) {
    StoreInspection found;
    CO_TRY(const std::unique_ptr<Store> store, co_await open_above(loop, device, found));
    for (const StoreInspection::Volume& volume : found.volumes) {
        for (uint64_t at = 0; at <= page_number_mask;) {
            const std::vector<PageRun> runs = store->extents(volume.id, at, page_number_mask + 1 - at);
            if (runs.empty()) break;
            for (const PageRun& run : runs)
                if (run.present) co_await check_run(loop, *store, volume.id, run, found);
            at = runs.back().first + runs.back().count;
        }
    }
    co_await store->settle(loop);
    co_return found;
}

Result<std::string> known_signature(const std::string& path) {
    struct stat status{};
    if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode))
        return std::string();
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd && errno == ENOENT) return fail(Errc::not_found, errno, "store.signature");
    if (!fd) return fail(errno == EACCES ? Errc::refused : Errc::io, errno, "store.signature");
    const std::unique_ptr<blkid_struct_probe, void (*)(blkid_probe)> probe(::blkid_new_probe(), ::blkid_free_probe);
    if (!probe || ::blkid_probe_set_device(probe.get(), fd.get(), 0, 0) != 0) return std::string();
    ::blkid_probe_enable_superblocks(probe.get(), 1);
    ::blkid_probe_set_superblocks_flags(probe.get(), BLKID_SUBLKS_TYPE);
    ::blkid_probe_enable_partitions(probe.get(), 1);
    for (;;) {
        if (::blkid_do_probe(probe.get()) != 0) return std::string();
        for (const char* const name : {"TYPE", "PTTYPE"}) {
            const char* value = nullptr;
            size_t size = 0;
            if (::blkid_probe_lookup_value(probe.get(), name, &value, &size) == 0 && size > 1)
                return std::string(value, size - 1);
        }
    }
}

}  // namespace tarn
