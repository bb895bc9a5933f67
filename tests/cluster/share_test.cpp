// A home does not answer, and a host was writing its pages: that host's accesses to other homes' pages go on.
#include <algorithm>
#include <array>
#include <latch>

#include "frontends/volumes/attribute_page.hpp"
#include "tests/cluster/cluster.hpp"

namespace tarn::three_hosts {
namespace {

constexpr uint64_t page_count = 3 * frame_count;

// Like SIGSTOP: both threads of the host stand still, its links stay.
class Paused {
  public:
    explicit Paused(Host& host) {
        for (size_t i = 0; i < threads_.size(); ++i) {
            threads_[i].paused = this;
            (i == 0 ? host.loop : host.other)->post(threads_[i]);
        }
        standing_.wait();
    }
    ~Paused() {
        go_on_.count_down();
        gone_on_.wait();
    }

  private:
    struct Thread final : Loop::Posted {
        Paused* paused = nullptr;
        void run() override {
            paused->standing_.count_down();
            paused->go_on_.wait();
            paused->gone_on_.count_down();
        }
    };
    std::latch standing_{2};
    std::latch go_on_{1};
    std::latch gone_on_{2};
    std::array<Thread, 2> threads_;
};

Task<Result<>> write_pages(Host& host, uint64_t offset, std::chrono::milliseconds limit) {
    CachedVolume volume(*host.volumes, volume_id);
    volume.wait_at_most(limit);
    const std::vector<std::byte> bytes(page_size, std::byte{1});
    for (uint64_t page = 0; page < page_count; ++page)
        CO_TRY_VOID(co_await TestSession::write(volume, offset + page * page_size, bytes));
    co_return Result<>{};
}

Task<Result<>> read_pages(Host& host, uint64_t offset, std::chrono::milliseconds limit) {
    CachedVolume volume(*host.volumes, volume_id);
    volume.wait_at_most(limit);
    std::vector<std::byte> seen(page_size);
    for (uint64_t page = 0; page < page_count; ++page)
        CO_TRY_VOID(co_await TestSession::read(volume, offset + page * page_size, seen));
    co_return Result<>{};
}

TEST_F(Cluster, dirty_pages_of_a_home_that_does_not_answer_leave_frames_for_all_others) {
    using namespace std::chrono_literals;
    Cache& cache = *hosts_[1]->cache;
    const auto writable = [&](HostId home) { return cache.writable_share().count(home); };
    // All at once: faster than they can be given up.
    const std::vector<std::byte> ones(page_count * page_size, std::byte{1});
    ASSERT_TRUE(on(1, write(*hosts_[1], homed_at(0), ones)));
    EXPECT_GT(writable(0), frame_count / 4);
    EXPECT_LE(writable(0), frame_count / 4 * 3);
    {
        const Paused first(*hosts_[0]);
        EXPECT_FALSE(on(1, write_pages(*hosts_[1], homed_at(0), 200ms))) << "it waits for the home";
        ASSERT_TRUE(on(1, write_pages(*hosts_[1], homed_at(2), 10s)));
        ASSERT_TRUE(on(1, read_pages(*hosts_[1], homed_at(2), 10s)));
        const Paused second(*hosts_[2]);
        EXPECT_FALSE(on(1, write_pages(*hosts_[1], homed_at(2), 200ms)));
        ASSERT_TRUE(on(1, write_pages(*hosts_[1], homed_at(1), 10s)));
        ASSERT_TRUE(on(1, read_pages(*hosts_[1], homed_at(1), 10s)));
        EXPECT_LT(writable(0) + writable(2), frame_count);
    }
    ASSERT_TRUE(on(1, write(*hosts_[1], homed_at(0), ones)));
    ASSERT_TRUE(on(1, flush(*hosts_[1])));
    std::vector<std::byte> seen(page_count * page_size);
    ASSERT_TRUE(on(2, read(*hosts_[2], homed_at(0), seen)));
    EXPECT_EQ(seen, ones);
}

TEST_F(Cluster, clean_pages_of_a_home_that_does_not_answer_leave_their_frames) {
    using namespace std::chrono_literals;
    const std::vector<std::byte> ones(page_count * page_size, std::byte{1});
    ASSERT_TRUE(on(0, write(*hosts_[0], homed_at(0), ones)));
    ASSERT_TRUE(on(1, read_pages(*hosts_[1], homed_at(0), 10s)));
    const Paused first(*hosts_[0]);
    ASSERT_TRUE(on(1, read_pages(*hosts_[1], homed_at(2), 5s)));
    ASSERT_TRUE(on(1, write_pages(*hosts_[1], homed_at(2), 5s)));
}

// The volumes, of this many, whose attribute page has its home on host 0.
std::vector<VolumeId> volumes_told_by_first(const Cache& cache, size_t count) {
    std::vector<VolumeId> volumes;
    for (VolumeId id = volume_id + 1; volumes.size() < count; ++id)
        if (cache.home_of(attribute_page_of(id)) == 0) volumes.push_back(id);
    return volumes;
}

Task<Result<>> learn_attributes(Host& host, std::vector<VolumeId> volumes) {
    for (const VolumeId id : volumes) {
        CachedVolume volume(*host.volumes, id, OnLoss::revert);
        CO_TRY_VOID(co_await volume.attributes());
    }
    co_return Result<>{};
}

size_t attributes_known(Cache& cache, const std::vector<VolumeId>& volumes) {
    return static_cast<size_t>(
        std::ranges::count_if(volumes, [&](VolumeId id) { return cache.pages().holds(attribute_page_of(id)); }));
}

TEST_F(Cluster, what_a_volume_is_stays_known_when_memory_is_short_and_its_home_does_not_answer) {
    using namespace std::chrono_literals;
    Cache& cache = *hosts_[1]->cache;
    std::vector<VolumeId> volumes = volumes_told_by_first(cache, 8);
    // A link that comes up meanwhile may take one of them away again.
    for (int round = 0; round < 2; ++round) ASSERT_TRUE(on(1, learn_attributes(*hosts_[1], volumes)));
    std::erase_if(volumes, [&](VolumeId id) { return !cache.pages().holds(attribute_page_of(id)); });
    ASSERT_FALSE(volumes.empty());
    for (int round = 0; round < 3; ++round) ASSERT_TRUE(on(1, read_pages(*hosts_[1], homed_at(2), 10s)));
    EXPECT_EQ(attributes_known(cache, volumes), volumes.size());
    const Paused first(*hosts_[0]);
    for (int round = 0; round < 3; ++round) ASSERT_TRUE(on(1, read_pages(*hosts_[1], homed_at(2), 10s)));
    EXPECT_EQ(attributes_known(cache, volumes), volumes.size());
}

TEST_F(Cluster, what_very_many_volumes_are_leaves_frames_for_their_pages) {
    using namespace std::chrono_literals;
    Cache& cache = *hosts_[1]->cache;
    const std::vector<VolumeId> volumes = volumes_told_by_first(cache, 2 * frame_count);
    ASSERT_TRUE(on(1, learn_attributes(*hosts_[1], volumes)));
    ASSERT_TRUE(on(1, read_pages(*hosts_[1], homed_at(2), 10s)));
    EXPECT_GT(attributes_known(cache, volumes), 0);
    EXPECT_LT(attributes_known(cache, volumes), frame_count / 4);
}

}  // namespace
}  // namespace tarn::three_hosts
