// A home on a device that answers late, or takes nothing any more; the test plays the other host of the cluster.
#include <fcntl.h>
#include <gtest/gtest.h>

#include "coherence/cache/cached_volume.hpp"
#include "tests/support/memory_device.hpp"
#include "tests/support/recording_fabric.hpp"
#include "tiers/nvme/page_buffer.hpp"

namespace tarn {
namespace {

using protocol::Message;
using protocol::MessageKind;

constexpr StoreIdentity identity = {.cluster = {0xc1}, .host = 0};
constexpr VolumeId volume_id = 7;
constexpr HostId peer = 1;

// This host is 0, with a real cache and store; the test is host 1.
class HomeOnDevice : public testing::Test {
  protected:
    HomeOnDevice() : loop_(std::move(*Loop::create())) {
        auto device = std::make_unique<MemoryDevice>(uint64_t{16} << 20);
        const StoreFormat format{.identity = identity, .store = {7}, .size_bytes = device->size_bytes()};
        EXPECT_TRUE(Store::format_device(*device, format));
        device = store_page(std::move(device), std::byte{1});
        device_ = device.get();
        begin(std::move(device), {});
    }
    ~HomeOnDevice() override { end(); }

    // A device on which the page is stored, and in place.
    std::unique_ptr<MemoryDevice> store_page(std::unique_ptr<MemoryDevice> on, std::byte value) {
        MemoryDevice& device = *on;
        const auto store = std::move(*loop_->run_until_done(Store::open(*loop_, std::move(on), identity)));
        const PageBuffer bytes = make_page_buffer(1);
        std::memset(bytes.get(), static_cast<int>(value), page_size);
        const PageWrite write{.page = page(), .tenure = 1, .bytes = bytes.get()};
        EXPECT_TRUE(loop_->run_until_done(store->write(*loop_, std::span(&write, 1))));
        EXPECT_TRUE(loop_->run_until_done(store->close(*loop_)));
        return std::make_unique<MemoryDevice>(device);
    }
    // A process on this device, with what another one has left in memory, if it has.
    void begin(std::unique_ptr<MemoryDevice> device, UniqueFd memory) {
        store_ = std::move(*loop_->run_until_done(Store::open(*loop_, std::move(device), identity)));
        std::unique_ptr<Arena> arena;
        if (memory) {
            arena = std::move(*Arena::adopt(std::move(memory)));
            EXPECT_TRUE(Cache::claim_arena(*arena, *store_));
        }
        cache_ = std::move(*Cache::create({.self = 0, .hosts = {0, peer}, .frame_count = 512, .shards = {loop_.get()}},
                                          *store_, std::move(arena)));
        cache_->set_fabric(fabric_);
        link();
        EXPECT_TRUE(loop_->run_until_done(cache_->recovered()));
        volume_ = std::make_unique<CachedVolume>(*cache_, volume_id);
    }
    // As SIGKILL. Returns its memory.
    UniqueFd end() {
        UniqueFd memory(::fcntl(cache_->pool().arena().fd(), F_DUPFD_CLOEXEC, 0));
        cache_->abandon();
        loop_->stop();
        loop_->run();
        volume_.reset();
        cache_.reset();
        store_.reset();
        return memory;
    }
    PageId page() const { return PageId::of(volume_id, page_); }
    void link() {
        fabric_.up = protocol::set_of(peer);
        cache_->on_link_up(peer, peer_process_);
        cache_->on_greeted(peer);
    }
    void cut() {
        fabric_.up = 0;
        cache_->on_link_down(peer);
    }
    Result<> hear(MessageKind kind, protocol::RequestId request, Tenure tenure = 0) {
        Message message;
        message.kind = kind;
        message.from = peer;
        message.view_epoch = 1;
        message.map_epoch = cache_->ranges().epoch();
        message.incarnation = peer_process_.incarnation;
        message.page = page();
        message.request_id = request;
        message.tenure = tenure;
        return cache_->on_message(message, nullptr);
    }
    Result<> write(std::byte value) {
        const std::vector<std::byte> bytes(page_size, value);
        if (volume_->try_write(page_ * page_size, bytes)) return {};
        return loop_->run_until_done(volume_->write(page_ * page_size, bytes));
    }
    Task<> read_into(std::optional<std::byte>& into) {
        std::vector<std::byte> bytes(page_size);
        if (co_await volume_->read(page_ * page_size, bytes)) into = bytes[17];
    }
    std::byte value_in_frame() {
        std::byte value{};
        EXPECT_TRUE(cache_->try_read(page(), 17, std::span(&value, 1), view_));
        return value;
    }
    static Task<bool> turns(Loop& loop) {
        for (int i = 0; i < 100; ++i) co_await Yield(loop);
        co_return true;
    }

    std::unique_ptr<Loop> loop_;
    MemoryDevice* device_ = nullptr;
    RecordingFabric fabric_;
    std::unique_ptr<Store> store_;
    std::unique_ptr<Cache> cache_;
    std::unique_ptr<CachedVolume> volume_;
    protocol::Process peer_process_{.incarnation = 1, .epoch = 1};
    LossView view_;
    // The first that lies on this host.
    const uint64_t page_ = [] {
        constexpr std::array<HostId, 2> hosts{0, peer};
        const RangeMap ranges(1, hosts);
        uint64_t page = 0;
        while (ranges.find(PageId::of(volume_id, page)).home != 0) page += ranges.pages_per_range();
        return page;
    }();
};

TEST_F(HomeOnDevice, a_late_read_of_an_undone_order_overwrites_nothing) {
    device_->hold_next_read();
    Gate reads;
    std::optional<std::byte> seen;
    reads.spawn(read_into(seen));
    loop_->run_until_done(turns(*loop_));
    ASSERT_TRUE(device_->holds_a_read());

    // Another host's order stands open when its link breaks: the page is resolved, and ours is ordered again.
    ASSERT_TRUE(hear(MessageKind::get_shared, 5));
    loop_->run_until_done(turns(*loop_));
    cut();
    link();
    const Message* const recall = fabric_.last(MessageKind::recall);
    ASSERT_NE(recall, nullptr);
    ASSERT_TRUE(hear(MessageKind::report, 0, recall->tenure));
    loop_->run_until_done(reads.close());
    EXPECT_EQ(seen, std::byte{1});

    ASSERT_TRUE(write(std::byte{2}));
    EXPECT_EQ(value_in_frame(), std::byte{2});
    device_->let_go();
    loop_->run_until_done(turns(*loop_));
    EXPECT_FALSE(device_->holds_a_read());
    EXPECT_EQ(value_in_frame(), std::byte{2});
}

TEST_F(HomeOnDevice, a_loss_that_could_not_be_recorded_is_recorded_by_the_next_process) {
    ASSERT_TRUE(hear(MessageKind::get_exclusive, 5));
    loop_->run_until_done(turns(*loop_));
    const Message* const grant = fabric_.last(MessageKind::grant);
    ASSERT_NE(grant, nullptr);
    ASSERT_TRUE(hear(MessageKind::done, 5, grant->tenure));
    auto device = std::make_unique<MemoryDevice>(*device_);
    const uint64_t generation = store_->loss_generation();

    // The owner comes back without its memory, and that cannot be written down.
    device_->fail_writes(true);
    cut();
    peer_process_ = {.incarnation = 2, .epoch = 2};
    link();
    loop_->run_until_done(turns(*loop_));
    EXPECT_TRUE(store_->failure());
    EXPECT_EQ(store_->loss_generation(), generation);
    EXPECT_TRUE(cache_->pool().arena().header().losses_in_doubt);
    WriteNote& note = std::static_pointer_cast<Session>(volume_->session())->note;
    EXPECT_FALSE(loop_->run_until_done(cache_->flusher().flush(note, protocol::set_of(0), {})))
        << "and nobody waits for it";

    UniqueFd memory = end();
    loop_ = std::move(*Loop::create());
    fabric_.up = 0;
    begin(std::move(device), std::move(memory));
    EXPECT_GT(store_->loss_generation(), generation) << "flushes of who wrote before fail";
    EXPECT_FALSE(store_->losses().empty());
    EXPECT_FALSE(cache_->pool().arena().header().losses_in_doubt);
}

}  // namespace
}  // namespace tarn
