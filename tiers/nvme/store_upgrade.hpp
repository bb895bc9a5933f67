// Upgrade of a store: from format 2, in place. Format 3 has a list of losses, and the superblock says whether whoever
// had the store open last left nothing in memory alone; all else is where it was, the journal of a crash included.
//
// The list is made durable first, then the superblocks, one after the other. Where that is cut short both superblocks
// are of format 2, or only one is: the next upgrade completes it, and until then no tarn opens the store.
#pragma once

#include "tiers/nvme/device/block_device.hpp"
#include "tiers/nvme/device/superblock.hpp"

namespace tarn {

// Whether there was anything to do. Errors: refused (another cluster's or host's), corrupt, unsupported, invalid, io.
Result<bool> upgrade_store(BlockDevice& device, const StoreIdentity& expected);

}  // namespace tarn
