// Admission: which clients over TCP are let in, and which exports they may see. Pure, but for the credentials it
// carries.
//
// A network list is asked when a connection is accepted. An access list names, for one volume, the clients within TLS
// that may use it: to all others over TCP the volume does not exist. A volume without a list is open to everybody who
// got so far. Clients of a Unix socket and this host's own devices have no Admission, and may use everything.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "utils/result.hpp"

namespace tarn::nbd {

class TlsCredentials;

// "10.0.0.0/8", "fd00::/8", or one address. IPv4 addresses that a socket of both families reports are IPv4 here.
class Network {
  public:
    // Errors: invalid; the text says what is wrong.
    static Result<Network> parse(std::string_view text);

    bool contains(const sockaddr_storage& address) const;

  private:
    using Bytes = std::array<uint8_t, 16>;
    struct Numbers {
        bool is_ipv4 = false;
        Bytes bytes{};
    };
    static std::optional<Numbers> numbers_of(const sockaddr_storage& address);

    Numbers numbers_;
    unsigned prefix_bits_ = 0;
};

// Who may use the volumes that have a list. Clients are named by what they proved within TLS: "psk:USER", or
// "cert:NAME" for each name of a certificate.
class AccessLists {
  public:
    // Nothing, or what is wrong with it.
    static std::optional<std::string> mistake_in(std::string_view identity);

    void set(const std::string& volume, const std::vector<std::string>& identities) {
        lists_[volume] = {identities.begin(), identities.end()};
    }
    bool empty() const { return lists_.empty(); }
    bool allows(const std::string& volume, std::span<const std::string> identities) const;

  private:
    std::map<std::string, std::set<std::string, std::less<>>, std::less<>> lists_;
};

enum class TlsMode : uint8_t { off, on, require };

// Where TlsCredentials come from.
struct TlsFiles {
    std::string directory = "/etc/tarn/tls";  // of the certificates
    std::string psk_file;                     // empty: none
    bool verify_peer = false;                 // a client without a PSK needs a certificate
};

struct Admission {
    std::vector<Network> networks;  // empty: every address
    TlsMode tls = TlsMode::off;
    std::shared_ptr<const TlsCredentials> credentials;  // unless tls is off
    AccessLists access;

    bool admits(const sockaddr_storage& address) const;
};

}  // namespace tarn::nbd
