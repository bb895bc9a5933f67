// How two hosts prove to each other that they hold the cluster's key, before anything else is said.
//
//   connecting host → Introduction
//   accepting host  → Introduction, proof over both
//   connecting host → proof over both
//   both            → Account: of its own store, and what it remembers of the other's
//   both            → one byte: Verdict
//   and, if both have said that they have some, what is in offers.hpp
//
// A proof is HMAC-SHA-256 with the key over its direction and both introductions, whose nonces are fresh: a recorded
// conversation proves nothing. The key itself never travels. Later traffic is neither encrypted nor signed: nobody else
// may have access to the network between the hosts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "coherence/protocol/message.hpp"
#include "tiers/page.hpp"

namespace tarn {

struct Introduction {
    static constexpr std::array<char, 8> magic_expected = {'t', 'a', 'r', 'n', 'f', 'a', 'b', '4'};

    std::array<char, 8> magic = magic_expected;
    Process process;
    HostId host = no_host;
    std::array<uint8_t, 3> peers{};  // digest_of() the host's list of peers; zeros: it does not say
    std::array<uint8_t, 16> cluster{};
    std::array<uint8_t, 24> nonce{};
};
static_assert(sizeof(Introduction) == 64);

// The state of the stores, exchanged before two hosts are linked (Fabric::Receiver).
struct Account {
    struct Standing {
        uint64_t nonce = 0;
        uint64_t position = 0;
        uint32_t epoch = 0;
        uint32_t flags = 0;
    };
    // In own.flags. The other process was declared dead here, and no link comes up.
    static constexpr uint32_t you_are_dead = 1;
    // Offers follow, if the other host has some, too.
    static constexpr uint32_t has_offers = 2;

    Standing own;
    Standing of_you;
};
static_assert(sizeof(Account) == 48);
enum class Verdict : uint8_t { agreed = 1, mine_is_older = 2 };

using Proof = std::array<std::byte, 32>;
enum class Direction : char { connecting = 'c', accepting = 'a' };

// Host ids are places in a list that must be the same on all hosts: this tells lists apart. Never zeros.
std::array<uint8_t, 3> digest_of(std::span<const std::string> names);

// Fills in a fresh nonce.
Introduction introduce(HostId host, Process process, const std::array<uint8_t, 16>& cluster,
                       const std::array<uint8_t, 3>& peers = {});
Proof prove(std::string_view key, Direction who, const Introduction& connecting, const Introduction& accepting);
// In constant time.
bool equal(const Proof& a, const Proof& b);

}  // namespace tarn
