// Errors that a session of three real hosts gets when the home of its writes loses its memory: whichever of its handles
// wrote, and whenever during a request.
#include "frontends/volumes/attribute_page.hpp"
#include "tests/cluster/cluster.hpp"

namespace tarn::three_hosts {
namespace {

class ClusterSessions : public Cluster {
  protected:
    // The volume and host 0's part of it.
    void SetUp() override {
        Cluster::SetUp();
        at_ = homed_at(0);
        ASSERT_TRUE(on(1, write(*hosts_[1], at_, bytes_)));
        ASSERT_TRUE(on(1, flush(*hosts_[1])));
    }
    // Host 0 is the page's home, and only host 0 still has it.
    void bring_home(uint64_t offset) {
        std::vector<std::byte> seen(page_size);
        ASSERT_TRUE(on(0, read(*hosts_[0], offset, seen)));
        ASSERT_TRUE(on(1, evict_all(*hosts_[1])));
    }
    struct End {
        uint64_t offset = 0;     // the first page after host 0's part
        HostId next = no_host;   // its home
        HostId other = no_host;  // the home of neither part
    };
    End end_of_part() const {
        const Cache& cache = *hosts_[0]->cache;
        const uint64_t offset = at_ + cache.membership().ranges().pages_per_range() * page_size;
        const HostId next = cache.home_of(PageId::of(volume_id, offset / page_size));
        return {.offset = offset, .next = next, .other = static_cast<HostId>(3 - next)};
    }
    void lose_home(HostId home = 0) {
        hosts_[home]->stop();
        hosts_[home]->start();
        ASSERT_TRUE(on(home, hosts_[home]->cache->home_start().ended()));
    }

    uint64_t at_ = 0;
    const std::vector<std::byte> bytes_ = std::vector<std::byte>(page_size, std::byte{7});
};

TEST_F(ClusterSessions, a_flush_over_another_handle_of_the_client_tells_of_the_loss) {
    auto first = on(1, TestSession::open(*hosts_[1]));
    CachedVolume second(*hosts_[1]->volumes, std::static_pointer_cast<ClientSession>(first->session()));
    auto stranger = on(1, TestSession::open(*hosts_[1]));
    ASSERT_TRUE(on(1, TestSession::write(*first, at_, bytes_)));
    bring_home(at_);
    lose_home();
    std::vector<std::byte> seen(page_size);
    EXPECT_FALSE(on(1, second.flush_up_to(volume_bytes))) << "its client wrote what is lost";
    EXPECT_TRUE(on(1, stranger->flush_up_to(volume_bytes))) << "it wrote nothing";
    EXPECT_FALSE(on(1, TestSession::read(second, at_, seen)));
    first.reset();
    EXPECT_FALSE(on(1, second.flush_up_to(volume_bytes))) << "the handle is gone, its client is not";
}

// Brings a page home that this host holds, or soon will.
Task<bool> hand_back(Host& host, PageId page) {
    Cache& cache = *host.cache;
    while (!cache.pages().holds(page)) co_await Yield(*Loop::current());
    for (bool held = true; held; co_await Yield(*Loop::current())) {
        held = false;
        for (FrameId id = 0; id < cache.pool().frame_count(); ++id) {
            const Frame& frame = cache.pool().frame(id);
            if ((frame.uses.load() & use_holder) == 0 || frame.page_id() != page) continue;
            held = true;
            std::vector<FrameId> to_store;
            (void)cache.eviction().try_evict(id, to_store);
        }
    }
    co_return true;
}

// A write that runs while the test goes on.
class Background final : Loop::Posted {
  public:
    Background(Host& host, CachedVolume& volume, uint64_t offset, std::span<const std::byte> bytes)
        : host_(host), volume_(volume), offset_(offset), bytes_(bytes) {
        host_.loop->post(*this);
    }
    Result<> await() {
        done_.wait(false);
        return result_;
    }

  private:
    void run() override { host_.loop->spawn(write()); }
    Task<> write() {
        result_ = co_await TestSession::write(volume_, offset_, bytes_);
        done_ = true;
        done_.notify_all();
    }
    Host& host_;
    CachedVolume& volume_;
    uint64_t offset_;
    std::span<const std::byte> bytes_;
    Result<> result_;
    std::atomic<bool> done_{false};
};

// Keeps a page on this host until it is released.
Task<Result<std::vector<Pin>>> pin(CachedVolume& volume, uint64_t offset) {
    std::vector<Pin> pins;
    while (!volume.try_pin(offset, page_size, pins)) CO_TRY_VOID(co_await volume.fetch(offset, page_size));
    co_return pins;
}
Task<bool> let_go(CachedVolume& volume, std::vector<Pin> pins) {
    volume.unpin(pins);
    co_return true;
}

TEST_F(ClusterSessions, a_request_whose_first_page_is_lost_before_its_last_is_written_is_not_flushed) {
    const auto [border, reading, own] = end_of_part();
    ASSERT_NE(reading, 0);
    auto session = on(own, TestSession::open(*hosts_[own]));
    auto reader = on(reading, TestSession::open(*hosts_[reading]));
    Result<std::vector<Pin>> pins = on(reading, pin(*reader, border));
    ASSERT_TRUE(pins);
    const std::vector<std::byte> bytes(2 * page_size, std::byte{9});
    Background write(*hosts_[own], *session, border - page_size, bytes);
    ASSERT_TRUE(on(own, hand_back(*hosts_[own], PageId::of(volume_id, border / page_size - 1))));
    lose_home();
    std::vector<std::byte> seen(page_size);
    ASSERT_TRUE(on(own, read(*hosts_[own], at_, seen))) << "its host hears of the new process";
    ASSERT_TRUE(on(reading, let_go(*reader, *pins)));
    ASSERT_TRUE(write.await());
    EXPECT_FALSE(on(own, session->flush_up_to(volume_bytes))) << "its first page was at home alone";
}

// D4: what is lost is told to who sees it. An NBD client sees no attribute but the size, and can write none.
TEST_F(ClusterSessions, who_may_have_seen_lost_attributes_still_gets_the_size) {
    const HostId home = hosts_[0]->cache->home_of(attribute_page_of(volume_id));
    const HostId writer = static_cast<HostId>((home + 1) % host_count);
    const HostId reader = static_cast<HostId>((home + 2) % host_count);
    auto session = on(reader, TestSession::open(*hosts_[reader]));
    ASSERT_TRUE(on(reader, session->attributes()));
    {
        CachedVolume changed(*hosts_[writer]->volumes, volume_id);
        ASSERT_TRUE(on(writer, changed.change_attributes({.size_bytes = {}, .mode = 0600})));
        CachedVolume seen(*hosts_[home]->volumes, volume_id);
        ASSERT_TRUE(on(home, seen.attributes()));
    }
    ASSERT_TRUE(on(writer, evict_all(*hosts_[writer])));
    lose_home(home);
    ASSERT_TRUE(on(reader, session->size()));
    const Result<Attributes> told = on(reader, session->attributes());
    ASSERT_FALSE(told);
    EXPECT_EQ(told.error().code, Errc::io);
    EXPECT_TRUE(on(reader, session->size())) << "cold";
    EXPECT_TRUE(session->try_size()) << "and at hand";
}

TEST_F(ClusterSessions, once_a_flush_failed_no_later_one_succeeds_over_any_handle) {
    auto first = on(1, TestSession::open(*hosts_[1]));
    CachedVolume second(*hosts_[1]->volumes, std::static_pointer_cast<ClientSession>(first->session()));
    EXPECT_FALSE(first->session()->flushed(fail(Errc::unavailable))) << "that is no loss";
    EXPECT_TRUE(on(1, second.flush()));
    EXPECT_FALSE(first->session()->flushed(fail(Errc::io)));
    EXPECT_FALSE(on(1, second.flush()));
}

// D1, of a part of a volume whose home is another host.
TEST_F(ClusterSessions, a_range_of_another_home_is_durable_once_it_is_flushed) {
    const std::vector<std::byte> after(page_size, std::byte{9});
    auto session = on(1, TestSession::open(*hosts_[1]));
    ASSERT_TRUE(on(1, TestSession::write(*session, at_, after)));
    ASSERT_TRUE(on(1, session->flush_range(at_, page_size, false)));
    ASSERT_TRUE(on(1, evict_all(*hosts_[1])));
    lose_home();
    std::vector<std::byte> seen(page_size);
    ASSERT_TRUE(on(2, read(*hosts_[2], at_, seen)));
    EXPECT_EQ(seen, after);
}

// D4: its first page was changed.
TEST_F(ClusterSessions, a_write_that_failed_in_its_second_page_counts_when_the_first_is_lost) {
    const auto [border, second, own] = end_of_part();
    ASSERT_NE(second, 0);
    auto session = on(own, TestSession::open(*hosts_[own]));
    hosts_[second]->stop();
    session->wait_at_most(std::chrono::milliseconds(300));
    const std::vector<std::byte> bytes(2 * page_size, std::byte{9});
    EXPECT_FALSE(on(own, TestSession::write(*session, border - page_size, bytes)));
    session->wait_at_most(std::chrono::milliseconds(0));
    hosts_[second]->start();
    ASSERT_TRUE(on(own, hand_back(*hosts_[own], PageId::of(volume_id, border / page_size - 1))));
    lose_home();
    std::vector<std::byte> seen(page_size);
    for (const uint64_t page : {at_, border})
        ASSERT_TRUE(on(own, read(*hosts_[own], page, seen))) << "its host hears of the new processes";
    EXPECT_FALSE(on(own, session->flush_up_to(volume_bytes)));
}

}  // namespace
}  // namespace tarn::three_hosts
