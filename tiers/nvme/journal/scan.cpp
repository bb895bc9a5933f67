#include "tiers/nvme/journal/scan.hpp"

#include <algorithm>
#include <cstring>

#include "tiers/nvme/device/checksum.hpp"
#include "utils/mapping.hpp"

namespace tarn {

namespace {

// Bytes of the ring by position, read ahead in large pieces.
class RingReader {
  public:
    // patient: what the device cannot read counts as zeros.
    RingReader(BlockDevice& device, const Superblock& superblock, bool patient)
        : device_(device),
          patient_(patient),
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

    // The ring was written to.
    void forget() { start_ = end_ = 0; }

  private:
    static constexpr uint64_t read_ahead = uint64_t{2} << 20;

    Result<> fill(uint64_t position) {
        start_ = position;
        end_ = std::min(limit_, position + buffer_.bytes().size());
        for (uint64_t at = start_; at < end_;) {
            const uint64_t in_ring = at % ring_size_;
            const uint64_t size = std::min(end_ - at, ring_size_ - in_ring);
            const std::span<std::byte> into = buffer_.bytes().subspan(at - start_, size);
            const Result<> read = device_.read_now(into, StoreLayout::journal_offset + in_ring);
            if (!read && !patient_) return read;
            if (!read) read_what_can_be(into, StoreLayout::journal_offset + in_ring);
            at += size;
        }
        return {};
    }
    void read_what_can_be(std::span<std::byte> into, uint64_t offset) {
        for (; !into.empty(); into = into.subspan(page_size), offset += page_size)
            if (!device_.read_now(into.first(page_size), offset))
                std::ranges::fill(into.first(page_size), std::byte{0});
    }

    BlockDevice& device_;
    bool patient_;
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

// The first batch beyond a hole of which later ones prove that it is of this journal, and not what an earlier crash
// left in the ring: one that says that the hole had been durable, or that such a one follows by its checksum. None: it
// is no hole but the end.
Result<std::optional<BatchHeader>> first_beyond(RingReader& reader, const Superblock& superblock, uint64_t from,
                                                uint64_t limit) {
    std::vector<BatchHeader> passed;
    for (uint64_t position = from + page_size; position < limit; position += page_size) {
        TRY(const std::optional<FoundBatch> batch, batch_at(reader, superblock, position));
        if (!batch) continue;
        if (batch->header.durable <= from) {
            passed.push_back(batch->header);
            continue;
        }
        BatchHeader first = batch->header;
        for (auto before = passed.rbegin(); before != passed.rend(); ++before)
            if (before->position + before->size_bytes == first.position && before->checksum == first.previous_checksum)
                first = *before;
        return std::optional(first);
    }
    return std::optional<BatchHeader>();
}

// Whether every record is one, and every page that is there as a whole matches its checksum: another bit that happens
// to explain the batch's checksum as well does not explain these.
bool records_agree(const FoundBatch& batch) {
    std::vector<std::byte> page(page_size);
    const auto agrees = [&](const FoundRecord& found) -> Result<> {
        const std::optional<uint32_t> checksum = checksum_of_whole_page(found, page);
        if (checksum && *checksum != found.record.checksum) return fail(Errc::corrupt);
        return {};
    };
    return visit_records(batch, agrees).has_value();
}

// Whether one flipped bit explains the hole: then it is turned back on the device.
Result<bool> turn_bit_back(BlockDevice& device, RingReader& reader, const Superblock& superblock,
                           const JournalHole& hole, uint32_t previous, const BatchHeader& next) {
    const uint64_t most = batch_size_max(superblock.geometry.journal_size);
    TRY(const std::span<const std::byte> seen, reader.at(hole.from, std::min(hole.to - hole.from, most)));
    // The hole is one batch as a rule; its own word on its size may be what is damaged.
    BatchHeader header;
    std::memcpy(&header, seen.data(), sizeof header);
    for (const uint64_t size : {hole.to - hole.from, uint64_t{header.size_bytes}}) {
        if (size == 0 || size % page_size != 0 || size > seen.size()) continue;
        std::vector<std::byte> bytes(seen.begin(), seen.begin() + static_cast<ptrdiff_t>(size));
        const bool is_followed = hole.from + size == hole.to;
        const std::optional<size_t> mended =
            mend_batch(superblock.store, bytes, is_followed ? next.previous_checksum : header.checksum);
        if (!mended) continue;
        std::memcpy(&header, bytes.data(), sizeof header);
        if (header.magic != BatchHeader::magic_value || header.position != hole.from || header.size_bytes != size ||
            header.previous_checksum != previous || !records_agree({.header = header, .bytes = bytes}))
            continue;
        const uint64_t block = *mended / page_size * page_size;
        const uint64_t in_ring = (hole.from + block) % superblock.geometry.journal_size;
        // O_DIRECT wants an aligned buffer.
        TRY(const Mapping aligned, Mapping::create(page_size));
        std::memcpy(aligned.bytes().data(), bytes.data() + block, page_size);
        TRY_VOID(device.write_now(aligned.bytes().first(page_size), StoreLayout::journal_offset + in_ring));
        TRY_VOID(device.flush_now());
        reader.forget();
        return true;
    }
    return false;
}

}  // namespace

std::optional<uint32_t> checksum_of_whole_page(const FoundRecord& found, std::span<std::byte> scratch) {
    const JournalRecord& record = found.record;
    const bool is_whole = record.dirty == all_sectors || (record.flags & JournalRecord::base_is_zeros) != 0;
    if (record.kind != RecordKind::delta || !is_whole) return std::nullopt;
    const std::span<std::byte, page_size> page(scratch.data(), page_size);
    std::ranges::fill(page, std::byte{0});
    size_t at = 0;
    for (unsigned sector = 0; sector < sectors_per_page; ++sector) {
        if ((record.dirty >> sector & 1) == 0) continue;
        std::memcpy(page.data() + sector * sector_size, found.bytes.data() + at, sector_size);
        at += sector_size;
    }
    return page_checksum(record.page, record.tenure, page);
}

Result<> visit_damaged_batch(std::span<const std::byte> bytes,
                             const std::function<Result<>(const FoundRecord&)>& visit) {
    FoundBatch batch{.header = {}, .bytes = bytes};
    std::memcpy(&batch.header, bytes.data(), sizeof batch.header);
    uint64_t end = sizeof(BatchHeader);
    const auto visit_and_note = [&](const FoundRecord& found) {
        end = found.end - batch.header.position;
        return visit(found);
    };
    TRY_VOID(visit_records(batch, visit_and_note));
    // A batch ends where its records do: zeros follow, less than a page.
    const std::span<const std::byte> rest = bytes.subspan(end);
    if (rest.size() >= page_size || !std::ranges::all_of(rest, [](std::byte byte) { return byte == std::byte{0}; }))
        return fail(Errc::corrupt, 0, "store.journal: a batch is longer than its records");
    return {};
}

Result<JournalScan> scan_journal(BlockDevice& device, const Superblock& superblock,
                                 const std::function<Result<>(const FoundRecord&)>& visit, JournalSalvage* salvage) {
    RingReader reader(device, superblock, salvage != nullptr);
    TRY_VOID(reader.allocate());
    JournalScan scan{.closed = superblock.journal_tail, .end = superblock.journal_tail};
    uint32_t previous = superblock.journal_tail_checksum;
    uint32_t home_epoch = 0;
    const uint64_t limit = superblock.journal_tail + superblock.geometry.journal_size;
    for (;;) {
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
        TRY(const std::optional<BatchHeader> next, first_beyond(reader, superblock, scan.end, limit));
        if (!next) return scan;
        if (!salvage)
            return fail(Errc::corrupt, 0,
                        "store.journal: a batch that had been durable is damaged; tarn store repair --salvage-journal "
                        "keeps what can be proved, and puts the rest on the list of losses");
        const JournalHole hole{.from = scan.end, .to = next->position};
        TRY(const bool mended, turn_bit_back(device, reader, superblock, hole, previous, *next));
        if (mended) {
            ++salvage->bits_mended;
            continue;
        }
        const uint64_t most = batch_size_max(superblock.geometry.journal_size);
        TRY(const std::span<const std::byte> bytes, reader.at(hole.from, std::min(hole.to - hole.from, most)));
        TRY_VOID(salvage->on_hole(hole, previous, bytes));
        scan.end = hole.to;
        previous = next->previous_checksum;
        scan.boundaries.push_back({.position = scan.end, .checksum = previous});
    }
}

}  // namespace tarn
