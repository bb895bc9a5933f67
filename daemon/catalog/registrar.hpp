// Registrar: makes the catalog's changes, one at a time, on the first shard of the first host.
#pragma once

#include <compare>
#include <string>
#include <vector>

#include "daemon/catalog/catalog_table.hpp"
#include "daemon/catalog/removals.hpp"
#include "frontends/volumes/volume_context.hpp"
#include "utils/sync.hpp"

namespace tarn {

// A host numbers its requests for holds: requests may overtake each other, and a release ends no hold that was asked
// for after it, nor one of a later process of the host.
struct HoldNumber {
    uint32_t epoch = 0;  // of the process
    uint32_t count = 0;  // in that process

    auto operator<=>(const HoldNumber&) const = default;
};

enum class HoldKind : uint8_t {
    of_process,
    of_device,  // it outlives the process, until the host's next one releases it
    resumed,    // the same, by a later process: only if the host is on record as the holder still
};

class Registrar {
  public:
    Registrar(VolumeContext& volumes, CatalogTable& table, Removals& removals)
        : volumes_(volumes), cache_(volumes.cache), table_(table), removals_(removals) {}

    // Performs one request. The answer is the record that it left, or the users who keep a volume from being removed.
    // On the first shard.
    // Errors: protocol for what is no request; exists, not_found, busy, invalid, no_space, unavailable.
    Task<Result<std::string>> change(HostId from, std::string request);
    // After a start: goes on with what is being removed.
    Task<> resume_removals();
    // See Catalog.
    Task<> end_removals();

  private:
    Task<Result<CatalogRecord>> create(std::string name, bool shared, Attributes attributes);
    Task<Result<std::string>> remove(std::string name, bool force);
    Task<Result<CatalogRecord>> hold(std::string name, HostId host, HoldNumber number, HoldKind kind);
    Task<Result<CatalogRecord>> release(VolumeId id, HostId host, HoldNumber number);
    Task<Result<CatalogRecord>> put_hold(CatalogRecord record);
    void begin_to_see_off(const CatalogRecord& record) {
        if (!seeing_off_.closed()) seeing_off_.spawn(see_off(record));
    }
    Task<> see_off(CatalogRecord record);
    Task<Result<>> forget(CatalogRecord record);
    Task<Result<std::string>> dispatch(HostId from, const std::string& request);
    bool holds_still(const CatalogRecord& record) const;
    bool answers(HostId host) const;
    bool everybody_answers() const;

    VolumeContext& volumes_;
    Cache& cache_;
    CatalogTable& table_;
    Removals& removals_;
    Semaphore turn_{1};
    Gate seeing_off_;
};

// The requests. JSON, since they are rare and read by people who debug.
std::string create_request(const std::string& name, bool shared, const Attributes& attributes);
std::string remove_request(const std::string& name, bool force);
std::string hold_request(const std::string& name, HoldNumber number, HoldKind kind = HoldKind::of_process);
std::string release_request(VolumeId id, HoldNumber number);
std::string print_record(const CatalogRecord& record);
Result<CatalogRecord> parse_record(const std::string& answer);
std::string print_users(const std::vector<std::string>& users);
// Of an answer to a remove_request.
std::vector<std::string> parse_users(const std::string& answer);

}  // namespace tarn
