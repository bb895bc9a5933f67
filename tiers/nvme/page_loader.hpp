// PageLoader: brings the newest bytes of pages together: from their places, from the journal in memory and from the
// journal on the device; neighbours in one operation. Then says which pages do not match their checksum.
//
// add() runs under the lock of the store's books and says what it found there; run() and matches() run without it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tiers/nvme/device/block_device.hpp"
#include "tiers/nvme/device/page_buffer.hpp"
#include "tiers/nvme/journal/journal.hpp"
#include "tiers/nvme/store_state.hpp"

namespace tarn {

class PageLoader {
  public:
    // Where a page's bytes were at one moment. The same source twice is the same bytes.
    struct Source {
        PageId page{};
        uint64_t place = 0;  // device offset of its place
        PageEntry entry;     // what they must match
        JournaledPage journaled;
        bool in_journal = false;
        bool operator==(const Source& other) const;
    };

    // The page is present. Copies what is in memory.
    void add(const Source& source, const Journal& journal, std::byte* into);
    size_t count() const { return pages_.size(); }
    const Source& source(size_t i) const { return pages_[i].source; }
    std::byte* bytes(size_t i) const { return pages_[i].into; }

    // Errors: io; then the bytes of all pages are undefined.
    Task<Result<>> run(Loop& loop, BlockDevice& device);
    uint32_t checksum(size_t i) const;
    bool matches(size_t i) const { return checksum(i) == pages_[i].source.entry.checksum; }

  private:
    // Bytes of the journal that go over those of the place.
    struct Piece {
        size_t page;
        size_t offset;  // in the page
        size_t size;
        size_t from;  // in copies_, or in the blocks read from the device
        bool in_memory;
    };
    struct BlockRead {
        uint64_t device_offset;
        size_t size;
        size_t into;
    };
    struct Page {
        Source source;
        std::byte* into;
    };
    void add_piece(const Journal& journal, uint64_t position, size_t page, size_t offset, size_t size);

    std::vector<Page> pages_;
    std::vector<Piece> pieces_;
    std::vector<std::byte> copies_;
    std::vector<BlockRead> reads_;
    size_t blocks_size_ = 0;
    uint64_t blocks_end_ = 0;  // the position where the last of reads_ ends
};

}  // namespace tarn
