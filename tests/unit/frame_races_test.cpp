// The hot path while a frame becomes another page's: at each instruction of a reader or writer, the other thread takes
// the page's frame away and gives it to another page.
#include <gtest/gtest.h>

#include <algorithm>

#include "frontends/volumes/cached_volume.hpp"
#include "tests/support/interleave.hpp"
#include "tests/support/memory_device.hpp"
#include "tests/support/store_identity.hpp"
#include "tests/support/turns.hpp"

namespace tarn {
namespace {

constexpr VolumeId volume_id = 7;
constexpr unsigned places_max = 300;  // beyond them nobody looks for a page or its frame any more
constexpr size_t some = 16;           // bytes that are written by few of them

using PageBytes = std::array<std::byte, page_size>;

PageBytes filled(unsigned value) {
    PageBytes bytes;
    bytes.fill(static_cast<std::byte>(value));
    return bytes;
}

bool all_are(std::span<const std::byte> bytes, unsigned value) {
    return std::ranges::all_of(bytes, [&](std::byte byte) { return byte == static_cast<std::byte>(value); });
}

class FrameRaces : public testing::Test {
  protected:
    FrameRaces() : loop_(std::move(*Loop::create())) {
        auto device = std::make_unique<MemoryDevice>(uint64_t{64} << 20);
        const StoreFormat format{.identity = store_identity, .store = {7}, .size_bytes = device->size_bytes()};
        EXPECT_TRUE(Store::format_device(*device, format));
        store_ = std::move(*loop_->run_until_done(Store::open(*loop_, std::move(device), store_identity)));
        cache_ =
            std::move(*Cache::create({.self = 0, .hosts = {0}, .frame_count = 8192, .shards = {loop_.get()}}, *store_));
        volumes_ = std::make_unique<VolumeContext>(*cache_);
        volume_ = std::make_unique<CachedVolume>(*volumes_, volume_id);
    }
    ~FrameRaces() override {
        cache_->abandon();
        loop_->stop();
        loop_->run();
    }

    static PageId page(uint64_t number) { return PageId::of(volume_id, number); }
    void write(uint64_t number, unsigned value) {
        const PageBytes bytes = filled(value);
        EXPECT_TRUE(loop_->run_until_done(volume_->write(number * page_size, bytes)));
    }
    void fetch(uint64_t number) { EXPECT_TRUE(loop_->run_until_done(volume_->fetch(number * page_size, page_size))); }
    void flush() { EXPECT_TRUE(loop_->run_until_done(volume_->flush())); }
    // Nothing if it does not come: somebody was to say that the page is free, and did not.
    std::optional<PageBytes> read(uint64_t number) {
        Gate reads;
        std::optional<PageBytes> seen;
        const auto into = [](CachedVolume& volume, uint64_t at, std::optional<PageBytes>& into_) -> Task<> {
            PageBytes bytes;
            if (co_await volume.read(at * page_size, bytes)) into_ = bytes;
        };
        reads.spawn(into(*volume_, number, seen));
        for (int turn = 0; turn < 200 && !seen; ++turn) loop_->run_until_done(turns(*loop_));
        if (!seen) cache_->abandon();
        loop_->run_until_done(reads.close());
        return seen;
    }
    // It stays the page's until evict(), which takes it away unless it is in use; the next page to come gets it then.
    void choose(uint64_t number) { frame_ = frame_of(number); }
    FrameId frame_of(uint64_t number) {
        const FrameId found = cache_->pages().try_pin(page(number), view_);
        EXPECT_NE(found, no_frame);
        cache_->pages().unpin(found);
        return found;
    }
    void evict() {
        std::vector<FrameId> to_store;
        (void)cache_->eviction().try_evict(frame_, to_store);
        if (!to_store.empty())
            EXPECT_TRUE(loop_->run_until_done(cache_->eviction().evict_home_bytes(std::move(to_store))));
    }

    // Steps from the first look at frame_ on. Each place has so many pages of its own, from `first` on. between() comes
    // once, or never at the last place.
    template <class Prepare, class Act, class Between, class Check>
    void at_every_place(uint64_t pages, Prepare&& prepare, Act&& act, Between&& between, Check&& check) {
#if __has_feature(thread_sanitizer)
        GTEST_SKIP() << "ThreadSanitizer puts signals off";
#endif
        Interleaving interleaving;
        unsigned at = 0;
        bool came_there = true;
        for (uint64_t first = 0; came_there && at < places_max && !HasFailure(); first += pages, ++at) {
            prepare(first);
            came_between_ = false;
            came_there = interleaving.run(
                at, &cache_->pool().frame(frame_), [&] { act(first); },
                [&] {
                    came_between_ = true;
                    between(first);
                });
            check(first);
        }
        EXPECT_GT(at, 30u) << "it was not stepped";
    }

    std::unique_ptr<Loop> loop_;
    std::unique_ptr<Store> store_;
    std::unique_ptr<Cache> cache_;
    std::unique_ptr<VolumeContext> volumes_;
    std::unique_ptr<CachedVolume> volume_;
    LossView view_;
    FrameId frame_ = no_frame;
    bool came_between_ = false;
};

TEST_F(FrameRaces, a_reader_sees_its_page_or_nothing) {
    std::array<std::byte, 200> bytes;
    bool done = false;
    const auto prepare = [&](uint64_t first) {
        fetch(first);
        choose(first);
    };
    const auto act = [&](uint64_t first) { done = cache_->pages().try_read(page(first), 100, bytes, view_); };
    const auto between = [&](uint64_t first) {
        evict();
        write(first + 1, 2);
    };
    at_every_place(2, prepare, act, between, [&](uint64_t) { EXPECT_TRUE(!done || all_are(bytes, 0)); });
}

TEST_F(FrameRaces, a_reader_sees_one_write_whole_or_nothing) {
    std::array<std::byte, 200> bytes;
    bool done = false;
    const auto act = [&](uint64_t first) { done = cache_->pages().try_read(page(first), 100, bytes, view_); };
    const auto between = [&](uint64_t first) {
        EXPECT_TRUE(cache_->pages().try_write(page(first), 0, filled(2), view_));
    };
    const auto prepare = [&](uint64_t first) {
        write(first, 1);
        choose(first);
    };
    at_every_place(1, prepare, act, between,
                   [&](uint64_t) { EXPECT_TRUE(!done || all_are(bytes, 1) || all_are(bytes, 2)); });
}

TEST_F(FrameRaces, who_pins_a_page_has_it) {
    FrameId pinned = no_frame;
    const auto prepare = [&](uint64_t first) {
        fetch(first);
        choose(first);
    };
    const auto act = [&](uint64_t first) { pinned = cache_->pages().try_pin(page(first), view_); };
    const auto between = [&](uint64_t first) {
        evict();
        write(first + 1, 2);
    };
    at_every_place(2, prepare, act, between, [&](uint64_t first) {
        if (pinned != no_frame) {
            EXPECT_TRUE(all_are({cache_->pages().bytes(pinned), page_size}, 0));
            cache_->pages().unpin(pinned);
        }
        const auto seen = read(first);
        EXPECT_TRUE(seen && all_are(*seen, 0));
    });
}

// Writers hold the frame for a while, so that it may also be asked for when they are inside: then it is free once they
// have left, with what they wrote.
TEST_F(FrameRaces, a_write_changes_its_page_or_nothing) {
    const PageBytes newer = filled(3);
    bool done = false;
    const auto prepare = [&](uint64_t first) {
        write(first, 1);
        flush();
        choose(first);
    };
    const auto act = [&](uint64_t first) {
        done = cache_->pages().try_write(page(first), 512, std::span(newer).first(some), view_);
    };
    const auto between = [&](uint64_t first) {
        evict();
        write(first + 1, 2);
    };
    at_every_place(2, prepare, act, between, [&](uint64_t first) {
        const auto seen = read(first);
        ASSERT_TRUE(seen) << "it is free again";
        EXPECT_TRUE(all_are(std::span(*seen).first(512), 1));
        EXPECT_TRUE(all_are(std::span(*seen).subspan(512, some), done ? 3 : 1));
        const auto other = read(first + 1);
        EXPECT_TRUE(other && all_are(*other, came_between_ ? 2 : 0));
    });
}

TEST_F(FrameRaces, a_write_of_two_pages_changes_both_or_none_and_no_third) {
    const PageBytes newer = filled(3);
    bool done = false;
    const auto prepare = [&](uint64_t first) {
        write(first, 1);
        write(first + 1, 1);
        flush();
        choose(first + 1);
    };
    const auto act = [&](uint64_t first) {
        done = cache_->pages().try_write_run(volume_id, first * page_size + page_size - some,
                                             std::span(newer).first(2 * some), view_);
    };
    const auto between = [&](uint64_t first) {
        evict();
        write(first + 2, 2);
    };
    at_every_place(3, prepare, act, between, [&](uint64_t first) {
        const auto one = read(first);
        const auto two = read(first + 1);
        ASSERT_TRUE(one && two) << "they are free again";
        EXPECT_TRUE(all_are(std::span(*one).last(some), done ? 3 : 1));
        EXPECT_TRUE(all_are(std::span(*two).first(some), done ? 3 : 1));
        const auto other = read(first + 2);
        EXPECT_TRUE(other && all_are(*other, came_between_ ? 2 : 0));
    });
}

TEST_F(FrameRaces, a_write_of_many_pages_changes_its_bytes_alone) {
    constexpr size_t page_count = 12;
    for (const size_t offset : {size_t{0}, size_t{100}, page_size}) {
        for (const size_t size : {2 * page_size, 9 * page_size + 7, 10 * page_size}) {
            for (uint64_t i = 0; i < page_count; ++i) write(i, 1);
            flush();
            std::vector<std::byte> expected(page_count * page_size, std::byte{1});
            for (size_t i = 0; i < size; ++i) expected[offset + i] = static_cast<std::byte>(i % 251);
            ASSERT_TRUE(
                cache_->pages().try_write_run(volume_id, offset, std::span(expected).subspan(offset, size), view_));
            for (uint64_t i = 0; i < page_count; ++i) {
                const auto seen = read(i);
                ASSERT_TRUE(seen && std::ranges::equal(*seen, std::span(expected).subspan(i * page_size, page_size)));
                const bool is_written = i * page_size < offset + size && (i + 1) * page_size > offset;
                EXPECT_EQ(cache_->pages().dirty_frames().has(frame_of(i)), is_written) << "page " << i;
            }
        }
    }
}

// Pages that hear of each frame that is quiet, as a stripe's step does, which may want the others at once.
class QuietFrames final : public Pages::Listener, public WriteCheck {
  public:
    explicit QuietFrames(FramePool& pool) : pool_(pool) {}
    size_t heard() const { return heard_; }

  private:
    // Called when all pages of a write are latched.
    bool holds() override {
        for (FrameId id = 0; id < pool_.frame_count(); ++id) EXPECT_FALSE(pool_.frame(id).word.make_busy());
        return true;
    }
    void on_quiet(Frame&, PageId) override {
        ++heard_;
        for (FrameId id = 0; id < pool_.frame_count(); ++id)
            EXPECT_FALSE(FrameWord::latched(pool_.frame(id).word.load())) << "frame " << id << " is latched still";
    }
    void on_first_use(LossView& view, HostId) override { view.began_after(0, 0); }

    FramePool& pool_;
    size_t heard_ = 0;
};

TEST_F(FrameRaces, a_write_of_several_pages_holds_no_latch_when_it_says_that_one_is_quiet) {
    constexpr size_t count = 3;
    const std::unique_ptr<FramePool> pool = *FramePool::create(count);
    QuietFrames quiet(*pool);
    Pages pages(*pool, cache_->membership(), 0, quiet);
    for (uint64_t i = 0; i < count; ++i) {
        Frame& frame = pool->frame(pool->try_take(use_holder, 0));
        frame.page.store(page(i).value);
        pages.index().insert(frame);
        frame.word.open(FrameWord::writable);
    }
    EXPECT_TRUE(pages.try_write_run(volume_id, 0, std::vector<std::byte>(count * page_size), view_, &quiet));
    EXPECT_EQ(quiet.heard(), count);
}

}  // namespace
}  // namespace tarn
