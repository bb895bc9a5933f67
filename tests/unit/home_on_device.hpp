// HomeOnDevice: a real cache and store on a device in memory; the test plays the other host of the cluster.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include "coherence/pages/page_provider.hpp"
#include "frontends/volumes/cached_volume.hpp"
#include "tests/support/memory_device.hpp"
#include "tests/support/recording_fabric.hpp"
#include "tests/support/turns.hpp"
#include "tiers/nvme/device/page_buffer.hpp"

namespace tarn::home_on_device {

using protocol::Message;
using protocol::MessageKind;

inline constexpr StoreIdentity identity = {.cluster = {0xc1}, .host = 0};
inline constexpr VolumeId volume_id = 7;
inline constexpr HostId peer = 1;

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
            EXPECT_TRUE(Adoption::claim(*arena, *store_));
        }
        cache_ = std::move(*Cache::create({.self = 0, .hosts = {0, peer}, .frame_count = 512, .shards = {loop_.get()}},
                                          *store_, std::move(arena)));
        cache_->set_fabric(fabric_);
        link();
        EXPECT_TRUE(loop_->run_until_done(cache_->home_start().ended()));
        volumes_ = std::make_unique<VolumeContext>(*cache_);
        volume_ = std::make_unique<CachedVolume>(*volumes_, volume_id);
    }
    // As SIGKILL. Returns its memory.
    UniqueFd end() {
        UniqueFd memory(::fcntl(cache_->pool().arena().fd(), F_DUPFD_CLOEXEC, 0));
        cache_->abandon();
        loop_->stop();
        loop_->run();
        volume_.reset();
        volumes_.reset();
        cache_.reset();
        store_.reset();
        return memory;
    }
    PageId page() const { return PageId::of(volume_id, page_); }
    void link() {
        fabric_.up = set_of(peer);
        cache_->inbox().on_link_up(peer, peer_process_);
        cache_->inbox().on_greeted(peer);
    }
    void cut() {
        fabric_.up = 0;
        cache_->inbox().on_link_down(peer);
    }
    Message from_peer(MessageKind kind, PageId page) const {
        Message message;
        message.kind = kind;
        message.from = peer;
        message.view_epoch = 1;
        message.map_epoch = cache_->membership().ranges().epoch();
        message.incarnation = peer_process_.incarnation;
        message.page = page;
        return message;
    }
    // Of the other host, about the page.
    Message message_of(MessageKind kind, protocol::RequestId request, Tenure tenure = 0) const {
        Message message = from_peer(kind, page());
        message.request_id = request;
        message.tenure = tenure;
        return message;
    }
    Result<> hear(MessageKind kind, protocol::RequestId request, Tenure tenure = 0) {
        return cache_->inbox().on_message(message_of(kind, request, tenure), nullptr);
    }
    // The other host may write the page from now on. 0: it was not granted.
    Tenure own_page() {
        EXPECT_TRUE(hear(MessageKind::get_exclusive, 5));
        loop_->run_until_done(turns(*loop_));
        const Message* const grant = fabric_.last(MessageKind::grant);
        if (!grant) return 0;
        const Tenure tenure = grant->tenure;
        EXPECT_TRUE(hear(MessageKind::done, 5, tenure));
        return tenure;
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
        EXPECT_TRUE(cache_->pages().try_read(page(), 17, std::span(&value, 1), view_));
        return value;
    }

    std::unique_ptr<Loop> loop_;
    MemoryDevice* device_ = nullptr;
    RecordingFabric fabric_;
    std::unique_ptr<Store> store_;
    std::unique_ptr<Cache> cache_;
    std::unique_ptr<VolumeContext> volumes_;
    std::unique_ptr<CachedVolume> volume_;
    Process peer_process_{.incarnation = 1, .epoch = 1};
    LossView view_;
    // The first that lies on this host.
    const uint64_t page_ = [] {
        constexpr std::array<HostId, 2> hosts{0, peer};
        const RangeMap ranges(1, hosts);
        uint64_t page = 0;
        while (ranges.home_of(PageId::of(volume_id, page)) != 0) page += ranges.pages_per_range();
        return page;
    }();
};

// The host that was asked, as a home that grants, with a page of ones.
inline void grant(Cache& cache, const RecordingFabric::Sent& request, Tenure tenure) {
    const Message& asked = request.message;
    Message grant;
    grant.kind = MessageKind::grant;
    grant.from = request.to;
    grant.view_epoch = 1;
    grant.map_epoch = cache.membership().ranges().epoch();
    grant.incarnation = 1;
    grant.page = asked.page;
    grant.request_id = asked.request_id;
    grant.frame = asked.frame;
    grant.tenure = tenure;
    grant.flags = asked.kind == MessageKind::get_shared ? 0 : protocol::flag_exclusive;
    if (asked.kind == MessageKind::get_exclusive_no_read) {
        ASSERT_TRUE(cache.inbox().on_message(grant, nullptr));
        return;
    }
    grant.flags |= protocol::flag_payload;
    std::byte* const page = cache.inbox().lend_page(request.to);
    ASSERT_NE(page, nullptr);
    std::memset(page, 1, page_size);
    ASSERT_TRUE(cache.inbox().on_message(grant, page));
}

inline bool asks_for_page(const Message& message) {
    return message.kind == MessageKind::get_shared || message.kind == MessageKind::get_exclusive ||
           message.kind == MessageKind::get_exclusive_no_read;
}

// All that was asked for since.
inline void grant_all(RecordingFabric& fabric, Cache& cache, size_t& answered, Tenure& tenure) {
    while (answered < fabric.sent.size()) {
        const RecordingFabric::Sent asked = fabric.sent[answered++];
        if (asks_for_page(asked.message)) grant(cache, asked, ++tenure);
    }
}

inline Task<> write_pages(CachedVolume& volume, uint64_t first, size_t count, size_t& written) {
    const std::vector<std::byte> bytes(page_size, std::byte{3});
    for (size_t i = 0; i < count; ++i) {
        const Result<> done = co_await volume.write((first + i) * page_size, bytes);
        EXPECT_TRUE(done);
        ++written;
    }
}

}  // namespace tarn::home_on_device
