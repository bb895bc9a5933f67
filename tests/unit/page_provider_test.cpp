// Which pages go so that the writable ones of one home leave frames for all others. The test plays the two other hosts.
#include "coherence/pages/page_provider.hpp"

#include "tests/support/turns.hpp"
#include "tests/unit/home_on_device.hpp"

namespace tarn::home_on_device {
namespace {

class Relief : public testing::Test {
  protected:
    static constexpr HostId crowded = 1;
    static constexpr HostId other = 2;

    Relief() : loop_(std::move(*Loop::create())) {
        auto device = std::make_unique<MemoryDevice>(uint64_t{16} << 20);
        const StoreFormat format{.identity = identity, .store = {7}, .size_bytes = device->size_bytes()};
        EXPECT_TRUE(Store::format_device(*device, format));
        store_ = std::move(*loop_->run_until_done(Store::open(*loop_, std::move(device), identity)));
        cache_ = std::move(*Cache::create(
            {.self = 0, .hosts = {0, crowded, other}, .frame_count = 512, .shards = {loop_.get()}}, *store_));
        cache_->set_fabric(fabric_);
        for (const HostId host : {crowded, other}) {
            fabric_.up |= set_of(host);
            cache_->inbox().on_link_up(host, {.incarnation = 1, .epoch = 1});
            cache_->inbox().on_greeted(host);
        }
        EXPECT_TRUE(loop_->run_until_done(cache_->home_start().ended()));
        volumes_ = std::make_unique<VolumeContext>(*cache_);
        volume_ = std::make_unique<CachedVolume>(*volumes_, volume_id);
        answered_ = fabric_.sent.size();
    }
    ~Relief() override {
        cache_->abandon();
        loop_->stop();
        loop_->run();
    }

    uint64_t first_page_of(HostId home) const {
        uint64_t number = 0;
        while (cache_->home_of(PageId::of(volume_id, number)) != home)
            number += cache_->membership().ranges().pages_per_range();
        return number;
    }
    PageId have(uint64_t number, bool to_write) {
        Gate gate;
        gate.spawn(use(number * page_size, to_write));
        grant_all(fabric_, *cache_, answered_, tenure_);
        loop_->run_until_done(gate.close());
        EXPECT_EQ(cache_->pages().is_writable(PageId::of(volume_id, number)), to_write);
        return PageId::of(volume_id, number);
    }
    Task<> use(uint64_t offset, bool to_write) {
        std::vector<std::byte> bytes(page_size);
        EXPECT_TRUE(to_write ? co_await volume_->write(offset, bytes) : co_await volume_->read(offset, bytes));
    }

    std::unique_ptr<Loop> loop_;
    RecordingFabric fabric_;
    std::unique_ptr<Store> store_;
    std::unique_ptr<Cache> cache_;
    std::unique_ptr<VolumeContext> volumes_;
    std::unique_ptr<CachedVolume> volume_;
    size_t answered_ = 0;
    Tenure tenure_ = protocol::first_tenure_of(1);
};

TEST_F(Relief, takes_what_may_be_written_of_a_home_that_has_too_much_and_nothing_else) {
    (void)have(first_page_of(other), true);
    (void)have(first_page_of(crowded), false);
    const PageId page = have(first_page_of(crowded) + 1, true);
    WritableShare& share = cache_->writable_share();
    while (share.try_enter(crowded)) {
    }
    ASSERT_TRUE(share.is_crowded(crowded));
    ASSERT_FALSE(share.is_crowded(other));
    fabric_.sent.clear();
    // By its own task, not by a run of the provider for frames.
    Gate gate;
    gate.spawn([](PageProvider& provider) -> Task<> {
        provider.relieve();
        co_return;
    }(cache_->provider()));
    loop_->run_until_done(turns(*loop_));
    EXPECT_EQ(fabric_.count(MessageKind::evict), 1u);
    const Message* const evict = fabric_.last(MessageKind::evict);
    ASSERT_NE(evict, nullptr);
    EXPECT_EQ(evict->page, page);
    loop_->run_until_done(gate.close());
}

}  // namespace
}  // namespace tarn::home_on_device
