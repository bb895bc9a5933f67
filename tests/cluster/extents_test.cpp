// A page that was written is no hole, wherever its bytes are: with a holder, in home's memory, or in its store.
#include <random>
#include <string>

#include "tests/cluster/cluster.hpp"

namespace tarn::three_hosts {
namespace {

constexpr uint64_t many_pages = 8192;  // home walks over all it holds; few pages it looks up one by one
constexpr uint64_t cold_pages = 8000;  // also written, so that unused pages leave memory
constexpr uint64_t first_cold_page = 30'000;

struct Trimmer {
    uint64_t seed = 0;
    uint64_t page = 0;
    std::string wrong;
};

Task<bool> is_hole(Host& host, uint64_t page, uint64_t first_page, uint64_t page_count) {
    CachedVolume volume(*host.volumes, volume_id);
    const auto extents = co_await volume.extents(first_page * page_size, page_count * page_size);
    if (!extents) co_return true;
    for (const Extent& extent : *extents)
        if (extent.offset_bytes <= page * page_size && page * page_size < extent.offset_bytes + extent.size_bytes)
            co_return extent.hole;
    co_return true;
}

Task<Result<>> trim(Host& host, uint64_t page) {
    CachedVolume volume(*host.volumes, volume_id);
    co_return co_await volume.zero(page * page_size, page_size, false);
}

// Some host writes the page, others may read it, one takes it away again.
Task<> write_and_trim(std::vector<std::unique_ptr<Host>>& hosts, Trimmer& self) {
    std::mt19937_64 random(self.seed);
    const std::vector<std::byte> bytes(page_size, std::byte{1});
    const std::vector<std::byte> zeros(page_size);
    std::vector<std::byte> seen(page_size);
    const uint64_t offset = self.page * page_size;
    const auto any = [&]() -> Host& { return *hosts[random() % host_count]; };
    for (int i = 0; i < 150 && self.wrong.empty(); ++i) {
        Host& writer = any();
        if (!co_await run_on(*writer.loop, write(writer, offset, bytes))) self.wrong = "a write failed";
        for (uint64_t reads = random() % 3; reads > 0; --reads) {
            Host& reader = any();
            (void)co_await run_on(*reader.other, read(reader, offset, seen));
            if (seen != bytes) self.wrong = "a write is lost";
        }
        for (int k = 0; k < 6; ++k) {
            Host& other = any();
            const uint64_t cold = first_cold_page + random() % cold_pages;
            (void)co_await run_on(*other.other, write(other, cold * page_size, bytes));
        }
        Host& asking = any();
        const bool of_many = random() % 2 == 0;
        const uint64_t first = of_many ? self.page / many_pages * many_pages : self.page;
        if (co_await run_on(*asking.other, is_hole(asking, self.page, first, of_many ? many_pages : 1)))
            self.wrong = of_many ? "one of many written pages is a hole" : "a written page is a hole";
        Host& trimmer = any();
        if (!co_await run_on(*trimmer.loop, trim(trimmer, self.page))) self.wrong = "a trim failed";
        Host& reader = any();
        (void)co_await run_on(*reader.other, read(reader, offset, seen));
        if (seen != zeros) self.wrong = "a trim is lost";
    }
}

Task<> write_and_trim_all(std::vector<std::unique_ptr<Host>>& hosts, std::vector<Trimmer>& trimmers) {
    Gate gate;
    for (Trimmer& each : trimmers) gate.spawn(write_and_trim(hosts, each));
    co_await gate.close();
}

TEST_F(Cluster, a_written_page_is_no_hole_while_its_bytes_move_and_a_trim_takes_it) {
    std::vector<Trimmer> trimmers(24);
    for (size_t i = 0; i < trimmers.size(); ++i) {
        trimmers[i].seed = i;
        trimmers[i].page = i * 941;  // of all homes
    }
    driver_->run_until_done(write_and_trim_all(hosts_, trimmers));
    for (const Trimmer& each : trimmers) EXPECT_EQ(each.wrong, "");
}

Task<Result<>> write_every_other(Host& host, uint64_t offset, size_t count) {
    CachedVolume volume(*host.volumes, volume_id);
    const std::vector<std::byte> bytes(page_size, std::byte{1});
    for (size_t i = 0; i < count; ++i)
        CO_TRY_VOID(co_await TestSession::write(volume, offset + 2 * i * page_size, bytes));
    co_return Result<>{};
}
Task<Result<uint64_t>> stored_bytes(Host& host, uint64_t offset, uint64_t size) {
    CachedVolume volume(*host.volumes, volume_id);
    uint64_t sum = 0;
    for (uint64_t at = offset; at < offset + size;) {
        CO_TRY(const std::vector<Extent> runs, co_await volume.extents(at, offset + size - at));
        for (const Extent& run : runs)
            if (!run.hole) sum += run.size_bytes;
        at = runs.back().offset_bytes + runs.back().size_bytes;
    }
    co_return sum;
}

TEST_F(Cluster, no_page_is_a_hole_because_there_are_more_runs_than_one_answer_has) {
    constexpr size_t count = 2100;
    for (HostId home = 0; home < host_count; ++home) {
        ASSERT_TRUE(on(home, write_every_other(*hosts_[home], homed_at(home), count)));
        const auto seen = on(1, stored_bytes(*hosts_[1], homed_at(home), 2 * count * page_size));
        ASSERT_TRUE(seen);
        EXPECT_EQ(*seen, count * page_size) << "of home " << static_cast<int>(home);
    }
}

TEST_F(Cluster, a_write_at_once_over_the_border_of_two_homes_counts_for_both) {
    const Cache& cache = *hosts_[1]->cache;
    const uint64_t range = cache.membership().ranges().pages_per_range() * page_size;
    uint64_t border = range;
    const auto homes = [&] {
        return std::pair(cache.home_of(PageId::of(volume_id, border / page_size - 1)),
                         cache.home_of(PageId::of(volume_id, border / page_size)));
    };
    while (homes().first == homes().second || homes().second == 1) border += range;
    hosts_[homes().second]->stop();  // its verifier is another then
    hosts_[homes().second]->start();
    const auto both = [&]() -> Task<Result<>> {
        const auto volume = co_await TestSession::open(*hosts_[1]);
        const std::vector<std::byte> bytes(2 * page_size, std::byte{1});
        CO_TRY_VOID(co_await volume->write(border - page_size, bytes));
        CO_TRY_VOID(co_await volume->flush_up_to(volume_bytes));
        if (!volume->try_write(border - page_size, bytes)) co_return fail(Errc::invalid, 0, "test: not at once");
        co_return co_await volume->flush_up_to(volume_bytes);
    };
    const Result<> flushed = on(1, both());
    EXPECT_TRUE(flushed) << flushed.error().where;
}

// Where a host finds the first page of a home.
Task<Result<Tier>> tier_seen(Host& host, uint64_t offset) {
    CachedVolume volume(*host.volumes, volume_id);
    CO_TRY(const std::vector<Extent> extents, co_await volume.extents(offset, page_size));
    const std::vector<TierExtent> tiers = volume.tiers(extents);
    if (tiers.size() != 1 || tiers[0].offset_bytes != offset || tiers[0].size_bytes != page_size)
        co_return fail(Errc::invalid, 0, "test: not one tier");
    co_return tiers[0].tier;
}

TEST_F(Cluster, each_host_tells_where_it_would_find_a_page_and_does_not_move_it) {
    // A host that is heard of for the first time may move pages.
    for (HostId host = 0; host < host_count; ++host) ASSERT_TRUE(on(host, joined(*hosts_[host])));
    const uint64_t offset = homed_at(0);
    const auto seen = [&](HostId host) {
        const Result<Tier> first = on(host, tier_seen(*hosts_[host], offset));
        const Result<Tier> again = on(host, tier_seen(*hosts_[host], offset));
        EXPECT_TRUE(first && again && *first == *again);
        return first ? *first : Tier::hole;
    };
    for (HostId host = 0; host < host_count; ++host) EXPECT_EQ(seen(host), Tier::hole);
    const std::vector<std::byte> bytes(page_size, std::byte{1});
    ASSERT_TRUE(on(1, write(*hosts_[1], offset, bytes)));
    EXPECT_EQ(seen(0), Tier::remote);
    EXPECT_EQ(seen(1), Tier::dram);
    EXPECT_EQ(seen(2), Tier::nvme);
    ASSERT_TRUE(on(1, flush(*hosts_[1])));
    for (const HostId host : {1, 2}) ASSERT_TRUE(on(host, evict_all(*hosts_[host])));
    EXPECT_EQ(seen(0), Tier::dram);  // a home keeps the last copy that leaves another host's memory
    ASSERT_TRUE(on(0, evict_all(*hosts_[0])));
    for (HostId host = 0; host < host_count; ++host) EXPECT_EQ(seen(host), Tier::nvme);
    std::vector<std::byte> into(page_size);
    ASSERT_TRUE(on(2, read(*hosts_[2], offset, into)));
    EXPECT_EQ(seen(2), Tier::dram);
}

TEST_F(Cluster, the_tiers_of_a_long_range_are_those_of_its_front) {
    const auto tiers = [](Host& host) -> Task<std::vector<TierExtent>> {
        CachedVolume volume(*host.volumes, volume_id);
        const Extent all{.offset_bytes = 100, .size_bytes = volume_bytes, .hole = true};
        co_return volume.tiers(std::span(&all, 1));
    };
    const std::vector<TierExtent> seen = on(0, tiers(*hosts_[0]));
    ASSERT_EQ(seen.size(), 1u);
    EXPECT_EQ(seen[0].offset_bytes, 100u);
    EXPECT_EQ(seen[0].size_bytes, tiers_at_once - 100);
}

}  // namespace
}  // namespace tarn::three_hosts
