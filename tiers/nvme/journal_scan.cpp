#include "tiers/nvme/journal_scan.hpp"

#include <algorithm>
#include <cstring>

#include "utils/mapping.hpp"

namespace tarn {

namespace {

// Bytes of the ring by position, read ahead in large pieces.
class RingReader {
  public:
    RingReader(BlockDevice& device, const Superblock& superblock)
        : device_(device),
          ring_size_(superblock.geometry.journal_size),
          limit_(superblock.journal_tail + superblock.geometry.journal_size) {}

    Result<> allocate() {
        const uint64_t size = std::min(ring_size_, std::max(read_ahead, batch_size_max(ring_size_)));
        TRY(buffer_, Mapping::create(size));
        return {};
    }
    // Fewer bytes where the ring comes round.
    Result<std::span<const std::byte>> at(uint64_t position, uint64_t size) {
        size = std::min({size, limit_ - position, static_cast<uint64_t>(buffer_.bytes().size())});
        if (position < start_ || position + size > end_) TRY_VOID(fill(position));
        return std::span<const std::byte>(buffer_.bytes()).subspan(position - start_, size);
    }

  private:
    static constexpr uint64_t read_ahead = uint64_t{2} << 20;

    Result<> fill(uint64_t position) {
        start_ = position;
        end_ = std::min(limit_, position + buffer_.bytes().size());
        for (uint64_t at = start_; at < end_;) {
            const uint64_t in_ring = at % ring_size_;
            const uint64_t size = std::min(end_ - at, ring_size_ - in_ring);
            TRY_VOID(
                device_.read_now(buffer_.bytes().subspan(at - start_, size), StoreLayout::journal_offset + in_ring));
            at += size;
        }
        return {};
    }

    BlockDevice& device_;
    uint64_t ring_size_;
    uint64_t limit_;
    Mapping buffer_;
    uint64_t start_ = 0;
    uint64_t end_ = 0;
};

struct FoundBatch {
    BatchHeader header;
    std::span<const std::byte> bytes;
};

// A whole batch at this position, by whichever process.
Result<std::optional<FoundBatch>> batch_at(RingReader& reader, const Superblock& superblock, uint64_t position) {
    TRY(const std::span<const std::byte> head, reader.at(position, page_size));
    if (head.size() < page_size) return std::optional<FoundBatch>();
    BatchHeader header;
    std::memcpy(&header, head.data(), sizeof header);
    if (header.magic != BatchHeader::magic_value || header.position != position || header.durable > position ||
        header.size_bytes == 0 || header.size_bytes % page_size != 0 ||
        header.size_bytes > batch_size_max(superblock.geometry.journal_size) ||
        header.home_epoch > superblock.home_epoch)
        return std::optional<FoundBatch>();
    TRY(const std::span<const std::byte> bytes, reader.at(position, header.size_bytes));
    if (bytes.size() < header.size_bytes || batch_checksum(superblock.store, bytes) != header.checksum)
        return std::optional<FoundBatch>();
    return std::optional(FoundBatch{.header = header, .bytes = bytes});
}

Result<uint64_t> visit_records(const FoundBatch& batch, const std::function<Result<>(const FoundRecord&)>& visit) {
    uint64_t at = sizeof(BatchHeader);
    for (uint32_t i = 0; i < batch.header.record_count; ++i) {
        FoundRecord found;
        if (at + sizeof found.record > batch.bytes.size())
            return fail(Errc::corrupt, 0, "store.journal: a batch is shorter than its records");
        std::memcpy(&found.record, batch.bytes.data() + at, sizeof found.record);
        at += sizeof found.record;
        if (!found.record.makes_sense()) return fail(Errc::corrupt, 0, "store.journal: a record makes no sense");
        const uint64_t size = found.record.payload_size();
        if (at + size > batch.bytes.size())
            return fail(Errc::corrupt, 0, "store.journal: a batch is shorter than its records");
        found.bytes = batch.bytes.subspan(at, size);
        found.payload = batch.header.position + at;
        at += size;
        found.end = batch.header.position + at;
        TRY_VOID(visit(found));
    }
    return batch.header.record_count;
}

}  // namespace

Result<JournalScan> scan_journal(BlockDevice& device, const Superblock& superblock,
                                 const std::function<Result<>(const FoundRecord&)>& visit) {
    RingReader reader(device, superblock);
    TRY_VOID(reader.allocate());
    JournalScan scan{
        .boundaries = {}, .closed = superblock.journal_tail, .end = superblock.journal_tail, .record_count = 0};
    uint32_t previous = superblock.journal_tail_checksum;
    uint32_t home_epoch = 0;
    const uint64_t limit = superblock.journal_tail + superblock.geometry.journal_size;
    while (scan.end < limit) {
        TRY(const std::optional<FoundBatch> batch, batch_at(reader, superblock, scan.end));
        if (!batch || batch->header.previous_checksum != previous || batch->header.home_epoch < home_epoch) break;
        TRY(const uint64_t records, visit_records(*batch, visit));
        scan.record_count += records;
        scan.closed = std::max(scan.closed, batch->header.durable);
        scan.end += batch->header.size_bytes;
        previous = batch->header.checksum;
        home_epoch = batch->header.home_epoch;
        scan.boundaries.push_back({.position = scan.end, .checksum = previous});
    }
    for (uint64_t position = scan.end + page_size; position < limit; position += page_size) {
        TRY(const std::optional<FoundBatch> batch, batch_at(reader, superblock, position));
        if (batch && batch->header.durable > scan.end)
            return fail(Errc::corrupt, 0, "store.journal: a batch that had been durable is gone");
    }
    return scan;
}

}  // namespace tarn
