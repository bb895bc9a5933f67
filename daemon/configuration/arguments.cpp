#include "daemon/configuration/arguments.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>

#include "daemon/configuration/memory_limit.hpp"
#include "daemon/configuration/version.hpp"
#include "frontends/nbd/tls_credentials.hpp"

namespace tarn {

namespace {

// Flags that change the configuration, which is read once the command line names its file.
class Overrides {
  public:
    // parse: returns a Result whose error says what is wrong with the text.
    template <class Target, class Parse>
    void add(CLI::App& app, const char* flag, const char* type, const char* what, Target Configuration::* target,
             Parse parse) {
        const auto note = [=, this](const std::string& text) {
            if (text.empty()) return;
            add([=, this](Configuration& configuration) {
                if (const auto value = parse(text))
                    configuration.*target = *value;
                else
                    errors_ += fmt::format("tarnd: {} {}: {}\n", flag, log::printable(text), value.error().where);
            });
        };
        app.add_option_function<std::string>(flag, note, what)->type_name(type);
    }
    void add(std::function<void(Configuration&)> change) { changes_.push_back(std::move(change)); }
    // Returns what is wrong with the flags.
    std::string apply_to(Configuration& configuration) {
        for (const auto& change : changes_) change(configuration);
        return errors_;
    }

  private:
    std::vector<std::function<void(Configuration&)>> changes_;
    std::string errors_;
};

// A path on the command line is relative to where the command was given.
Result<std::string> absolute(const std::string& path) {
    return std::filesystem::absolute(path).string();
}

void declare(CLI::App& app, Arguments& arguments, Overrides& overrides) {
    const auto as_is = [](const std::string& text) { return Result<std::string>(text); };
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
    const auto add = [&](const char* flag, const char* type, const char* what, auto target, auto parse) {
        overrides.add(app, flag, type, what, target, parse);
    };
    add("--host", "NAME", "This host's name", &Configuration::host, as_is);
    add("--store", "PATH", "The store: a file or block device", &Configuration::store, absolute);
    add("--memory", "SIZE", "Memory for cached pages", &Configuration::memory_bytes, parse_size);
    const auto set_shards = [&overrides](unsigned count) {
        overrides.add([count](Configuration& configuration) { configuration.shards = count; });
    };
    app.add_option_function<unsigned>("--shards", set_shards, "Event loops")
        ->type_name("COUNT")
        ->check(CLI::Range(1u, shards_max).description(""));
    add("--listen", "HOST:PORT", "Where the other hosts connect to", &Configuration::listen, parse_address);
    add("--control", "PATH", "The socket that tarn connects to", &Configuration::control, absolute);
    add("--nbd-unix", "PATH", "Serve NBD on this socket", &Configuration::nbd_unix, absolute);
    add("--nbd-tcp", "HOST:PORT", "Serve NBD on this address", &Configuration::nbd_tcp, parse_address);
    add("--log-level", "LEVEL", "error, warning, info or debug", &Configuration::log_level, log::parse_level);
    app.footer("Example:\n  tarnd --config /etc/tarn/tarn.toml --check-config");
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
    Overrides overrides;
    declare(app, arguments, overrides);
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
    std::string errors = overrides.apply_to(arguments.configuration);
    if (errors.empty()) errors = describe(check_configuration(arguments.configuration, ""));
    if (errors.empty()) {
        const std::string reason = too_much_memory(arguments.configuration.memory_bytes, memory_limits());
        const std::string& file = app.count("--memory") == 0 ? arguments.configuration_path : "";
        if (!reason.empty()) errors = describe({{.file = file, .key = "memory", .reason = reason}});
    }
    if (errors.empty() && arguments.configuration.nbd_tls != nbd::TlsMode::off)
        if (const auto loaded = nbd::TlsCredentials::load(arguments.configuration.nbd_tls_files); !loaded)
            errors = describe({{.file = arguments.configuration_path, .key = "nbd.tls", .reason = loaded.error()}});
    if (!errors.empty()) return std::unexpected(Leave{.exit_code = exit_configuration, .text = std::move(errors)});
    return arguments;
}

}  // namespace tarn
