// For tests: a server's credentials with one pre-shared key, and a client that has it, on a socket that blocks, so on a
// thread of its own.
#pragma once

#include <gnutls/gnutls.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "frontends/nbd/tls_credentials.hpp"
#include "tests/support/scratch_directory.hpp"

namespace tarn::nbd {

inline constexpr const char* tls_user = "alice";
inline constexpr const char* tls_key = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

// The file of the key; there are no certificates.
inline TlsFiles tls_files(const ScratchDirectory& directory) {
    TlsFiles files{.directory = directory / "none", .psk_file = directory / "keys.psk"};
    std::ofstream(files.psk_file) << tls_user << ":" << tls_key << "\n";
    std::filesystem::permissions(files.psk_file, std::filesystem::perms(0600));
    return files;
}

class TlsClient {
  public:
    static constexpr const char* priority_usual = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:+ECDHE-PSK";

    // key: hexadecimal digits; without one it takes the key of no bytes. The socket outlives the client.
    explicit TlsClient(int socket, const std::string& user = tls_user, const std::string& key = tls_key,
                       const char* priority = priority_usual)
        : socket_(socket), user_(user) {
        const timeval patience{.tv_sec = 5, .tv_usec = 0};
        ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        gnutls_init(&session_, GNUTLS_CLIENT | GNUTLS_NO_SIGNAL);
        gnutls_psk_allocate_client_credentials(&credentials_);
        const gnutls_datum_t digits{.data = reinterpret_cast<unsigned char*>(const_cast<char*>(key.data())),
                                    .size = static_cast<unsigned>(key.size())};
        if (key.empty())
            gnutls_psk_set_client_credentials_function(credentials_, take_no_key);
        else
            gnutls_psk_set_client_credentials(credentials_, user.c_str(), &digits, GNUTLS_PSK_KEY_HEX);
        gnutls_session_set_ptr(session_, this);
        gnutls_credentials_set(session_, GNUTLS_CRD_PSK, credentials_);
        good_ = gnutls_priority_set_direct(session_, priority, nullptr) == 0;
        gnutls_transport_set_ptr2(session_, reinterpret_cast<gnutls_transport_ptr_t>(static_cast<intptr_t>(socket)),
                                  this);
        gnutls_transport_set_push_function(session_, push);
    }
    TlsClient(const TlsClient&) = delete;
    ~TlsClient() {
        gnutls_deinit(session_);
        gnutls_psk_free_client_credentials(credentials_);
    }

    // Before the handshake: it takes no larger ones.
    void limit_records(size_t size) { good_ = good_ && gnutls_record_set_max_recv_size(session_, size) == 0; }
    // With TLS 1.3 the server's refusal comes only with the next bytes.
    bool shake_hands() {
        int result = good_ ? gnutls_handshake(session_) : -1;
        while (good_ && result < 0 && !gnutls_error_is_fatal(result)) result = gnutls_handshake(session_);
        return result == 0;
    }
    gnutls_cipher_algorithm_t cipher() const { return gnutls_cipher_get(session_); }
    bool send(std::span<const std::byte> bytes) {
        while (!bytes.empty()) {
            const ssize_t count = gnutls_record_send(session_, bytes.data(), bytes.size());
            if (count <= 0) return false;
            bytes = bytes.subspan(static_cast<size_t>(count));
        }
        return true;
    }
    // Fewer: the server has ended its side, or broken off.
    std::vector<std::byte> receive(size_t size) {
        std::vector<std::byte> bytes(size);
        size_t received = 0;
        for (unsigned again = 0; received < size;) {
            result_ = gnutls_record_recv(session_, bytes.data() + received, size - received);
            // Nothing came for long, or only new keys.
            if (result_ == GNUTLS_E_AGAIN && ++again < 3) continue;
            if (result_ <= 0) break;
            received += static_cast<size_t>(result_);
        }
        bytes.resize(received);
        return bytes;
    }
    // Whether the server said in order that nothing more comes.
    bool saw_end() { return receive(1).empty() && result_ == 0; }
    // The alert with which the server broke off, next of all; -1: it did not.
    int alert() {
        return receive(1).empty() && result_ == GNUTLS_E_FATAL_ALERT_RECEIVED ? gnutls_alert_get(session_) : -1;
    }
    void end() { gnutls_bye(session_, GNUTLS_SHUT_WR); }
    void change_keys() { gnutls_session_key_update(session_, GNUTLS_KU_PEER); }
    // A record without a byte in it.
    void send_nothing() { EXPECT_GE(gnutls_record_send2(session_, "", 0, 1, 0), 0); }
    // Says what means nothing, and ends nothing.
    void warn() { EXPECT_EQ(gnutls_alert_send(session_, GNUTLS_AL_WARNING, GNUTLS_A_USER_CANCELED), 0); }
    // Before the handshake, which is of version 1.2: warns in the middle of it.
    void warn_within_handshake() {
        gnutls_handshake_set_hook_function(
            session_, GNUTLS_HANDSHAKE_SERVER_HELLO_DONE, GNUTLS_HOOK_POST,
            [](gnutls_session_t session, unsigned, unsigned, unsigned, const gnutls_datum_t*) {
                static_cast<TlsClient*>(gnutls_session_get_ptr(session))->warn();
                return 0;
            });
    }
    // What these would send, sealed: it is not sent.
    std::vector<std::byte> sealed(const std::function<void()>& sends) {
        std::vector<std::byte> bytes;
        sealed_ = &bytes;
        sends();
        sealed_ = nullptr;
        return bytes;
    }

  private:
    static ssize_t push(gnutls_transport_ptr_t self, const void* bytes, size_t size) {
        const TlsClient& client = *static_cast<TlsClient*>(self);
        if (!client.sealed_) return ::send(client.socket_, bytes, size, MSG_NOSIGNAL);
        const auto* const from = static_cast<const std::byte*>(bytes);
        client.sealed_->insert(client.sealed_->end(), from, from + size);
        return static_cast<ssize_t>(size);
    }

    static int take_no_key(gnutls_session_t session, char** user, gnutls_datum_t* key) {
        *user = gnutls_strdup(static_cast<const TlsClient*>(gnutls_session_get_ptr(session))->user_.c_str());
        *key = {.data = static_cast<unsigned char*>(gnutls_malloc(1)), .size = 0};
        return 0;
    }

    const int socket_;
    const std::string user_;
    std::vector<std::byte>* sealed_ = nullptr;  // where bytes go in place of the socket
    gnutls_session_t session_ = nullptr;
    gnutls_psk_client_credentials_t credentials_ = nullptr;
    bool good_ = false;
    ssize_t result_ = 0;
};

}  // namespace tarn::nbd
