// What the tools say of a stopped store. Nothing is written to it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tiers/nvme/journal/scan.hpp"
#include "tiers/nvme/store.hpp"

namespace tarn {

struct StoreInspection {
    struct Volume {
        VolumeId id = 0;
        uint64_t allocated_bytes = 0;
    };
    Superblock superblock;
    StoreLayout layout;
    std::array<std::string, 2> superblock_copies;  // "good", or what is wrong
    JournalScan journal;
    StoreSpace space;
    std::vector<Volume> volumes;

    // By check only.
    uint64_t pages_checked = 0;
    uint64_t bad_page_count = 0;
    std::vector<BadPage> bad_pages;  // the first of them
};

// Recovers it in memory. Errors: as of Store::open.
Task<Result<StoreInspection>> inspect_store(Loop& loop, BlockDevice& device);
// The same, and reads every page.
Task<Result<StoreInspection>> check_store(Loop& loop, BlockDevice& device);

// What is known to lie on a device or in a file by its signature: "ext4", "LVM2_member", "gpt"; empty: nothing known.
// Errors: not_found, refused, io.
Result<std::string> known_signature(const std::string& path);

}  // namespace tarn
