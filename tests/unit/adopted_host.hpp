// AdoptedHost: a host whose process is killed, again and again, and whose memory the next one adopts.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "coherence/cache/cache.hpp"
#include "frontends/volumes/cached_volume.hpp"
#include "tests/support/scratch_directory.hpp"

namespace tarn {

class AdoptedHost : public testing::Test {
  protected:
    static constexpr size_t frame_count = 511;  // odd: nothing of the arena is aligned by chance
    static constexpr size_t landing_bytes = 10 * page_size;
    static constexpr VolumeId volume_id = 7;
    using PageBytes = std::array<std::byte, page_size>;

    static PageBytes filled(unsigned value) {
        PageBytes bytes;
        bytes.fill(static_cast<std::byte>(value));
        return bytes;
    }

    void SetUp() override {
        make_store("store");
        open("store", nullptr);
    }
    void TearDown() override { kill(); }

    void make_store(const std::string& name) {
        ASSERT_TRUE(Store::format(directory_ / name, 64 << 20, {.cluster = {}, .host = 0}, false));
    }
    void open_store(const std::string& name, OpenOptions options = {}) {
        loop_ = std::move(*Loop::create());
        auto store = loop_->run_until_done(Store::open(*loop_, directory_ / name, {.cluster = {}, .host = 0}, options));
        ASSERT_TRUE(store);
        store_ = std::move(*store);
    }
    void open(const std::string& name, std::unique_ptr<Arena> arena) {
        if (!store_) open_store(name);
        auto cache = Cache::create({.self = 0,
                                    .hosts = {0},
                                    .frame_count = frame_count,
                                    .landing_bytes = landing_bytes,
                                    .shards = {loop_.get()}},
                                   *store_, std::move(arena));
        ASSERT_TRUE(cache);
        cache_ = std::move(*cache);
        volumes_ = std::make_unique<VolumeContext>(*cache_);
        volume_ = std::make_unique<CachedVolume>(*volumes_, volume_id);
    }
    // Without a flush; what is left is the memory.
    UniqueFd kill() {
        UniqueFd memory(cache_ ? ::fcntl(cache_->pool().arena().fd(), F_DUPFD_CLOEXEC, 0) : -1);
        if (cache_) {
            cache_->abandon();
            loop_->stop();
            loop_->run();
        }
        volume_.reset();
        volumes_.reset();
        cache_.reset();
        store_.reset();
        loop_.reset();
        return memory;
    }
    static std::unique_ptr<Arena> map(const UniqueFd& memory) {
        return std::move(*Arena::adopt(UniqueFd(::fcntl(memory.get(), F_DUPFD_CLOEXEC, 0))));
    }
    void adopt(const UniqueFd& memory) {
        open_store("store");
        std::unique_ptr<Arena> arena = map(memory);
        ASSERT_TRUE(Adoption::claim(*arena, *store_));
        open("store", std::move(arena));
    }

    void write(uint64_t page, unsigned value) {
        const PageBytes bytes = filled(value);
        ASSERT_TRUE(loop_->run_until_done(volume_->write(page * page_size, bytes)));
    }
    PageBytes read(uint64_t page) {
        PageBytes bytes{};
        EXPECT_TRUE(loop_->run_until_done(volume_->read(page * page_size, bytes)));
        return bytes;
    }
    // The frame that holds the page.
    static FrameId frame_of(const Arena& arena, uint64_t page) {
        for (FrameId id = 0; id < arena.frame_count(); ++id) {
            const FrameRecord::State& state = arena.records()[id].state();
            if (state.role == FrameRecord::Role::exclusive && state.page == PageId::of(volume_id, page).value)
                return id;
        }
        return no_frame;
    }
    // The frame that has home's bytes of the page.
    static FrameId home_frame_of(const Arena& arena, uint64_t page) {
        for (FrameId id = 0; id < arena.frame_count(); ++id) {
            const Frame& frame = arena.frames()[id];
            if ((frame.uses.load() & use_home) != 0 && frame.page_id() == PageId::of(volume_id, page)) return id;
        }
        return no_frame;
    }
    // What nobody holds then, and only home's memory has.
    void evict(uint64_t page) { cache_->stripes().step(protocol::Event::evict_at_once(PageId::of(volume_id, page))); }
    static std::byte* bytes_of(const Arena& arena, FrameId id) { return arena.bytes().data() + size_t{id} * page_size; }

    ScratchDirectory directory_;
    std::unique_ptr<Loop> loop_;
    std::unique_ptr<Store> store_;
    std::unique_ptr<Cache> cache_;
    std::unique_ptr<VolumeContext> volumes_;
    std::unique_ptr<CachedVolume> volume_;
};

}  // namespace tarn
