#include "daemon/configuration/arguments.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "daemon/configuration/memory_limit.hpp"
#include "daemon/configuration/version.hpp"

namespace tarn {

namespace {

struct Flags {
    std::string host;
    std::string store;
    std::string memory;
    unsigned shards = 0;
    std::string listen;
    std::string control;
    std::string nbd_unix;
    std::string nbd_tcp;
    std::string log_level;
};

void declare(CLI::App& app, Arguments& arguments, Flags& flags) {
    app.set_version_flag("--version", fmt::format("tarnd {}", version));
    app.add_option("-c,--config", arguments.configuration_path, "The configuration file")
        ->type_name("FILE")
        ->capture_default_str();
    app.add_flag("--check-config", arguments.check_only, "Check the configuration, do nothing else");
    app.add_flag("--upgrade", arguments.start.upgrade,
                 "Bring a store of an older format to the present one, in place; no older tarn reads it then");
    app.add_flag("--accept-older-store", arguments.start.accept_older_store,
                 "Use a store that another host remembers as newer, and count all of its pages as lost");
    app.add_flag("--discard-memory", arguments.start.discard_memory,
                 "Begin without the memory that a crashed tarnd has left; says what is lost with it");
    app.add_option("--host", flags.host, "This host's name")->type_name("NAME");
    app.add_option("--store", flags.store, "The store: a file or block device")->type_name("PATH");
    app.add_option("--memory", flags.memory, "Memory for cached pages")->type_name("SIZE");
    app.add_option("--shards", flags.shards, "Event loops")->check(CLI::Range(1u, shards_max));
    app.add_option("--listen", flags.listen, "Where the other hosts connect to")->type_name("HOST:PORT");
    app.add_option("--control", flags.control, "The socket that tarn connects to")->type_name("PATH");
    app.add_option("--nbd-unix", flags.nbd_unix, "Serve NBD on this socket")->type_name("PATH");
    app.add_option("--nbd-tcp", flags.nbd_tcp, "Serve NBD on this address")->type_name("HOST:PORT");
    app.add_option("--log-level", flags.log_level, "error, warning, info or debug")->type_name("LEVEL");
    app.footer("Example:\n  tarnd --config /etc/tarn/tarn.toml --check-config");
}

// Appends what is wrong with the flags.
class Override {
  public:
    template <class Target, class Parse>
    void with(const char* flag, const std::string& text, Target& target, Parse parse) {
        if (text.empty()) return;
        if (const auto value = parse(text))
            target = *value;
        else
            errors_ += fmt::format("tarnd: {} {}: {}\n", flag, log::printable(text), value.error().where);
    }
    // A path on the command line is relative to where the command was given.
    void with_path(const std::string& text, std::string& target) const {
        if (!text.empty()) target = std::filesystem::absolute(text).string();
    }
    const std::string& errors() const { return errors_; }

  private:
    std::string errors_;
};

std::string override_with(const Flags& flags, Configuration& configuration) {
    Override change;
    if (!flags.host.empty()) configuration.host = flags.host;
    if (flags.shards > 0) configuration.shards = flags.shards;
    change.with_path(flags.store, configuration.store);
    change.with_path(flags.control, configuration.control);
    change.with_path(flags.nbd_unix, configuration.nbd_unix);
    change.with("--memory", flags.memory, configuration.memory_bytes, parse_size);
    change.with("--listen", flags.listen, configuration.listen, parse_address);
    change.with("--nbd-tcp", flags.nbd_tcp, configuration.nbd_tcp, parse_address);
    change.with("--log-level", flags.log_level, configuration.log_level, log::parse_level);
    return change.errors();
}

std::string describe(const std::vector<ConfigurationError>& errors) {
    std::string text;
    for (const ConfigurationError& error : errors) text += fmt::format("tarnd: {}\n", error.describe());
    return text;
}

}  // namespace

std::expected<Arguments, Leave> parse_arguments(std::span<const char* const> words) {
    CLI::App app("tarnd pools the memory and NVMe of a cluster's hosts into one coherent page store.", "tarnd");
    Arguments arguments;
    arguments.configuration_path = configuration_path_default;
    Flags flags;
    declare(app, arguments, flags);
    try {
        app.parse(static_cast<int>(words.size()), words.data());
    } catch (const CLI::CallForHelp&) {
        return std::unexpected(Leave{.exit_code = 0, .text = app.help()});
    } catch (const CLI::CallForVersion& call) {
        return std::unexpected(Leave{.exit_code = 0, .text = std::string(call.what()) + "\n"});
    } catch (const CLI::ParseError& error) {
        return std::unexpected(
            Leave{.exit_code = exit_configuration,
                  .text = fmt::format("tarnd: {}; try: tarnd --help\n", log::printable(error.what()))});
    }
    auto configuration = load_configuration(arguments.configuration_path);
    if (!configuration)
        return std::unexpected(Leave{.exit_code = exit_configuration, .text = describe(configuration.error())});
    arguments.configuration = std::move(*configuration);
    std::string errors = override_with(flags, arguments.configuration);
    if (errors.empty()) errors = describe(check_configuration(arguments.configuration, ""));
    if (errors.empty()) {
        const std::string reason = too_much_memory(arguments.configuration.memory_bytes, memory_limits());
        const std::string& file = flags.memory.empty() ? arguments.configuration_path : "";
        if (!reason.empty()) errors = describe({{.file = file, .key = "memory", .reason = reason}});
    }
    if (!errors.empty()) return std::unexpected(Leave{.exit_code = exit_configuration, .text = std::move(errors)});
    return arguments;
}

}  // namespace tarn
