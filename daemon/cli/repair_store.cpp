#include "daemon/cli/repair_store.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <sstream>

#include "daemon/cli/stopped_store.hpp"
#include "tiers/nvme/device/store_file.hpp"
#include "tiers/nvme/store.hpp"
#include "utils/log.hpp"

namespace tarn {

namespace {

constexpr int question_count = 2;
constexpr size_t losses_shown = 20;

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

Outcome<SalvageReport> plan(const std::string& path) {
    Result<StoreFile> file = StoreFile::open_read_only(path);
    if (!file) return refuse_store(file.error());
    const Result<std::unique_ptr<Loop>> loop = Loop::create();
    if (!loop) return refuse_store(loop.error());
    Result<SalvageReport> report = (*loop)->run_until_done(Store::plan_salvage(**loop, *file));
    if (!report) return refuse_store(report.error());
    return *std::move(report);
}

Outcome<SalvageReport> salvage(const std::string& path) {
    Result<StoreFile> file = StoreFile::open(path);
    if (!file) return refuse_store(file.error());
    const Result<std::unique_ptr<Loop>> loop = Loop::create();
    if (!loop) return refuse_store(loop.error());
    Result<SalvageReport> report =
        (*loop)->run_until_done(Store::salvage(**loop, std::make_unique<StoreFile>(*std::move(file))));
    if (!report) return refuse_store(report.error());
    return *std::move(report);
}

bool is_answered(const std::string& question, const std::string& wanted) {
    std::cerr << question << std::flush;
    std::string answer;
    return std::getline(std::cin, answer) && answer == wanted;
}

Outcome<> confirm(const std::string& path, const SalvageReport& report, int yes) {
    if (yes >= question_count) return {};
    if (::isatty(STDIN_FILENO) != 1)
        return std::unexpected(Failure{Exit::usage, "it asks twice, and nobody is there to answer",
                                       "tarn store repair --salvage-journal --yes --yes " + log::printable(path)});
    std::ostringstream lost;
    print_repaired(lost, json_of(path, report));
    std::cerr << "What it would do:\n" << lost.str();
    if (yes < 1 && !is_answered("Is there no good copy of the store to use instead? Type yes to go on: ", "yes"))
        return std::unexpected(Failure{Exit::failed, "nothing was changed", {}});
    if (!is_answered("What is lost stays lost. Type the path of the store to go on: ", path))
        return std::unexpected(Failure{Exit::failed, "nothing was changed", {}});
    return {};
}

}  // namespace

Outcome<Json> repair_stopped_store(const std::string& path, const RepairOptions& options) {
    if (!options.salvage_journal)
        return std::unexpected(Failure{Exit::usage, "nothing says what to repair", "--salvage-journal"});
    const auto planned = plan(path);
    if (!planned) return std::unexpected(planned.error());
    if (!planned->found_damage()) return json_of(path, *planned);
    if (const auto confirmed = confirm(path, *planned, options.yes); !confirmed)
        return std::unexpected(confirmed.error());
    const auto done = salvage(path);
    if (!done) return std::unexpected(done.error());
    return json_of(path, *done);
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
