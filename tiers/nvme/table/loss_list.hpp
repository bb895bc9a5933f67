// LossList: which pages of this home may have lost writes, and in which loss generation; durable, and bounded.
//
// A loss is a run of page ids, maybe over several volumes, that has all the pages it is about, and maybe others: when
// there are too many runs, neighbours become one. Nothing is ever taken off: nobody could tell when the last session
// from before a loss ends.
//
// On the device it is a header and the losses, in as many blocks of 4 KiB as they take, twice. The copies are written
// one after the other, each made durable before the next. Decoding treats the bytes as hostile.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "tiers/nvme/device/superblock.hpp"
#include "tiers/page.hpp"
#include "utils/result.hpp"

namespace tarn {

struct Loss {
    PageId first;             // all of them lie from here
    PageId last;              // to here
    uint64_t page_count = 0;  // 0: not known
    int64_t at_ns = 0;        // since the Unix epoch
    uint32_t generation = 0;
    HostId host = no_host;  // whose memory is gone; no_host: not known
    std::array<uint8_t, 3> reserved{};
    uint64_t reserved_too = 0;
    bool operator==(const Loss&) const = default;
};
static_assert(sizeof(Loss) == 48 && std::has_unique_object_representations_v<Loss>, "as it lies on the device");

inline constexpr PageId last_page_id{UINT64_MAX};
inline constexpr size_t losses_max = 1024;
inline constexpr uint64_t loss_list_size_max = 13 * page_size;
inline constexpr std::array<uint64_t, 2> loss_list_offsets = {uint64_t{64} << 10, uint64_t{576} << 10};

struct LossList {
    uint64_t sequence = 0;  // of two good copies the higher is current
    std::vector<Loss> losses;
};

// Sorted by their first pages, and no more than losses_max: those are joined that have the fewest pages between them,
// rather of one volume and one generation. What is joined counts as of the newer generation.
void bound_losses(std::vector<Loss>& losses);

// store: whose list it is. Returns the bytes that are to be written, of loss_list_size_max.
std::span<const std::byte> encode_losses(const Uuid& store, const LossList& list, std::span<std::byte> into);
// Errors: corrupt.
Result<LossList> decode_losses(const Uuid& store, std::span<const std::byte> bytes);

}  // namespace tarn
