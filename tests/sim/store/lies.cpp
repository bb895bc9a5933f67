// Structures that lie: wrong contents under correct checksums, as only an attacker can make them.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/sim/store/crash_run.hpp"
#include "tests/support/store_identity.hpp"
#include "tiers/nvme/device/checksum.hpp"
#include "tiers/nvme/journal/format.hpp"

namespace tarn::store_sim {

namespace {

void flip(std::span<std::byte> bytes, Random& random) {
    // Most of them in the header, where each byte means something.
    const uint64_t size = random.chance(80) ? std::min<uint64_t>(bytes.size(), 160) : bytes.size();
    const uint64_t at = random.below(size);
    bytes[at] = random.chance(50) ? static_cast<std::byte>(random.next()) : bytes[at] ^ std::byte{1};
}

void put_checksum(std::span<std::byte> block, size_t at, uint32_t checksum) {
    std::memcpy(block.data() + at, &checksum, sizeof checksum);
}

}  // namespace

// Whoever can write the device can also write correct checksums: then the store returns those contents, or refuses, but
// never reads or writes beyond its bounds.
void CrashRun::check_lies(Image image) {
    for (uint64_t lies = cuts_.between(1, 3); lies > 0; --lies) {
        switch (cuts_.below(3)) {
            case 0: lie_in_superblocks(image); break;
            case 1: lie_in_table(image); break;
            default: lie_in_journal(image); break;
        }
    }
    ++counts_.lies;
    auto disk = std::make_unique<Disk>(std::move(image), cuts_.next(), true);
    Result<std::unique_ptr<Store>> store = other_.run_until_done(Store::open(other_, std::move(disk), store_identity));
    if (!store) {
        ++counts_.lies_refused;
        return;
    }
    const PageBuffer buffer = make_page_buffer(1);
    const std::span<std::byte, page_size> bytes(buffer.get(), page_size);
    for (const auto& [page, versions] : model_.pages()) {
        Contents contents{};
        if (!other_.run_until_done((*store)->read(other_, PageId{page}, bytes))) continue;
        if (!decode(PageId{page}, bytes.data(), contents))
            fail(fmt::format("after a lie volume {} page {} has bytes of no page", PageId{page}.volume(),
                             PageId{page}.number()));
    }
    // The store goes on with those contents: it can read back whatever it accepts.
    for (const VolumeId volume : (*store)->volumes()) {
        for (uint64_t number = 0; number < 40; ++number) {
            const PageId page = PageId::of(volume, number * 11);
            std::ranges::fill(bytes, static_cast<std::byte>(number));
            const PageWrite write{.page = page, .tenure = number + 1, .bytes = bytes.data()};
            if (!other_.run_until_done((*store)->write(other_, std::span(&write, 1)))) break;
            if (other_.run_until_done((*store)->read(other_, page, bytes)) &&
                std::ranges::any_of(bytes, [&](std::byte byte) { return byte != static_cast<std::byte>(number); }))
                fail("after a lie a page does not read as it was written");
        }
        static_cast<void>(other_.run_until_done((*store)->drop_volume(other_, volume)));
    }
    static_cast<void>(other_.run_until_done((*store)->close(other_)));
    other_.run_until_done((*store)->settle(other_));
}

void CrashRun::lie_in_superblocks(Image& image) {
    constexpr size_t checksum_at = 100;
    std::vector<std::byte> block(page_size);
    image.read(StoreLayout::superblock_offsets[0], block);
    flip(std::span(block).subspan(24), cuts_);
    put_checksum(block, checksum_at, 0);
    put_checksum(block, checksum_at, crc32c(block));
    for (const uint64_t offset : StoreLayout::superblock_offsets) image.write(offset, block);
}

void CrashRun::lie_in_table(Image& image) {
    constexpr size_t checksum_at = 60;
    const uint64_t slab_count = (image.size_bytes() - layout_.data_offset) / slab_size;
    const uint64_t slab = cuts_.below(slab_count);
    std::vector<std::byte> block(page_size);
    // Its own, or another slab's.
    image.read(layout_.table_offsets[0] + (cuts_.chance(20) ? cuts_.below(slab_count) : slab) * page_size, block);
    flip(block, cuts_);
    put_checksum(block, checksum_at, 0);
    const Uuid store = store_of(image);
    uint32_t sum = crc32c(std::as_bytes(std::span(store)));
    sum = crc32c(std::as_bytes(std::span(&slab, 1)), sum);
    put_checksum(block, checksum_at, crc32c(block, sum));
    for (const uint64_t offset : layout_.table_offsets) image.write(offset + slab * page_size, block);
}

void CrashRun::lie_in_journal(Image& image) {
    const uint64_t ring = layout_.table_offsets[0] - StoreLayout::journal_offset;
    std::vector<uint64_t> batches;
    BatchHeader header;
    for (uint64_t at = 0; at < ring; at += page_size) {
        image.read(StoreLayout::journal_offset + at, std::as_writable_bytes(std::span(&header, 1)));
        if (header.magic == BatchHeader::magic_value && at + header.size_bytes <= ring &&
            header.size_bytes >= page_size)
            batches.push_back(StoreLayout::journal_offset + at);
    }
    if (batches.empty()) return;
    const uint64_t offset = batches[cuts_.below(batches.size())];
    image.read(offset, std::as_writable_bytes(std::span(&header, 1)));
    std::vector<std::byte> batch(header.size_bytes);
    image.read(offset, batch);
    flip(std::span(batch).subspan(cuts_.chance(50) ? 0 : sizeof header), cuts_);
    put_checksum(batch, offsetof(BatchHeader, checksum), batch_checksum(store_of(image), batch));
    image.write(offset, batch);
}

Uuid CrashRun::store_of(const Image& image) {
    constexpr size_t store_at = 40;
    Uuid store;
    image.read(StoreLayout::superblock_offsets[0] + store_at, std::as_writable_bytes(std::span(store)));
    return store;
}

}  // namespace tarn::store_sim
