// From TOML to a Configuration: which keys there are, of which type, and where in the file they stand.
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <functional>
#include <map>

#include "daemon/configuration/configuration.hpp"

namespace tarn {

namespace {

using Place = toml::source_region;

// The library nests the parts of a dotted key, each within the one before, as deep as they come. Returns the line of
// one that no key of ours is near to, before the stack is too small for it.
std::optional<uint32_t> line_of_deep_key(std::string_view text) {
    constexpr size_t dots_max = 32;
    uint32_t line = 1;
    size_t dots = 0;
    std::string_view quotes;  // with which a text began that has not ended; three of them span lines
    bool in_comment = false;
    for (size_t i = 0; i < text.size(); ++i) {
        const char each = text[i];
        if (each == '\n') {
            ++line;
            dots = 0;
            in_comment = false;
            if (quotes.size() == 1) quotes = {};
        } else if (!quotes.empty()) {
            if (each == '\\' && quotes.front() == '"' && i + 1 < text.size() && text[i + 1] != '\n') {
                ++i;
            } else if (text.substr(i).starts_with(quotes)) {
                // Of five in a row the first two are the end of the text itself.
                if (quotes.size() == 3)
                    for (int more = 0; more < 2 && text.substr(i + 1).starts_with(quotes); ++more) ++i;
                i += quotes.size() - 1;
                quotes = {};
            }
        } else if (!in_comment && (each == '"' || each == '\'')) {
            const std::string_view three = text.substr(i, 3);
            const bool is_long = three == "\"\"\"" || three == "'''";
            quotes = text.substr(i, is_long ? 3 : 1);
            i += quotes.size() - 1;
        } else if (each == '#') {
            in_comment = true;
        } else if (each == '.' && !in_comment && ++dots > dots_max) {
            return line;
        }
    }
    return std::nullopt;
}

// One table of the file: its keys, each with what takes the value. A taker returns what is wrong, or nothing.
struct Key {
    std::string_view name;
    std::function<std::string(const toml::node&)> take;
};

class Parser {
  public:
    explicit Parser(const std::string& file) : file_(file) {}

    void add_error(const Place& place, std::string key, std::string reason) {
        errors_.push_back({.file = file_,
                           .line = place.begin.line,
                           .column = place.begin.column,
                           .key = std::move(key),
                           .reason = std::move(reason)});
    }

    void take(const toml::table& table, const std::string& prefix, std::span<const Key> keys) {
        for (const auto& [name, node] : table) {
            const auto key = std::ranges::find(keys, name.str(), &Key::name);
            if (key == keys.end()) {
                add_error(name.source(), prefix + std::string(name.str()), unknown(prefix, name.str(), keys));
            } else if (std::string reason = key->take(node); !reason.empty()) {
                add_error(node.source(), prefix + std::string(name.str()), std::move(reason));
            } else {
                places_[prefix + std::string(name.str())] = node.source();
            }
        }
    }

    // Gives errors of the whole the place of the key that they name.
    void add_located(std::vector<ConfigurationError> errors) {
        for (ConfigurationError& error : errors) {
            if (const auto place = places_.find(error.key); place != places_.end()) {
                error.line = place->second.begin.line;
                error.column = place->second.begin.column;
            }
            errors_.push_back(std::move(error));
        }
    }

    const std::vector<ConfigurationError>& errors() const { return errors_; }

  private:
    static std::string unknown(const std::string& prefix, std::string_view name, std::span<const Key> keys) {
        std::vector<std::string_view> names;
        for (const Key& key : keys) names.push_back(key.name);
        const auto meant = nearest_name(name, names);
        if (!meant) return "unknown key";
        return fmt::format("unknown key; did you mean {}{}?", prefix, *meant);
    }

    const std::string& file_;
    std::vector<ConfigurationError> errors_;
    std::map<std::string, Place> places_;
};

auto string_into(std::string& target) {
    return [&target](const toml::node& node) -> std::string {
        const auto* const text = node.as_string();
        if (!text) return "not a string";
        if (text->get().empty()) return "empty";
        target = text->get();
        return {};
    };
}

auto strings_into(std::vector<std::string>& target) {
    return [&target](const toml::node& node) -> std::string {
        const auto* const array = node.as_array();
        if (!array) return "not a list of strings";
        for (const toml::node& element : *array) {
            const auto* const text = element.as_string();
            if (!text) return "not a list of strings";
            target.push_back(text->get());
        }
        return {};
    };
}

auto bool_into(bool& target) {
    return [&target](const toml::node& node) -> std::string {
        const auto* const value = node.as_boolean();
        if (!value) return "not true or false";
        target = value->get();
        return {};
    };
}

// The values that a string is parsed into: parse returns a Result whose error says what is wrong with the text.
template <class Target, class Parse>
auto parsed_into(Target& target, Parse parse, const char* no_string = "not a string") {
    return [&target, parse, no_string](const toml::node& node) -> std::string {
        const auto* const text = node.as_string();
        if (!text) return no_string;
        const auto value = parse(std::string_view(text->get()));
        if (!value) return value.error().where;
        target = *value;
        return {};
    };
}

auto size_into(uint64_t& target) {
    return parsed_into(target, parse_size, "not a size such as \"64GiB\"");
}

// Target: unsigned, or an optional one.
template <class Target>
auto count_into(Target& target, int64_t count_min, int64_t count_max) {
    return [&target, count_min, count_max](const toml::node& node) -> std::string {
        const auto* const number = node.as_integer();
        if (!number || number->get() < count_min || number->get() > count_max)
            return fmt::format("not a number from {} to {}", count_min, count_max);
        target = static_cast<unsigned>(number->get());
        return {};
    };
}

Result<Uuid> uuid_of(std::string_view text) {
    if (const auto uuid = parse_uuid(text)) return *uuid;
    return fail(Errc::invalid, 0, "not a UUID");
}

Result<uint64_t> schedule_of(std::string_view text) {
    if (text == "never") return uint64_t{0};
    const Result<uint64_t> every = parse_duration(text);
    if (!every || *every < 1000)
        return fail(Errc::invalid, 0, "not a time of a second or more such as \"12h\" or \"7d\", nor \"never\"");
    return *every / 1000;
}

Result<nbd::TlsMode> tls_mode_of(std::string_view text) {
    if (text == "off") return nbd::TlsMode::off;
    if (text == "on") return nbd::TlsMode::on;
    if (text == "require") return nbd::TlsMode::require;
    return fail(Errc::invalid, 0, "not \"off\", \"on\" or \"require\"");
}

Result<bool> auto_or_off(std::string_view text) {
    if (text == "auto" || text == "off") return text == "auto";
    return fail(Errc::invalid, 0, "not \"auto\" or \"off\"");
}

auto table_into(Parser& parser, std::string prefix, std::vector<Key> keys) {
    return [&parser, prefix, keys](const toml::node& node) -> std::string {
        const auto* const table = node.as_table();
        if (!table) return fmt::format("not a table; write [{}]", prefix.substr(0, prefix.size() - 1));
        parser.take(*table, prefix, keys);
        return {};
    };
}

auto networks_into(std::vector<nbd::Network>& networks) {
    return [&networks](const toml::node& node) -> std::string {
        std::vector<std::string> texts;
        if (std::string reason = strings_into(texts)(node); !reason.empty()) return reason;
        if (texts.empty()) return "an empty list; without this key clients may come from everywhere";
        for (const std::string& text : texts) {
            const Result<nbd::Network> network = nbd::Network::parse(text);
            if (!network) return fmt::format("\"{}\": {}", log::printable(text), network.error().where);
            networks.push_back(*network);
        }
        return {};
    };
}

auto fabric_into(bool& shm) {
    return [&shm](const toml::node& node) -> std::string {
        std::vector<std::string> transports;
        if (std::string reason = strings_into(transports)(node); !reason.empty()) return reason;
        for (const std::string& each : transports)
            if (each != "shm" && each != "tcp")
                return fmt::format("\"{}\": not \"shm\" or \"tcp\"", log::printable(each));
        if (std::ranges::count(transports, "tcp") != 1 || std::ranges::count(transports, "shm") > 1)
            return "each transport once, and \"tcp\" among them: over it hosts find each other";
        shm = transports.size() == 2;
        return {};
    };
}

// A key for each volume that has a list.
auto access_into(Parser& parser, std::map<std::string, std::vector<std::string>>& access) {
    return [&parser, &access](const toml::node& node) -> std::string {
        const auto* const table = node.as_table();
        if (!table) return "not a table; write [nbd.access]";
        for (const auto& [name, list] : *table) {
            const std::string volume(name.str());
            std::vector<std::string>& identities = access[volume];
            std::string reason = strings_into(identities)(list);
            for (const std::string& identity : identities)
                if (const std::optional<std::string> mistake = nbd::AccessLists::mistake_in(identity))
                    reason = fmt::format("\"{}\": {}", log::printable(identity), *mistake);
            if (!reason.empty()) parser.add_error(list.source(), "nbd.access." + volume, reason);
        }
        return {};
    };
}

auto peers_into(Parser& parser, std::vector<Peer>& peers) {
    return [&parser, &peers](const toml::node& node) -> std::string {
        const auto* const array = node.as_array();
        if (!array) return "not a list; write [[peer]]";
        for (const toml::node& element : *array) {
            const auto* const table = element.as_table();
            if (!table) return "not a list of tables; write [[peer]]";
            Peer peer;
            parser.take(*table, "peer.",
                        std::vector<Key>{{"name", string_into(peer.name)},
                                         {"address", parsed_into(peer.address, parse_address)}});
            for (const auto& [name, example] : {std::pair("name", "a"), {"address", "192.0.2.1:7420"}})
                if (!table->contains(name))
                    parser.add_error(table->source(), fmt::format("peer.{}", name),
                                     fmt::format("missing; a line such as {} = \"{}\"", name, example));
            peers.push_back(peer);
        }
        return {};
    };
}

}  // namespace

ConfigurationResult<Configuration> parse_configuration(std::string_view text, const std::string& file) {
    Parser parser(file);
    Configuration configuration;
    configuration.memory_bytes = uint64_t{1} << 30;
    const std::vector<Key> keys = {
        {"host", string_into(configuration.host)},
        {"cluster", parsed_into(configuration.cluster, uuid_of)},
        {"store", string_into(configuration.store)},
        {"memory", size_into(configuration.memory_bytes)},
        {"keep_memory", bool_into(configuration.keep_memory)},
        {"shards", count_into(configuration.shards, 1, shards_max)},
        {"pin", parsed_into(configuration.pin, auto_or_off, "not \"auto\" or \"off\"")},
        {"poll_store", parsed_into(configuration.poll_store, auto_or_off, "not \"auto\" or \"off\"")},
        {"fabric", fabric_into(configuration.fabric_shm)},
        {"listen", parsed_into(configuration.listen, parse_address)},
        {"key_file", string_into(configuration.key_file)},
        {"scrub_every", parsed_into(configuration.scrub_every_s, schedule_of)},
        {"scrub_rate", size_into(configuration.scrub_rate_bytes)},
        {"control", string_into(configuration.control)},
        {"peer", peers_into(parser, configuration.peers)},
        {"nbd",
         table_into(
             parser, "nbd.",
             {{"unix", string_into(configuration.nbd_unix)},
              {"tcp", parsed_into(configuration.nbd_tcp, parse_address)},
              {"read_only", strings_into(configuration.nbd_read_only)},
              {"connections_max", count_into(configuration.nbd_connections_max, 1, nbd_connections_max_max)},
              {"handshakes_max", count_into(configuration.nbd_handshakes_max, 1, nbd_connections_max_max)},
              {"handshake_seconds", count_into(configuration.nbd_handshake_seconds, 1, nbd_handshake_seconds_max)},
              {"tls", parsed_into(configuration.nbd_tls, tls_mode_of)},
              {"tls_certificates", string_into(configuration.nbd_tls_files.directory)},
              {"tls_psk_file", string_into(configuration.nbd_tls_files.psk_file)},
              {"tls_verify_peer", bool_into(configuration.nbd_tls_files.verify_peer)},
              {"networks", networks_into(configuration.nbd_networks)},
              {"access", access_into(parser, configuration.nbd_access)}})},
        {"fuse", table_into(parser, "fuse.", {{"mount_points", strings_into(configuration.mount_points)}})},
        {"log", table_into(parser, "log.", {{"level", parsed_into(configuration.log_level, log::parse_level)}})},
        {"write_lease", table_into(parser, "write_lease.",
                                   {{"writes", count_into(configuration.write_lease.writes, 0, lease_writes_max)},
                                    {"time_us", count_into(configuration.write_lease.time_us, 1, lease_time_us_max)}})},
        {"volumes", table_into(parser, "volumes.", {{"shared", bool_into(configuration.volumes_shared)}})},
    };
    if (const std::optional<uint32_t> line = line_of_deep_key(text)) {
        parser.add_error({.begin = {*line, 1}, .end = {*line, 1}, .path = nullptr}, "", "a key of too many parts");
        return std::unexpected(parser.errors());
    }
    // The one place where the library's exceptions may be thrown.
    try {
        parser.take(toml::parse(text, file), "", keys);
    } catch (const toml::parse_error& error) {
        parser.add_error(error.source(), "", std::string(error.description()));
        return std::unexpected(parser.errors());
    }
    // What is wrong with a value is said; what is then missing from the whole would only confuse.
    if (parser.errors().empty()) parser.add_located(check_configuration(configuration, file));
    if (!parser.errors().empty()) return std::unexpected(parser.errors());
    return configuration;
}

}  // namespace tarn
