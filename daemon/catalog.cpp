#include "daemon/catalog.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "coherence/cache/attribute_page.hpp"
#include "utils/log.hpp"
#include "utils/run_on.hpp"

namespace tarn {

namespace {
constexpr std::string_view space_call = "S";
}

// A handle that may write; the hold of an exclusive volume lasts as long as any of them.
class Catalog::OpenVolume final : public CachedVolume {
  public:
    OpenVolume(Catalog& catalog, VolumeId volume, bool holds)
        : CachedVolume(catalog.cache_, volume), catalog_(catalog), holds_(holds) {}
    ~OpenVolume() override {
        if (holds_) catalog_.release_hold(id());
    }

  private:
    Catalog& catalog_;
    bool holds_;
};

Catalog::Catalog(Cache& cache, std::vector<Loop*> shards, std::vector<std::string> host_names)
    : cache_(cache),
      shards_(std::move(shards)),
      host_names_(std::move(host_names)),
      records_(cache, catalog_volume, OnLoss::revert),  // nobody was told of a change that was not flushed
      table_(records_),
      registrar_(cache, table_) {}

Catalog::~Catalog() = default;

Task<Result<std::string>> Catalog::ask_registrar(std::string request) {
    if (cache_.self() == registrar_host)
        co_return co_await run_on(*shards_.front(), registrar_.change(cache_.self(), std::move(request)));
    Result<std::string> answer = co_await cache_.fabric()->call(registrar_host, std::move(request));
    if (!answer && answer.error().code == Errc::unavailable)
        co_return fail(Errc::unavailable, 0, "the registrar (the first host of the configuration) is away");
    co_return answer;
}

Task<Result<std::string>> Catalog::on_call(HostId from, std::string request) {
    if (request == space_call) {
        const StoreSpace space = cache_.store().space();
        const uint64_t numbers[] = {space.total_bytes, space.free_bytes};
        co_return std::string(reinterpret_cast<const char*>(numbers), sizeof numbers);
    }
    if (cache_.self() != registrar_host) co_return fail(Errc::protocol, 0, "catalog: not the registrar");
    co_return co_await run_on(*shards_.front(), registrar_.change(from, std::move(request)));
}

Task<Result<std::optional<CatalogRecord>>> Catalog::look_up(std::string name) {
    CO_TRY(std::optional<CatalogRecord> record, co_await table_.find(std::move(name)));
    if (record) {
        const std::lock_guard guard(names_mutex_);
        names_[record->id] = record->name;
    }
    co_return record;
}

Task<Result<VolumeId>> Catalog::volumes_end() {
    CO_TRY(const CatalogHeader header, co_await table_.header());
    co_return header.next_id;
}

std::string Catalog::name_of(VolumeId id) const {
    if (id == catalog_volume) return "the catalog";
    const std::lock_guard guard(names_mutex_);
    const auto found = names_.find(id);
    return found != names_.end() ? found->second : fmt::format("#{}", id);
}

Task<Result<VolumeEntry>> Catalog::entry_of(CatalogRecord record) {
    CachedVolume volume(cache_, record.id);
    CO_TRY(const Attributes attributes, co_await volume.attributes());
    VolumeEntry entry{.name = std::move(record.name),
                      .id = record.id,
                      .shared = record.shared,
                      .holder = {},
                      .attributes = attributes};
    if (record.holder < host_names_.size() && !record.shared) entry.holder = host_names_[record.holder];
    co_return entry;
}

Task<Result<std::vector<VolumeEntry>>> Catalog::list() {
    CO_TRY(std::vector<CatalogRecord> records, co_await table_.list());
    std::sort(records.begin(), records.end(),
              [](const CatalogRecord& a, const CatalogRecord& b) { return a.name < b.name; });
    {
        const std::lock_guard guard(names_mutex_);
        for (const CatalogRecord& record : records) names_[record.id] = record.name;
    }
    std::vector<VolumeEntry> entries;
    for (CatalogRecord& record : records) {
        CO_TRY(VolumeEntry entry, co_await entry_of(std::move(record)));
        entries.push_back(std::move(entry));
    }
    co_return entries;
}

Task<Result<VolumeEntry>> Catalog::find(std::string name) {
    CO_TRY(std::optional<CatalogRecord> record, co_await look_up(std::move(name)));
    if (!record) co_return fail(Errc::not_found, ENOENT, "volume");
    co_return co_await entry_of(std::move(*record));
}

Task<Result<std::shared_ptr<Volume>>> Catalog::open(std::string name, Access access) {
    CO_TRY(std::optional<CatalogRecord> record, co_await look_up(std::move(name)));
    if (!record) co_return fail(Errc::not_found, ENOENT, "volume");
    const bool holds = access == Access::write && !record->shared;
    if (holds) CO_TRY_VOID(co_await hold(*record));
    co_await cache_.flusher().hear_from_homes();
    co_return std::shared_ptr<Volume>(std::make_shared<OpenVolume>(*this, record->id, holds));
}

Task<Result<>> Catalog::hold(const CatalogRecord& record) {
    {
        const std::lock_guard guard(holds_mutex_);
        const auto found = holds_.find(record.id);
        if (found != holds_.end()) {
            ++found->second.count;
            co_return Result<>{};
        }
    }
    CO_TRY(const std::string answer, co_await ask_registrar(hold_request(record.name)));
    const std::lock_guard guard(holds_mutex_);
    ++holds_[record.id].count;
    co_return Result<>{};
}

void Catalog::release_hold(VolumeId id) {
    {
        const std::lock_guard guard(holds_mutex_);
        const auto found = holds_.find(id);
        TARN_ASSERT(found != holds_.end());
        if (--found->second.count > 0) return;
        holds_.erase(found);
    }
    if (Loop::current() && !cache_.abandoned()) Loop::current()->spawn(tell_released(id));
}

Task<> Catalog::tell_released(VolumeId id) {
    if (const auto answer = co_await ask_registrar(release_request(id)); !answer && !cache_.abandoned())
        log::warning("catalog: volume {} stays held by this host: {}", id, log::describe(answer.error()));
}

Task<Result<VolumeEntry>> Catalog::create(std::string name, bool shared, Attributes attributes) {
    if (!valid_volume_name(name)) co_return fail(Errc::invalid, EINVAL, "volume name");
    CO_TRY(const std::string answer, co_await ask_registrar(create_request(name, shared, attributes)));
    CO_TRY(CatalogRecord record, parse_record(answer));
    co_return co_await entry_of(std::move(record));
}

Task<Result<>> Catalog::remove(std::string name) {
    CO_TRY(const std::string answer, co_await ask_registrar(remove_request(name)));
    co_return Result<>{};
}

Task<Result<Space>> Catalog::space() {
    const StoreSpace own = cache_.store().space();
    Space space{.total_bytes = own.total_bytes, .free_bytes = own.free_bytes};
    for (HostId host = 0; host < static_cast<HostId>(host_names_.size()); ++host) {
        if (host == cache_.self() || !cache_.fabric()) continue;
        const Result<std::string> answer = co_await cache_.fabric()->call(host, std::string(space_call));
        uint64_t numbers[2] = {};
        if (!answer || answer->size() != sizeof numbers) continue;  // a host that is away offers no space now
        std::memcpy(numbers, answer->data(), sizeof numbers);
        space.total_bytes += numbers[0];
        space.free_bytes += numbers[1];
    }
    co_return space;
}

Task<Result<>> Catalog::drop_orphans(std::vector<VolumeId> stored) {
    CO_TRY(const std::vector<CatalogRecord> records, co_await table_.list());
    CO_TRY(const CatalogHeader header, co_await table_.header());
    for (const VolumeId id : stored) {
        const bool named =
            std::any_of(records.begin(), records.end(), [&](const CatalogRecord& record) { return record.id == id; });
        if (id == catalog_volume || id >= header.next_id || named) continue;
        CO_TRY_VOID(co_await cache_.store().drop_volume(*Loop::current(), id));
    }
    co_return Result<>{};
}

Task<Result<>> Catalog::flush_all() {
    CO_TRY(const std::vector<CatalogRecord> records, co_await table_.list());
    Result<> result = co_await table_.flush();
    for (const CatalogRecord& record : records) {
        CachedVolume volume(cache_, record.id);
        if (const Result<> flushed = co_await volume.flush(); !flushed && result) result = flushed;
    }
    co_return result;
}

}  // namespace tarn
