#include "frontends/nbd/tls_credentials.hpp"

#include <fmt/format.h>
#include <gnutls/x509.h>
#include <strings.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <type_traits>

#include "frontends/nbd/tls_session.hpp"
#include "utils/assert.hpp"
#include "utils/printable.hpp"
#include "utils/small_file.hpp"

namespace tarn::nbd {

namespace {

constexpr size_t file_size_max = size_t{4} << 20;
constexpr size_t user_size_max = 128;  // GnuTLS takes no longer ones
constexpr size_t key_size_min = 16;
constexpr size_t key_size_max = 512;

// Each key exchange has forward secrecy. Those over finite fields are left out: one takes some 30 ms of a CPU, of which
// anybody could ask for as many as he likes. Of the ciphers those are preferred, whatever the client prefers, that CPUs
// have instructions for; with pre-shared keys ChaCha20 would be taken otherwise, at an eighth of the speed.
std::string priority(bool with_psk) {
    return fmt::format(
        "NORMAL:%SERVER_PRECEDENCE:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-KX-ALL{}:+ECDHE-ECDSA:+ECDHE-RSA:-GROUP-DH-ALL:"
        "-CIPHER-ALL:+AES-128-GCM:+AES-256-GCM:+CHACHA20-POLY1305",
        with_psk ? ":+ECDHE-PSK" : "");
}

gnutls_datum_t datum_of(const std::string& text) {
    return {.data = reinterpret_cast<unsigned char*>(const_cast<char*>(text.data())),
            .size = static_cast<unsigned>(text.size())};
}

// The text of a file that is wiped when it is not needed any more.
struct Secret {
    std::string text;
    ~Secret() { ::explicit_bzero(text.data(), text.size()); }
};

std::string mistake(const std::string& file, std::string_view reason) {
    return fmt::format("{}: {}", printable(file), reason);
}

using Certificate = std::unique_ptr<std::remove_pointer_t<gnutls_x509_crt_t>, decltype(&gnutls_x509_crt_deinit)>;

// The first one of a file; null: there is none.
Certificate certificate_of(const std::string& pem) {
    gnutls_x509_crt_t made = nullptr;
    Certificate certificate(gnutls_x509_crt_init(&made) == 0 ? made : nullptr, gnutls_x509_crt_deinit);
    const gnutls_datum_t text = datum_of(pem);
    if (certificate && gnutls_x509_crt_import(certificate.get(), &text, GNUTLS_X509_FMT_PEM) != 0) certificate.reset();
    return certificate;
}

// Whether these authorities have signed all these lists of revoked certificates. GnuTLS takes a list of anybody, and
// then looks into those alone that have the authority's name: the list of another one would revoke nothing. Nor may a
// list be forged that has the name.
bool is_signed_by(const gnutls_datum_t& authorities_pem, const gnutls_datum_t& lists_pem) {
    gnutls_x509_crt_t* authorities = nullptr;
    gnutls_x509_crl_t* lists = nullptr;
    unsigned authority_count = 0;
    unsigned list_count = 0;
    bool all_are =
        gnutls_x509_crt_list_import2(&authorities, &authority_count, &authorities_pem, GNUTLS_X509_FMT_PEM, 0) >= 0 &&
        gnutls_x509_crl_list_import2(&lists, &list_count, &lists_pem, GNUTLS_X509_FMT_PEM, 0) >= 0;
    for (unsigned i = 0; i < list_count && all_are; ++i) {
        unsigned wrong = 0;  // also its dates, which count when a client comes
        all_are = gnutls_x509_crl_verify(lists[i], authorities, static_cast<int>(authority_count),
                                         GNUTLS_VERIFY_DISABLE_CA_SIGN, &wrong) == 0 &&
                  (wrong & (GNUTLS_CERT_SIGNER_NOT_FOUND | GNUTLS_CERT_SIGNATURE_FAILURE)) == 0;
    }
    for (unsigned i = 0; i < authority_count; ++i) gnutls_x509_crt_deinit(authorities[i]);
    for (unsigned i = 0; i < list_count; ++i) gnutls_x509_crl_deinit(lists[i]);
    gnutls_free(static_cast<void*>(authorities));
    gnutls_free(static_cast<void*>(lists));
    return all_are;
}

// When the first of these lists ends; none: none does. GnuTLS itself goes on using one that has.
std::optional<TlsCredentials::Clock::time_point> end_of(const gnutls_datum_t& lists_pem) {
    gnutls_x509_crl_t* lists = nullptr;
    unsigned count = 0;
    std::optional<TlsCredentials::Clock::time_point> end;
    if (gnutls_x509_crl_list_import2(&lists, &count, &lists_pem, GNUTLS_X509_FMT_PEM, 0) < 0) return end;
    for (unsigned i = 0; i < count; ++i) {
        const time_t next = gnutls_x509_crl_get_next_update(lists[i]);
        if (next == static_cast<time_t>(-1)) continue;
        const auto at = TlsCredentials::Clock::from_time_t(next);
        end = end ? std::min(*end, at) : at;
    }
    for (unsigned i = 0; i < count; ++i) gnutls_x509_crl_deinit(lists[i]);
    gnutls_free(static_cast<void*>(lists));
    return end;
}

std::optional<std::vector<unsigned char>> bytes_of(std::string_view digits) {
    if (digits.size() % 2 != 0) return std::nullopt;
    std::vector<unsigned char> bytes(digits.size() / 2);
    for (size_t i = 0; i < bytes.size(); ++i) {
        const char* const from = digits.data() + 2 * i;
        if (const auto [end, error] = std::from_chars(from, from + 2, bytes[i], 16);
            error != std::errc() || end != from + 2)
            return std::nullopt;
    }
    return bytes;
}

}  // namespace

TlsCredentials::~TlsCredentials() {
    if (priority_) gnutls_priority_deinit(priority_);
    if (psk_) gnutls_psk_free_server_credentials(psk_);
    if (certificates_) gnutls_certificate_free_credentials(certificates_);
    for (auto& [user, key] : keys_) ::explicit_bzero(key.data(), key.size());
}

std::expected<std::shared_ptr<const TlsCredentials>, std::string> TlsCredentials::load(const TlsFiles& files) {
    std::shared_ptr<TlsCredentials> credentials(new TlsCredentials());
    credentials->verify_peer_ = files.verify_peer;
    if (std::optional<std::string> wrong = credentials->load_certificates(files.directory))
        return std::unexpected(std::move(*wrong));
    if (!files.psk_file.empty())
        if (std::optional<std::string> wrong = credentials->load_keys(files.psk_file))
            return std::unexpected(std::move(*wrong));
    if (!credentials->certificates_ && !credentials->psk_)
        return std::unexpected(
            mistake(files.directory + "/server-cert.pem",
                    "no such file, and no tls_psk_file is given; tarn tls init makes certificates, in "
                    "hosts/NAME of its directory those of a host"));
    const int result =
        gnutls_priority_init(&credentials->priority_, priority(credentials->psk_ != nullptr).c_str(), nullptr);
    if (result != 0) return std::unexpected(fmt::format("GnuTLS: {}", gnutls_strerror(result)));
    return credentials;
}

std::expected<std::shared_ptr<const TlsCredentials>, std::string> TlsCredentials::load_anew(
    const TlsFiles& files, const TlsCredentials& before) {
    auto credentials = load(files);
    if (credentials && before.certificates_ && !(*credentials)->certificates_)
        return std::unexpected(mistake(
            files.directory + "/server-cert.pem",
            "no such file, but it was there before; put it back, or restart tarnd to go on without certificates"));
    // As while somebody replaces it: whose certificate was revoked must not be let in meanwhile.
    if (credentials && before.has_revoked_ && !(*credentials)->has_revoked_)
        return std::unexpected(
            mistake(files.directory + "/ca-crl.pem",
                    "no such file, but it was there before; put it back, or restart tarnd to revoke nothing any more"));
    return credentials;
}

// Without any of the server's two files there are none.
std::optional<std::string> TlsCredentials::load_certificates(const std::string& directory) {
    const std::string certificate_path = directory + "/server-cert.pem";
    const std::string key_path = directory + "/server-key.pem";
    const std::string ca_path = directory + "/ca-cert.pem";
    const std::string crl_path = directory + "/ca-crl.pem";
    const Result<std::string> certificate = read_small_file(certificate_path, file_size_max);
    Result<std::string> key_read = read_secret_file(key_path, file_size_max);
    const auto is_missing = [](const Result<std::string>& read) {
        return !read && read.error().code == Errc::not_found;
    };
    if (is_missing(certificate) && is_missing(key_read)) return std::nullopt;
    if (!certificate) return mistake(certificate_path, certificate.error().where);
    if (!key_read) return mistake(key_path, key_read.error().where);
    const Secret key{std::move(*key_read)};
    const Result<std::string> ca = read_small_file(ca_path, file_size_max);
    if (!ca) return mistake(ca_path, ca.error().where);
    const Result<std::string> crl = read_small_file(crl_path, file_size_max);
    if (!crl && !is_missing(crl)) return mistake(crl_path, crl.error().where);

    if (const int result = gnutls_certificate_allocate_credentials(&certificates_); result != 0)
        return mistake(directory, gnutls_strerror(result));
    const auto why = [](int result) { return result == 0 ? "nothing of this kind in it" : gnutls_strerror(result); };
    const gnutls_datum_t ca_text = datum_of(*ca);
    if (const int count = gnutls_certificate_set_x509_trust_mem(certificates_, &ca_text, GNUTLS_X509_FMT_PEM);
        count <= 0)
        return mistake(ca_path, why(count));
    if (crl) {
        const gnutls_datum_t crl_text = datum_of(*crl);
        if (const int count = gnutls_certificate_set_x509_crl_mem(certificates_, &crl_text, GNUTLS_X509_FMT_PEM);
            count <= 0)
            return mistake(crl_path, why(count));
        if (!is_signed_by(ca_text, crl_text))
            return mistake(crl_path,
                           "no authority of ca-cert.pem has signed it; put that authority's own list there, or remove "
                           "the file and restart tarnd to revoke nothing");
        has_revoked_ = true;
        revoked_until_ = end_of(crl_text);
    }
    const gnutls_datum_t certificate_text = datum_of(*certificate);
    const gnutls_datum_t key_text = datum_of(key.text);
    if (const int result =
            gnutls_certificate_set_x509_key_mem(certificates_, &certificate_text, &key_text, GNUTLS_X509_FMT_PEM);
        result < 0)
        return mistake(
            result == GNUTLS_E_CERTIFICATE_KEY_MISMATCH ? key_path : certificate_path + " and " + key_path,
            result == GNUTLS_E_CERTIFICATE_KEY_MISMATCH ? "not the key of server-cert.pem" : gnutls_strerror(result));
    if (const Certificate own = certificate_of(*certificate))
        expiry_ = Clock::from_time_t(gnutls_x509_crt_get_expiration_time(own.get()));
    certificate_pem_ = *certificate;
    return std::nullopt;
}

std::optional<std::string> TlsCredentials::load_keys(const std::string& file) {
    Result<std::string> read = read_secret_file(file, file_size_max);
    if (!read) return mistake(file, read.error().where);
    const Secret text{std::move(*read)};
    std::expected<Keys, std::string> keys = parse_keys(text.text);
    if (!keys) return mistake(file, keys.error());
    keys_ = std::move(*keys);
    if (const int result = gnutls_psk_allocate_server_credentials(&psk_); result != 0)
        return mistake(file, gnutls_strerror(result));
    gnutls_psk_set_server_credentials_function2(psk_, TlsSession::find_key);
    return std::nullopt;
}

std::expected<TlsCredentials::Keys, std::string> TlsCredentials::parse_keys(std::string_view text) {
    Keys keys;
    for (unsigned number = 1; !text.empty(); ++number) {
        std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(line.size() + 1, text.size()));
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (line.empty() || line.starts_with('#')) continue;
        const auto wrong = [&](std::string_view reason) {
            return std::unexpected(fmt::format("line {}: {}", number, reason));
        };
        const size_t colon = line.find(':');
        if (colon == 0 || colon == std::string_view::npos)
            return wrong("not user:key; psktool -u USER -p FILE adds one");
        const std::string user(line.substr(0, colon));
        if (user.size() > user_size_max || user.contains('\0')) return wrong("no name that TLS could carry");
        std::optional<std::vector<unsigned char>> key = bytes_of(line.substr(colon + 1));
        if (!key) return wrong("the key is not made of pairs of hexadecimal digits");
        if (key->size() < key_size_min || key->size() > key_size_max)
            return wrong(fmt::format("the key has not {} to {} bytes", key_size_min, key_size_max));
        if (!keys.emplace(user, std::move(*key)).second)
            return wrong(fmt::format("the user {} has a key already", printable(user)));
    }
    if (keys.empty()) return std::unexpected("no key in it; psktool -u USER -p FILE adds one");
    return keys;
}

bool TlsCredentials::is_certified(const std::string& name) const {
    const Certificate own = certificate_of(certificate_pem_);
    return own && gnutls_x509_crt_check_hostname(own.get(), name.c_str()) != 0;
}

int TlsCredentials::apply_to(gnutls_session_t session) const {
    if (const int result = gnutls_priority_set(session, priority_); result != 0) return result;
    if (psk_)
        if (const int result = gnutls_credentials_set(session, GNUTLS_CRD_PSK, psk_); result != 0) return result;
    if (!certificates_) return 0;
    // Who sends a certificate is asked for a good one, also where none is required.
    gnutls_certificate_server_set_request(session, verify_peer_ ? GNUTLS_CERT_REQUIRE : GNUTLS_CERT_REQUEST);
    return gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, certificates_);
}

const std::vector<unsigned char>* TlsCredentials::key_of(std::string_view user) const {
    const auto found = keys_.find(user);
    return found == keys_.end() ? nullptr : &found->second;
}

}  // namespace tarn::nbd
