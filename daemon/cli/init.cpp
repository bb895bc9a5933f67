#include "daemon/cli/init.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include "daemon/configuration/memory_budget.hpp"
#include "daemon/configuration/memory_limit.hpp"
#include "daemon/process/store_refusal.hpp"
#include "tiers/nvme/device/store_file.hpp"
#include "tiers/nvme/store.hpp"
#include "tiers/nvme/store_inspection.hpp"
#include "utils/cpu_set.hpp"
#include "utils/host_name.hpp"
#include "utils/printable.hpp"
#include "utils/unix_socket.hpp"

namespace tarn {

namespace {

constexpr const char* in_use_hint = "tarn status, which names the tarnd that may have it; stop that first";

// In JSON as "exists".
std::unexpected<Failure> refuse_existing(std::string cause, std::string hint) {
    return std::unexpected(
        Failure{.exit = Exit::busy, .cause = std::move(cause), .hint = std::move(hint), .code = "exists"});
}

std::string describe_store(const StoreIdentity& identity) {
    const std::string_view name = text_of(identity.host_name);
    return fmt::format("the store of host {}, cluster {},",
                       name.empty() ? fmt::format("{}", identity.host + 1) : printable(name),
                       format_uuid(identity.cluster));
}

// What this run has made: all of it goes again unless everything was made.
class Made {
  public:
    Made() = default;
    Made(const Made&) = delete;
    ~Made() {
        std::error_code ignored;  // a directory that somebody else has put something into stays
        for (; !paths_.empty(); paths_.pop_back()) std::filesystem::remove(paths_.back(), ignored);
    }
    void add(std::filesystem::path path) { paths_.push_back(std::move(path)); }
    void keep() { paths_.clear(); }
    // And its parents. Errors: as of the file system.
    std::error_code make_directories(const std::filesystem::path& path) {
        std::error_code problem;
        if (std::filesystem::is_directory(path, problem) || path == path.parent_path()) return {};
        if (const std::error_code of_parent = make_directories(path.parent_path())) return of_parent;
        if (std::filesystem::create_directory(path, problem)) add(path);
        return problem;
    }

  private:
    std::vector<std::filesystem::path> paths_;
};

std::string absolute(const std::string& path) {
    return path.empty() ? path : std::filesystem::absolute(path).lexically_normal().string();
}

// A TOML basic string.
std::string quote(const std::string& text) {
    std::string quoted = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\')
            quoted += fmt::format("\\{}", c);
        else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
            quoted += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
        else
            quoted += c;
    }
    return quoted + "\"";
}

template <size_t size>
Outcome<std::array<uint8_t, size>> random_bytes() {
    std::array<uint8_t, size> bytes;
    if (::getrandom(bytes.data(), size, 0) != static_cast<ssize_t>(size))
        return refuse(Exit::failed, fmt::format("getrandom: {}", std::strerror(errno)));
    return bytes;
}

Outcome<Uuid> draw_uuid() {
    TRY(Uuid uuid, random_bytes<std::tuple_size_v<Uuid>>());
    uuid[6] = static_cast<uint8_t>((uuid[6] & 0x0f) | 0x40);  // version 4, random
    uuid[8] = static_cast<uint8_t>((uuid[8] & 0x3f) | 0x80);
    return uuid;
}

Outcome<> write_file(const std::string& path, const std::string& text, mode_t mode, bool replace) {
    const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | (replace ? O_TRUNC : O_EXCL);
    const UniqueFd fd(::open(path.c_str(), flags, mode));
    if (!fd && errno == EEXIST) return refuse_existing(path + " exists", "--replace-config to write it anew");
    if (!fd)
        return refuse(errno == EACCES ? Exit::permission : Exit::failed,
                      fmt::format("{}: {}", path, std::strerror(errno)));
    if (::fchmod(fd.get(), mode) != 0 ||
        ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) || ::fsync(fd.get()) != 0) {
        const int error = errno;
        if (!replace) ::unlink(path.c_str());  // it is ours
        return refuse(Exit::failed, fmt::format("{}: {}", path, std::strerror(error)));
    }
    return {};
}

std::string format_toml(const Configuration& configuration) {
    std::string text = "# Written by tarn init. All keys: man tarn.toml\n";
    const auto line = [&](const char* key, const std::string& value) {
        if (!value.empty()) text += fmt::format("{} = {}\n", key, quote(value));
    };
    line("host", configuration.host);
    line("cluster", format_uuid(configuration.cluster));
    line("store", configuration.store);
    line("memory", format_size(configuration.memory_bytes));
    line("key_file", configuration.key_file);
    if (configuration.control != control_path_default) line("control", configuration.control);
    if (!configuration.peers.empty())
        text += "\n# The same hosts in the same order on all of them; the first keeps the names.\n";
    for (const Peer& peer : configuration.peers) {
        text += "[[peer]]\n";
        line("name", peer.name);
        line("address", format_address(peer.address));
    }
    if (!configuration.nbd_unix.empty() || configuration.nbd_tcp) {
        text += "\n[nbd]\n";
        line("unix", configuration.nbd_unix);
        if (configuration.nbd_tcp) line("tcp", format_address(*configuration.nbd_tcp));
    }
    return text;
}

// Of an option, what its text says.
template <class T>
Outcome<T> parsed(const char* option, const std::string& text, const Result<T>& value) {
    if (!value) return refuse(Exit::usage, fmt::format("{} {}: {}", option, text, value.error().where));
    return *value;
}

Outcome<Peer> parse_peer(const std::string& text) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos) return refuse(Exit::usage, "--peer is not NAME=HOST:PORT: " + text);
    TRY(const Address address, parsed("--peer", text, parse_address(std::string_view(text).substr(equals + 1))));
    return Peer{.name = text.substr(0, equals), .address = address};
}

Outcome<Configuration> configuration_of(const InitOptions& options) {
    Configuration configuration;
    configuration.host = options.host.empty() ? machine_name() : options.host;
    configuration.store = absolute(options.store);
    configuration.control = options.control.empty() ? control_path_default : absolute(options.control);
    configuration.nbd_unix = absolute(options.nbd_unix);
    TRY(configuration.memory_bytes, parsed("--memory", options.memory, parse_size(options.memory)));
    if (!options.nbd_tcp.empty()) {
        TRY(configuration.nbd_tcp, parsed("--nbd-tcp", options.nbd_tcp, parse_address(options.nbd_tcp)));
    }
    for (const std::string& text : options.peers) {
        TRY(Peer peer, parse_peer(text));
        configuration.peers.push_back(std::move(peer));
    }
    if (configuration.peers.size() > 1) {
        const std::filesystem::path beside = absolute(options.configuration_path);
        configuration.key_file = absolute(options.key_file);
        if (configuration.key_file.empty()) configuration.key_file = beside.parent_path() / "key";
    }
    if (options.cluster.empty()) {
        TRY(configuration.cluster, draw_uuid());
    } else {
        const auto uuid = parse_uuid(options.cluster);
        if (!uuid) return refuse(Exit::usage, "--cluster is not a UUID");
        configuration.cluster = *uuid;
    }
    for (const std::string* text : {&configuration.host, &configuration.store, &configuration.control,
                                    &configuration.key_file, &configuration.nbd_unix})
        if (!is_utf8(*text)) return refuse(Exit::usage, *text + ": not valid UTF-8, which a configuration has to be");
    const auto errors = check_configuration(configuration, "");
    if (!errors.empty()) return refuse(Exit::usage, errors.front().describe());
    const std::string too_much = too_much_memory(configuration.memory_bytes, memory_limits());
    if (!too_much.empty()) return refuse(Exit::usage, fmt::format("--memory {}", too_much));
    if (options.cluster.empty() && configuration.host_id() != 0) {
        const std::string& first = configuration.peers.front().name;
        return refuse(Exit::usage,
                      fmt::format("the cluster is made on {0}, the first of the peers; {1} joins it with {0}'s UUID, "
                                  "which is \"cluster\" in {0}'s configuration, and with a copy of {0}'s key at {2}",
                                  first, configuration.host, configuration.key_file),
                      "--cluster UUID");
    }
    return configuration;
}

// How large the store is going to be: a device is taken whole unless told otherwise.
Outcome<uint64_t> store_size(const Configuration& configuration, const InitOptions& options) {
    const std::string& store = configuration.store;
    std::error_code ignored;
    const std::filesystem::file_status found = std::filesystem::status(store, ignored);
    const bool is_device = std::filesystem::is_block_file(found);
    if (std::filesystem::exists(found) && !is_device && !std::filesystem::is_regular_file(found))
        return refuse(Exit::usage, "neither a regular file nor a block device");
    // What is made there is in memory, and gone when the machine stops.
    if (!is_device && store.starts_with("/dev/") && !store.starts_with("/dev/shm/"))
        return refuse(Exit::usage, "no such block device", "lsblk, which lists them");
    if (!options.size.empty()) return parsed("--size", options.size, parse_size(options.size));
    if (!is_device) return refuse(Exit::usage, "a file needs --size", "--size 64GiB");
    const Result<StoreFile> device = StoreFile::open_read_only(configuration.store);
    if (device) return device->size_bytes();
    return refuse(exit_of(device.error().code), log::explain(device.error()));
}

std::unexpected<Failure> refuse_too_small(uint64_t size_bytes) {
    uint64_t least_mib = 1;
    while (StoreGeometry::of_device(least_mib << 20).slab_count == 0) ++least_mib;
    return refuse(Exit::usage,
                  fmt::format("{} is too small for a store, which takes {} MiB at least",
                              format_size_roughly(size_bytes), least_mib),
                  fmt::format("--size {}MiB", least_mib));
}

Outcome<> check_memory(const Configuration& configuration, const InitOptions& options, const StoreGeometry& geometry,
                       uint64_t size_bytes) {
    const uint64_t books = Store::books_bytes_max(geometry);
    const uint64_t least = memory_min(CpuSet::of_thread().value_or(CpuSet{0}).size(), books);
    if (configuration.memory_bytes >= least) return {};
    return refuse(Exit::usage,
                  fmt::format("--memory {} is too small for a store of {}, whose books alone may take {} MiB",
                              options.memory, format_size_roughly(size_bytes), books >> 20),
                  fmt::format("--memory {}MiB", (least >> 20) + 1));
}

// The store of tarn's that lies at the path already, if any. A path that cannot be opened is left to what comes later.
Outcome<std::optional<Superblock>> store_at(const std::string& path) {
    Result<StoreFile> file = StoreFile::open_read_only(path);
    if (!file && file.error().code == Errc::busy) return refuse(Exit::busy, log::explain(file.error()), in_use_hint);
    if (!file) return std::nullopt;
    const Result<Superblock> superblock = read_superblock(*file);
    return superblock ? std::optional(*superblock) : std::nullopt;
}

// Whether the store that exists can be that of the host which is configured.
Outcome<> take_up(const Configuration& configuration, const InitOptions& options, const Superblock& superblock) {
    const StoreIdentity& found = superblock.identity;
    const std::string_view name = text_of(found.host_name);
    if (found.cluster != configuration.cluster)
        return refuse(Exit::busy, "the store that is there belongs to another cluster",
                      fmt::format("--cluster {}", format_uuid(found.cluster)));
    const bool is_of_other =
        name != configuration.host &&
        std::ranges::any_of(configuration.peers, [&](const Peer& peer) { return peer.name == name; });
    if (is_of_other)
        return refuse(Exit::busy,
                      fmt::format("the store that is there is that of host {}, which is one of the peers", name));
    const bool may_change_number = name == configuration.host && has_met_nobody(superblock);
    if (found.host != configuration.host_id() && !may_change_number)
        return refuse(Exit::busy,
                      fmt::format("the store that is there: {}", advice_on_other_store(configuration, found)));
    const uint64_t size_bytes = StoreLayout::of(superblock.geometry).end;
    if (!options.size.empty()) {
        TRY(const uint64_t asked_bytes, store_size(configuration, options));
        if (StoreGeometry::of_device(asked_bytes).slab_count != superblock.geometry.slab_count)
            return refuse(
                Exit::busy,
                fmt::format("the store that is there has {}, and keeps its size", format_size_roughly(size_bytes)),
                "no --size");
    }
    return check_memory(configuration, options, superblock.geometry, size_bytes);
}

Outcome<> format_store(const Configuration& configuration, const InitOptions& options, Made& made) {
    TRY(const uint64_t size_bytes, store_size(configuration, options));
    if (StoreGeometry::of_device(size_bytes).slab_count == 0) return refuse_too_small(size_bytes);
    TRY_VOID(check_memory(configuration, options, StoreGeometry::of_device(size_bytes), size_bytes));
    if (!options.force) {
        const Result<std::string> signature = known_signature(configuration.store);
        if (signature && !signature->empty())
            return refuse(Exit::busy, fmt::format("there is {} on it", *signature),
                          "--force destroys what is stored there");
    }
    // One directory, such as /var/lib/tarn; more that are missing are a mistake, or something is not mounted.
    std::error_code problem;
    const std::filesystem::path directory = std::filesystem::path(configuration.store).parent_path();
    if (std::filesystem::create_directory(directory, problem)) {
        made.add(directory);
        std::filesystem::permissions(directory, std::filesystem::perms(0750), problem);
    }
    if (std::filesystem::status(directory, problem).type() == std::filesystem::file_type::not_found)
        return refuse(Exit::not_found, fmt::format("there is no directory {}", directory.string()),
                      fmt::format("mkdir -p {}, unless something is to be mounted there", directory.string()));
    const bool is_new = !std::filesystem::exists(configuration.store, problem);
    const StoreIdentity identity{.cluster = configuration.cluster,
                                 .host = configuration.host_id(),
                                 .host_name = host_name_of(configuration.host)};
    const Result<> formatted = Store::format(configuration.store, size_bytes, identity, options.force);
    if (formatted && is_new) made.add(configuration.store);
    if (formatted) return {};
    const Error& error = formatted.error();
    if (const auto there = std::filesystem::space(directory, problem); error.code == Errc::no_space && !problem)
        return refuse(Exit::failed,
                      fmt::format("no space for a store of {}: its file system has {} free",
                                  format_size_roughly(size_bytes), format_size_roughly(there.available)),
                      "a smaller --size");
    return refuse(exit_of(error.code), log::explain(error),
                  error.code == Errc::exists ? "--force destroys what is stored there"
                  : error.code == Errc::busy ? in_use_hint
                                             : "");
}

// The first host draws the key; the others bring a copy.
Outcome<> provide_key(const Configuration& configuration, bool is_first, Made& made) {
    if (configuration.key_file.empty()) return {};
    std::error_code ignored;
    if (std::filesystem::exists(configuration.key_file, ignored)) {
        if (const auto key = load_key(configuration.key_file); !key)
            return refuse(Exit::failed, fmt::format("{}: {}", configuration.key_file, key.error().where));
        return {};
    }
    if (!is_first)
        return refuse(Exit::not_found, fmt::format("no key at {}", configuration.key_file),
                      "copy it from the host where the cluster was made");
    TRY(const auto key, random_bytes<32>());
    const auto written = write_file(configuration.key_file, fmt::format("{:02x}\n", fmt::join(key, "")), 0600, false);
    if (written) made.add(configuration.key_file);
    return written;
}

// Where the default is only root may make a socket: others have theirs beside the configuration.
std::string control_to_use(const Configuration& configuration, const std::filesystem::path& path) {
    const bool is_elsewhere = configuration.control == control_path_default && ::geteuid() != 0;
    return is_elsewhere ? (path.parent_path() / "control.sock").string() : configuration.control;
}

// Whether a new daemon can have that control socket. Two cannot have one, and tarn would go on asking the other one.
Outcome<> check_control(const std::string& control) {
    std::error_code problem;
    const std::filesystem::path directory = std::filesystem::path(control).parent_path();
    const std::string own = "--control PATH, in place of that, which TARN_CONTROL may have named";
    if (std::filesystem::exists(control, problem) && ::access(control.c_str(), W_OK) != 0)
        return refuse(Exit::permission, fmt::format("the control socket {} is another user's", control), own);
    if (problem == std::errc::permission_denied)
        return refuse(Exit::permission, fmt::format("{}: {}", control, problem.message()), own);
    // tarnd makes one directory, as below /run.
    if (!std::filesystem::exists(directory, problem) && !std::filesystem::exists(directory.parent_path(), problem))
        return refuse(Exit::not_found,
                      fmt::format("the control socket {} cannot be made: there is no directory {}", control,
                                  directory.parent_path().string()),
                      own);
    if (!is_listened_to(control)) return {};
    return refuse(Exit::busy, fmt::format("a tarnd runs whose control socket is {}", control),
                  "--control PATH, for another one on this machine; tarn status names the one that runs");
}

Json next_steps(const Configuration& configuration, const InitOptions& options, bool is_first, bool has_store) {
    Json next = Json::array();
    if (configuration.peers.size() > 1 && is_first)
        next.push_back(fmt::format(
            "on the other hosts: copy {} there, then run tarn init with the same --peer options and --cluster {}",
            configuration.key_file, format_uuid(configuration.cluster)));
    const std::filesystem::path path = absolute(options.configuration_path);
    const bool is_default = path == configuration_path_default;
    const std::string control = control_to_use(configuration, path);
    std::error_code ignored;
    if (is_default && std::filesystem::exists("/run/systemd/system", ignored))
        next.push_back("systemctl enable --now tarnd");
    else
        next.push_back(fmt::format("tarnd{}{} &", is_default ? "" : " --config " + path.string(),
                                   control == configuration.control ? "" : " --control " + control));
    if (control != control_path_default) next.push_back("export TARN_CONTROL=" + control);
    next.push_back(has_store ? "tarn list" : "tarn create vol1 10GiB");
    return next;
}

}  // namespace

Outcome<Json> initialise(const InitOptions& asked) {
    InitOptions options = asked;
    std::optional<Superblock> existing;
    if (!options.force) {
        TRY(existing, store_at(absolute(options.store)));
    }
    if (existing && options.cluster.empty()) options.cluster = format_uuid(existing->identity.cluster);
    TRY(const Configuration configuration, configuration_of(options));
    const std::string path = absolute(options.configuration_path);
    std::error_code problem;
    if (std::filesystem::exists(path, problem) && !options.replace_config)
        return refuse_existing(path + " exists", existing
                                                     ? "--replace-config to write it anew for the store that is there"
                                                     : "--replace-config to write it anew");
    if (existing && !options.replace_config)
        return refuse_existing(describe_store(existing->identity) + " is there already",
                               "--replace-config takes it up as it is; --force destroys what is stored there");
    TRY_VOID(check_control(control_to_use(configuration, path)));
    Made made;
    problem = made.make_directories(std::filesystem::path(path).parent_path());
    if (problem)
        return refuse(problem == std::errc::permission_denied ? Exit::permission : Exit::failed,
                      fmt::format("{}: {}", path, problem.message()));
    const bool is_first =
        asked.cluster.empty() && (!existing || has_met_nobody(*existing)) && configuration.host_id() == 0;
    // The configuration last: with it the host counts as made.
    TRY_VOID(provide_key(configuration, is_first, made));
    TRY_VOID(existing ? take_up(configuration, options, *existing) : format_store(configuration, options, made));
    if (!std::filesystem::exists(path, problem)) made.add(path);
    TRY_VOID(write_file(path, format_toml(configuration), 0644, options.replace_config));
    made.keep();
    return Json{{"configuration", path},
                {"store", configuration.store},
                {"store_was_there", existing.has_value()},
                {"host", configuration.host},
                {"cluster", format_uuid(configuration.cluster)},
                {"key_file", configuration.key_file},
                {"next", next_steps(configuration, options, is_first, existing.has_value())}};
}

}  // namespace tarn
