#include "tiers/nvme/store_salvage.hpp"

#include <algorithm>
#include <cstring>

#include "tiers/nvme/device/checksum.hpp"
#include "tiers/nvme/device/overlay_device.hpp"
#include "utils/assert.hpp"
#include "utils/clock.hpp"
#include "utils/mapping.hpp"

namespace tarn {

namespace {

PageId first_of_slab(PageId page) {
    return PageId::of(page.volume(), SlabTable::slab_number(page) * pages_per_slab);
}

// Runs of consecutive pages.
std::vector<Loss> losses_of(const std::set<uint64_t>& pages, int64_t now) {
    std::vector<Loss> losses;
    for (const uint64_t page : pages) {
        if (!losses.empty() && losses.back().last.value + 1 == page) {
            losses.back().last.value = page;
            ++losses.back().page_count;
        } else {
            losses.push_back({.first = {page}, .last = {page}, .page_count = 1, .at_ns = now});
        }
    }
    return losses;
}

// All the others.
std::vector<Loss> losses_between(const std::set<uint64_t>& pages, int64_t now) {
    std::vector<Loss> losses;
    uint64_t first = 0;
    for (const uint64_t page : pages) {
        if (page > first) losses.push_back({.first = {first}, .last = {page - 1}, .at_ns = now});
        first = page + 1;
    }
    losses.push_back({.first = {first}, .last = last_page_id, .at_ns = now});
    return losses;
}

}  // namespace

bool Store::Salvage::admits(const FoundRecord& found) {
    if (!after_hole_) return true;
    const JournalRecord& record = found.record;
    const uint64_t in_slab = SlabTable::page_in_slab(record.page);
    const bool is_whole = record.dirty == all_sectors || (record.flags & JournalRecord::base_is_zeros) != 0;
    if (record.kind == RecordKind::delta && !is_whole) {
        const SlabTable& table = store_.state_.table;
        const bool has_base = table.present(record.slab, in_slab) &&
                              store_.source_of(record.page, record.slab).entry ==
                                  PageEntry{.tenure = record.base_tenure, .checksum = record.base_checksum};
        if (!has_base) {
            lose(record.page, 1);
            return false;
        }
    }
    prove(record.page, record.count);
    if (record.kind != RecordKind::clear || (record.flags & JournalRecord::releases) == 0) return true;
    // With these the slab was empty: whatever of it is here was cleared in the hole.
    JournalRecord all = record;
    all.page = first_of_slab(record.page);
    all.count = pages_per_slab;
    prove(all.page, all.count);
    store_.state_.on_clear(all, found.end);
    return false;
}

void Store::Salvage::lose(PageId first, uint64_t count) {
    for (uint64_t page = first.value; page < first.value + count; ++page) {
        lost_.insert(page);
        proved_.erase(page);
    }
}

void Store::Salvage::prove(PageId first, uint64_t count) {
    for (uint64_t page = first.value; page < first.value + count; ++page) {
        lost_.erase(page);
        if (any_page_) proved_.insert(page);
    }
}

Result<> Store::Salvage::on_hole(const JournalHole& hole, uint32_t previous, std::span<const std::byte> bytes) {
    after_hole_ = true;
    bytes_damaged_ += hole.to - hole.from;
    BatchHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    const bool is_one_batch = header.magic == BatchHeader::magic_value && header.position == hole.from &&
                              header.previous_checksum == previous && bytes.size() == hole.to - hole.from &&
                              header.size_bytes == bytes.size();
    if (is_one_batch && keep_records(bytes)) return {};
    any_page_ = true;
    proved_.clear();
    return {};
}

// False: it may have been about any page.
bool Store::Salvage::keep_records(std::span<const std::byte> bytes) {
    // First whether all of them are there: one that is not may have been about the very pages that another one proves.
    std::vector<FoundRecord> records;
    const auto note = [&](const FoundRecord& found) -> Result<> {
        if (found.record.slab >= store_.state_.table.slab_count()) return fail(Errc::corrupt);
        records.push_back(found);
        return {};
    };
    if (!visit_damaged_batch(bytes, note)) return false;
    bool all = true;
    for (const FoundRecord& found : records) all &= keep_or_lose(found);
    return all;
}

bool Store::Salvage::keep_or_lose(const FoundRecord& found) {
    const JournalRecord& record = found.record;
    std::array<std::byte, page_size> scratch;
    if (const std::optional<uint32_t> checksum = checksum_of_whole_page(found, scratch);
        checksum && *checksum == record.checksum) {
        take(record);
        store_.state_.on_delta(record, found.payload, found.end);
        return true;
    }
    if (!is_where_the_table_says(record)) return false;
    // Its own number of the page within the slab may be what is wrong.
    lose(first_of_slab(record.page), pages_per_slab);
    if (record.kind == RecordKind::in_place) return keep_pages_in_place(found).value_or(false);
    return true;
}

void Store::Salvage::take(const JournalRecord& record) {
    TARN_ASSERT(store_.state_.table.replay_take(record.slab, record.page));  // the slab is one
    prove(record.page, record.count);
    ++records_kept_;
}

bool Store::Salvage::is_where_the_table_says(const JournalRecord& record) const {
    return store_.state_.table.find(record.page.volume(), SlabTable::slab_number(record.page)) == record.slab;
}

// Those that match what the record says of them.
Result<bool> Store::Salvage::keep_pages_in_place(const FoundRecord& found) {
    TRY(const Mapping scratch, Mapping::create(page_size));
    const ConstBlockBytes bytes(scratch.bytes().data(), page_size);
    for (uint32_t i = 0; i < found.record.count; ++i) {
        InPlaceEntry entry;
        std::memcpy(&entry, found.bytes.data() + i * sizeof entry, sizeof entry);
        JournalRecord one = found.record;
        one.page.value += i;
        one.count = 1;
        const uint64_t place = store_.device_offset(one.slab, SlabTable::page_in_slab(one.page));
        if (!store_.device_->read_now(scratch.bytes().first(page_size), place)) continue;
        if (page_checksum(one.page, entry.tenure, bytes) != entry.checksum) continue;
        take(one);
        store_.state_.on_in_place(one, std::span(&entry, 1), found.end);
    }
    return true;
}

SalvageReport Store::Salvage::report() const {
    SalvageReport report{.bits_mended = bits_mended,
                         .bytes_damaged = bytes_damaged_,
                         .records_kept = records_kept_,
                         .any_page = any_page_};
    const int64_t now = realtime_ns();
    report.losses = any_page_ ? losses_between(proved_, now) : losses_of(lost_, now);
    bound_losses(report.losses);
    return report;
}

Task<Result<SalvageReport>> Store::plan_salvage(Loop& loop, BlockDevice& device) {
    CO_TRY(const Superblock superblock, read_superblock(device));
    SalvageReport report;
    CO_TRY(const std::unique_ptr<Store> store, co_await open_with(loop, std::make_unique<OverlayDevice>(device),
                                                                  superblock.identity, {.use_later = true}, &report));
    co_await store->settle(loop);
    co_return report;
}

Task<Result<SalvageReport>> Store::salvage(Loop& loop, std::unique_ptr<BlockDevice> device) {
    CO_TRY(SalvageReport report, co_await plan_salvage(loop, *device));
    if (!report.found_damage()) co_return report;
    CO_TRY(const Superblock superblock, read_superblock(*device));
    CO_TRY(const std::unique_ptr<Store> store,
           co_await open_with(loop, std::move(device), superblock.identity, {.use_later = true}, &report));
    // First of all: until the journal begins behind the hole, whoever opens the store finds it.
    Result<> done;
    if (!report.losses.empty()) {
        const Result<uint32_t> recorded = co_await store->record_losses(loop, report.losses);
        if (!recorded) done = fail(recorded.error());
    }
    const Result<> closed = co_await store->close(loop);
    if (done) done = closed;
    if (!done) co_return fail(done.error());
    co_return report;
}

}  // namespace tarn
