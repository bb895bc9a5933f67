#include "daemon/cli/stopped_store.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <sstream>

#include "daemon/configuration/configuration.hpp"
#include "tiers/nvme/device/store_file.hpp"
#include "tiers/nvme/store_inspection.hpp"
#include "utils/log.hpp"

namespace tarn {

namespace {

constexpr int question_count = 2;
constexpr size_t losses_shown = 20;

// Why a store's file could not be used, as the user is told.
std::unexpected<Failure> refuse_store(const Error& error) {
    const Exit exit = error.code == Errc::invalid ? Exit::failed : exit_of(error.code);
    return refuse(exit, log::explain(error), error.code == Errc::busy ? "systemctl stop tarnd" : "");
}

template <class T>
Outcome<T> or_refuse(Result<T> result) {
    if (!result) return refuse_store(result.error());
    return *std::move(result);
}

template <class T>
Result<T> look(const std::string& path, Task<Result<T>> (*look_at)(Loop&, BlockDevice&)) {
    TRY(StoreFile file, StoreFile::open_read_only(path));
    TRY(const std::unique_ptr<Loop> loop, Loop::create());
    return loop->run_until_done(look_at(*loop, file));
}

Result<SalvageReport> salvage(const std::string& path) {
    TRY(StoreFile file, StoreFile::open(path));
    TRY(const std::unique_ptr<Loop> loop, Loop::create());
    return loop->run_until_done(Store::salvage(*loop, std::make_unique<StoreFile>(std::move(file))));
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
          {"end", found.journal.end},
          {"proved_durable", found.journal.closed},
          {"batches", found.journal.boundaries.size()},
          {"records", found.journal.record_count}}},
        {"table_offsets_bytes", found.layout.table_offsets},
        {"data_offset_bytes", found.layout.data_offset},
        {"volumes", volumes},
        {"heard", heard},
    };
}

Json json_of(const std::string& path, const SalvageReport& report) {
    Json losses = Json::array();
    for (const Loss& loss : report.losses)
        losses.push_back({{"first_volume_id", loss.first.volume()},
                          {"first_page", loss.first.number()},
                          {"last_volume_id", loss.last.volume()},
                          {"last_page", loss.last.number()},
                          {"pages", loss.page_count}});
    return {{"path", path},
            {"damaged", report.found_damage()},
            {"bits_mended", report.bits_mended},
            {"journal_bytes_lost", report.bytes_damaged},
            {"records_kept", report.records_kept},
            {"any_page", report.any_page},
            {"losses", losses}};
}

bool is_answered(const std::string& question, const std::string& wanted) {
    std::cerr << question << std::flush;
    std::string answer;
    return std::getline(std::cin, answer) && answer == wanted;
}

Outcome<> confirm(const std::string& path, const SalvageReport& report, int yes) {
    if (yes >= question_count) return {};
    if (::isatty(STDIN_FILENO) != 1)
        return refuse(Exit::usage, "it asks twice, and nobody is there to answer",
                      "tarn store repair --salvage-journal --yes --yes " + log::printable(path));
    std::ostringstream lost;
    print_repaired(lost, json_of(path, report));
    std::cerr << "What it would do:\n" << lost.str();
    if (yes < 1 && !is_answered("Is there no good copy of the store to use instead? Type yes to go on: ", "yes"))
        return refuse(Exit::failed, "nothing was changed");
    if (!is_answered("What is lost stays lost. Type the path of the store to go on: ", path))
        return refuse(Exit::failed, "nothing was changed");
    return {};
}

}  // namespace

Outcome<Json> inspect_stopped_store(const std::string& path) {
    TRY(const StoreInspection found, or_refuse(look(path, inspect_store)));
    return json_of(found);
}

Outcome<Json> check_stopped_store(const std::string& path) {
    TRY(const StoreInspection found, or_refuse(look(path, check_store)));
    if (found.bad_page_count > 0) {
        const BadPage& first = found.bad_pages.front();
        return refuse(Exit::failed, fmt::format("{} of {} pages are bad; the first is page {} of volume {}: {}",
                                                found.bad_page_count, found.pages_checked, first.page.number(),
                                                first.page.volume(), log::explain(first.why)));
    }
    Json json = json_of(found);
    json["pages_checked"] = found.pages_checked;
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

Outcome<Json> repair_stopped_store(const std::string& path, const RepairOptions& options) {
    if (!options.salvage_journal) return refuse(Exit::usage, "nothing says what to repair", "--salvage-journal");
    TRY(const SalvageReport planned, or_refuse(look(path, Store::plan_salvage)));
    if (!planned.found_damage()) return json_of(path, planned);
    TRY_VOID(confirm(path, planned, options.yes));
    TRY(const SalvageReport done, or_refuse(salvage(path)));
    return json_of(path, done);
}

void print_repaired(std::ostream& out, const Json& repaired) {
    const auto number = [&](const char* key) { return repaired.at(key).get<uint64_t>(); };
    if (!repaired.at("damaged").get<bool>()) {
        out << "the journal is whole: there is nothing to salvage\n";
        return;
    }
    if (const uint64_t bits = number("bits_mended"); bits != 0)
        out << fmt::format("mended   {} flipped bits of the journal; nothing is lost by them\n", bits);
    if (const uint64_t bytes = number("journal_bytes_lost"); bytes != 0)
        out << fmt::format("damaged  {} bytes of the journal; {} records of them prove themselves\n", bytes,
                           number("records_kept"));
    if (repaired.at("any_page").get<bool>())
        out << "LOST     maybe writes to any page that later records say nothing of: none tells what the damaged ones "
               "were about\n";
    size_t shown = 0;
    for (const Json& loss : repaired.at("losses")) {
        if (repaired.at("any_page").get<bool>()) break;
        if (++shown > losses_shown) {
            out << fmt::format("         and {} more ranges\n", repaired.at("losses").size() - losses_shown);
            break;
        }
        out << fmt::format("LOST     maybe writes to volume {}, pages {} to {}\n",
                           loss.at("first_volume_id").get<uint64_t>(), loss.at("first_page").get<uint64_t>(),
                           loss.at("last_page").get<uint64_t>());
    }
    if (number("journal_bytes_lost") != 0 && !repaired.at("losses").empty())
        out << "These pages have the bytes of before. Who had their volumes open gets I/O errors for them until it\n"
               "writes them whole or opens the volume anew; tarn status lists them.\n";
}

}  // namespace tarn
