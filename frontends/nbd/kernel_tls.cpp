#include "frontends/nbd/kernel_tls.hpp"

#include <linux/tls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <strings.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>

namespace tarn::nbd {

namespace {

constexpr size_t record_size_max = 16 * 1024;
constexpr int level_of_tls = 282;  // SOL_TLS, which the C library does not have yet

std::span<const unsigned char> bytes_of(const gnutls_datum_t& datum) {
    return {datum.data, datum.size};
}

bool copy(std::span<const unsigned char> from, unsigned char* to, size_t size) {
    if (from.size() != size) return false;
    std::memcpy(to, from.data(), size);
    return true;
}

// Where the nonce of a record comes from (RFC 5288, 7905, 8446): its salt and the rest from the handshake, but for
// AES-GCM in TLS 1.2, where the rest travels with each record, and the kernel counts from the one that it is given.
template <class Info>
bool set_keys(int socket, gnutls_session_t session, uint16_t cipher) {
    const bool is_1_3 = gnutls_protocol_get_version(session) == GNUTLS_TLS1_3;
    gnutls_datum_t unused{};
    gnutls_datum_t nonce{};
    gnutls_datum_t key{};
    std::array<unsigned char, 8> sequence{};
    if (gnutls_record_get_state(session, 0, &unused, &nonce, &key, sequence.data()) != 0) return false;
    Info info{};
    info.info.version = is_1_3 ? TLS_1_3_VERSION : TLS_1_2_VERSION;
    info.info.cipher_type = cipher;
    const auto salt = bytes_of(nonce).first(std::min<size_t>(nonce.size, sizeof info.salt));
    const bool travels = !is_1_3 && cipher != TLS_CIPHER_CHACHA20_POLY1305;
    const auto rest = travels ? std::span<const unsigned char>(sequence) : bytes_of(nonce).subspan(salt.size());
    const bool fits = copy(salt, info.salt, sizeof info.salt) && copy(rest, info.iv, sizeof info.iv) &&
                      copy(bytes_of(key), info.key, sizeof info.key) &&
                      copy(sequence, info.rec_seq, sizeof info.rec_seq);
    const bool done = fits && ::setsockopt(socket, IPPROTO_TCP, TCP_ULP, "tls", sizeof "tls") == 0 &&
                      ::setsockopt(socket, level_of_tls, TLS_TX, &info, sizeof info) == 0;
    ::explicit_bzero(&info, sizeof info);
    return done;
}

}  // namespace

bool let_kernel_seal(int socket, gnutls_session_t session) {
    const gnutls_protocol_t version = gnutls_protocol_get_version(session);
    if (version != GNUTLS_TLS1_2 && version != GNUTLS_TLS1_3) return false;
    // The kernel makes records as large as they may be, and the client may have asked for smaller ones.
    if (gnutls_record_get_max_size(session) < record_size_max) return false;
    switch (gnutls_cipher_get(session)) {
        case GNUTLS_CIPHER_AES_128_GCM:
            return set_keys<tls12_crypto_info_aes_gcm_128>(socket, session, TLS_CIPHER_AES_GCM_128);
        case GNUTLS_CIPHER_AES_256_GCM:
            return set_keys<tls12_crypto_info_aes_gcm_256>(socket, session, TLS_CIPHER_AES_GCM_256);
        case GNUTLS_CIPHER_CHACHA20_POLY1305:
            return set_keys<tls12_crypto_info_chacha20_poly1305>(socket, session, TLS_CIPHER_CHACHA20_POLY1305);
        default: return false;
    }
}

void say_end_by_kernel(int socket) {
    constexpr unsigned char alert_record = 21;
    std::array<unsigned char, 2> close_notify{GNUTLS_AL_WARNING, GNUTLS_A_CLOSE_NOTIFY};
    iovec vector{close_notify.data(), close_notify.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof alert_record)> control{};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const type = CMSG_FIRSTHDR(&message);
    type->cmsg_level = level_of_tls;
    type->cmsg_type = TLS_SET_RECORD_TYPE;
    type->cmsg_len = CMSG_LEN(sizeof alert_record);
    *CMSG_DATA(type) = alert_record;
    ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace tarn::nbd
