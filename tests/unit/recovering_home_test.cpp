// A home that has begun anew: whom it waits for before it serves, what it records first, and what it tells the others.
#include "tests/unit/recovering_home.hpp"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "utils/file_text.hpp"

namespace tarn::home_on_device {
namespace {

TEST_F(RecoveringHome, what_a_host_reported_over_a_link_that_broke_does_not_count) {
    cache_->inbox().on_link_up(1, process_);
    cache_->inbox().on_greeted(1);
    cache_->inbox().on_link_down(1);
    cache_->inbox().on_link_up(1, process_);
    cache_->inbox().on_link_up(2, process_);
    cache_->inbox().on_greeted(2);
    EXPECT_TRUE(cache_->membership().recovering()) << "host 1 has not said over this link what it holds";
    cache_->inbox().on_greeted(1);
    EXPECT_TRUE(loop_->run_until_done(cache_->home_start().ended()));
    end();
}

TEST_F(RecoveringHome, whom_it_met_and_that_losses_are_unrecorded_is_left_to_the_next_process) {
    const ArenaHeader& header = cache_->pool().arena().header();
    cache_->inbox().on_link_up(1, {.incarnation = 3, .epoch = 5});
    EXPECT_EQ(header.met[1].load(), uint64_t{3} << 32 | 5);
    EXPECT_FALSE(header.losses_unrecorded.load());
    cache_->inbox().on_link_up(1, {.incarnation = 7, .epoch = 7});
    EXPECT_TRUE(header.losses_unrecorded.load()) << "it has lost its memory while this home knew no claims";
    end();
}

TEST_F(RecoveringHome, what_a_host_lost_that_is_declared_dead_meanwhile_is_recorded_first) {
    fabric_.up = set_of(1);
    cache_->inbox().on_link_up(1, process_);
    ASSERT_TRUE(loop_->run_until_done(cache_->inbox().forget_host(2, 1)));
    EXPECT_TRUE(cache_->membership().lack().losses);
    const uint64_t generation = store_->loss_generation();
    ArenaHeader& header = cache_->pool().arena().header();
    header.last_in_doubt = 0;  // as if this memory were of a process that was not
    cache_->inbox().on_greeted(1);
    EXPECT_TRUE(loop_->run_until_done(cache_->home_start().ended()));
    EXPECT_GT(store_->loss_generation(), generation);
    EXPECT_EQ(header.last_in_doubt, store_->home_epoch())
        << "the next process must know, should this one be killed now";
    end();
}

// A report that comes at that moment may be the last one that was missing.
TEST_F(RecoveringHome, what_a_dead_host_had_is_unrecorded_from_the_moment_on_from_which_nobody_waits_for_it) {
    const auto lost = loop_->run_until_done(cache_->membership().declare_dead(2, 1));
    ASSERT_TRUE(lost);
    EXPECT_TRUE(*lost);
    EXPECT_TRUE(cache_->membership().lack().losses);
    EXPECT_TRUE(cache_->pool().arena().header().losses_unrecorded);
    const auto again = loop_->run_until_done(cache_->membership().declare_dead(2, 1));
    ASSERT_TRUE(again);
    EXPECT_FALSE(*again) << "it was dead already";
    end();
}

// A process in doubt may be killed before its word is heard. Only who missed it is asked for its bytes.
TEST_F(RecoveringHome, who_missed_a_process_in_doubt_is_told_to_write_back) {
    link_all();
    serve();
    const Tenure before = protocol::first_tenure_of(static_cast<uint32_t>(store_->home_epoch())) + 1;
    header().losses_unrecorded = true;
    restart();
    link_all();
    serve();
    const auto in_doubt = static_cast<uint32_t>(store_->home_epoch());
    ASSERT_EQ(header().last_in_doubt, in_doubt);
    const Tenure heard = protocol::first_tenure_of(in_doubt) + 1;
    for (int again = 0; again < 2; ++again) {
        restart();
        fabric_.sent.clear();
        link_all();
        // Which host holds each of them, and whether that host heard the process in doubt.
        const PageId missed_by_reader = page_at_home(0);
        const PageId missed_by_owner = page_at_home(1);
        const PageId heard_by_reader = page_at_home(2);
        const PageId heard_by_owner = page_at_home(3);
        hear_hello(1, missed_by_reader, protocol::flag_shared, before);
        hear_hello(1, missed_by_owner, protocol::flag_exclusive, before);
        hear_hello(1, heard_by_reader, protocol::flag_shared, heard);
        hear_hello(1, heard_by_owner, protocol::flag_exclusive, heard);
        serve();
        EXPECT_TRUE(is_told_to_write_back(1, missed_by_reader));
        EXPECT_TRUE(is_told_to_write_back(1, missed_by_owner));
        EXPECT_FALSE(is_told_to_write_back(1, heard_by_reader));
        EXPECT_FALSE(is_told_to_write_back(1, heard_by_owner));
        EXPECT_EQ(header().last_in_doubt, in_doubt) << "this process was not in doubt";
    }
    end();
}

TEST_F(RecoveringHome, what_a_host_may_write_has_room_as_the_process_before_promised) {
    cache_->inbox().on_link_up(1, process_);
    const uint64_t free_bytes = store_->space().free_bytes;
    hear_hello(1, page_at_home(0), protocol::flag_exclusive, protocol::first_tenure_of(1));
    EXPECT_LT(store_->space().free_bytes, free_bytes);
    end();
}

TEST_F(RecoveringHome, the_last_report_comes_as_it_stops) {
    cache_->inbox().on_link_up(1, {.incarnation = 3, .epoch = 3});
    cache_->inbox().on_link_up(1, {.incarnation = 4, .epoch = 4});  // there is something to record
    cache_->inbox().on_link_up(2, process_);
    cache_->inbox().on_greeted(1);
    end();
    cache_->inbox().on_greeted(2);  // the loop takes no task any more
    EXPECT_TRUE(cache_->membership().recovering());
}

TEST_F(RecoveringHome, who_had_to_record_losses_tells_every_owner_to_write_back) {
    link_all();
    serve();
    const Tenure heard = protocol::first_tenure_of(static_cast<uint32_t>(store_->home_epoch())) + 1;
    restart_with_a_loss_to_record();
    const PageId page = page_at_home(0);
    hear_hello(1, page, protocol::flag_exclusive, heard);
    serve();
    EXPECT_TRUE(is_told_to_write_back(1, page));
    end();
}

TEST_F(RecoveringHome, what_somebody_holds_is_not_lost) {
    link_all();
    const PageId held = page_at_home(5);
    hear_hello(1, held, protocol::flag_exclusive, protocol::first_tenure_of(1));
    serve();
    restart_with_a_loss_to_record();
    hear_hello(1, held, protocol::flag_exclusive, protocol::first_tenure_of(1));
    serve();
    EXPECT_FALSE(is_lost(held));
    for (const uint64_t neighbour : {held.value - 1, held.value + 1}) EXPECT_TRUE(is_lost({neighbour}));
    end();
}

// Whoever had the page after that may have written it, and what that was may have been lost.
TEST_F(RecoveringHome, what_somebody_only_keeps_may_be_lost) {
    link_all();
    const PageId kept = page_at_home(5);
    hear_hello(1, kept, protocol::flag_exclusive, protocol::first_tenure_of(1));
    serve();
    restart_with_a_loss_to_record();
    hear_hello(1, kept, protocol::flag_bytes, protocol::first_tenure_of(1));
    serve();
    EXPECT_TRUE(is_lost(kept));
    end();
}

// Should its memory be lost, it must be known of which pages that had newer bytes than the store.
TEST_F(RecoveringHome, pages_whose_newest_bytes_only_its_memory_has_are_marked_before_it_serves) {
    link_all();
    const PageId page = page_at_home(0);
    hear_hello(1, page, protocol::flag_exclusive, protocol::first_tenure_of(1));
    serve();
    const Message* const confirm = fabric_.last(MessageKind::confirm);
    ASSERT_NE(confirm, nullptr);
    Message evict = message_from(1, MessageKind::evict, page);
    evict.tenure = confirm->tenure;
    evict.request_id = 9;
    evict.flags = protocol::flag_payload;
    evict.dirty = all_sectors;
    std::byte* const bytes = cache_->inbox().lend_page(1);
    ASSERT_NE(bytes, nullptr);
    std::memset(bytes, 3, page_size);
    ASSERT_TRUE(cache_->inbox().on_message(evict, bytes));
    ASSERT_NE(fabric_.last(MessageKind::evicted), nullptr);
    // As of an older program, which marked nothing.
    ASSERT_TRUE(store_->begin_unmark(page));
    store_->end_unmark(page, true);
    ASSERT_TRUE(loop_->run_until_done(store_->write_marks(*loop_)));
    restart();
    link_all();
    serve();
    EXPECT_TRUE(cache_->home_store().marker().has(page));
    end();
}

TEST_F(RecoveringHome, a_loss_that_is_on_record_is_not_recorded_by_the_next_process_again) {
    header().memory_was_lost = true;
    restart();
    const auto generation_after_start = [&] {
        link_all();
        serve();
        return store_->loss_generation();
    };
    const uint64_t generation = generation_after_start();
    restart();
    EXPECT_EQ(generation_after_start(), generation);
    end();
}

TEST_F(RecoveringHome, a_host_that_was_dead_before_its_start_is_not_waited_for) {
    fabric_.up = set_of(1);
    cache_->inbox().on_link_up(1, process_);
    ASSERT_TRUE(loop_->run_until_done(cache_->inbox().forget_host(2, 1)));
    restart();
    cache_->inbox().on_link_up(1, process_);
    cache_->inbox().on_greeted(1);
    loop_->run_until_done(turns(*loop_));
    EXPECT_FALSE(cache_->membership().recovering());
    end();
}

TEST_F(RecoveringHome, while_a_host_is_away_it_may_be_about_to_find_a_loss) {
    link_all();
    serve();
    EXPECT_TRUE(cache_->membership().is_settled());
    cache_->inbox().on_link_down(2);
    EXPECT_FALSE(cache_->membership().is_settled());
    cache_->inbox().on_link_up(2, process_);
    EXPECT_TRUE(cache_->membership().is_settled());
    end();
}

// What another host sent as its side of the link was not up is lost, and nobody else asks for it again.
// Whether a walk over all stripes waits while another thread is on one.
class WalksOverStripes : public RecoveringHome {
  protected:
    void SetUp() override {
        if (!call_of(::gettid()).empty()) return;
        end();
        GTEST_SKIP() << "the kernel does not say in which call a thread is";
    }
    bool waits_for_another(const std::function<void()>& walk) {
        std::atomic<bool> has_begun{false};
        std::atomic<bool> is_over{false};
        bool has_waited = false;
        std::thread other([&, walker = ::gettid()] {
            const auto alone = cache_->home_start().hold_off();
            has_begun = true;
            while (!is_over && !waits_for_lock(walker)) std::this_thread::yield();
            has_waited = !is_over;
        });
        while (!has_begun) std::this_thread::yield();
        walk();
        is_over = true;
        other.join();
        return has_waited;
    }

  private:
    static std::string call_of(pid_t thread) { return text_of(fmt::format("/proc/self/task/{}/syscall", thread)); }
    static bool waits_for_lock(pid_t thread) { return call_of(thread).starts_with(fmt::format("{} ", SYS_futex)); }
};

// A stripe that has recovered records what is lost, and one that has not leaves that to the home's record.
TEST_F(WalksOverStripes, are_made_one_after_the_other_while_the_home_begins_to_serve) {
    cache_->inbox().on_link_up(2, process_);
    EXPECT_TRUE(waits_for_another([&] { cache_->inbox().on_link_up(1, process_); }));
    cache_->inbox().on_greeted(1);
    EXPECT_TRUE(waits_for_another([&] { cache_->inbox().on_greeted(2); }));
    EXPECT_TRUE(loop_->run_until_done(cache_->home_start().ended()));
    end();
}

TEST_F(RecoveringHome, a_page_that_is_waited_for_is_resolved_when_another_host_has_greeted) {
    link_all();
    serve();
    uint64_t number = 0;
    while (cache_->home_of(PageId::of(volume_id, number)) != 1)
        number += cache_->membership().ranges().pages_per_range();
    VolumeContext volumes(*cache_);
    CachedVolume volume(volumes, volume_id);
    Gate reads;
    reads.spawn([](CachedVolume& of, uint64_t page) -> Task<> {
        std::vector<std::byte> bytes(page_size);
        EXPECT_FALSE(co_await of.read(page * page_size, bytes)) << "it stops";
    }(volume, number));
    ASSERT_NE(fabric_.last(MessageKind::get_shared), nullptr);
    const protocol::RequestId asked = fabric_.last(MessageKind::get_shared)->request_id;
    EXPECT_EQ(fabric_.count(MessageKind::resolve), 0u);
    cache_->inbox().on_greeted(2);
    const auto sent = std::ranges::find_if(
        fabric_.sent, [](const RecordingFabric::Sent& each) { return each.message.kind == MessageKind::resolve; });
    ASSERT_NE(sent, fabric_.sent.end());
    EXPECT_EQ(sent->to, 1);
    EXPECT_EQ(sent->message.page, PageId::of(volume_id, number));
    EXPECT_EQ(sent->message.request_id, asked);
    cache_->abandon();
    loop_->run_until_done(reads.close());
    end();
}

// The process before may have been killed before it had told the other reader that its bytes have come: then that one
// sends them once more when it gives the page away, and its acknowledgement, which lets this host write, comes first.
TEST_F(RecoveringHome, bytes_that_another_reader_sends_home_undo_no_write_of_this_host) {
    link_all();
    serve();
    const PageId page = page_at_home(0);
    const uint64_t at = page.number() * page_size;
    const auto hear = [&](Message message, std::optional<std::byte> value = {}) {
        std::byte* const bytes = value ? cache_->inbox().lend_page(1) : nullptr;
        if (bytes) std::memset(bytes, static_cast<int>(*value), page_size);
        if (bytes) message.flags |= protocol::flag_payload;
        ASSERT_TRUE(cache_->inbox().on_message(message, bytes));
    };
    const auto write = [](CachedVolume& of, uint64_t offset, std::byte value, bool& is_done) -> Task<> {
        EXPECT_TRUE(co_await of.write(offset, std::vector<std::byte>(sector_size, value)));
        is_done = true;
    };
    Tenure tenure = 0;
    {
        VolumeContext volumes(*cache_);
        CachedVolume volume(volumes, volume_id);
        const std::vector<std::byte> before(page_size, std::byte{1});
        ASSERT_TRUE(loop_->run_until_done(volume.write(at, before)));
        // Another host reads it, so that home has the bytes, too: in the frame in which this host reads them.
        Message get = message_from(1, MessageKind::get_shared, page);
        get.request_id = 5;
        hear(get);
        loop_->run_until_done(turns(*loop_));
        ASSERT_NE(fabric_.last(MessageKind::grant), nullptr);
        tenure = fabric_.last(MessageKind::grant)->tenure;
        Message done = message_from(1, MessageKind::done, page);
        done.request_id = 5;
        done.tenure = tenure;
        hear(done);
    }
    restart();
    link_all();
    hear_hello(1, page, protocol::flag_shared | protocol::flag_anchor, tenure);
    serve();
    const Frame* const home = cache_->home_store().frames().index().find_exactly(page);
    ASSERT_EQ(home, cache_->pages().index().find_exactly(page)) << "one frame has both";
    ASSERT_NE(home, nullptr);

    VolumeContext volumes(*cache_);
    CachedVolume volume(volumes, volume_id);
    Gate writes;
    bool is_written = false;
    writes.spawn(write(volume, at, std::byte{2}, is_written));
    loop_->run_until_done(turns(*loop_));
    ASSERT_NE(fabric_.last(MessageKind::drop), nullptr);
    const Message drop = *fabric_.last(MessageKind::drop);
    ASSERT_TRUE(drop.has(protocol::flag_anchor));
    Message answer = message_from(1, MessageKind::acknowledge, page);
    answer.tenure = drop.tenure;
    answer.request_id = drop.request_id;
    Message copy = message_from(1, MessageKind::home_copy, page);
    copy.tenure = drop.tenure;
    copy.dirty = all_sectors;
    hear(answer);
    loop_->run_until_done(writes.close());
    ASSERT_TRUE(is_written);
    hear(copy, std::byte{1});
    std::vector<std::byte> bytes(2 * sector_size);
    ASSERT_TRUE(loop_->run_until_done(volume.read(at, bytes)));
    EXPECT_EQ(bytes.front(), std::byte{2}) << "C1: it was acknowledged";
    EXPECT_EQ(bytes.back(), std::byte{1});
    // And what reaches the store is that, too.
    ASSERT_TRUE(loop_->run_until_done(volume.flush_homes(set_of(0))));
    EXPECT_EQ(store_->tenure_of(page), drop.tenure);
    const PageBuffer stored = make_page_buffer(1);
    std::byte* const into = stored.get();
    ASSERT_TRUE(loop_->run_until_done(store_->read_run(*loop_, page, std::span(&into, 1))));
    EXPECT_EQ(into[0], std::byte{2});
    EXPECT_EQ(into[sector_size], std::byte{1});
    end();
}

}  // namespace
}  // namespace tarn::home_on_device
