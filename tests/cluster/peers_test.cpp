// A peer that sends what no correct host sends is disconnected; nothing else is affected.
#include <chrono>
#include <thread>
#include <tuple>

#include "tests/cluster/cluster.hpp"

namespace tarn::three_hosts {
namespace {

using ClusterPeers = Cluster;

using namespace std::chrono_literals;

// This needs a lookup in the catalog.
TEST_F(ClusterPeers, a_peer_that_names_pages_of_no_volume_is_disconnected) {
    const std::vector<std::byte> bytes(page_size, std::byte{5});
    std::vector<std::byte> seen(page_size);
    for (HostId range = 0; range < host_count; ++range)
        ASSERT_TRUE(on(1, write(*hosts_[1], (uint64_t{64} << 20) * range, bytes)));
    protocol::Message message;
    message.kind = protocol::MessageKind::get_shared;
    message.page = PageId::of(next_volume_id + 7, 0);
    while (hosts_[0]->cache->home_of(message.page) != 0)
        message.page.value += hosts_[0]->cache->membership().ranges().pages_per_range();
    message.request_id = 1;
    hosts_[1]->cache->peers().stamp(message);
    const uint64_t links = hosts_[0]->cache->membership().changed().count();
    hosts_[1]->fabric->send(0, message, {});
    while (hosts_[0]->cache->membership().changed().count() == links) std::this_thread::yield();  // the link breaks
    const auto has_claim = [&] {
        const Stripes::Turn turn(hosts_[0]->cache->stripes(), message.page);
        return turn.home().find(message.page) != nullptr;
    };
    while (has_claim()) std::this_thread::yield();
    for (HostId range = 0; range < host_count; ++range) {
        ASSERT_TRUE(on(0, read(*hosts_[0], (uint64_t{64} << 20) * range, seen)));
        EXPECT_EQ(seen, bytes);
    }
}

// A message that a peer must not send ends its link; the hosts' own traffic goes on over a new one.
TEST_F(ClusterPeers, a_peer_that_says_what_no_host_says_is_disconnected_and_nothing_else_is_affected) {
    using protocol::Message;
    using protocol::MessageKind;
    const std::vector<std::byte> bytes(page_size, std::byte{5});
    std::vector<std::byte> seen(page_size);
    for (HostId range = 0; range < host_count; ++range)
        ASSERT_TRUE(on(1, write(*hosts_[1], (uint64_t{64} << 20) * range, bytes)));
    Cache& victim = *hosts_[0]->cache;
    const auto page_at = [&](HostId home, VolumeId volume, uint64_t number) {
        while (victim.home_of(PageId::of(volume, number)) != home)
            number += victim.membership().ranges().pages_per_range();
        return PageId::of(volume, number);
    };
    // Each as host 1 would send it to host 0.
    using Lie = void (*)(Message& message);
    const PageId own = page_at(0, volume_id, 0);
    const PageId theirs = page_at(1, volume_id, 0);
    const PageId beyond = page_at(0, volume_id, uint64_t{1} << 39);
    const std::vector<std::tuple<const char*, MessageKind, PageId, Lie>> lies = {
        {"a page beyond any volume", MessageKind::get_shared, beyond, [](Message&) {}},
        {"an unknown kind", MessageKind(99), own, [](Message&) {}},
        {"another version", MessageKind::done, own, [](Message& lie) { lie.version = 1; }},
        {"another host's name", MessageKind::done, own, [](Message& lie) { lie.from = 2; }},
        {"an old process", MessageKind::done, own, [](Message& lie) { lie.incarnation -= 1; }},
        {"an old view", MessageKind::done, own, [](Message& lie) { lie.view_epoch = 0; }},
        {"another range map", MessageKind::done, own, [](Message& lie) { lie.map_epoch += 1; }},
        {"a request to who is not the home", MessageKind::get_shared, theirs, [](Message&) {}},
        {"an invalidation by who is not the home", MessageKind::drop, own, [](Message& lie) { lie.host = 2; }},
        {"an order to serve oneself", MessageKind::move, theirs, [](Message& lie) { lie.host = 0; }},
        {"answers of hosts there are not", MessageKind::grant, theirs, [](Message& lie) { lie.hosts = 1 << 9; }},
        {"a tenure of a home to come", MessageKind::recall, theirs, [](Message& lie) { lie.tenure = 1ULL << 60; }},
        {"a copy of no order", MessageKind::home_copy, own, [](Message& lie) { lie.tenure += 1 << 20; }},
        {"a report of no recall", MessageKind::report, own, [](Message& lie) { lie.tenure += 1 << 20; }},
        {"a run of what stands alone", MessageKind::resolve, own, [](Message& lie) { lie.run = 1; }},
        {"a run beyond its block", MessageKind::get_shared, own, [](Message& lie) { lie.run = 16; }},
    };
    uint64_t next = own.number();
    for (const auto& [what, kind, page, lie] : lies) {
        // Once this is done the link works, in both directions, and host 0 has claims.
        ASSERT_TRUE(on(1, write(*hosts_[1], ++next * page_size, bytes))) << what;
        Message message;
        message.kind = kind;
        message.page = page;
        message.request_id = 1;
        hosts_[1]->cache->peers().stamp(message);
        message.tenure = protocol::first_tenure_of(message.incarnation);
        lie(message);
        const uint64_t changes = victim.membership().changed().count();
        hosts_[1]->fabric->send(0, message, {});
        const auto deadline = std::chrono::steady_clock::now() + 10s;
        while (victim.membership().changed().count() == changes && std::chrono::steady_clock::now() < deadline)
            std::this_thread::yield();
        ASSERT_NE(victim.membership().changed().count(), changes) << what << " was let pass";
    }
    for (HostId range = 0; range < host_count; ++range) {
        for (HostId reader = 0; reader < host_count; ++reader) {
            ASSERT_TRUE(on(reader, read(*hosts_[reader], (uint64_t{64} << 20) * range, seen)));
            EXPECT_EQ(seen, bytes);
        }
    }
}

}  // namespace
}  // namespace tarn::three_hosts
