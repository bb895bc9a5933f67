#include "tiers/nvme/store_inspection.hpp"

#include <blkid/blkid.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "tiers/nvme/device/overlay_device.hpp"
#include "utils/log.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {

namespace {

constexpr size_t bad_pages_max = 100;
constexpr size_t run_pages_max = 256;

Task<Result<std::unique_ptr<Store>>> open_above(Loop& loop, BlockDevice& device, StoreInspection& found) {
    CO_TRY(found.superblock, read_superblock(device));
    found.layout = StoreLayout::of(found.superblock.geometry);
    CO_TRY(const SuperblockCopies copies, read_superblocks(device));
    for (size_t i = 0; i < copies.size(); ++i) {
        if (!copies[i] && copies[i].error().code == Errc::io) co_return fail(copies[i].error());
        found.superblock_copies[i] = copies[i] ? "good" : copies[i].error().where;
    }
    CO_TRY(found.journal, scan_journal(device, found.superblock, [](const FoundRecord&) { return Result<>(); }));
    CO_TRY(std::unique_ptr<Store> store,
           co_await Store::open(loop, std::make_unique<OverlayDevice>(device), found.superblock.identity));
    found.space = store->space();
    for (const VolumeId volume : store->volumes())
        found.volumes.push_back({.id = volume, .allocated_bytes = store->allocated_bytes(volume)});
    co_return store;
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
        for (const PageRun& run : co_await store->stored_runs(loop, volume.id)) {
            for (uint64_t done = 0; done < run.count;) {
                const size_t count = std::min<uint64_t>(run_pages_max, run.count - done);
                for (const BadPage& bad :
                     co_await store->check_run(loop, PageId::of(volume.id, run.first + done), count)) {
                    ++found.bad_page_count;
                    if (found.bad_pages.size() < bad_pages_max) found.bad_pages.push_back(bad);
                }
                done += count;
            }
            found.pages_checked += run.count;
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
