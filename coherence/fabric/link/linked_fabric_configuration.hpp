// LinkedFabricConfiguration: this host's identity and its peers, the same for every transport.
//
// Filled in by the daemon; read by LinkedFabric and its Handshake.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <vector>

#include "utils/loop.hpp"

namespace tarn {

struct LinkedFabricConfiguration {
    // After this time without bytes from a peer it is asked; after two more it counts as silent.
    static constexpr std::chrono::milliseconds listen_for_default{200};

    struct Peer {
        HostId host;
        std::string address;  // in the transport's notation
    };
    HostId self = 0;
    Process process;
    std::array<uint8_t, 16> cluster{};
    std::string key;
    std::vector<Peer> peers;         // without this host
    std::vector<std::string> names;  // of all hosts, by id; empty: numbers stand for them
    // digest_of() the names of all hosts, to detect a host with another list; zeros: not told.
    std::array<uint8_t, 3> peers_digest{};
    std::vector<Loop*> shards;
    std::chrono::milliseconds listen_for = listen_for_default;  // 0: peers are not asked whether they are there

    bool has_peer(HostId host) const {
        return std::ranges::any_of(peers, [&](const Peer& peer) { return peer.host == host; });
    }
    std::string name_of(HostId host) const { return host < names.size() ? names[host] : std::to_string(host); }
};

}  // namespace tarn
