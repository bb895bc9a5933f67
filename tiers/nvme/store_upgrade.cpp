#include "tiers/nvme/store_upgrade.hpp"

#include <algorithm>
#include <array>

#include "tiers/nvme/table/loss_list.hpp"
#include "utils/mapping.hpp"

namespace tarn {

Result<bool> upgrade_store(BlockDevice& device, const StoreIdentity& expected) {
    if (device.size_bytes() < StoreLayout::journal_offset)
        return fail(Errc::invalid, 0, "store.upgrade: too small for a store");
    TRY(const SuperblockCopies copies, read_superblocks(device, store_format_upgradable));
    const auto is_old = [](const Result<Superblock>& copy) { return copy && copy->version != store_format_version; };
    if (std::ranges::none_of(copies, is_old)) return false;  // open says what is wrong, if anything is
    TRY(Superblock superblock, choose_superblock(copies[0], copies[1]));
    if (superblock.identity.cluster != expected.cluster || superblock.identity.host != expected.host)
        return fail(Errc::refused, 0, "store.upgrade: the store of another cluster or host");
    if (StoreLayout::of(superblock.geometry).end > device.size_bytes())
        return fail(Errc::corrupt, 0, "store.upgrade: shorter than its superblock says");
    TRY(const Mapping scratch, Mapping::create(loss_list_size_max));
    for (const uint64_t offset : loss_list_offsets)
        TRY_VOID(device.write_now(encode_losses(superblock.store, {}, scratch.bytes()), offset));
    TRY_VOID(device.flush_now());
    ++superblock.generation;
    const BlockBytes block(scratch.bytes().first(page_size));
    encode_superblock(superblock, block);
    TRY_VOID(write_copies_now(device, StoreLayout::superblock_offsets, block));
    return true;
}

}  // namespace tarn
