// The label of home's bytes, their tenure and sequence: the process may be killed at each instruction that changes it,
// and the next one must not take the bytes for newer than they are.
#include "tests/support/interleave.hpp"
#include "tests/unit/home_on_device.hpp"

namespace tarn::home_on_device {
namespace {

class HomeLabel : public HomeOnDevice {
  protected:
    HomeLabel() : frame_id_(cache_->pool().try_take(use_holder, 0)) {
        frame().broken.store(false, std::memory_order_relaxed);
    }
    ~HomeLabel() override { (void)cache_->pool().release(frame_id_, use_holder); }

    Frame& frame() { return cache_->pool().frame(frame_id_); }
    HomeFrames& home() { return cache_->home_store().frames(); }
    protocol::PageVersion label() { return {frame().home_tenure, frame().home_sequence}; }
    // Home takes the bytes in the frame, which their holder keeps.
    void apply(protocol::PageVersion version) { apply(version, frame_id_); }
    void apply(protocol::PageVersion version, FrameId given) {
        protocol::Action action;
        action.kind = protocol::Action::Kind::apply_copy;
        action.page = page();
        action.tenure = version.tenure;
        action.sequence = version.sequence;
        action.frame = given;
        action.borrowed = true;
        home().apply_copy(action);
    }
    // Home keeps clean bytes, of a reader that lets them go, in a frame with this label of another page's bytes.
    FrameId keep(Tenure of_another_page) {
        const FrameId given = cache_->pool().try_take(use_holder, 0);
        if (given == no_frame) return given;
        cache_->pool().frame(given).home_tenure = of_another_page;
        cache_->pool().frame(given).home_sequence = 9;
        protocol::Action action;
        action.kind = protocol::Action::Kind::keep_copy;
        action.page = page();
        action.frame = given;
        (void)home().keep_copy(action);
        return given;
    }
    // What one sees who is killed at each instruction of it in turn. Returns at how many.
    template <class Begin, class Change, class Look>
    static unsigned at_each_instruction(const Frame& watched, Begin&& begin, Change&& change, Look&& look) {
        Interleaving interleaving;
        unsigned at = 0;
        for (bool came_there = true; came_there && !HasFailure(); ++at) {
            begin();
            came_there = interleaving.run(at, &watched, change, look);
        }
        return at;
    }

    const FrameId frame_id_;
};

// A new tenure with an old, greater sequence would let the next process drop the newest bytes that a holder has kept.
TEST_F(HomeLabel, is_never_newer_than_the_bytes) {
#if __has_feature(thread_sanitizer)
    GTEST_SKIP() << "ThreadSanitizer puts signals off";
#endif
    const protocol::PageVersion before{10, 9};
    const protocol::PageVersion after{11, 1};
    bool was_seen_before = false;
    const unsigned places = at_each_instruction(
        frame(), [&] { apply(before); }, [&] { apply(after); },
        [&] {
            EXPECT_LE(label(), after);
            was_seen_before |= label() == before;
        });
    EXPECT_TRUE(was_seen_before);
    EXPECT_EQ(label(), after);
    EXPECT_GT(places, 10u);
    home().forget(frame());
}

// A frame may have the label of another page's bytes, from before.
TEST_F(HomeLabel, is_that_of_the_bytes_as_soon_as_they_are_home_s) {
#if __has_feature(thread_sanitizer)
    GTEST_SKIP() << "ThreadSanitizer puts signals off";
#endif
    const protocol::PageVersion after{11, 1};
    bool was_seen_before = false;
    const auto begin = [&] {
        if (home().index().find_exactly(page())) (void)home().forget(frame());
        frame().home_tenure = 20;
        frame().home_sequence = 9;
        frame().page.store(PageId::of(volume_id + 1, 0).value, std::memory_order_relaxed);
    };
    const unsigned places = at_each_instruction(
        frame(), begin, [&] { apply(after); },
        [&] {
            if ((frame().uses.load() & use_home) == 0) {
                was_seen_before = true;
                return;
            }
            EXPECT_LE(label(), after);
            EXPECT_EQ(frame().page_id(), page());
            EXPECT_TRUE(frame().home_dirty);
        });
    EXPECT_TRUE(was_seen_before);
    EXPECT_GT(places, 10u);
    home().forget(frame());
}

// Home has them in a frame of its own, which the bytes are copied into.
TEST_F(HomeLabel, is_not_that_of_bytes_that_are_still_to_be_copied) {
#if __has_feature(thread_sanitizer)
    GTEST_SKIP() << "ThreadSanitizer puts signals off";
#endif
    const FrameId given = cache_->pool().try_take(use_holder, 0);
    ASSERT_NE(given, no_frame);
    const protocol::PageVersion before{10, 9};
    const protocol::PageVersion after{11, 1};
    std::byte* const bytes = cache_->pool().bytes(frame_id_);
    Interleaving interleaving;
    for (unsigned at = 0; at < 3; ++at) {  // from the first byte that is copied on
        apply(before);
        EXPECT_TRUE(interleaving.run(at, bytes, [&] { apply(after, given); }, [&] { EXPECT_EQ(label(), before); }));
        EXPECT_EQ(label(), after);
    }
    home().forget(frame());
    (void)cache_->pool().release(given, use_holder);
}

// Its frame may be that in which this host holds the page, and then has all that came before its tenure.
TEST_F(HomeLabel, comes_without_the_bytes_if_they_are_older_than_those_that_this_host_holds) {
    const FrameId given = cache_->pool().try_take(use_holder, 0);
    ASSERT_NE(given, no_frame);
    struct Case {
        FrameRecord::Role role;
        protocol::PageVersion coming;
        bool is_older;
    };
    for (const auto& [role, coming, is_older] :
         {Case{FrameRecord::Role::shared, protocol::last_before(12), true},
          Case{FrameRecord::Role::shared, {12, 0}, false}, Case{FrameRecord::Role::exclusive, {11, 4}, true},
          Case{FrameRecord::Role::exclusive, {12, 4}, false}, Case{FrameRecord::Role::kept, {12, 5}, true},
          Case{FrameRecord::Role::kept, {12, 6}, false}, Case{FrameRecord::Role::none, {11, 4}, false}}) {
        apply({10, 9});
        cache_->pool().record(frame_id_).set({.page = page().value, .tenure = 12, .sequence = 5, .role = role});
        *cache_->pool().bytes(frame_id_) = std::byte{3};
        *cache_->pool().bytes(given) = std::byte{2};
        apply(coming, given);
        EXPECT_EQ(*cache_->pool().bytes(frame_id_), is_older ? std::byte{3} : std::byte{2})
            << static_cast<int>(role) << ": " << coming.tenure << ", " << coming.sequence;
        EXPECT_EQ(label(), coming);
        EXPECT_TRUE(home().dirty().has(frame_id_));
        cache_->pool().record(frame_id_).clear();
    }
    home().forget(frame());
    (void)cache_->pool().release(given, use_holder);
}

// They are those that the store has, whatever the frame held before: with the label of another page's bytes the next
// process would drop newer ones that a holder has kept.
TEST_F(HomeLabel, of_clean_bytes_that_are_kept_is_none) {
    const FrameId given = keep(20);
    ASSERT_NE(given, no_frame);
    Frame& kept = cache_->pool().frame(given);
    ASSERT_EQ(home().index().find_exactly(page()), &kept);
    EXPECT_EQ(kept.home_tenure, 0u);
    protocol::Event event;
    event.page = page();
    home().tell(event);
    EXPECT_EQ(event.stored_tenure, store_->tenure_of(page())) << "what a home that starts compares others with";
    EXPECT_NE(event.stored_tenure, 0u);
    (void)home().forget(kept);
}

// A page of zeros takes no space in the store: bytes that came over them would be lost with the memory.
TEST_F(HomeLabel, says_of_bytes_that_come_whether_they_are_zeros) {
    const FrameId given = cache_->pool().try_take(use_holder, 0);
    ASSERT_NE(given, no_frame);
    for (const bool is_zero : {false, true}) {
        apply({10, 9});
        frame().zeroed = !is_zero;
        cache_->pool().frame(given).zeroed = is_zero;
        apply({11, 1}, given);
        EXPECT_EQ(frame().zeroed.load(), is_zero);
    }
    home().forget(frame());
    (void)cache_->pool().release(given, use_holder);
}

// The older one would be found, or be lost to everybody.
TEST_F(HomeLabel, of_bytes_that_come_over_clean_ones_is_that_of_the_page_s_only_frame) {
    const FrameId clean = keep(0);
    ASSERT_NE(clean, no_frame);
    apply({11, 1});
    EXPECT_EQ(home().index().find_exactly(page()), &frame());
    EXPECT_EQ(cache_->pool().frame(clean).uses.load(), 0u);
    home().forget(frame());
    EXPECT_EQ(home().index().find_exactly(page()), nullptr);
}

}  // namespace
}  // namespace tarn::home_on_device
