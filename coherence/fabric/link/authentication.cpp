#include "coherence/fabric/link/authentication.hpp"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>

#include <cstring>

#include "utils/assert.hpp"

namespace tarn {

std::array<uint8_t, 3> digest_of(std::span<const std::string> names) {
    std::string text;
    for (const std::string& name : names) text += name + '\n';
    std::array<uint8_t, 32> whole{};
    TARN_ASSERT(gnutls_hash_fast(GNUTLS_DIG_SHA256, text.data(), text.size(), whole.data()) == 0);
    return {whole[0], whole[1], static_cast<uint8_t>(whole[2] | 1)};
}

Introduction introduce(HostId host, Process process, const std::array<uint8_t, 16>& cluster,
                       const std::array<uint8_t, 3>& peers) {
    Introduction introduction{.process = process, .host = host, .peers = peers, .cluster = cluster};
    TARN_ASSERT(gnutls_rnd(GNUTLS_RND_NONCE, introduction.nonce.data(), introduction.nonce.size()) == 0);
    return introduction;
}

Proof prove(std::string_view key, Direction who, const Introduction& connecting, const Introduction& accepting) {
    std::array<char, 1 + 2 * sizeof(Introduction)> text;
    text[0] = static_cast<char>(who);
    std::memcpy(&text[1], &connecting, sizeof connecting);
    std::memcpy(&text[1 + sizeof connecting], &accepting, sizeof accepting);
    Proof proof{};
    TARN_ASSERT(gnutls_hmac_fast(GNUTLS_MAC_SHA256, key.data(), key.size(), text.data(), text.size(), proof.data()) ==
                0);
    return proof;
}

bool equal(const Proof& a, const Proof& b) {
    return gnutls_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace tarn
