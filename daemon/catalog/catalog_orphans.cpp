// What is left behind in this host's store of volumes that are not in the catalog any more.
#include <algorithm>

#include "daemon/catalog/catalog.hpp"
#include "utils/log.hpp"

namespace tarn {

Task<> Catalog::clean_up() {
    const std::vector<VolumeId> stored = cache_.store().volumes();
    for (bool is_first = true; !cache_.abandoned(); is_first = false) {
        const uint64_t seen = cache_.membership().changed().count();
        const Result<> dropped = co_await drop_orphans(stored);
        if (is_first && is_registrar()) co_await registrar_.resume_removals();
        if (dropped || cache_.abandoned()) co_return;
        if (dropped.error().code != Errc::unavailable) {
            log::warning("catalog: orphans were not dropped: {}", log::describe(dropped.error()));
            co_return;
        }
        if (is_first)
            log::info("catalog: what is left here of deleted volumes is looked for when more hosts are there");
        co_await cache_.membership().changed().next(seen);  // the catalog, or a part of it, is with a host that is away
    }
}

Task<Result<>> Catalog::drop_orphans(std::vector<VolumeId> stored) {
    CO_TRY(const std::vector<CatalogRecord> records, co_await table_.list_all());
    CO_TRY(const CatalogHeader header, co_await table_.header());
    for (const VolumeId id : stored) {
        const bool named =
            std::any_of(records.begin(), records.end(), [&](const CatalogRecord& record) { return record.id == id; });
        if (id == catalog_volume || id >= header.next_id || named) continue;
        CO_TRY_VOID(co_await cache_.store().drop_volume(*Loop::current(), id));
    }
    co_return Result<>{};
}

}  // namespace tarn
