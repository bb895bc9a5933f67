// TlsCredentials: what the server proves itself with in TLS, and what it knows of its clients: certificates,
// revocations and pre-shared keys, read from files once.
//
// The files have the names and forms that nbdkit, qemu and libnbd share. X.509: ca-cert.pem, server-cert.pem,
// server-key.pem and, if there is one, ca-crl.pem, in one directory. PSK: lines "user:key", the key in hexadecimal
// digits, as psktool writes them. Either may be missing. Immutable, so that every thread may use it; whoever reads the
// files anew makes another one, while sessions that began with this one keep it.
#pragma once

#include <gnutls/gnutls.h>

#include <chrono>
#include <expected>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontends/nbd/admission.hpp"

namespace tarn::nbd {

class TlsCredentials {
  public:
    using Keys = std::map<std::string, std::vector<unsigned char>, std::less<>>;
    using Clock = std::chrono::system_clock;

    // Errors: what is wrong, beginning with the name of the file.
    static std::expected<std::shared_ptr<const TlsCredentials>, std::string> load(const TlsFiles& files);
    // What the files hold by now. Errors: also that there is no certificate any more. Its files may be missing at the
    // start; later they are mostly on their way, and who had a certificate would be left without a word.
    static std::expected<std::shared_ptr<const TlsCredentials>, std::string> load_anew(const TlsFiles& files,
                                                                                       const TlsCredentials& before);
    // The keys of a PSK file by their users. Errors: what is wrong, with the line.
    static std::expected<Keys, std::string> parse_keys(std::string_view text);

    TlsCredentials(const TlsCredentials&) = delete;
    ~TlsCredentials();

    // Configures a session that has just been made for a server. The session outlives neither this nor its own
    // callbacks.
    int apply_to(gnutls_session_t session) const;
    // Null: there is no such user.
    const std::vector<unsigned char>* key_of(std::string_view user) const;
    // Whether a client without a PSK needs a certificate.
    bool verify_peer() const { return verify_peer_; }
    // Whether the server has a certificate; without one clients prove nothing by theirs either.
    bool has_certificate() const { return certificates_ != nullptr; }
    // Whether that certificate says that this host name or address is the server's.
    bool is_certified(const std::string& name) const;
    // Whether what is known of revoked certificates is still current: no list of them, or none that has expired.
    // Otherwise no certificate of a client is good.
    bool knows_revoked() const { return !revoked_until_ || Clock::now() < *revoked_until_; }
    // When it ends; none: there is none.
    std::optional<Clock::time_point> expiry() const { return expiry_; }

  private:
    TlsCredentials() = default;
    std::optional<std::string> load_certificates(const std::string& directory);
    std::optional<std::string> load_keys(const std::string& file);

    bool verify_peer_ = false;
    gnutls_certificate_credentials_t certificates_ = nullptr;
    gnutls_psk_server_credentials_t psk_ = nullptr;
    gnutls_priority_t priority_ = nullptr;
    Keys keys_;
    std::string certificate_pem_;  // the server's own
    std::optional<Clock::time_point> expiry_;
    bool has_revoked_ = false;                        // a list of revoked certificates is there
    std::optional<Clock::time_point> revoked_until_;  // when the first of the lists ends
};

}  // namespace tarn::nbd
