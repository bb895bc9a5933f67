#include "daemon/catalog/catalog_table.hpp"

#include <cstring>
#include <memory>

namespace tarn {

namespace {

constexpr uint64_t header_magic = 0x31676c6174616331;  // "1catalg1"

struct StoredHeader {
    uint64_t magic = 0;  // 0: a catalog nobody has written yet
    uint32_t next_id = 0;
    uint32_t slot_count = 0;
};

struct StoredRecord {
    static constexpr uint32_t removed = 2;
    uint32_t used = 0;  // 1: a volume's
    uint32_t id = 0;
    uint8_t shared = 0;
    uint8_t holder = 0;
    uint16_t name_size = 0;
    uint32_t holder_epoch = 0;
    std::array<char, 256> name{};
    uint32_t hold = 0;
    uint8_t kept = 0;
    std::array<std::byte, 235> reserved{};
};
static_assert(sizeof(StoredRecord) == 512);
static_assert(volume_name_size_max < sizeof(StoredRecord::name));

constexpr int commit_attempts_max = 3;

constexpr uint32_t records_per_page = page_size / sizeof(StoredRecord);

uint64_t offset_of(uint32_t slot) {
    return (1 + uint64_t{slot / records_per_page}) * page_size + slot % records_per_page * sizeof(StoredRecord);
}

Result<CatalogRecord> decode(const StoredRecord& stored, uint32_t slot) {
    CatalogRecord record{.name = {},
                         .id = stored.id,
                         .shared = stored.shared != 0,
                         .holder = stored.holder,
                         .holder_epoch = stored.holder_epoch,
                         .kept = stored.kept != 0,
                         .hold = stored.hold,
                         .slot = slot,
                         .removed = stored.used == StoredRecord::removed};
    if (stored.name_size > volume_name_size_max || stored.id == 0 || stored.id > volume_id_max)
        return fail(Errc::corrupt, 0, "catalog.record");
    record.name.assign(stored.name.data(), stored.name_size);
    if (!valid_volume_name(record.name)) return fail(Errc::corrupt, 0, "catalog.record: name");
    return record;
}

}  // namespace

Task<Result<>> CatalogTable::read_page(uint64_t page, std::span<std::byte> into) {
    if (volume_.try_read(page * page_size, into)) co_return Result<>{};
    co_return co_await volume_.read(page * page_size, into);
}

Task<Result<>> CatalogTable::write_bytes(uint64_t offset_bytes, std::span<const std::byte> from) {
    if (volume_.try_write(offset_bytes, from)) co_return Result<>{};
    co_return co_await volume_.write(offset_bytes, from);
}

Task<Result<CatalogHeader>> CatalogTable::header() {
    StoredHeader stored;
    CO_TRY_VOID(co_await read_page(0, std::as_writable_bytes(std::span(&stored, 1))));
    if (stored.magic == 0) co_return CatalogHeader{};
    if (stored.magic != header_magic || stored.slot_count > slot_limit_)
        co_return fail(Errc::corrupt, 0, "catalog.header");
    co_return CatalogHeader{.next_id = stored.next_id, .slot_count = stored.slot_count};
}

Task<Result<std::vector<CatalogRecord>>> CatalogTable::list() {
    CO_TRY(std::vector<CatalogRecord> records, co_await list_all());
    std::erase_if(records, [](const CatalogRecord& record) { return record.removed; });
    co_return records;
}

Task<Result<std::vector<CatalogRecord>>> CatalogTable::list_all() {
    CO_TRY(const CatalogHeader header_now, co_await header());
    std::vector<CatalogRecord> records;
    const auto page = std::make_unique<std::array<std::byte, page_size>>();  // too large for a coroutine's frame
    for (uint32_t slot = 0; slot < header_now.slot_count; ++slot) {
        if (slot % records_per_page == 0) CO_TRY_VOID(co_await read_page(1 + slot / records_per_page, *page));
        StoredRecord stored;
        std::memcpy(&stored, page->data() + slot % records_per_page * sizeof stored, sizeof stored);
        if (!stored.used) continue;
        CO_TRY(CatalogRecord record, decode(stored, slot));
        records.push_back(std::move(record));
    }
    co_return records;
}

Task<Result<std::optional<CatalogRecord>>> CatalogTable::find(std::string name) {
    CO_TRY(std::vector<CatalogRecord> records, co_await list());
    for (CatalogRecord& record : records)
        if (record.name == name) co_return std::optional<CatalogRecord>(std::move(record));
    co_return std::optional<CatalogRecord>();
}

Task<Result<uint32_t>> CatalogTable::free_slot() {
    CO_TRY(const std::vector<CatalogRecord> records, co_await list_all());
    uint32_t slot = 0;
    for (const CatalogRecord& record : records) {
        if (record.slot != slot) break;
        ++slot;
    }
    if (slot >= slot_limit_) co_return fail(Errc::no_space, 0, "catalog: there are too many volumes");
    co_return slot;
}

Task<Result<>> CatalogTable::put_header(CatalogHeader header) {
    const StoredHeader stored{.magic = header_magic, .next_id = header.next_id, .slot_count = header.slot_count};
    co_return co_await write_bytes(0, std::as_bytes(std::span(&stored, 1)));
}

Task<Result<>> CatalogTable::put(CatalogRecord record) {
    StoredRecord stored{.used = record.removed ? StoredRecord::removed : 1,
                        .id = record.id,
                        .shared = record.shared,
                        .holder = record.holder,
                        .name_size = static_cast<uint16_t>(record.name.size()),
                        .holder_epoch = record.holder_epoch,
                        .hold = record.hold,
                        .kept = record.kept};
    std::memcpy(stored.name.data(), record.name.data(), record.name.size());
    co_return co_await write_bytes(offset_of(record.slot), std::as_bytes(std::span(&stored, 1)));
}

Task<Result<>> CatalogTable::commit(uint32_t slot, bool with_header) {
    std::vector<uint64_t> pages = {offset_of(slot) / page_size};
    if (with_header) pages.push_back(0);
    Result<> result = co_await flush_pages(pages);
    // With each page that a host had read and lost, losses are recorded: for all that a session knows it was changed
    // there. But only the registrar changes these, and here they are: so they are written again as they are, by a
    // session that begins after the loss.
    for (int attempt = 1; !result && result.error().code == Errc::io && attempt < commit_attempts_max; ++attempt) {
        volume_.begin_anew();
        for (const uint64_t page : pages) CO_TRY_VOID(co_await write_anew(page));
        result = co_await flush_pages(pages);
    }
    co_return result;
}

Task<Result<>> CatalogTable::flush_pages(std::vector<uint64_t> pages) {
    CO_TRY_VOID(co_await volume_.flush_group(std::move(pages)));
    // It is all in the store by now. But only a flush of the volume vouches for the session's writes: without it, what
    // others lose later would count against these.
    co_return co_await flush();
}

Task<Result<>> CatalogTable::write_anew(uint64_t page) {
    const auto bytes = std::make_unique<std::array<std::byte, page_size>>();
    CO_TRY_VOID(co_await read_page(page, *bytes));
    co_return co_await write_bytes(page * page_size, *bytes);
}

Task<Result<>> CatalogTable::clear(uint32_t slot) {
    const StoredRecord stored;
    co_return co_await write_bytes(offset_of(slot), std::as_bytes(std::span(&stored, 1)));
}

}  // namespace tarn
