#include "tiers/nvme/table/loss_list.hpp"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "tiers/nvme/device/checksum.hpp"
#include "utils/assert.hpp"

namespace tarn {

namespace {

constexpr std::array<char, 8> magic = {'t', 'a', 'r', 'n', 'l', 'o', 's', 's'};

struct Header {
    std::array<char, 8> magic;
    uint64_t sequence;
    uint32_t count;
    uint32_t checksum;  // of the store's UUID and the header with the losses, with this field zero
    std::array<uint64_t, 5> reserved;
};
static_assert(sizeof(Header) == 64);

static_assert(sizeof(Header) + losses_max * sizeof(Loss) <= loss_list_size_max);
static_assert(loss_list_offsets[0] >= StoreLayout::superblock_offsets[0] + page_size &&
              loss_list_offsets[0] + loss_list_size_max <= StoreLayout::superblock_offsets[1] &&
              loss_list_offsets[1] >= StoreLayout::superblock_offsets[1] + page_size &&
              loss_list_offsets[1] + loss_list_size_max <= StoreLayout::journal_offset);

uint32_t checksum_of(const Uuid& store, Header header, std::span<const std::byte> entries) {
    header.checksum = 0;
    return crc32c(entries, crc32c(std::as_bytes(std::span(&header, 1)), crc32c(std::as_bytes(std::span(store)))));
}

// What it costs to join two neighbours: who would be told of losses that were none.
auto price_of(const Loss& left, const Loss& right) {
    const uint64_t between = right.first.value > left.last.value ? right.first.value - left.last.value : 0;
    return std::tuple(left.last.volume() != right.first.volume(), left.generation != right.generation, between);
}

void join(Loss& into, const Loss& next) {
    into.last = std::max(into.last, next.last);
    into.page_count = into.page_count == 0 || next.page_count == 0 ? 0 : into.page_count + next.page_count;
    if (next.generation > into.generation) into.host = next.host;
    into.generation = std::max(into.generation, next.generation);
    into.at_ns = std::max(into.at_ns, next.at_ns);
}

}  // namespace

void bound_losses(std::vector<Loss>& losses) {
    std::ranges::sort(losses, {}, [](const Loss& loss) { return std::tuple(loss.first, loss.last, loss.generation); });
    // Of the same pages only the newest counts.
    const auto is_outdone = [](const Loss& a, const Loss& b) { return a.first == b.first && a.last == b.last; };
    const auto outdone = std::unique(losses.rbegin(), losses.rend(), is_outdone);
    losses.erase(losses.begin(), outdone.base());
    if (losses.size() <= losses_max) return;
    // Between which of them to join: where it costs least.
    std::vector<size_t> joints(losses.size() - 1);
    for (size_t i = 0; i < joints.size(); ++i) joints[i] = i;
    const auto is_cheaper = [&](size_t a, size_t b) {
        return std::tuple(price_of(losses[a], losses[a + 1]), a) < std::tuple(price_of(losses[b], losses[b + 1]), b);
    };
    const size_t join_count = losses.size() - losses_max;
    std::nth_element(joints.begin(), joints.begin() + static_cast<ptrdiff_t>(join_count), joints.end(), is_cheaper);
    std::vector<bool> joined(losses.size(), false);
    for (size_t i = 0; i < join_count; ++i) joined[joints[i] + 1] = true;
    size_t count = 0;
    for (size_t i = 0; i < losses.size(); ++i) {
        if (joined[i])
            join(losses[count - 1], losses[i]);
        else
            losses[count++] = losses[i];
    }
    losses.resize(count);
}

std::span<const std::byte> encode_losses(const Uuid& store, const LossList& list, std::span<std::byte> into) {
    TARN_ASSERT(list.losses.size() <= losses_max && into.size() == loss_list_size_max);
    std::ranges::fill(into, std::byte{0});
    const std::span<const std::byte> entries = std::as_bytes(std::span(list.losses));
    std::ranges::copy(entries, into.begin() + sizeof(Header));
    Header header{.magic = magic, .sequence = list.sequence, .count = static_cast<uint32_t>(list.losses.size())};
    header.checksum = checksum_of(store, header, entries);
    std::memcpy(into.data(), &header, sizeof header);
    const size_t used = sizeof header + entries.size();
    return into.first(round_up(used, page_size));
}

Result<LossList> decode_losses(const Uuid& store, std::span<const std::byte> bytes) {
    TARN_ASSERT(bytes.size() == loss_list_size_max);
    Header header;
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.magic != magic || header.count > losses_max)
        return fail(Errc::corrupt, 0, "store.losses: not a list of losses");
    const std::span<const std::byte> entries = bytes.subspan(sizeof header, header.count * sizeof(Loss));
    if (header.checksum != checksum_of(store, header, entries))
        return fail(Errc::corrupt, 0, "store.losses: wrong checksum");
    LossList list{.sequence = header.sequence, .losses = std::vector<Loss>(header.count)};
    std::ranges::copy(entries, std::as_writable_bytes(std::span(list.losses)).begin());
    const auto is_none = [](const Loss& loss) {
        return loss.last < loss.first || (loss.host >= hosts_max && loss.host != no_host) ||
               loss.reserved != decltype(loss.reserved){};
    };
    if (std::ranges::any_of(list.losses, is_none)) return fail(Errc::corrupt, 0, "store.losses: no loss");
    return list;
}

}  // namespace tarn
