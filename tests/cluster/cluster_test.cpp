// Three hosts: each reads at once what another wrote, flushes cover everybody's writes; also with a host away.
#include "tests/cluster/cluster.hpp"

#include <cstring>
#include <random>

namespace tarn::three_hosts {
namespace {

TEST_F(Cluster, what_one_host_wrote_every_other_reads) {
    std::vector<std::byte> bytes(10000);
    std::vector<std::byte> seen(10000);
    for (int round = 0; round < 30; ++round) {
        const auto writer = static_cast<HostId>(round % 3);
        for (std::byte& byte : bytes) byte = static_cast<std::byte>(round * 7 + 1);
        ASSERT_TRUE(on(writer, write(*hosts_[writer], 5000, bytes)));
        for (HostId reader = 0; reader < host_count; ++reader) {
            ASSERT_TRUE(on(reader, read(*hosts_[reader], 5000, seen)));
            ASSERT_EQ(seen, bytes) << "round " << round << " reader " << unsigned{reader};
        }
    }
}

struct Hammer {
    std::vector<std::byte> model;
    Result<> result;
    uint64_t seed = 0;
    size_t sector = 0;
    int requests = 0;
};

// Each task has its own sector in every page; all tasks share the pages.
Task<> hammer(Host& host, Hammer& self) {
    constexpr size_t pages = frame_count * 3;
    constexpr size_t stride = 20;  // so that the pages lie in all ranges and on all homes
    CachedVolume volume(*host.volumes, volume_id);
    std::mt19937_64 random(self.seed);
    for (int i = 0; i < self.requests && self.result; ++i) {
        const size_t page = random() % pages;
        const std::span<std::byte> mine = std::span(self.model).subspan(page * 512, 512);
        const uint64_t offset = page * stride * page_size + self.sector * 512;
        if (random() % 2 == 0) {
            for (std::byte& byte : mine) byte = static_cast<std::byte>(random());
            if (!volume.try_write(offset, mine)) self.result = co_await volume.write(offset, mine);
        } else {
            std::byte seen[512];
            if (!volume.try_read(offset, seen)) self.result = co_await volume.read(offset, seen);
            if (self.result && std::memcmp(seen, mine.data(), 512) != 0) self.result = fail(Errc::corrupt, 0, "test");
        }
        if (self.result && i % 100 == 99) self.result = co_await volume.flush_up_to(volume_bytes);
    }
}

Task<> hammer_all(std::vector<std::unique_ptr<Host>>& hosts, std::vector<Hammer>& hammers) {
    struct One {
        static Task<> run(Loop& loop, Host& host, Hammer& hammer_of) { co_await run_on(loop, hammer(host, hammer_of)); }
    };
    Gate gate;
    for (size_t i = 0; i < hammers.size(); ++i) {
        Host& host = *hosts[i % host_count];
        gate.spawn(One::run(i % 2 ? *host.loop : *host.other, host, hammers[i]));
    }
    co_await gate.close();
}

TEST_F(Cluster, eight_writers_on_three_hosts_share_every_page) {
    std::vector<Hammer> hammers(8);
    for (size_t i = 0; i < hammers.size(); ++i)
        hammers[i] = {
            .model = std::vector<std::byte>(frame_count * 3 * 512), .seed = i + 1, .sector = i, .requests = 500};
    driver_->run_until_done(hammer_all(hosts_, hammers));
    for (const Hammer& hammer_of : hammers) EXPECT_TRUE(hammer_of.result) << hammer_of.result.error().where;
}

TEST_F(Cluster, flushed_writes_of_all_hosts_survive_the_kill_of_one) {
    std::vector<std::byte> bytes(page_size * 40);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31 / 7);
    for (HostId host = 0; host < host_count; ++host)
        ASSERT_TRUE(on(host, write(*hosts_[host], (uint64_t{64} << 20) * host + 4096, bytes)));
    ASSERT_TRUE(on(1, flush(*hosts_[1])));
    for (HostId killed = 0; killed < host_count; ++killed) {
        hosts_[killed]->stop();
        hosts_[killed]->start();
        std::vector<std::byte> seen(bytes.size());
        for (HostId range = 0; range < host_count; ++range) {
            for (HostId reader = 0; reader < host_count; ++reader) {
                ASSERT_TRUE(on(reader, read(*hosts_[reader], (uint64_t{64} << 20) * range + 4096, seen)));
                ASSERT_EQ(seen, bytes) << "killed " << unsigned{killed} << ", read by " << unsigned{reader};
            }
        }
    }
}

// Host 1's part of the next test. Returns null if all is well.
Task<const char*> give_up_on_hosts(Host& host, uint64_t far, uint64_t near) {
    const std::vector<std::byte> bytes(page_size, std::byte{9});
    std::vector<std::byte> seen(page_size);
    CachedVolume volume(*host.volumes, volume_id);
    if (!co_await volume.attributes()) co_return "the attributes";
    const auto failed = [](const Result<>& result) { return !result && result.error().sys_errno == EIO; };
    if (!failed(co_await volume.read(far, seen))) co_return "a read of what is away";
    if (!failed(co_await volume.write(far + 512, std::span(bytes).first(512)))) co_return "a write of a part";
    if (!failed(co_await volume.write(far, bytes))) co_return "a write of a page";
    if (!failed(co_await volume.flush_up_to(volume_bytes))) co_return "a flush";
    if (!co_await volume.write(near, bytes)) co_return "a write elsewhere";
    if (!co_await volume.read(near, seen)) co_return "a read elsewhere";
    co_return nullptr;
}
Task<Result<>> set_fail_after(Host& host, uint32_t fail_after_ms) {
    CachedVolume volume(*host.volumes, volume_id);
    CO_TRY(const Attributes changed, co_await volume.change_attributes({.fail_after_ms = fail_after_ms}));
    co_return changed.fail_after_ms == fail_after_ms ? Result<>{} : fail(Errc::corrupt, 0, "test");
}

TEST_F(Cluster, with_fail_after_what_needs_a_host_that_is_away_fails_and_all_else_goes_on) {
    const HostId away = 2;
    const uint64_t far = homed_at(away);
    ASSERT_TRUE(on(1, set_fail_after(*hosts_[1], 50)));
    hosts_[away]->stop();
    const char* const wrong = on(1, give_up_on_hosts(*hosts_[1], far, homed_at(1)));
    EXPECT_EQ(wrong, nullptr) << wrong;
    hosts_[away]->start();
    // The write goes on alone and may be done by now; it never overtakes a later one.
    const std::vector<std::byte> bytes(page_size, std::byte{7});
    std::vector<std::byte> seen(page_size);
    ASSERT_TRUE(on(1, write(*hosts_[1], far, bytes)));
    ASSERT_TRUE(on(0, read(*hosts_[0], far, seen)));
    EXPECT_EQ(seen, bytes);
    ASSERT_TRUE(on(0, flush(*hosts_[0])));
}

}  // namespace
}  // namespace tarn::three_hosts
