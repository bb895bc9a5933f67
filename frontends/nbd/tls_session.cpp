#include "frontends/nbd/tls_session.hpp"

#include <fmt/format.h>
#include <gnutls/x509.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "frontends/nbd/kernel_tls.hpp"
#include "utils/assert.hpp"
#include "utils/printable.hpp"

namespace tarn::nbd {

namespace {

constexpr size_t name_size_max = 256;

// Nothing: it is no text.
std::string name_of(const char* name, size_t size) {
    std::string text(name, size);
    return text.contains('\0') ? std::string() : text;
}

// What the client may be called: the DNS names of its certificate, or where it has none, its common name. A name that
// is longer than a host's may be a DNS name that somebody else checked: the common name does not count beside it.
std::vector<std::string> names_of(gnutls_x509_crt_t certificate) {
    std::vector<std::string> names;
    std::array<char, name_size_max> name{};
    bool counts_common_name = true;
    for (unsigned i = 0;; ++i) {
        size_t size = name.size();
        const int kind = gnutls_x509_crt_get_subject_alt_name(certificate, i, name.data(), &size, nullptr);
        if (kind == GNUTLS_E_SHORT_MEMORY_BUFFER || kind == GNUTLS_SAN_DNSNAME) counts_common_name = false;
        if (kind < 0 && kind != GNUTLS_E_SHORT_MEMORY_BUFFER) break;
        if (kind == GNUTLS_SAN_DNSNAME) names.push_back(name_of(name.data(), size));
    }
    size_t size = name.size();
    if (counts_common_name &&
        gnutls_x509_crt_get_dn_by_oid(certificate, GNUTLS_OID_X520_COMMON_NAME, 0, 0, name.data(), &size) == 0)
        names.push_back(name_of(name.data(), size));
    std::erase(names, "");
    return names;
}

}  // namespace

Result<std::unique_ptr<TlsSession>> TlsSession::create(std::shared_ptr<const TlsCredentials> credentials) {
    std::unique_ptr<TlsSession> session(new TlsSession(std::move(credentials)));
    // No tickets: each connection proves who its client is.
    constexpr unsigned flags = GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_TICKETS | GNUTLS_NO_SIGNAL;
    int result = gnutls_init(&session->session_, flags);
    if (result == 0) result = session->credentials_->apply_to(session->session_);
    if (result != 0) return fail(Errc::io, 0, StaticText::vouched_for(gnutls_strerror(result)));
    gnutls_session_set_ptr(session->session_, session.get());
    gnutls_session_set_verify_function(session->session_, verify);
    gnutls_transport_set_ptr(session->session_, session.get());
    gnutls_transport_set_pull_function(session->session_, pull);
    gnutls_transport_set_push_function(session->session_, push);
    return session;
}

TlsSession::~TlsSession() {
    if (session_) gnutls_deinit(session_);
}

ssize_t TlsSession::pull(gnutls_transport_ptr_t self, void* into, size_t size) {
    TlsSession& session = *static_cast<TlsSession*>(self);
    const bool from_kept = session.kept_taken_ < session.kept_.size();
    const std::span<const std::byte> from =
        from_kept ? std::span<const std::byte>(session.kept_).subspan(session.kept_taken_) : session.sealed_;
    if (from.empty()) {
        gnutls_transport_set_errno(session.session_, EAGAIN);
        return -1;
    }
    const size_t count = std::min(size, from.size());
    std::memcpy(into, from.data(), count);
    if (from_kept)
        session.kept_taken_ += count;
    else
        session.sealed_ = from.subspan(count);
    return static_cast<ssize_t>(count);
}

ssize_t TlsSession::push(gnutls_transport_ptr_t self, const void* bytes, size_t size) {
    TlsSession& session = *static_cast<TlsSession*>(self);
    if (session.kernel_seals_) return static_cast<ssize_t>(size);  // an alert, sealed as the client does not expect it
    std::vector<std::byte>& to = session.sealing_ ? *session.sealing_ : session.output_;
    const auto* const from = static_cast<const std::byte*>(bytes);
    to.insert(to.end(), from, from + size);
    return static_cast<ssize_t>(size);
}

// A user that is not known gets a key that nobody has: his handshake fails like that with a wrong key.
int TlsSession::find_key(gnutls_session_t gnutls, const gnutls_datum_t* user, gnutls_datum_t* key) {
    constexpr int unknown_user = 1;
    TlsSession& session = *static_cast<TlsSession*>(gnutls_session_get_ptr(gnutls));
    const std::string_view name(reinterpret_cast<const char*>(user->data), user->size);
    const std::vector<unsigned char>* const found = session.credentials_->key_of(name);
    session.why_ = fmt::format("PSK user \"{}\": {}", printable(name), found ? "its key is another one" : "unknown");
    if (!found) return unknown_user;
    key->data = static_cast<unsigned char*>(gnutls_malloc(found->size()));
    if (!key->data) return GNUTLS_E_MEMORY_ERROR;
    std::memcpy(key->data, found->data(), found->size());
    key->size = static_cast<unsigned>(found->size());
    return 0;
}

int TlsSession::verify(gnutls_session_t gnutls) {
    TlsSession& session = *static_cast<TlsSession*>(gnutls_session_get_ptr(gnutls));
    unsigned count = 0;
    if (!gnutls_certificate_get_peers(gnutls, &count) || count == 0)
        return session.credentials_->verify_peer() ? GNUTLS_E_NO_CERTIFICATE_FOUND : 0;
    gnutls_typed_vdata_st purpose{.type = GNUTLS_DT_KEY_PURPOSE_OID,
                                  .data = reinterpret_cast<unsigned char*>(const_cast<char*>(GNUTLS_KP_TLS_WWW_CLIENT)),
                                  .size = 0};
    unsigned status = 0;
    const int result = gnutls_certificate_verify_peers(gnutls, &purpose, 1, &status);
    const bool knows_revoked = session.credentials_->knows_revoked();
    if (result == 0 && status == 0 && knows_revoked) return 0;
    session.why_ = "client certificate: ";
    gnutls_datum_t text{};
    if (!knows_revoked) {
        session.why_ += "it may be revoked: ca-crl.pem has expired";
    } else if (result != 0) {
        session.why_ += gnutls_strerror(result);
    } else if (gnutls_certificate_verification_status_print(status, GNUTLS_CRT_X509, &text, 0) == 0) {
        session.why_ += printable(std::string_view(reinterpret_cast<const char*>(text.data), text.size));
        gnutls_free(text.data);
        while (session.why_.ends_with(' ')) session.why_.pop_back();
    }
    return GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR;
}

void TlsSession::explain(int result) {
    std::string text = gnutls_strerror(result);
    if (result == GNUTLS_E_FATAL_ALERT_RECEIVED)
        if (const char* const alert = gnutls_alert_get_name(gnutls_alert_get(session_)))
            text = fmt::format("the client says: {}", alert);
    // Which a callback may have said better.
    why_ = why_.empty() ? text : fmt::format("{} ({})", why_, text);
}

Result<bool> TlsSession::shake_hands() {
    int result = gnutls_handshake(session_);
    while (result == GNUTLS_E_WARNING_ALERT_RECEIVED) result = gnutls_handshake(session_);
    kept_.erase(kept_.begin(), kept_.begin() + static_cast<ptrdiff_t>(std::exchange(kept_taken_, 0)));
    if (result == GNUTLS_E_AGAIN || result == GNUTLS_E_INTERRUPTED) return false;
    if (result != 0) {
        explain(result);
        gnutls_alert_send_appropriate(session_, result);
        return fail(Errc::refused, 0, "nbd.tls");
    }
    why_.clear();
    identify();
    return true;
}

void TlsSession::identify() {
    if (gnutls_auth_client_get_type(session_) == GNUTLS_CRD_PSK) {
        gnutls_datum_t user{};
        if (gnutls_psk_server_get_username2(session_, &user) == 0)
            identities_.push_back("psk:" + std::string(reinterpret_cast<const char*>(user.data), user.size));
        return;
    }
    identify_by_certificate();
}

// It has been verified.
void TlsSession::identify_by_certificate() {
    unsigned count = 0;
    const gnutls_datum_t* const chain = gnutls_certificate_get_peers(session_, &count);
    gnutls_x509_crt_t certificate = nullptr;
    if (!chain || count == 0 || gnutls_x509_crt_init(&certificate) != 0) return;
    if (gnutls_x509_crt_import(certificate, chain, GNUTLS_X509_FMT_DER) == 0)
        for (const std::string& name : names_of(certificate)) identities_.push_back("cert:" + name);
    gnutls_x509_crt_deinit(certificate);
}

Result<size_t> TlsSession::open(std::span<const std::byte>& sealed, std::span<std::byte> into) {
    sealed_ = sealed;
    ssize_t count = 0;
    for (;;) {
        const size_t left_before = left_bytes();
        count = gnutls_record_recv(session_, into.data(), into.size());
        if (count == GNUTLS_E_WARNING_ALERT_RECEIVED) continue;
        const bool waits = count == GNUTLS_E_AGAIN || count == GNUTLS_E_INTERRUPTED;
        // It also stops after what is not for us, such as new keys.
        if (!waits || left_bytes() == 0 || left_bytes() == left_before) break;
    }
    sealed = std::exchange(sealed_, {});
    if (kept_taken_ == kept_.size()) {
        kept_.clear();
        kept_.shrink_to_fit();
        kept_taken_ = 0;
    }
    if (count > 0) return static_cast<size_t>(count);
    if (count == GNUTLS_E_AGAIN || count == GNUTLS_E_INTERRUPTED) return size_t{0};
    if (count == 0) {
        ended_ = true;
        return size_t{0};
    }
    explain(static_cast<int>(count));
    gnutls_alert_send_appropriate(session_, static_cast<int>(count));
    return fail(Errc::protocol, 0, "nbd.tls");
}

void TlsSession::try_kernel(int socket) {
    TARN_ASSERT(output_.empty());
    kernel_seals_ = let_kernel_seal(socket, session_);
}

Result<> TlsSession::seal(std::span<const std::byte> bytes, std::vector<std::byte>& to) {
    TARN_ASSERT(!kernel_seals_ && bytes.size() <= record_size_max && !bytes.empty());
    // The client may have asked for smaller records.
    while (!bytes.empty()) {
        sealing_ = &to;
        const ssize_t count = gnutls_record_send(session_, bytes.data(), bytes.size());
        sealing_ = nullptr;
        if (count <= 0) {
            explain(static_cast<int>(count));
            return fail(Errc::protocol, 0, "nbd.tls");
        }
        bytes = bytes.subspan(static_cast<size_t>(count));
    }
    return {};
}

void TlsSession::end() {
    gnutls_bye(session_, GNUTLS_SHUT_WR);
}

}  // namespace tarn::nbd
