// TlsSession: the server's end of one TLS connection, between bytes in memory. It reads and writes no socket: sealed
// bytes, as they travel, go in and come out, and whoever has the socket moves them (stream.hpp).
//
// Keeps of what came at most what the caller left over and the rest of one record. One thread at a time.
#pragma once

#include <gnutls/gnutls.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "frontends/nbd/tls_credentials.hpp"
#include "utils/result.hpp"

namespace tarn::nbd {

class TlsSession {
  public:
    // Of the client's bytes, in one record.
    static constexpr size_t record_size_max = 16 * 1024;

    // Errors: io (GnuTLS has no memory).
    static Result<std::unique_ptr<TlsSession>> create(std::shared_ptr<const TlsCredentials> credentials);
    TlsSession(const TlsSession&) = delete;
    ~TlsSession();

    // Takes bytes that are used by the next call, behind those that were kept before.
    void keep(std::span<const std::byte> sealed) { kept_.insert(kept_.end(), sealed.begin(), sealed.end()); }

    // The handshake, as far as it gets with what was kept. True: it is done. Takes milliseconds of the CPU, and may run
    // on a thread of its own. Errors: refused (why() says more).
    Result<bool> shake_hands();
    // Then: what the client has proved to be, in the form of AccessLists; empty: it did not have to.
    const std::vector<std::string>& identities() const { return identities_; }

    // Opens what was kept and then what is sealed, off the front of which it takes what it uses. Returns how many bytes
    // came out; 0: it needs more, or the client has ended its side, as ended() says. Errors: protocol.
    Result<size_t> open(std::span<const std::byte>& sealed, std::span<std::byte> into);
    bool ended() const { return ended_; }

    // Once the handshake is done and output() is sent: has the kernel seal what is sent over the socket, if it can
    // (kernel_tls.hpp). Then seal() and end() are not called, and the keys stay the same: those that the client asks
    // for do not come, nor those that GnuTLS makes after 2^24 records. May take a moment, and run on a thread of its
    // own.
    void try_kernel(int socket);
    bool is_sealed_by_kernel() const { return kernel_seals_; }

    // Appends a record with these bytes, at most record_size_max, or more records where the client wants smaller ones.
    // Errors: protocol.
    Result<> seal(std::span<const std::byte> bytes, std::vector<std::byte>& to);
    // Says that nothing more comes from us.
    void end();

    // What the session itself has to say, and whatever else has to go out before anything is sealed. Taken from the
    // front by who sends it.
    std::vector<std::byte>& output() { return output_; }

    // Why an error came, for the log.
    const std::string& why() const { return why_; }

    // For TlsCredentials: the key of a PSK's user.
    static int find_key(gnutls_session_t session, const gnutls_datum_t* user, gnutls_datum_t* key);

  private:
    explicit TlsSession(std::shared_ptr<const TlsCredentials> credentials) : credentials_(std::move(credentials)) {}
    static ssize_t pull(gnutls_transport_ptr_t self, void* into, size_t size);
    static ssize_t push(gnutls_transport_ptr_t self, const void* bytes, size_t size);
    static int verify(gnutls_session_t session);
    size_t left_bytes() const { return kept_.size() - kept_taken_ + sealed_.size(); }
    void explain(int result);
    void identify();
    void identify_by_certificate();

    const std::shared_ptr<const TlsCredentials> credentials_;
    gnutls_session_t session_ = nullptr;
    std::vector<std::byte> kept_;
    size_t kept_taken_ = 0;
    std::span<const std::byte> sealed_;  // during a call
    std::vector<std::byte> output_;
    std::vector<std::byte>* sealing_ = nullptr;  // where records go, during a call
    bool ended_ = false;
    bool kernel_seals_ = false;
    std::vector<std::string> identities_;
    std::string why_;
};

}  // namespace tarn::nbd
