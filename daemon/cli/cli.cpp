#include "daemon/cli/cli.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <map>
#include <utility>

#include "daemon/cli/client.hpp"
#include "daemon/cli/init.hpp"
#include "daemon/cli/print.hpp"
#include "daemon/cli/verbs.hpp"
#include "daemon/configuration/text.hpp"
#include "daemon/configuration/version.hpp"
#include "utils/printable.hpp"

namespace tarn {

namespace {

constexpr int json_schema = 2;

// What other tools call it.
struct Synonym {
    std::string_view word;
    const char* verb;
};
constexpr std::array<Synonym, 9> synonyms = {{{"rm", "delete"},
                                              {"remove", "delete"},
                                              {"destroy", "delete"},
                                              {"ls", "list"},
                                              {"info", "show"},
                                              {"new", "create"},
                                              {"unmount", "umount"},
                                              {"help", "--help"},
                                              {"version", "--version"}}};

// A verb asks, and tells a person what came of it.
struct Verb {
    std::function<Answer(const Client&, const Options&)> ask;
    std::function<void(std::ostream&, const Json&)> tell;
    std::function<Exit(const Json&)> verdict = nullptr;  // none: ok
};

bool has_word(std::span<const char* const> words, std::string_view wanted) {
    return std::ranges::any_of(words, [&](const char* word) { return word == wanted; });
}

// One line for each member of the list under the key.
auto done(const char* what, const char* key) {
    return [=](std::ostream& out, const Json& all) { print_done(out, what, all, key); };
}

class Commands {
  public:
    Commands() {
        app_.set_version_flag("--version", fmt::format("tarn {}", version));
        app_.require_subcommand(1);
        app_.fallthrough();
        add_option(&app_, "--control", options_.control, "The daemon's control socket", "PATH")
            ->envname("TARN_CONTROL");
        app_.add_option("--timeout", options_.timeout_s, "How long to wait for the daemon")
            ->type_name("SECONDS")
            ->check(CLI::Range(1u, 86400u).description(""))
            ->capture_default_str();
        app_.add_flag("--json", options_.json, "Print JSON");
        app_.footer(
            "Example:\n  tarn create vol1 10GiB\n\nExit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 busy or exists, "
            "5 daemon or host unreachable,\n6 timed out, 7 permission.");
        add_init();
        add_volume_verbs();
        add_mount_verbs();
        add_attach_verbs();
        add_status();
        add_verify();
        add("doctor", "Say what this machine lacks for tarn, or could do better, and what mends it", "tarn doctor",
            {examine_machine, print_findings});
        add_host_verbs();
        add_store_verbs();
        add_tls_verbs();
    }

    Exit run(std::span<const char* const> words, std::ostream& out, std::ostream& err, Terminals terminals) {
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
            options_.json = has_word(words, "--json");
            return report(out, err, terminals, "", {}, Answer(usage_failure(error)));
        }
        // A person who waits is told how far it is, unless a program reads along.
        out_is_terminal_ = terminals.out;
        options_.progress = terminals.err && !options_.json ? &err : nullptr;
        const std::string name = chosen_name();
        try {
            return perform(name, out, err, terminals);
        } catch (const Json::exception& error) {
            return report(
                out, err, terminals, name, object(),
                Answer(Failure{.exit = Exit::failed,
                               .cause = fmt::format(
                                   "the daemon's answer is not understood, and the outcome unknown: {}", error.what()),
                               .hint = "a tarnd and a tarn of the same version"}));
        }
    }

  private:
    // Throws Json::exception on an answer of another shape than this version's.
    Exit perform(const std::string& name, std::ostream& out, std::ostream& err, Terminals terminals) {
        const Verb& verb = verbs_.at(name);
        options_.init.control = options_.control;
        const Client client(options_.control, options_.timeout());
        Answer answer = verb.ask(client, options_);
        const std::string object = this->object();
        for (Failure& failure : answer.failures) explain(failure, name, object);
        const bool has_answer = answer.failures.empty() || options_.names.size() > 1;
        if (!options_.json && has_answer) verb.tell(out, answer.json);
        const Exit verdict = verb.verdict && answer.failures.empty() ? verb.verdict(answer.json) : Exit::ok;
        const Exit reported = report(out, err, terminals, name, object, std::move(answer));
        return reported == Exit::ok ? verdict : reported;
    }

    std::string chosen_name() const {
        const CLI::App* const chosen = app_.get_subcommands().front();
        std::string name = chosen->get_name();
        for (const CLI::App* const part : chosen->get_subcommands()) name += " " + part->get_name();
        return name;
    }

    // With --json all of it is one object on the standard output, errors too.
    Exit report(std::ostream& out, std::ostream& err, Terminals terminals, const std::string& name,
                const std::string& object, Answer answer) const {
        if (options_.json) {
            // The version of what scripts parse; it grows when a key changes its meaning or goes away.
            answer.json["schema"] = json_schema;
            Json& errors = answer.json["errors"] = Json::array();
            for (const Failure& failure : answer.failures) errors.push_back(json_of(failure, object));
            if (!answer.warnings.empty()) answer.json["warnings"] = answer.warnings;
            // On a terminal in ASCII: what is not would act on it.
            out << answer.json.dump(2, ' ', terminals.out, Json::error_handler_t::replace) << "\n";
        } else {
            for (const std::string& warning : answer.warnings) err << printable("tarn: warning: " + warning) << "\n";
            for (const Failure& failure : answer.failures) {
                std::string line = "tarn: " + name;
                const std::string& what = failure.object.empty() ? object : failure.object;
                if (!what.empty()) line += " " + what;
                if (!name.empty()) line += ": ";
                line += failure.cause;
                if (!failure.hint.empty()) line += "; try: " + failure.hint;
                err << printable(line) << "\n";
            }
        }
        return answer.failures.empty() ? Exit::ok : answer.failures.front().exit;
    }

    // The verb as far as it is known, and what was meant instead of a word that is none.
    Failure usage_failure(const CLI::ParseError& error) const {
        const CLI::App* app = &app_;
        std::string place = "tarn";
        while (!app->get_subcommands().empty()) {
            app = app->get_subcommands().front();
            place += " " + app->get_name();
        }
        Failure failure{.exit = Exit::usage, .cause = error.what(), .hint = place + " --help"};
        const std::vector<std::string> rest = app_.remaining(true);
        const auto verbs = app->get_subcommands([](const CLI::App*) { return true; });
        const auto stranger = std::ranges::find_if(
            rest, [&](const std::string& word) { return word.starts_with('-') || !verbs.empty(); });
        if (stranger == rest.end()) {
            // A shell makes two words of "1 GiB".
            if (app->get_name() != "attach" && rest.size() == 1 && parse_size("1" + rest.front()).has_value())
                failure.cause = fmt::format("a size is one word: {0} belongs to its number, as in 1{0}", rest.front());
            return failure;
        }
        const bool is_option = stranger->starts_with('-');
        std::string_view word = *stranger;
        std::string positional;
        std::vector<std::string> known;
        if (is_option) {
            // Compared without what all options begin with, and without a value.
            word = word.substr(0, word.find('='));
            word.remove_prefix(std::min(word.find_first_not_of('-'), word.size()));
            for (const char c : word) positional += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
            for (const CLI::App* at = app; at != nullptr; at = at->get_parent())
                for (const CLI::Option* option : at->get_options())
                    for (const std::string& name : option->get_lnames()) known.push_back(name);
        } else {
            for (const CLI::App* each : verbs) known.push_back(each->get_name());
        }
        failure.cause = fmt::format("unknown {} {}", is_option ? "option" : "verb", *stranger);
        const std::vector<std::string_view> views(known.begin(), known.end());
        const auto same = std::ranges::find(synonyms, *stranger, &Synonym::word);
        if (is_option && app->get_option_no_throw(positional))
            failure.cause += fmt::format("; {} is a word without an option before it", positional);
        else if (same != synonyms.end() && app == &app_)
            failure.cause += fmt::format("; did you mean {}?", same->verb);
        else if (const auto nearest = nearest_name(word, views))
            failure.cause += fmt::format("; did you mean {}{}?", is_option ? "--" : "", *nearest);
        return failure;
    }

    static std::string footer_of(const char* example) {
        return fmt::format("Options of every verb: --control, --timeout, --json; tarn --help\n\nExample:\n  {}",
                           example);
    }

    CLI::App* add(const char* name, const char* description, const char* example, Verb verb,
                  CLI::App* group = nullptr) {
        CLI::App* const command = (group ? group : &app_)->add_subcommand(name, description);
        command->footer(footer_of(example));
        verbs_.emplace((group ? group->get_name() + " " : "") + name, std::move(verb));
        return command;
    }
    // Verbs of two words.
    CLI::App* add_group(const char* name, const char* description, const char* example) {
        CLI::App* const group = app_.add_subcommand(name, description);
        group->footer(footer_of(example));
        group->require_subcommand(1);
        group->fallthrough();
        return group;
    }
    static CLI::Option* add_option(CLI::App* command, const char* name, std::string& target, const char* description,
                                   const char* type) {
        return command->add_option(name, target, description)->type_name(type)->capture_default_str();
    }
    // What the verb is about, for the error line: each has its own option for it. Of several names each failure has its
    // own.
    std::string object() const {
        if (options_.names.size() == 1) return options_.names.front();
        for (const std::string* const text : {&options_.name, &options_.path, &options_.host, &options_.init.store})
            if (!text->empty()) return *text;
        return "";
    }
    void add_name(CLI::App* command) {
        command->add_option("NAME", options_.name, "The volume")->required()->type_name("");
    }
    CLI::Option* add_names(CLI::App* command, const char* description) {
        return command->add_option("NAME", options_.names, description)->type_name("");
    }

    void add_init() {
        InitOptions& init = options_.init;
        CLI::App* const command =
            add("init", "Make this host's store and configuration",
                "tarn init --store /var/lib/tarn/store --size 64GiB --memory 4GiB --nbd-unix /run/tarn/nbd.sock",
                {[](const Client&, const Options& options) { return Answer(initialise(options.init)); }, print_init});
        add_option(command, "--store,--device", init.store, "A file or block device", "PATH")->required();
        add_option(command, "--size", init.size, "Of the file; default: the whole device", "SIZE");
        add_option(command, "--memory", init.memory, "Memory for cached pages", "SIZE");
        add_option(command, "--config", init.configuration_path, "The configuration file to write", "FILE");
        add_option(command, "--host", init.host, "This host's name; default: what hostname says", "NAME");
        command->add_option("--peer", init.peers, "All hosts of the cluster, this one too, in the same order on each")
            ->type_name("NAME=HOST:PORT");
        add_option(command, "--cluster", init.cluster, "The cluster to join; default: a new one", "UUID");
        add_option(command, "--key-file", init.key_file, "The cluster's key; made for a new cluster", "FILE");
        add_option(command, "--nbd-unix", init.nbd_unix, "Serve NBD on this socket", "PATH");
        add_option(command, "--nbd-tcp", init.nbd_tcp, "Serve NBD on this address", "HOST:PORT");
        command->add_flag("--replace-config", init.replace_config,
                          "Write it anew, for the store that is there, if any");
        command->add_flag("--force", init.force, "Destroy what is stored there");
    }

    void add_create() {
        CLI::App* const command = add("create", "Make a volume", "tarn create vol1 10GiB",
                                      {create_volume, [this](std::ostream& out, const Json& made) {
                                           print_made(out, "created", made, rounding_note(options_.size, made));
                                       }});
        add_name(command);
        command->add_option("SIZE", options_.size, "Rounded up to whole pages of 4 KiB")->required()->type_name("");
        auto* const shared = command->add_flag("--shared", options_.shared, "Any number of hosts may write");
        command->add_flag("--exclusive", options_.exclusive, "One host at a time may have it open, be it to read")
            ->excludes(shared);
        command->add_option("--mode", options_.mode, "Permission bits")
            ->type_name("OCTAL")
            ->check([](const std::string& text) {
                const bool octal =
                    !text.empty() && text.size() <= 5 && text.find_first_not_of("01234567") == std::string::npos;
                return octal ? std::string() : std::string("not an octal number");
            })
            ->capture_default_str();
        add_option(command, "--fail-after", options_.fail_after,
                   "What an access does that needs a host which does not answer: wait, or fail after so long",
                   "wait|TIME");
    }

    void add_volume_verbs() {
        add_create();
        CLI::App* const list =
            add("list", "List the volumes", "tarn list",
                {[](const Client& client, const Options&) { return Answer(client.ask("GET", "/v1/volumes")); },
                 [this](std::ostream& out, const Json& volumes) {
                     if (options_.quiet)
                         print_names(out, volumes, "volumes", "name", out_is_terminal_);
                     else
                         print_list(out, volumes);
                 }});
        list->add_flag("-q,--quiet", options_.quiet, "Names only, one a line");
        add_names(add("show", "Show volumes", "tarn show vol1", {show_volumes, print_volumes}), "The volumes")
            ->required();
        CLI::App* const resize = add("resize", "Change a volume's size", "tarn resize vol1 20GiB",
                                     {resize_volume, [this](std::ostream& out, const Json& volumes) {
                                          print_resized(out, volumes, rounding_note(options_.size, volumes));
                                      }});
        add_name(resize);
        resize->add_option("SIZE", options_.size, "Rounded up to whole pages of 4 KiB")->required()->type_name("");
        resize->add_flag("--force", options_.force, "Shrink it, and lose what lies past the new end");
        CLI::App* const remove = add("delete", "Delete volumes and what they store", "tarn delete vol1",
                                     {delete_volumes, done("deleted", "volumes")});
        add_names(remove, "The volumes")->required();
        remove->add_flag("--force", options_.force, "Even while NBD clients have them open: these are disconnected");
        add_names(add("flush", "Make everything written to volumes durable", "tarn flush vol1",
                      {flush_volumes, done("flushed", "volumes")}),
                  "The volumes")
            ->required();
        add_names(add("export", "Print where NBD clients find volumes", "nbdinfo $(tarn export vol1 | head -1)",
                      {export_volumes, print_exports}),
                  "The volumes; default: all");
    }

    void add_mount_verbs() {
        CLI::App* const mount =
            add("mount", "Mount the volumes as files of a directory, or list the mounts", "tarn mount /mnt/tarn",
                {mount_volumes, [this](std::ostream& out, const Json& mounts) {
                     print_mounts(out, options_.path.empty() ? "" : "mounted ", mounts);
                 }});
        CLI::Option* const directory =
            mount->add_option("DIRECTORY", options_.path, "Where; default: list the mounts")->type_name("");
        mount->add_flag("--read-only", options_.read_only, "Refuse writes through this mount");
        mount
            ->add_flag("--io-uring", options_.io_uring,
                       "Switch FUSE over io_uring on in the kernel, for this mount and all later ones")
            ->needs(directory);
        CLI::App* const umount =
            add("umount", "Unmount", "tarn umount /mnt/tarn", {unmount_volumes, done("unmounted", "mounts")});
        umount->add_option("DIRECTORY", options_.path, "What to unmount")->required()->type_name("");
        umount->add_flag("--force", options_.force, "Even while files are open");
    }

    void add_attach_verbs() {
        CLI::App* const attach = add("attach", "Make a volume a block device of this host", "tarn attach vol1",
                                     {attach_volume, print_attached});
        add_name(attach);
        auto* const read_only = attach->add_flag("--read-only", options_.read_only, "Refuse writes to the device");
        auto* const take_over =
            attach->add_flag("--take-over", options_.take_over,
                             "From the host that holds it: its devices and NBD clients of the volume lose it");
        auto* const block_size =
            attach->add_option("--block-size", options_.block_size_bytes, "The device's logical block size");
        block_size->type_name("BYTES")->check(CLI::IsMember({512u, 4096u}).description(""))->capture_default_str();
        auto* const connections = attach->add_option("--connections", options_.connections,
                                                     "Hardware queues; default: one for each shard of tarnd, up to 8");
        connections->type_name("COUNT")->check(CLI::Range(1u, 8u).description(""));
        add_option(attach, "--from", options_.attach_table,
                   "As its line in this file says, which has the form of /etc/tarn/attachtab; no failure if it is "
                   "attached so already",
                   "FILE")
            ->excludes(read_only)
            ->excludes(take_over)
            ->excludes(block_size)
            ->excludes(connections);
        CLI::App* const detach = add("detach", "End a block device that attach made", "tarn detach vol1",
                                     {detach_volume, done("detached", "attachments")});
        detach->add_option("NAME", options_.name, "The volume, or its device: nbd0, /dev/nbd0 or its link")
            ->required()
            ->type_name("");
        detach->add_flag("--force", options_.force, "Even while it is mounted or open: its requests fail from then on");
        detach->add_flag("--if-attached", options_.if_attached, "No failure if it is not attached");
        CLI::App* const attached = add("attached", "List the block devices that attach made", "tarn attached",
                                       {list_attached, [this](std::ostream& out, const Json& all) {
                                            options_.quiet
                                                ? print_names(out, all, "attachments", "volume", out_is_terminal_)
                                                : print_attachments(out, all);
                                        }});
        attached->add_flag("-q,--quiet", options_.quiet, "Names of their volumes only, one a line");
    }

    void add_status() {
        CLI::App* const command =
            add("status", "Show the daemon, its store and its peers", "tarn status",
                {[](const Client& client, const Options&) { return Answer(client.ask("GET", "/v1/status")); },
                 [this](std::ostream& out, const Json& status) {
                     print_status(out, status);
                     if (options_.links) print_links(out, status);
                     if (options_.shards) print_shards(out, status);
                 }});
        command->add_flag("--links", options_.links,
                          "The link to each other host, too: its transport, round trip, messages and bytes");
        command->add_flag("--shards", options_.shards, "Each shard, too: its CPUs, what it serves, how long it ran");
    }

    void add_verify() {
        CLI::App* const command =
            add("verify", "Read what this host stores of volumes, or of all, and check it", "tarn verify vol1",
                {verify_volumes,
                 [this](std::ostream& out, const Json& status) {
                     const bool stops_nothing = options_.stop && !status.value("running", false);
                     stops_nothing ? void(out << "no pass is under way\n") : print_verified(out, status);
                 },
                 [this](const Json& status) {
                     if (options_.stop) return Exit::ok;
                     const bool good = status.value("bad_page_count", 0) == 0 && !status.value("cancelled", false);
                     return good ? Exit::ok : Exit::failed;
                 }});
        auto* const name = add_names(command, "The volumes");
        auto* const host = command->add_flag("--host", options_.whole_host, "All volumes")->excludes(name);
        add_option(command, "--rate", options_.size, "Bytes per second, at most; default: scrub_rate of tarn.toml",
                   "SIZE");
        command->add_flag("--stop", options_.stop, "Stop the pass that is under way")->excludes(name)->excludes(host);
    }

    void add_host_verbs() {
        CLI::App* const forget =
            add("forget", "Stop waiting for a host that is dead; what only it had is lost, and clients are told",
                "tarn host forget c --it-is-dead", {forget_host, print_forgotten},
                add_group("host", "Say what only a person can know of a host", "tarn host forget c --it-is-dead"));
        forget->add_option("HOST", options_.host, "As tarn status names it")->required()->type_name("");
        forget->add_flag("--it-is-dead", options_.it_is_dead,
                         "You vouch for it: powered off, or its tarnd killed. One that is only cut off still serves");
    }

    // On a store that no daemon has open; they ask nobody.
    void add_store_verbs() {
        CLI::App* const store = add_group("store", "Look at a store that is not in use, or repair it",
                                          "tarn store check /var/lib/tarn/store");
        const auto add_verb = [&](const char* name, const char* description, const char* option, auto ask, auto tell) {
            const std::string example = fmt::format("tarn store {}{} /var/lib/tarn/store", name, option);
            CLI::App* const command = add(name, description, example.c_str(), {ask, tell}, store);
            add_option(command, "PATH", options_.path, "The file or block device", "")->required();
            return command;
        };
        const auto inspect = [](const Client&, const Options& options) { return inspect_stopped_store(options.path); };
        const auto check = [](const Client&, const Options& options) { return check_stopped_store(options.path); };
        const auto repair = [](const Client&, const Options& options) {
            return repair_stopped_store(options.path, options.repair);
        };
        add_verb("inspect", "Say what a store says about itself", "", inspect, print_store);
        add_verb("check", "Read every page of a store and check it", "", check, print_store);
        CLI::App* const command =
            add_verb("repair", "Make a store that is refused one that can be opened, and list what is lost",
                     " --salvage-journal", repair, print_repaired);
        command->add_flag("--salvage-journal", options_.repair.salvage_journal,
                          "Keep of a damaged journal what can be proved");
        command->add_flag("--yes", options_.repair.yes, "Answers one of two questions; give it twice for both");
    }

    // They ask nobody.
    void add_tls_verbs() {
        constexpr const char* example = "tarn tls init lab --host a.example --host b.example";
        CLI::App* const init =
            add("init", "Make a certificate authority, and certificates of hosts and of a client", example,
                {[](const Client&, const Options& options) {
                     return Answer(make_certificates({.directory = options.path, .hosts = options.tls_hosts}));
                 },
                 print_certificates},
                add_group("tls", "Prepare encryption of NBD over TCP", example));
        add_option(init, "DIRECTORY", options_.path, "Where; it is made", "")->required();
        init->add_option("--host", options_.tls_hosts,
                         "A host, as its clients call it, be it by several names or addresses; default: what hostname "
                         "says")
            ->type_name("NAME[,NAME]...");
    }

    CLI::App app_{"tarn talks to this host's tarnd: one coherent store of pages, as block devices and files.", "tarn"};
    Options options_;
    std::map<std::string, Verb> verbs_;
    bool out_is_terminal_ = false;
};

}  // namespace

Exit run_cli(std::span<const char* const> words, std::ostream& out, std::ostream& err, Terminals terminals) {
    Commands commands;
    return commands.run(words, out, err, terminals);
}

}  // namespace tarn
