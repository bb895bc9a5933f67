// CacheLinks: a cache with pages homed at another host, whose messages and links the test plays.
#pragma once

#include "tests/unit/home_on_device.hpp"

namespace tarn::home_on_device {

class CacheLinks : public HomeOnDevice {
  protected:
    CacheLinks() { answered_ = fabric_.sent.size(); }
    ~CacheLinks() override { fabric_.on_send = nullptr; }

    uint64_t theirs() const { return page_ + cache_->membership().ranges().pages_per_range(); }
    PageId their_page(uint64_t more = 0) const { return PageId::of(volume_id, theirs() + more); }
    // A page homed at the other host becomes ours, and dirty.
    FrameId own(PageId page) {
        size_t written = 0;
        Gate writes;
        writes.spawn(write_pages(*volume_, page.number(), 1, written));
        grant_all(fabric_, *cache_, answered_, tenure_);
        loop_->run_until_done(writes.close());
        EXPECT_EQ(written, 1u);
        const FrameId id = cache_->pages().try_pin(page, view_);
        EXPECT_NE(id, no_frame);
        if (id != no_frame) cache_->pages().unpin(id);
        return id;
    }
    bool write_to_sector(PageId page, unsigned sector) {
        const std::vector<std::byte> bytes(8, std::byte{4});
        return cache_->pages().try_write(page, sector * sector_size, bytes, view_);
    }
    Task<> read_page(uint64_t number, bool& done) {
        std::vector<std::byte> bytes(page_size);
        done = (co_await volume_->read(number * page_size, bytes)).has_value();
    }
    Task<> sweep_all() { co_await cache_->home_store().marker().sweep(std::chrono::milliseconds(0)); }
    Result<> flush_of_dead_peer() {
        cut();
        EXPECT_TRUE(loop_->run_until_done(cache_->inbox().forget_host(peer, peer_process_.incarnation)));
        return loop_->run_until_done(volume_->flush_homes(set_of(peer)));
    }
    // SIGKILL, and a process that adopts the memory. What that says of their page over the new link; null: nothing.
    const Message* restart() {
        auto device = std::make_unique<MemoryDevice>(*device_);
        UniqueFd memory = end();
        loop_ = std::move(*Loop::create());
        fabric_.sent.clear();
        device_ = device.get();
        begin(std::move(device), std::move(memory));
        const Message* const hello = fabric_.last(MessageKind::hello);
        return hello && hello->page == their_page() ? hello : nullptr;
    }
    // It asks for what is dirty, and takes it when it is given.
    void ask_for_dirty() {
        ASSERT_TRUE(hear(MessageKind::flush_ask, ++last_request_));
        loop_->run_until_done(turns(*loop_));
    }
    Result<> take_write_back() {
        const Message* const written = fabric_.last(MessageKind::write_back);
        if (!written) return fail(Errc::invalid);
        Message answer = from_peer(MessageKind::written_back, written->page);
        answer.tenure = written->tenure;
        answer.sequence = written->sequence;
        return cache_->inbox().on_message(answer, nullptr);
    }
    bool is_in_set_if_dirty(FrameId id) {
        const Frame& frame = cache_->pool().frame(id);
        return (frame.dirty.load() | frame.writing.load()) == 0 || cache_->pages().dirty_frames().has(id);
    }

    size_t answered_ = 0;
    Tenure tenure_ = protocol::first_tenure_of(1);
    protocol::RequestId last_request_ = 100;
};

}  // namespace tarn::home_on_device
