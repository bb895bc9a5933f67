// Registrar: makes the catalog's changes, one at a time, on the first shard of the first host.
#pragma once

#include <string>
#include <vector>

#include "coherence/cache/cache.hpp"
#include "daemon/catalog_table.hpp"
#include "utils/sync.hpp"

namespace tarn {

class Registrar {
  public:
    Registrar(Cache& cache, CatalogTable& table) : cache_(cache), table_(table) {}

    // One change, as catalog.cpp writes it; the answer is the record it left. On the first shard.
    // Errors: protocol for what is no request; exists, not_found, busy, invalid, no_space, unavailable.
    Task<Result<std::string>> change(HostId from, std::string request);

  private:
    Task<Result<CatalogRecord>> create(std::string name, bool shared, Attributes attributes);
    Task<Result<CatalogRecord>> remove(std::string name);
    Task<Result<CatalogRecord>> hold(std::string name, HostId host);
    Task<Result<CatalogRecord>> release(VolumeId id, HostId host);
    Task<> erase_bytes(VolumeId id);
    Task<Result<CatalogRecord>> dispatch(HostId from, const std::string& request);
    bool holds_still(const CatalogRecord& record) const;

    Cache& cache_;
    CatalogTable& table_;
    Semaphore turn_{1};
};

// The requests. JSON, since they are rare and read by people who debug.
std::string create_request(const std::string& name, bool shared, const Attributes& attributes);
std::string remove_request(const std::string& name);
std::string hold_request(const std::string& name);
std::string release_request(VolumeId id);
std::string print_record(const CatalogRecord& record);
Result<CatalogRecord> parse_record(const std::string& answer);

}  // namespace tarn
