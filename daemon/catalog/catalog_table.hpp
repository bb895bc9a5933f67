// CatalogTable: the records of the catalog, in the pages of volume 0.
//
// They are pages like any others: every host reads them coherently from its own DRAM, and a change by the registrar
// is seen everywhere with the next read. A record never spans pages, so that it is read and written as a whole.
//
//   page 0       Header
//   page 1 …     eight records of 512 bytes each
//
// All of it fits into the first range, whose home is the registrar: a change needs no other host.
#pragma once

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "frontends/volumes/cached_volume.hpp"
#include "frontends/volumes/volumes.hpp"

namespace tarn {

inline constexpr Error no_such_volume{Errc::not_found, ENOENT, "there is no volume of that name"};

struct CatalogRecord {
    std::string name;
    VolumeId id = 0;
    bool shared = false;
    HostId holder = no_host;    // who holds writers of an exclusive volume
    uint32_t holder_epoch = 0;  // and when it was started: a hold ends with its process,
    bool kept = false;          // but for one that a block device has, which outlives the process
    uint32_t hold = 0;          // the last one that the holder has asked for, by its count
    uint32_t slot = 0;          // where the record lies
    bool removed = false;       // it has no name any more, and goes when nobody uses it and all hosts have forgotten it
};

struct CatalogHeader {
    VolumeId next_id = 1;     // ids are not used twice
    uint32_t slot_count = 0;  // slots below were used at some time
};

class CatalogTable {
  public:
    static constexpr uint32_t slots_max = 1u << 16;

    // slot_limit: how many volumes there can be.
    explicit CatalogTable(CachedVolume& volume, uint32_t slot_limit = slots_max)
        : volume_(volume), slot_limit_(slot_limit) {}

    // Errors of all: those of the volume; corrupt.
    Task<Result<CatalogHeader>> header();
    Task<Result<std::vector<CatalogRecord>>> list();
    // Also those that are being removed.
    Task<Result<std::vector<CatalogRecord>>> list_all();
    Task<Result<std::optional<CatalogRecord>>> find(std::string name);

    // For the registrar. Durable after commit().
    Task<Result<>> put_header(CatalogHeader header);
    Task<Result<>> put(CatalogRecord record);
    Task<Result<>> clear(uint32_t slot);
    // The lowest slot without a record.
    Task<Result<uint32_t>> free_slot();
    // Makes the record durable, and with it the header if that was put: after a power cut both are there or neither is.
    // Hosts that had read their pages and came back without their memory do not make it fail.
    Task<Result<>> commit(uint32_t slot, bool with_header);
    Task<Result<>> flush() { return volume_.flush_up_to(page_size); }

  private:
    Task<Result<>> read_page(uint64_t page, std::span<std::byte> into);
    Task<Result<>> write_anew(uint64_t page);
    Task<Result<>> flush_pages(std::vector<uint64_t> pages);
    Task<Result<>> write_bytes(uint64_t offset_bytes, std::span<const std::byte> from);

    CachedVolume& volume_;
    const uint32_t slot_limit_;
};

}  // namespace tarn
