#include "daemon/cli/cli.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <thread>
#include <utility>

#include "daemon/cli/client.hpp"
#include "daemon/cli/init.hpp"
#include "daemon/cli/print.hpp"
#include "daemon/cli/repair_store.hpp"
#include "daemon/cli/stopped_store.hpp"
#include "daemon/configuration.hpp"
#include "daemon/http_request.hpp"
#include "daemon/version.hpp"
#include "frontends/volumes.hpp"
#include "tiers/page.hpp"
#include "utils/log.hpp"

namespace tarn {

namespace {

// What the command line said; each verb reads its own part.
struct Options {
    std::string control = control_path_default;
    unsigned timeout_s = 60;
    bool json = false;
    std::string name;
    std::string size;
    std::string mode = "0600";
    std::string fail_after = "wait";
    std::string path;
    bool shared = false;
    bool exclusive = false;
    bool force = false;
    bool read_only = false;
    bool whole_host = false;
    bool stop = false;
    bool it_is_dead = false;
    InitOptions init;
    RepairOptions repair;
};

// A verb asks, and tells a person what came of it. object: what it was about, for the error line.
struct Verb {
    std::function<Outcome<Json>(const Client&)> ask;
    std::function<void(std::ostream&, const Json&)> tell;
    std::function<std::string()> object;
    std::function<Exit(const Json&)> verdict = nullptr;  // none: ok
};

std::string volume_path(const std::string& name) {
    return "/v1/volumes/" + percent_encode(name);
}

// Sizes are whole pages; who asked for something else is told.
Outcome<uint64_t> rounded_size(const std::string& text) {
    const Result<uint64_t> size = parse_size(text);
    if (!size)
        return std::unexpected(
            Failure{Exit::usage, fmt::format("{}: {}", log::printable(text), size.error().where), "10GiB"});
    if (*size > volume_size_max) return std::unexpected(Failure{Exit::usage, "a volume has at most 2 PiB", {}});
    return (*size + page_size - 1) / page_size * page_size;
}

std::string rounding_note(const std::string& text, const Json& volume) {
    const Result<uint64_t> asked = parse_size(text);
    const uint64_t given = volume.value("size_bytes", uint64_t{0});
    if (!asked || *asked == given) return "";
    return fmt::format(" (rounded up from {} bytes to whole pages of 4 KiB)", *asked);
}

Outcome<Json> create(const Client& client, const Options& options) {
    const auto size_bytes = rounded_size(options.size);
    if (!size_bytes) return std::unexpected(size_bytes.error());
    Json body{{"name", options.name}, {"size_bytes", *size_bytes}, {"mode", std::stoul(options.mode, nullptr, 8)}};
    if (options.fail_after != "wait") {
        const Result<uint64_t> fail_after_ms = parse_duration(options.fail_after);
        if (!fail_after_ms)
            return std::unexpected(
                Failure{Exit::usage,
                        fmt::format("{}: {}", log::printable(options.fail_after), fail_after_ms.error().where), "30s"});
        body["fail_after_ms"] = *fail_after_ms;
    }
    if (options.shared || options.exclusive) body["shared"] = options.shared;
    return client.ask("POST", "/v1/volumes", body);
}

Outcome<Json> resize(const Client& client, const Options& options) {
    const auto size_bytes = rounded_size(options.size);
    if (!size_bytes) return std::unexpected(size_bytes.error());
    return client.ask("PATCH", volume_path(options.name), {{"size_bytes", *size_bytes}, {"shrink", options.force}});
}

// Starts a pass and follows it to its end.
Outcome<Json> verify(const Client& client, const Options& options) {
    constexpr auto pause = std::chrono::milliseconds(200);
    if (options.stop) return client.ask("DELETE", "/v1/verify");
    if (options.name.empty() && !options.whole_host)
        return std::unexpected(Failure{Exit::usage, "neither a volume nor --host", "tarn verify --host"});
    Json body = Json::object();
    if (!options.whole_host) body["volume"] = options.name;
    if (!options.size.empty()) {
        const Result<uint64_t> rate = parse_size(options.size);
        if (!rate || *rate == 0)
            return std::unexpected(
                Failure{Exit::usage, fmt::format("{}: not a rate", log::printable(options.size)), "--rate 100MiB"});
        body["rate_bytes"] = *rate;
    }
    const bool tell = !options.json && ::isatty(STDERR_FILENO) == 1;
    auto status = client.ask("POST", "/v1/verify", body);
    while (status && status->value("running", false)) {
        if (tell)
            fmt::print(stderr, "\r{} of {} pages", status->value("pages_checked", uint64_t{0}),
                       status->value("pages_total", uint64_t{0}));
        std::this_thread::sleep_for(pause);
        status = client.ask("GET", "/v1/verify");
    }
    if (tell) fmt::print(stderr, "\r\033[K");
    return status;
}

std::string checked_path(const std::string& path) {
    return std::filesystem::absolute(path).lexically_normal().string();
}

class Commands {
  public:
    Commands() {
        app_.set_version_flag("--version", fmt::format("tarn {}", version));
        app_.require_subcommand(1);
        app_.fallthrough();
        app_.add_option("--control", options_.control, "The daemon's control socket")
            ->type_name("PATH")
            ->envname("TARN_CONTROL")
            ->capture_default_str();
        app_.add_option("--timeout", options_.timeout_s, "How long to wait for the daemon")
            ->type_name("SECONDS")
            ->check(CLI::Range(1u, 86400u))
            ->capture_default_str();
        app_.add_flag("--json", options_.json, "Print JSON");
        app_.footer(
            "Example:\n  tarn create vol1 10GiB\n\nExit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 busy or exists, "
            "5 daemon or host unreachable,\n6 timed out, 7 permission.");
        add_init();
        add_volume_verbs();
        add_mount_verbs();
        add_status();
        add_verify();
        add_host_verbs();
        add_store_verbs();
    }

    Exit run(std::span<const char* const> words, std::ostream& out, std::ostream& err) {
        try {
            app_.parse(static_cast<int>(words.size()), words.data());
        } catch (const CLI::CallForHelp&) {
            const auto chosen = app_.get_subcommands();
            out << (chosen.empty() ? app_.help() : chosen.front()->help("tarn"));
            return Exit::ok;
        } catch (const CLI::CallForVersion& call) {
            out << call.what() << "\n";
            return Exit::ok;
        } catch (const CLI::ParseError& error) {
            err << fmt::format("tarn: {}; try: tarn --help\n", log::printable(error.what()));
            return Exit::usage;
        }
        const CLI::App* const chosen = app_.get_subcommands().front();
        std::string name = chosen->get_name();
        for (const CLI::App* const part : chosen->get_subcommands()) name += " " + part->get_name();
        const Verb& verb = verbs_.at(name);
        options_.init.control = options_.control;
        const Client client(options_.control, std::chrono::seconds(options_.timeout_s));
        auto outcome = verb.ask(client);
        if (!outcome) return report(err, name, verb, outcome.error());
        if (options_.json) {
            // The version of what scripts parse; it grows when a key changes its meaning or goes away.
            outcome->emplace("schema", 1);
            out << outcome->dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
        } else {
            verb.tell(out, *outcome);
        }
        return verb.verdict ? verb.verdict(*outcome) : Exit::ok;
    }

  private:
    static Exit report(std::ostream& err, const std::string& name, const Verb& verb, const Failure& failure) {
        const std::string object = verb.object ? verb.object() : "";
        err << fmt::format("tarn: {}{}{}: {}", name, object.empty() ? "" : " ", log::printable(object),
                           log::printable(failure.cause));
        if (!failure.hint.empty()) err << "; try: " << failure.hint;
        err << "\n";
        return failure.exit;
    }

    CLI::App* add(const char* name, const char* description, const char* example, Verb verb) {
        CLI::App* const command = app_.add_subcommand(name, description);
        command->footer(fmt::format("Example:\n  {}", example));
        verbs_.emplace(name, std::move(verb));
        return command;
    }
    CLI::App* add_for_volume(const char* name, const char* description, const char* example,
                             std::function<Outcome<Json>(const Client&)> ask,
                             std::function<void(std::ostream&, const Json&)> tell) {
        CLI::App* const command =
            add(name, description, example, {std::move(ask), std::move(tell), [this] { return options_.name; }});
        command->add_option("NAME", options_.name, "The volume")->required()->type_name("");
        return command;
    }

    void add_init() {
        InitOptions& init = options_.init;
        CLI::App* const command = add("init", "Make this host's store and configuration",
                                      "tarn init --store /var/lib/tarn/store --size 64GiB --memory 4GiB",
                                      {[this](const Client&) { return initialise(options_.init); }, print_init,
                                       [this] { return options_.init.store; }});
        command->add_option("--store,--device", init.store, "A file or block device")->required()->type_name("PATH");
        command->add_option("--size", init.size, "Of the file; default: the whole device")->type_name("SIZE");
        command->add_option("--memory", init.memory, "Memory for cached pages")
            ->type_name("SIZE")
            ->capture_default_str();
        command->add_option("--config", init.configuration_path, "The configuration file to write")
            ->type_name("FILE")
            ->capture_default_str();
        command->add_option("--host", init.host, "This host's name; default: what hostname says")->type_name("NAME");
        command->add_option("--peer", init.peers, "All hosts of the cluster, this one too, in the same order on each")
            ->type_name("NAME=HOST:PORT");
        command->add_option("--cluster", init.cluster, "The cluster to join; default: a new one")->type_name("UUID");
        command->add_option("--key-file", init.key_file, "The cluster's key; made for a new cluster")
            ->type_name("FILE");
        command->add_option("--nbd-unix", init.nbd_unix, "Serve NBD on this socket")->type_name("PATH");
        command->add_option("--nbd-tcp", init.nbd_tcp, "Serve NBD on this address")->type_name("HOST:PORT");
        command->add_flag("--force", init.force, "Overwrite what is there");
    }

    void add_volume_verbs() {
        CLI::App* const create_command = add_for_volume(
            "create", "Make a volume", "tarn create vol1 10GiB",
            [this](const Client& client) { return create(client, options_); },
            [this](std::ostream& out, const Json& volume) {
                print_made(out, "created", volume, rounding_note(options_.size, volume));
            });
        create_command->add_option("SIZE", options_.size, "Rounded up to whole pages of 4 KiB")
            ->required()
            ->type_name("");
        auto* const shared = create_command->add_flag("--shared", options_.shared, "Any number of hosts may write");
        create_command->add_flag("--exclusive", options_.exclusive, "One host at a time may write")->excludes(shared);
        create_command->add_option("--mode", options_.mode, "Permission bits, octal")
            ->check([](const std::string& text) {
                const bool octal =
                    !text.empty() && text.size() <= 5 && text.find_first_not_of("01234567") == std::string::npos;
                return octal ? std::string() : std::string("not an octal number");
            })
            ->capture_default_str();
        create_command
            ->add_option("--fail-after", options_.fail_after,
                         "What an access does that needs a host which does not answer: wait, or fail after so long")
            ->type_name("wait|TIME")
            ->capture_default_str();
        add("list", "List the volumes", "tarn list",
            {[](const Client& client) { return client.ask("GET", "/v1/volumes"); }, print_list, {}});
        add_for_volume(
            "show", "Show a volume", "tarn show vol1",
            [this](const Client& client) { return client.ask("GET", volume_path(options_.name)); }, print_volume);
        CLI::App* const resize_command = add_for_volume(
            "resize", "Change a volume's size", "tarn resize vol1 20GiB",
            [this](const Client& client) { return resize(client, options_); },
            [this](std::ostream& out, const Json& volume) {
                print_made(out, "resized", volume, rounding_note(options_.size, volume));
            });
        resize_command->add_option("SIZE", options_.size, "Rounded up to whole pages of 4 KiB")
            ->required()
            ->type_name("");
        resize_command->add_flag("--force", options_.force, "Shrink it, and lose what lies past the new end");
        add_for_volume(
            "delete", "Delete a volume and what it stores", "tarn delete vol1",
            [this](const Client& client) { return client.ask("DELETE", volume_path(options_.name)); },
            [](std::ostream& out, const Json& volume) { print_done(out, "deleted", volume); });
        add_for_volume(
            "flush", "Make everything written to a volume durable", "tarn flush vol1",
            [this](const Client& client) { return client.ask("POST", volume_path(options_.name) + "/flush"); },
            [](std::ostream& out, const Json& volume) { print_done(out, "flushed", volume); });
        CLI::App* const export_command =
            add("export", "Print where NBD clients find a volume, or all", "nbdinfo $(tarn export vol1 | head -1)",
                {[this](const Client& client) {
                     return client.ask("GET", options_.name.empty() ? "/v1/exports" : volume_path(options_.name));
                 },
                 print_exports, [this] { return options_.name; }});
        export_command->add_option("NAME", options_.name, "The volume; default: all")->type_name("");
    }

    void add_mount_verbs() {
        const auto object = [this] { return options_.path; };
        CLI::App* const mount =
            add("mount", "Mount the volumes as files of a directory, or list the mounts", "tarn mount /mnt/tarn",
                {[this](const Client& client) {
                     if (options_.path.empty()) return client.ask("GET", "/v1/mounts");
                     return client.ask("POST", "/v1/mounts",
                                       {{"path", checked_path(options_.path)}, {"read_only", options_.read_only}});
                 },
                 print_mounts, object});
        mount->add_option("DIRECTORY", options_.path, "Where; default: list the mounts")->type_name("");
        mount->add_flag("--read-only", options_.read_only, "Refuse writes through this mount");
        CLI::App* const umount =
            add("umount", "Unmount", "tarn umount /mnt/tarn",
                {[this](const Client& client) {
                     return client.ask("DELETE", "/v1/mounts",
                                       {{"path", checked_path(options_.path)}, {"force", options_.force}});
                 },
                 [](std::ostream& out, const Json& mount) { print_done(out, "unmounted", mount); }, object});
        umount->add_option("DIRECTORY", options_.path, "What to unmount")->required()->type_name("");
        umount->add_flag("--force", options_.force, "Even while files are open");
    }

    void add_status() {
        add("status", "Show the daemon, its store and its peers", "tarn status",
            {[](const Client& client) { return client.ask("GET", "/v1/status"); }, print_status, {}});
    }

    void add_verify() {
        CLI::App* const command =
            add("verify", "Read what this host stores of a volume, or of all, and check it", "tarn verify vol1",
                {[this](const Client& client) { return verify(client, options_); }, print_verified,
                 [this] { return options_.name; },
                 [this](const Json& status) {
                     if (options_.stop) return Exit::ok;
                     const bool good = status.value("bad_page_count", 0) == 0 && !status.value("cancelled", false);
                     return good ? Exit::ok : Exit::failed;
                 }});
        auto* const name = command->add_option("NAME", options_.name, "The volume")->type_name("");
        auto* const host = command->add_flag("--host", options_.whole_host, "All volumes")->excludes(name);
        command->add_option("--rate", options_.size, "Bytes per second, at most; default: scrub_rate of tarn.toml")
            ->type_name("SIZE");
        command->add_flag("--stop", options_.stop, "Stop the pass that is under way")->excludes(name)->excludes(host);
    }

    void add_host_verbs() {
        CLI::App* const host = app_.add_subcommand("host", "Say what only a person can know of a host");
        host->require_subcommand(1);
        host->fallthrough();
        CLI::App* const forget = host->add_subcommand(
            "forget", "Stop waiting for a host that is dead; what only it had is lost, and clients are told");
        forget->footer("Example:\n  tarn host forget c --it-is-dead");
        forget->add_option("HOST", options_.name, "As tarn status names it")->required()->type_name("");
        forget->add_flag("--it-is-dead", options_.it_is_dead,
                         "You vouch for it: powered off, or its tarnd killed. One that is only cut off still serves");
        verbs_.emplace("host forget", Verb{[this](const Client& client) -> Outcome<Json> {
                                               if (!options_.it_is_dead)
                                                   return std::unexpected(Failure{
                                                       Exit::usage,
                                                       "only if it is dead for certain: one that is only cut off still "
                                                       "serves what it has, and clients would see two truths",
                                                       "tarn host forget HOST --it-is-dead"});
                                               auto forgotten = client.ask(
                                                   "POST", "/v1/hosts/" + percent_encode(options_.name) + "/forget",
                                                   {{"it_is_dead", true}});
                                               if (!forgotten && forgotten.error().exit == Exit::not_found)
                                                   forgotten.error().hint = "tarn status, which names the hosts";
                                               return forgotten;
                                           },
                                           print_forgotten, [this] { return options_.name; }});
    }

    // On a store that no daemon has open; they ask nobody.
    void add_store_verbs() {
        CLI::App* const store = app_.add_subcommand("store", "Look at a store that is not in use, or repair it");
        store->require_subcommand(1);
        store->fallthrough();
        const auto add_verb = [&](const char* name, const char* description, Outcome<Json> (*ask)(const std::string&),
                                  void (*tell)(std::ostream&, const Json&)) {
            CLI::App* const command = store->add_subcommand(name, description);
            command->footer(fmt::format("Example:\n  tarn store {} /var/lib/tarn/store", name));
            command->add_option("PATH", options_.path, "The file or block device")->required()->type_name("");
            verbs_.emplace(fmt::format("store {}", name),
                           Verb{[this, ask](const Client&) { return ask(options_.path); }, tell,
                                [this] { return options_.path; }});
        };
        add_verb("inspect", "Say what a store says about itself", inspect_stopped_store, print_store);
        add_verb("check", "Read every page of a store and check it", check_stopped_store, print_store);
        add_repair(*store);
    }

    void add_repair(CLI::App& store) {
        CLI::App* const command = store.add_subcommand(
            "repair", "Make a store that is refused one that can be opened, and list what is lost");
        command->footer("Example:\n  tarn store repair --salvage-journal /var/lib/tarn/store");
        command->add_option("PATH", options_.path, "The file or block device")->required()->type_name("");
        command->add_flag("--salvage-journal", options_.repair.salvage_journal,
                          "Keep of a damaged journal what can be proved");
        command->add_flag("--yes", options_.repair.yes, "Answers one of two questions; give it twice for both");
        verbs_.emplace("store repair",
                       Verb{[this](const Client&) { return repair_stopped_store(options_.path, options_.repair); },
                            print_repaired, [this] { return options_.path; }});
    }

    CLI::App app_{"tarn talks to this host's tarnd: one coherent store of pages, as block devices and files.", "tarn"};
    Options options_;
    std::map<std::string, Verb> verbs_;
};

}  // namespace

Exit run_cli(std::span<const char* const> words, std::ostream& out, std::ostream& err) {
    Commands commands;
    return commands.run(words, out, err);
}

}  // namespace tarn
