// A home on a device that answers late, or takes nothing any more; the test plays the other host of the cluster.
#include <fcntl.h>
#include <gtest/gtest.h>

#include "coherence/cache/cached_volume.hpp"
#include "coherence/cache/page_provider.hpp"
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

TEST_F(HomeOnDevice, a_flush_that_waits_for_bytes_which_a_failed_store_refuses_fails) {
    ASSERT_TRUE(hear(MessageKind::get_exclusive, 5));
    loop_->run_until_done(turns(*loop_));
    const Message* const grant = fabric_.last(MessageKind::grant);
    ASSERT_NE(grant, nullptr);
    const Tenure tenure = grant->tenure;
    ASSERT_TRUE(hear(MessageKind::done, 5, tenure));
    ASSERT_TRUE(hear(MessageKind::flush, 6));
    loop_->run_until_done(turns(*loop_));
    ASSERT_NE(fabric_.last(MessageKind::flush_ask), nullptr) << "it waits for what the owner has";
    ASSERT_EQ(fabric_.last(MessageKind::flushed), nullptr);

    // Somebody else finds that out, whom no flush waits for.
    device_->fail_writes(true);
    EXPECT_FALSE(loop_->run_until_done(store_->record_losses(*loop_, {})));
    ASSERT_TRUE(store_->failed());

    std::byte* const bytes = cache_->lend_page(peer);
    ASSERT_NE(bytes, nullptr);
    std::memset(bytes, 2, page_size);
    Message write_back;
    write_back.kind = MessageKind::write_back;
    write_back.from = peer;
    write_back.view_epoch = 1;
    write_back.map_epoch = cache_->ranges().epoch();
    write_back.incarnation = peer_process_.incarnation;
    write_back.page = page();
    write_back.tenure = tenure;
    write_back.sequence = 1;
    write_back.dirty = all_sectors;
    write_back.flags = protocol::flag_payload;
    ASSERT_TRUE(cache_->on_message(write_back, bytes));
    loop_->run_until_done(turns(*loop_));
    EXPECT_EQ(fabric_.last(MessageKind::written_back), nullptr);
    const Message* const flushed = fabric_.last(MessageKind::flushed);
    ASSERT_NE(flushed, nullptr);
    EXPECT_TRUE(flushed->has(protocol::flag_lost));
}

// The other host as a home that grants what it was asked for, with a page of ones.
void grant_all(RecordingFabric& fabric, Cache& cache, size_t& answered, Tenure& tenure) {
    for (; answered < fabric.sent.size(); ++answered) {
        const Message asked = fabric.sent[answered].message;
        const bool writes = asked.kind == MessageKind::get_exclusive_no_read;
        if (!writes && asked.kind != MessageKind::get_shared) continue;
        Message grant;
        grant.kind = MessageKind::grant;
        grant.from = peer;
        grant.view_epoch = 1;
        grant.map_epoch = cache.ranges().epoch();
        grant.incarnation = 1;
        grant.page = asked.page;
        grant.request_id = asked.request_id;
        grant.frame = asked.frame;
        grant.tenure = ++tenure;
        grant.flags = writes ? protocol::flag_exclusive : protocol::flag_payload;
        if (writes) {
            ASSERT_TRUE(cache.on_message(grant, nullptr));
            continue;
        }
        std::byte* const page = cache.lend_page(peer);
        ASSERT_NE(page, nullptr);
        std::memset(page, 1, page_size);
        ASSERT_TRUE(cache.on_message(grant, page));
    }
}

Task<> write_pages(CachedVolume& volume, uint64_t first, size_t count, size_t& written) {
    const std::vector<std::byte> bytes(page_size, std::byte{3});
    for (size_t i = 0; i < count; ++i) {
        const Result<> done = co_await volume.write((first + i) * page_size, bytes);
        EXPECT_TRUE(done);
        ++written;
    }
}

TEST_F(HomeOnDevice, pages_that_another_home_lacks_wait_for_room_in_its_link) {
    const uint64_t theirs = page_ + cache_->ranges().pages_per_range();
    constexpr size_t count = 10;
    size_t answered = fabric_.sent.size();
    Tenure tenure = protocol::first_tenure_of(1);
    Gate writes;
    size_t written = 0;
    writes.spawn(write_pages(*volume_, theirs, count, written));
    while (written < count) {
        grant_all(fabric_, *cache_, answered, tenure);
        loop_->run_until_done(turns(*loop_));
    }
    const auto sent = [&](MessageKind kind) {
        return std::ranges::count_if(fabric_.sent, [&](const auto& each) { return each.message.kind == kind; });
    };
    const auto evict_all = [&] {
        std::vector<FrameId> none;
        for (FrameId id = 0; id < cache_->pool().frame_count(); ++id) (void)cache_->try_evict(id, none);
    };

    fabric_.full = protocol::set_of(peer);
    ASSERT_TRUE(hear(MessageKind::flush_ask, 9));
    evict_all();
    loop_->run_until_done(turns(*loop_));
    EXPECT_EQ(sent(MessageKind::write_back), 0);
    EXPECT_EQ(sent(MessageKind::evict), 0);
    EXPECT_EQ(sent(MessageKind::flush_answer), 0);

    fabric_.full = 0;
    fabric_.drained().announce();
    loop_->run_until_done(turns(*loop_));
    EXPECT_EQ(sent(MessageKind::write_back), static_cast<ptrdiff_t>(count));
    loop_->run_until_done(writes.close());
}

TEST_F(HomeOnDevice, clean_pages_of_a_home_that_does_not_answer_make_room) {
    uint64_t theirs = page_ + cache_->ranges().pages_per_range();
    ASSERT_EQ(cache_->home_of(PageId::of(volume_id, theirs)), peer);
    size_t answered = fabric_.sent.size();
    Tenure tenure = protocol::first_tenure_of(1);
    // As many as there is room for, and the last one stays in use.
    for (; cache_->pool().free_count() > cache_->provider().reserve_count(); ++theirs) {
        Gate reads;
        std::optional<std::byte> seen;
        reads.spawn([](CachedVolume& volume, uint64_t page, std::optional<std::byte>& into) -> Task<> {
            std::vector<std::byte> bytes(page_size);
            if (co_await volume.read(page * page_size, bytes)) into = bytes[0];
        }(*volume_, theirs, seen));
        grant_all(fabric_, *cache_, answered, tenure);
        loop_->run_until_done(reads.close());
        ASSERT_EQ(seen, std::byte{1});
    }
    const PageId in_use = PageId::of(volume_id, theirs - 1);
    const FrameId pinned = cache_->try_pin(in_use, view_);
    ASSERT_NE(pinned, no_frame);

    // From here on it says nothing.
    Gate writes;
    size_t written = 0;
    constexpr size_t count = 400;
    writes.spawn(write_pages(*volume_, page_, count, written));
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (written < count && std::chrono::steady_clock::now() < patience) loop_->run_until_done(turns(*loop_));
    EXPECT_EQ(written, count);
    EXPECT_EQ(cache_->bytes(pinned)[0], std::byte{1}) << "it is in use";
    cache_->unpin(pinned);
    if (written < count) cache_->abandon();
    loop_->run_until_done(writes.close());
}

}  // namespace
}  // namespace tarn
