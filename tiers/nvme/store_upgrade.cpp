#include "tiers/nvme/store_upgrade.hpp"

#include <algorithm>
#include <array>

#include "tiers/nvme/table/loss_list.hpp"
#include "utils/mapping.hpp"

namespace tarn {

namespace {

struct Copies {
    std::array<Result<Superblock>, 2> superblocks;
    bool any_is_old = false;
};

Copies read_copies(BlockDevice& device, std::span<std::byte> scratch) {
    Copies copies;
    const BlockBytes block(scratch.first(page_size));
    for (size_t i = 0; i < copies.superblocks.size(); ++i) {
        Result<Superblock>& copy = copies.superblocks[i];
        if (const Result<> read = device.read_now(block, StoreLayout::superblock_offsets[i]); !read) {
            copy = fail(read.error());
            continue;
        }
        copy = decode_superblock(block);
        if (copy || copy.error().code != Errc::unsupported) continue;
        copy = decode_superblock(block, store_format_upgradable);
        copies.any_is_old |= copy.has_value();
    }
    return copies;
}

}  // namespace

Result<bool> upgrade_store(BlockDevice& device, const StoreIdentity& expected) {
    if (device.size_bytes() < StoreLayout::journal_offset)
        return fail(Errc::invalid, 0, "store.upgrade: too small for a store");
    TRY(const Mapping scratch, Mapping::create(loss_list_size_max));
    const Copies copies = read_copies(device, scratch.bytes());
    if (!copies.any_is_old) return false;  // open says what is wrong, if anything is
    TRY(Superblock superblock, choose_superblock(copies.superblocks[0], copies.superblocks[1]));
    if (superblock.identity.cluster != expected.cluster || superblock.identity.host != expected.host)
        return fail(Errc::refused, 0, "store.upgrade: the store of another cluster or host");
    if (StoreLayout::of(superblock.geometry).end > device.size_bytes())
        return fail(Errc::corrupt, 0, "store.upgrade: shorter than its superblock says");
    for (const uint64_t offset : loss_list_offsets)
        TRY_VOID(device.write_now(encode_losses(superblock.store, {}, scratch.bytes()), offset));
    TRY_VOID(device.flush_now());
    ++superblock.generation;
    const BlockBytes block(scratch.bytes().first(page_size));
    encode_superblock(superblock, block);
    for (const uint64_t offset : StoreLayout::superblock_offsets) {
        TRY_VOID(device.write_now(block, offset));
        TRY_VOID(device.flush_now());
    }
    return true;
}

}  // namespace tarn
