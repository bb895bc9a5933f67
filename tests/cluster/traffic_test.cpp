// Messages between three hosts: who is served first, what is sent together, and where the last copy goes.
#include <atomic>

#include "tests/cluster/cluster.hpp"

namespace tarn::three_hosts {
namespace {

using ClusterTraffic = Cluster;

TEST_F(ClusterTraffic, the_last_copy_in_any_memory_goes_to_its_home) {
    const uint64_t at = homed_at(0);
    const PageId page = PageId::of(volume_id, at / page_size);
    const std::vector<std::byte> bytes(page_size, std::byte{5});
    std::vector<std::byte> seen(page_size);
    ASSERT_TRUE(on(1, write(*hosts_[1], at, bytes)));
    ASSERT_TRUE(on(1, flush(*hosts_[1])));
    hosts_[0]->stop();  // its memory is gone; host 1 has the page
    hosts_[0]->start();
    ASSERT_TRUE(on(1, read(*hosts_[1], at, seen)));
    // The restarted home asks for the bytes that it may lack, and gets them. It must not vouch for earlier writes.
    (void)on(1, flush(*hosts_[1]));
    ASSERT_TRUE(on(1, flush(*hosts_[1])));
    ASSERT_TRUE(on(0, evict_all(*hosts_[0])));
    ASSERT_TRUE(on(1, evict_all(*hosts_[1])));
    LocalHomeStore& home_store = hosts_[0]->cache->home_store();
    EXPECT_GT(home_store.frames().last_copies_kept(), 0);
    const uint64_t store_reads = home_store.reader().read_count();
    ASSERT_TRUE(on(2, read(*hosts_[2], at, seen)));
    EXPECT_EQ(seen, bytes);
    EXPECT_EQ(home_store.reader().read_count(), store_reads) << "from memory";
    EXPECT_FALSE(hosts_[1]->cache->pages().holds(page));
}

struct Stream {
    std::atomic<bool> stop{false};
    Result<> result;
};

// Writes the same page in every turn of its loop.
Task<> write_on(Host& host, uint64_t at, Stream& self) {
    CachedVolume volume(*host.volumes, volume_id);
    const std::vector<std::byte> bytes(512, std::byte{1});
    while (!self.stop && self.result) {
        if (!volume.try_write(at, bytes)) self.result = co_await volume.write(at, bytes);
        co_await Yield(*Loop::current());
    }
}

Task<> write_beside(std::vector<std::unique_ptr<Host>>& hosts, HostId owner, HostId asking, Result<>& result) {
    struct One {
        static Task<> run(Loop& loop, Host& host, uint64_t at, Stream& stream) {
            co_await run_on(loop, write_on(host, at, stream));
        }
    };
    Stream first;
    Stream second;
    Gate gate;
    gate.spawn(One::run(*hosts[owner]->loop, *hosts[owner], 0, first));
    gate.spawn(One::run(*hosts[owner]->other, *hosts[owner], 512, second));
    const std::vector<std::byte> bytes(512, std::byte{2});
    for (int i = 0; i < 100 && result; ++i)
        result = co_await run_on(*hosts[asking]->loop, write(*hosts[asking], 1024, bytes));
    first.stop = second.stop = true;
    co_await gate.close();
    if (result && !(first.result && second.result)) result = fail(Errc::corrupt, 0, "test: a stream failed");
}

// The owner's writes go first, but not for ever (C3).
TEST_F(ClusterTraffic, a_host_that_writes_on_and_on_gives_way_to_one_that_waits) {
    Result<> result;
    driver_->run_until_done(write_beside(hosts_, 1, 2, result));
    EXPECT_TRUE(result);
    EXPECT_GT(hosts_[1]->cache->held_frames().turns_leased(), 0);
}

// Neighbouring pages are asked for by few messages, which the home's store answers with few reads.
TEST_F(ClusterTraffic, a_large_read_costs_few_messages_and_few_reads_of_the_store) {
    constexpr size_t page_count = 256;
    const uint64_t at = homed_at(0);
    std::vector<std::byte> bytes(page_count * page_size);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31 / 7);
    ASSERT_TRUE(on(0, write(*hosts_[0], at, bytes)));
    ASSERT_TRUE(on(0, flush(*hosts_[0])));
    const auto requests = [&] { return hosts_[0]->fabric->received_count(protocol::MessageKind::get_shared); };
    const auto read_all = [&](HostId reader) {
        std::vector<std::byte> seen(bytes.size());
        const uint64_t before = requests();
        EXPECT_TRUE(on(reader, read(*hosts_[reader], at, seen)));
        EXPECT_EQ(seen, bytes);
        return requests() - before;
    };
    // The three cases at the home: in its memory as owner, as one of two readers, and only in the store.
    EXPECT_EQ(read_all(1), 1);
    EXPECT_EQ(read_all(2), 1);
    for (const HostId host : {1, 2, 0}) ASSERT_TRUE(on(host, evict_all(*hosts_[host])));
    const uint64_t reads_before = hosts_[0]->cache->home_store().reader().read_count();
    EXPECT_EQ(read_all(1), 1);
    EXPECT_LE(hosts_[0]->cache->home_store().reader().read_count() - reads_before, page_count / 4);
}

// Also for pages that are not neighbours.
TEST_F(ClusterTraffic, evictions_are_few_messages_for_each_home) {
    constexpr size_t page_count = 200;
    const uint64_t at = homed_at(0);
    std::vector<std::byte> seen(512);
    for (uint64_t i = 0; i < page_count; ++i)
        for (const HostId host : {0, 1})  // home has them in its memory, and asks for no copy
            ASSERT_TRUE(on(host, read(*hosts_[host], at + i * 3 * page_size, seen)));
    const auto evictions = [&] { return hosts_[0]->fabric->received_count(protocol::MessageKind::evict); };
    const auto answers = [&] { return hosts_[1]->fabric->received_count(protocol::MessageKind::evicted); };
    const uint64_t evictions_before = evictions();
    const uint64_t answers_before = answers();
    ASSERT_TRUE(on(1, evict_all(*hosts_[1])));
    EXPECT_GT(evictions() - evictions_before, 0);
    EXPECT_LE(evictions() - evictions_before, page_count / 20);
    EXPECT_LE(answers() - answers_before, page_count / 20);
}

}  // namespace
}  // namespace tarn::three_hosts
