// Configuration: what tarnd was told to be, read from a TOML file and checked before anything is done with it.
//
// Every mistake in the file is reported, each with its place, its key and what to write instead; nothing is opened,
// created or changed on the way. See packaging/tarn.toml for the keys and what they mean.
#pragma once

#include <cstdint>
#include <expected>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coherence/protocol/action.hpp"
#include "daemon/configuration/text.hpp"
#include "frontends/nbd/admission.hpp"
#include "tiers/nvme/device/superblock.hpp"
#include "tiers/page.hpp"
#include "utils/log.hpp"

namespace tarn {

inline constexpr const char* configuration_path_default = "/etc/tarn/tarn.toml";
inline constexpr const char* control_path_default = "/run/tarn/control.sock";
inline constexpr uint64_t memory_size_min = uint64_t{64} << 20;
inline constexpr uint64_t memory_size_max = uint64_t{16} << 40;  // frames have numbers of 32 bits
inline constexpr unsigned shards_max = 256;
inline constexpr unsigned nbd_connections_max_max = 1'000'000;
inline constexpr unsigned nbd_handshake_seconds_max = 3600;
// The longest write lease that a configuration may ask for: the bound of C3 rests on it.
inline constexpr unsigned lease_writes_max = 2047;
inline constexpr unsigned lease_time_us_max = 100'000;

struct Peer {
    std::string name;
    Address address;
};

struct Configuration {
    std::string host;               // this host's name; one of the peers' when there are any
    Uuid cluster{};                 // whose store it is
    std::string store;              // a file or a block device
    uint64_t memory_bytes = 0;      // of the whole process: frames, books and buffers (memory_budget.hpp)
    bool keep_memory = true;        // for the next process, should this one crash
    unsigned shards = 0;            // 0: one per CPU that we may run on
    bool pin = true;                // shards are joined to CPUs
    bool poll_store = true;         // where the store's device has queues for it
    bool fabric_shm = true;         // links to hosts of the same machine move to shared memory
    std::optional<Address> listen;  // for the other hosts; default: this host's address among the peers
    std::vector<Peer> peers;        // in the order of their host ids; the first is the registrar
    std::string key_file;           // the secret that the hosts of a cluster share
    std::string control = control_path_default;
    std::string nbd_unix;  // empty: none
    std::optional<Address> nbd_tcp;
    std::vector<std::string> nbd_read_only;  // volumes that NBD clients may only read
    std::optional<unsigned> nbd_connections_max;
    unsigned nbd_handshakes_max = 1024;
    unsigned nbd_handshake_seconds = 30;
    nbd::TlsMode nbd_tls = nbd::TlsMode::off;  // over TCP
    nbd::TlsFiles nbd_tls_files;
    std::vector<nbd::Network> nbd_networks;                      // from which TCP clients may come; empty: all
    std::map<std::string, std::vector<std::string>> nbd_access;  // by volume: who may see it over TCP
    std::vector<std::string> mount_points;                       // where whoever may use the control socket may mount
    log::Level log_level = log::Level::info;
    uint64_t scrub_every_s = 7 * 86400;              // 0: never
    uint64_t scrub_rate_bytes = uint64_t{50} << 20;  // per second
    protocol::WriteLease write_lease;                // of this host, while another one waits for the page
    bool volumes_shared = false;                     // what tarn create makes without --shared or --exclusive

    // The place of this host among the peers; 0 when it is alone.
    HostId host_id() const;
};

// Of its file, bytes.
inline constexpr size_t configuration_size_max = size_t{1} << 20;

// Of one start, not of the host.
struct StartOptions {
    bool accept_older_store = false;  // --accept-older-store: of what others remember as newer, all counts as lost
    bool discard_memory = false;      // --discard-memory: begin without what a crashed process has left
    bool upgrade = false;             // --upgrade: a store of an older format becomes one of the present
};

struct ConfigurationError {
    std::string file;   // empty: told by the command line
    unsigned line = 0;  // 0: of the file as a whole
    unsigned column = 0;
    std::string key;  // may be empty
    std::string reason;
    // "tarn.toml:3:1: memroy: unknown key; did you mean memory?"
    std::string describe() const;
};

template <class T>
using ConfigurationResult = std::expected<T, std::vector<ConfigurationError>>;

ConfigurationResult<Configuration> parse_configuration(std::string_view text, const std::string& file);
// Also checks what the file names: the key file's permissions and contents.
ConfigurationResult<Configuration> load_configuration(const std::string& file);

// What holds for a configuration as a whole, also after flags changed it. No place in the file is named.
std::vector<ConfigurationError> check_configuration(const Configuration& configuration, const std::string& file);

// The 32 bytes that a key file's 64 hexadecimal digits stand for. Errors: not_found, refused (others may read it),
// invalid, io.
Result<std::vector<std::byte>> load_key(const std::string& path);

std::optional<Uuid> parse_uuid(std::string_view text);
std::string format_uuid(const Uuid& uuid);

}  // namespace tarn
