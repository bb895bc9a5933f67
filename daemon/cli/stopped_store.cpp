#include "daemon/cli/stopped_store.hpp"

#include <fmt/format.h>

#include "daemon/configuration/configuration.hpp"
#include "tiers/nvme/device/store_file.hpp"
#include "tiers/nvme/store_inspection.hpp"
#include "utils/log.hpp"

namespace tarn {

namespace {

using Look = Task<Result<StoreInspection>> (*)(Loop&, BlockDevice&);

Outcome<StoreInspection> look(const std::string& path, Look look_at) {
    Result<StoreFile> file = StoreFile::open_read_only(path);
    if (!file) return refuse_store(file.error());
    const Result<std::unique_ptr<Loop>> loop = Loop::create();
    if (!loop) return refuse_store(loop.error());
    Result<StoreInspection> found = (*loop)->run_until_done(look_at(**loop, *file));
    if (!found) return refuse_store(found.error());
    return *std::move(found);
}

Json json_of(const StoreInspection& found) {
    Json volumes = Json::array();
    for (const StoreInspection::Volume& volume : found.volumes)
        volumes.push_back({{"id", volume.id}, {"allocated_bytes", volume.allocated_bytes}});
    const Superblock& superblock = found.superblock;
    Json heard = Json::array();
    for (HostId host = 0; host < hosts_max; ++host)
        if (const StoreStanding& of = superblock.heard[host]; of.epoch != 0)
            heard.push_back({{"host_id", host}, {"home_epoch", of.epoch}, {"position", of.position}});
    return {
        {"format", store_format_version},
        {"store", format_uuid(superblock.store)},
        {"cluster", format_uuid(superblock.identity.cluster)},
        {"host", text_of(superblock.identity.host_name)},
        {"host_id", superblock.identity.host},
        {"superblocks", found.superblock_copies},
        {"generation", superblock.generation},
        {"home_epoch", superblock.home_epoch},
        {"loss_generation", superblock.loss_generation},
        {"total_bytes", found.space.total_bytes},
        {"allocated_bytes", found.space.allocated_bytes},
        {"stored_bytes", found.space.stored_bytes},
        {"free_bytes", found.space.free_bytes},
        {"journal",
         {{"offset_bytes", StoreLayout::journal_offset},
          {"size_bytes", superblock.geometry.journal_size},
          {"begin", superblock.journal_tail},
          {"end", found.journal_end},
          {"proved_durable", found.journal_closed},
          {"batches", found.journal_batches},
          {"records", found.journal_records}}},
        {"table_offsets_bytes", found.layout.table_offsets},
        {"data_offset_bytes", found.layout.data_offset},
        {"volumes", volumes},
        {"heard", heard},
    };
}

}  // namespace

std::unexpected<Failure> refuse_store(const Error& error) {
    const Exit exit = error.code == Errc::not_found ? Exit::not_found
                      : error.code == Errc::busy    ? Exit::busy
                      : error.code == Errc::refused ? Exit::permission
                                                    : Exit::failed;
    return std::unexpected(Failure{exit, log::explain(error), error.code == Errc::busy ? "systemctl stop tarnd" : ""});
}

Outcome<Json> inspect_stopped_store(const std::string& path) {
    const auto found = look(path, inspect_store);
    if (!found) return std::unexpected(found.error());
    return json_of(*found);
}

Outcome<Json> check_stopped_store(const std::string& path) {
    const auto found = look(path, check_store);
    if (!found) return std::unexpected(found.error());
    if (found->bad_page_count > 0) {
        const BadPage& first = found->bad_pages.front();
        return std::unexpected(Failure{
            Exit::failed,
            fmt::format("{} of {} pages are bad; the first is page {} of volume {}: {}", found->bad_page_count,
                        found->pages_checked, first.page.number(), first.page.volume(), log::explain(first.why)),
            {}});
    }
    Json json = json_of(*found);
    json["pages_checked"] = found->pages_checked;
    return json;
}

void print_store(std::ostream& out, const Json& store) {
    const auto mib = [&](const Json& from, const char* key) { return from.at(key).get<uint64_t>() >> 20; };
    const Json& journal = store.at("journal");
    out << fmt::format("store    {}, format {}, host {} of cluster {}\n", store.at("store").get<std::string>(),
                       store.at("format").get<unsigned>(), store.at("host_id").get<unsigned>(),
                       store.at("cluster").get<std::string>());
    for (size_t i = 0; i < 2; ++i)
        if (const auto copy = store.at("superblocks").at(i).get<std::string>(); copy != "good")
            out << fmt::format("         superblock {}: {}; the next start repairs it\n", i + 1, copy);
    out << fmt::format("epochs   home {}, loss {}\n", store.at("home_epoch").get<uint64_t>(),
                       store.at("loss_generation").get<uint64_t>());
    out << fmt::format("space    {} MiB, {} MiB allocated, {} MiB stored, {} MiB free\n", mib(store, "total_bytes"),
                       mib(store, "allocated_bytes"), mib(store, "stored_bytes"), mib(store, "free_bytes"));
    out << fmt::format("journal  {} MiB, {} records in {} batches\n", mib(journal, "size_bytes"),
                       journal.at("records").get<uint64_t>(), journal.at("batches").get<uint64_t>());
    for (const Json& volume : store.at("volumes"))
        out << fmt::format("volume   {}: {} MiB allocated\n", volume.at("id").get<uint64_t>(),
                           mib(volume, "allocated_bytes"));
    if (const auto checked = store.find("pages_checked"); checked != store.end())
        out << fmt::format("checked  {} pages, all good\n", checked->get<uint64_t>());
}

}  // namespace tarn
