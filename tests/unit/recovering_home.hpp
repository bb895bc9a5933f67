// RecoveringHome: a home that has begun anew, of a cluster of three; the test plays the others.
#pragma once

#include "tests/unit/home_on_device.hpp"

namespace tarn::home_on_device {

class RecoveringHome : public testing::Test {
  protected:
    RecoveringHome() {
        auto device = std::make_unique<MemoryDevice>(uint64_t{16} << 20);
        const StoreFormat format{.identity = identity, .store = {7}, .size_bytes = device->size_bytes()};
        EXPECT_TRUE(Store::format_device(*device, format));
        begin(std::move(device), {});
    }
    // A process on this device, with what another one has left in memory, if it has.
    void begin(std::unique_ptr<MemoryDevice> device, UniqueFd memory) {
        loop_ = std::move(*Loop::create());
        device_ = device.get();
        store_ = std::move(*loop_->run_until_done(Store::open(*loop_, std::move(device), identity)));
        std::unique_ptr<Arena> arena;
        if (memory) {
            arena = std::move(*Arena::adopt(std::move(memory)));
            EXPECT_TRUE(Adoption::claim(*arena, *store_));
        }
        fabric_.up = set_of(1) | set_of(2);
        cache_ = std::move(*Cache::create({.self = 0, .hosts = {0, 1, 2}, .frame_count = 512, .shards = {loop_.get()}},
                                          *store_, std::move(arena)));
        cache_->set_fabric(fabric_);
    }
    void end() {
        cache_->abandon();
        loop_->stop();
        loop_->run();
    }
    // SIGKILL, and a process that adopts the memory.
    void restart() {
        UniqueFd memory(::fcntl(cache_->pool().arena().fd(), F_DUPFD_CLOEXEC, 0));
        end();
        auto device = std::make_unique<MemoryDevice>(*device_);
        cache_.reset();
        store_.reset();
        begin(std::move(device), std::move(memory));
    }
    // Everybody has said what it holds.
    void serve() {
        for (const HostId host : {1, 2}) cache_->inbox().on_greeted(host);
        EXPECT_TRUE(loop_->run_until_done(cache_->home_start().ended()));
    }
    ArenaHeader& header() { return cache_->pool().arena().header(); }
    // A page that has its home here, another one for each number.
    PageId page_at_home(uint64_t number) {
        while (cache_->home_of(PageId::of(volume_id, number)) != 0)
            number += cache_->membership().ranges().pages_per_range();
        return PageId::of(volume_id, number);
    }
    Message message_from(HostId from, MessageKind kind, PageId page) const {
        Message message;
        message.kind = kind;
        message.from = from;
        message.view_epoch = 1;
        message.map_epoch = cache_->membership().ranges().epoch();
        message.incarnation = process_.incarnation;
        message.page = page;
        return message;
    }
    // What a host of before says over its new link.
    void hear_hello(HostId from, PageId page, uint16_t flags, Tenure tenure) {
        Message hello = message_from(from, MessageKind::hello, page);
        hello.flags = flags;
        hello.tenure = tenure;
        ASSERT_TRUE(cache_->inbox().on_message(hello, nullptr));
    }
    void link_all() {
        for (const HostId host : {1, 2}) cache_->inbox().on_link_up(host, process_);
    }
    // As if another host had lost its memory and the process had been killed before that was on record.
    void restart_with_a_loss_to_record() {
        header().losses_unrecorded = true;
        restart();
        link_all();
    }
    // Whether the last loss that was recorded is one of this page.
    bool is_lost(PageId page) const {
        return std::ranges::any_of(store_->losses(), [&](const Loss& loss) {
            return loss.generation == store_->loss_generation() && loss.first <= page && page <= loss.last;
        });
    }
    // Whether a host was told that home may lack its bytes.
    bool is_told_to_write_back(HostId host, PageId page) {
        const auto confirm = std::ranges::find_if(fabric_.sent, [&](const RecordingFabric::Sent& each) {
            return each.to == host && each.message.kind == MessageKind::confirm && each.message.page == page;
        });
        EXPECT_NE(confirm, fabric_.sent.end());
        return confirm != fabric_.sent.end() && confirm->message.has(protocol::flag_anchor);
    }

    const Process process_{.incarnation = 1, .epoch = 1};
    std::unique_ptr<Loop> loop_;
    MemoryDevice* device_ = nullptr;
    std::unique_ptr<Store> store_;
    RecordingFabric fabric_;
    std::unique_ptr<Cache> cache_;
};

}  // namespace tarn::home_on_device
