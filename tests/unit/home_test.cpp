// Home, order by order: each row of the table in docs/coherence.md, "Orders".
#include "coherence/protocol/home.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tarn::protocol {
namespace {

constexpr HostId home_host = 0;
constexpr PageId page = PageId::of(1, 5);
constexpr FrameId payload = 77;

class HomeTest : public testing::Test {
  protected:
    HomeTest() { deliver(Event::about(Event::Kind::recovered, PageId{})); }

    void deliver(const Event& event) {
        actions_.clear();
        home_.reserve();
        home_.on(event, actions_);
    }
    void receive(MessageKind kind, HostId from, RequestId request_id, Tenure tenure = 0, uint8_t flags = 0,
                 uint32_t sequence = 0) {
        Message message;
        message.kind = kind;
        message.from = from;
        message.page = page;
        message.request_id = request_id;
        message.tenure = tenure;
        message.flags = flags;
        if (message.has_bytes()) message.dirty = all_sectors;
        message.sequence = sequence;
        deliver(Event::message_of(message, message.has_bytes() ? payload : no_frame));
    }
    // A request that is served and done at once.
    void settle(MessageKind kind, HostId from, RequestId request_id) {
        receive(kind, from, request_id);
        receive(MessageKind::done, from, request_id, claim().tenure);
    }

    const Claim& claim() const { return *home_.find(page); }
    const Message* sent(MessageKind kind, HostId to) const {
        for (const Action& action : actions_)
            if ((action.kind == Action::Kind::send || action.kind == Action::Kind::send_home_bytes) &&
                action.message.kind == kind && action.to == to)
                return &action.message;
        return nullptr;
    }
    size_t count(Action::Kind kind) const {
        size_t found = 0;
        for (const Action& action : actions_) found += action.kind == kind;
        return found;
    }

    Home home_{home_host, 1, {.last_in_doubt = 1}};
    Actions actions_;
};

TEST_F(HomeTest, get_shared_without_owner_is_answered_with_homes_bytes) {
    receive(MessageKind::get_shared, 1, 10);
    EXPECT_EQ(claim().readers, set_of(1));
    ASSERT_TRUE(sent(MessageKind::grant, 1));
    EXPECT_EQ(sent(MessageKind::grant, 1)->hosts, 0u);
    EXPECT_EQ(count(Action::Kind::send_home_bytes), 1u);
}

struct NoMarks final : Marks {
    bool has(PageId) const override { return is_marked; }
    bool is_marked = false;
};

TEST_F(HomeTest, nobody_becomes_the_owner_of_a_page_before_it_is_marked) {
    NoMarks marks;
    home_.set_marks(marks);
    receive(MessageKind::get_shared, 3, 30);
    EXPECT_TRUE(sent(MessageKind::grant, 3)) << "who reads needs no mark";
    receive(MessageKind::done, 3, 30, claim().tenure);
    EXPECT_TRUE(home_.has_everything(page));
    receive(MessageKind::get_exclusive, 1, 10);
    EXPECT_EQ(count(Action::Kind::mark), 1u);
    EXPECT_FALSE(sent(MessageKind::grant, 1));
    EXPECT_FALSE(home_.has_everything(page)) << "or its mark would be taken off again";
    receive(MessageKind::get_exclusive, 2, 20);
    EXPECT_EQ(count(Action::Kind::mark), 0u) << "it is under way";
    EXPECT_FALSE(sent(MessageKind::grant, 2));
    marks.is_marked = true;
    deliver(Event::marked_of(page, false));
    EXPECT_TRUE(sent(MessageKind::grant, 1));
    EXPECT_TRUE(sent(MessageKind::grant, 2)) << "in their order";
    EXPECT_EQ(claim().owner, 2);
    EXPECT_FALSE(home_.has_everything(page));
}

TEST_F(HomeTest, who_waits_to_write_is_refused_when_the_store_takes_no_mark) {
    const NoMarks marks;
    home_.set_marks(marks);
    receive(MessageKind::get_exclusive, 1, 10);
    receive(MessageKind::get_shared, 2, 20);
    deliver(Event::marked_of(page, true));
    ASSERT_TRUE(sent(MessageKind::no_space, 1));
    EXPECT_TRUE(sent(MessageKind::no_space, 1)->has(flag_lost));
    EXPECT_TRUE(sent(MessageKind::grant, 2)) << "who reads is served";
}

TEST_F(HomeTest, get_shared_with_an_owner_makes_it_a_reader_and_the_anchor) {
    settle(MessageKind::get_exclusive, 1, 10);
    const Tenure before = claim().tenure;
    receive(MessageKind::get_shared, 2, 20);
    EXPECT_EQ(claim().tenure, before + 1);
    EXPECT_EQ(claim().owner, no_host);
    EXPECT_EQ(claim().readers, set_of(1) | set_of(2));
    EXPECT_EQ(claim().anchor, 1);
    ASSERT_TRUE(sent(MessageKind::move_shared, 1));
    EXPECT_EQ(sent(MessageKind::move_shared, 1)->host, 2);
    EXPECT_EQ(sent(MessageKind::grant, 2)->host, 1);
    EXPECT_EQ(count(Action::Kind::copy_expected), 1u);
}

TEST_F(HomeTest, get_shared_with_an_anchor_is_copied_from_it) {
    settle(MessageKind::get_exclusive, 1, 10);
    receive(MessageKind::get_shared, 2, 20);
    const Tenure tenure = claim().tenure;
    receive(MessageKind::get_shared, 3, 30);
    EXPECT_EQ(claim().tenure, tenure);
    ASSERT_TRUE(sent(MessageKind::copy, 1));
    EXPECT_EQ(sent(MessageKind::copy, 1)->host, 3);
    EXPECT_EQ(count(Action::Kind::send_home_bytes), 0u);
}

TEST_F(HomeTest, the_anchor_is_none_any_more_once_its_home_copy_is_applied) {
    settle(MessageKind::get_exclusive, 1, 10);
    receive(MessageKind::get_shared, 2, 20);
    receive(MessageKind::home_copy, 1, 0, claim().tenure, flag_payload);
    EXPECT_EQ(claim().anchor, no_host);
    EXPECT_EQ(count(Action::Kind::apply_copy), 1u);
    EXPECT_FALSE(sent(MessageKind::free, 1));  // the order is not done
    receive(MessageKind::done, 2, 20, claim().tenure);
    EXPECT_TRUE(sent(MessageKind::free, 1));
}

TEST_F(HomeTest, get_exclusive_drops_every_reader_and_counts_them) {
    settle(MessageKind::get_shared, 1, 10);
    settle(MessageKind::get_shared, 2, 20);
    const Tenure before = claim().tenure;
    receive(MessageKind::get_exclusive, 3, 30);
    EXPECT_EQ(claim().tenure, before + 1);
    EXPECT_EQ(claim().owner, 3);
    EXPECT_EQ(claim().readers, 0u);
    EXPECT_TRUE(sent(MessageKind::drop, 1));
    EXPECT_TRUE(sent(MessageKind::drop, 2));
    EXPECT_EQ(sent(MessageKind::grant, 3)->hosts, set_of(1) | set_of(2));
    EXPECT_EQ(count(Action::Kind::send_home_bytes), 1u);
}

TEST_F(HomeTest, an_upgrade_moves_no_bytes) {
    settle(MessageKind::get_shared, 1, 10);
    settle(MessageKind::get_shared, 2, 20);
    receive(MessageKind::get_exclusive, 1, 11);
    EXPECT_EQ(count(Action::Kind::send_home_bytes), 0u);
    EXPECT_EQ(sent(MessageKind::grant, 1)->host, no_host);
    EXPECT_EQ(sent(MessageKind::grant, 1)->hosts, set_of(2));
    EXPECT_FALSE(sent(MessageKind::drop, 1));
}

TEST_F(HomeTest, the_loser_of_two_upgrades_gets_the_bytes_from_the_winner) {
    settle(MessageKind::get_shared, 1, 10);
    settle(MessageKind::get_shared, 2, 20);
    receive(MessageKind::get_exclusive, 1, 11);
    receive(MessageKind::get_exclusive, 2, 21);
    EXPECT_EQ(claim().owner, 2);
    EXPECT_EQ(sent(MessageKind::grant, 2)->host, 1);
    ASSERT_TRUE(sent(MessageKind::move, 1));
    EXPECT_TRUE(sent(MessageKind::move, 1)->has(flag_bytes));
}

TEST_F(HomeTest, get_exclusive_with_an_owner_is_chained_to_it) {
    receive(MessageKind::get_exclusive, 1, 10);
    receive(MessageKind::get_exclusive, 2, 20);  // 1 has not even been granted
    EXPECT_EQ(claim().owner, 2);
    EXPECT_TRUE(sent(MessageKind::move, 1));
    receive(MessageKind::get_exclusive, 3, 30);
    EXPECT_TRUE(sent(MessageKind::move, 2));
    EXPECT_EQ(home_.copies().used(), 2u);
}

TEST_F(HomeTest, no_read_is_acknowledged_by_everyone_all_the_same) {
    settle(MessageKind::get_exclusive, 1, 10);
    receive(MessageKind::get_exclusive_no_read, 2, 20);
    EXPECT_EQ(sent(MessageKind::grant, 2)->hosts, set_of(1));
    EXPECT_EQ(sent(MessageKind::grant, 2)->host, no_host);
    ASSERT_TRUE(sent(MessageKind::move, 1));
    EXPECT_FALSE(sent(MessageKind::move, 1)->has(flag_bytes));
    EXPECT_EQ(count(Action::Kind::copy_expected), 1u);
}

TEST_F(HomeTest, a_drop_to_the_anchor_is_answered_to_home_too) {
    settle(MessageKind::get_exclusive, 1, 10);
    receive(MessageKind::get_shared, 2, 20);
    receive(MessageKind::get_exclusive, 3, 30);
    ASSERT_TRUE(sent(MessageKind::drop, 1));
    EXPECT_TRUE(sent(MessageKind::drop, 1)->has(flag_anchor));
    EXPECT_TRUE(sent(MessageKind::drop, 1)->has(flag_bytes));
    EXPECT_FALSE(sent(MessageKind::drop, 2)->has(flag_anchor));
    EXPECT_EQ(home_.copies().used(), 2u);
}

TEST_F(HomeTest, an_eviction_with_its_bytes_is_accepted_and_the_claim_forgotten) {
    settle(MessageKind::get_exclusive, 1, 10);
    receive(MessageKind::evict, 1, 11, claim().tenure, flag_payload, 1);
    EXPECT_TRUE(sent(MessageKind::evicted, 1));
    EXPECT_EQ(count(Action::Kind::apply_copy), 1u);
    EXPECT_EQ(home_.find(page), nullptr);
}

TEST_F(HomeTest, the_last_clean_copy_is_asked_for_and_kept) {
    settle(MessageKind::get_shared, 1, 10);
    Message evict;
    evict.kind = MessageKind::evict;
    evict.from = 1;
    evict.page = page;
    evict.request_id = 11;
    evict.tenure = claim().tenure;
    Event event = Event::message_of(evict);
    event.wants_copy = true;
    deliver(event);
    ASSERT_TRUE(sent(MessageKind::refused, 1));
    EXPECT_TRUE(sent(MessageKind::refused, 1)->has(flag_bytes));
    event.message.flags = flag_payload;
    event.frame = payload;
    deliver(event);
    EXPECT_TRUE(sent(MessageKind::evicted, 1));
    EXPECT_EQ(count(Action::Kind::keep_copy), 1u);
    EXPECT_EQ(home_.find(page), nullptr);
}

TEST_F(HomeTest, a_copy_that_others_hold_too_is_not_asked_for) {
    settle(MessageKind::get_shared, 1, 10);
    settle(MessageKind::get_shared, 2, 20);
    Message evict;
    evict.kind = MessageKind::evict;
    evict.from = 1;
    evict.page = page;
    evict.request_id = 11;
    evict.tenure = claim().tenure;
    Event event = Event::message_of(evict);
    event.wants_copy = true;
    deliver(event);
    EXPECT_TRUE(sent(MessageKind::evicted, 1));
}

TEST_F(HomeTest, a_forgotten_owner_is_a_loss_and_waited_for_no_more) {
    settle(MessageKind::get_exclusive, 1, 10);
    receive(MessageKind::get_shared, 2, 20);
    deliver(Event::host_forgotten_of(1));
    EXPECT_EQ(count(Action::Kind::record_loss), 1u);
    receive(MessageKind::report, 2, 20, claim().tenure);
    EXPECT_FALSE(sent(MessageKind::grant, 2));  // not before the loss is durable
    deliver(Event::about(Event::Kind::loss_recorded, page));
    EXPECT_TRUE(sent(MessageKind::grant, 2));
}

// As after each of these: a page that is read, owned and asked for, resolved, and one of a volume that there is.
TEST_F(HomeTest, of_a_volume_that_never_was_no_claim_is_left) {
    const auto forget_volume = [&] {
        deliver(Event::volume_unknown_of(page.volume()));
        EXPECT_EQ(home_.find(page), nullptr);
        EXPECT_EQ(sent(MessageKind::free, 1), nullptr);
    };
    settle(MessageKind::get_shared, 1, 10);
    deliver(Event::volume_unknown_of(page.volume() + 1));
    EXPECT_NE(home_.find(page), nullptr);
    forget_volume();
    settle(MessageKind::get_exclusive, 1, 11);
    receive(MessageKind::get_shared, 2, 20);
    const Tenure before = claim().tenure;
    forget_volume();
    EXPECT_EQ(count(Action::Kind::copy_arrived), 1u) << "no flush waits for it";
    EXPECT_EQ(count(Action::Kind::holder_removed), 1u);
    receive(MessageKind::get_exclusive, 1, 12);
    EXPECT_GT(claim().tenure, before);
    receive(MessageKind::get_shared, 2, 21);
    receive(MessageKind::resolve, 2, 21);
    ASSERT_TRUE(claim().resolving);
    forget_volume();
    // What comes late is no offence.
    receive(MessageKind::report, 1, 12, before);
    receive(MessageKind::done, 2, 21, before);
    receive(MessageKind::home_copy, 1, 0, before + 1);
    EXPECT_EQ(count(Action::Kind::refuse_peer), 0u);
    EXPECT_EQ(home_.find(page), nullptr);
}

TEST_F(HomeTest, a_tenure_grows_across_the_end_of_a_claim) {
    settle(MessageKind::get_exclusive, 1, 10);
    const Tenure before = claim().tenure;
    receive(MessageKind::evict, 1, 11, before, flag_payload, 1);
    receive(MessageKind::get_shared, 2, 20);
    EXPECT_GT(claim().tenure, before);
}

TEST_F(HomeTest, an_eviction_with_an_old_tenure_is_refused) {
    settle(MessageKind::get_exclusive, 1, 10);
    const Tenure before = claim().tenure;
    receive(MessageKind::get_exclusive, 2, 20);
    receive(MessageKind::evict, 1, 11, before, flag_payload, 1);
    EXPECT_TRUE(sent(MessageKind::refused, 1));
    EXPECT_EQ(count(Action::Kind::release_frame), 1u);
    EXPECT_EQ(claim().owner, 2);
}

TEST_F(HomeTest, an_eviction_is_refused_while_a_copy_is_on_its_way) {
    settle(MessageKind::get_exclusive, 1, 10);
    settle(MessageKind::get_exclusive, 2, 20);
    receive(MessageKind::evict, 2, 21, claim().tenure, flag_payload, 1);
    EXPECT_TRUE(sent(MessageKind::refused, 2));
    receive(MessageKind::home_copy, 1, 0, claim().tenure, flag_payload);
    receive(MessageKind::evict, 2, 22, claim().tenure, flag_payload, 2);
    EXPECT_TRUE(sent(MessageKind::evicted, 2));
}

TEST_F(HomeTest, an_overtaken_copy_counts_as_applied_and_the_mask_is_the_whole_page) {
    settle(MessageKind::get_exclusive, 1, 10);
    settle(MessageKind::get_exclusive, 2, 20);
    settle(MessageKind::get_exclusive, 3, 30);
    const Tenure tenure = claim().tenure;
    receive(MessageKind::home_copy, 2, 0, tenure, flag_payload);
    EXPECT_EQ(home_.copies().used(), 0u);
    for (const Action& action : actions_)
        if (action.kind == Action::Kind::apply_copy) EXPECT_EQ(action.mask, all_sectors);
    receive(MessageKind::home_copy, 1, 0, tenure - 1, flag_payload);
    EXPECT_EQ(count(Action::Kind::apply_copy), 0u);
    EXPECT_EQ(count(Action::Kind::release_frame), 1u);
}

TEST_F(HomeTest, a_clean_answer_waits_for_the_copies_before_it) {
    settle(MessageKind::get_exclusive, 1, 10);
    settle(MessageKind::get_exclusive, 2, 20);
    settle(MessageKind::get_exclusive, 3, 30);
    const Tenure tenure = claim().tenure;
    receive(MessageKind::home_copy, 2, 0, tenure);
    EXPECT_EQ(home_.copies().used(), 2u);
    receive(MessageKind::home_copy, 1, 0, tenure - 1, flag_payload);
    EXPECT_EQ(home_.copies().used(), 0u);
    EXPECT_TRUE(sent(MessageKind::free, 1));
    EXPECT_TRUE(sent(MessageKind::free, 2));
}

TEST_F(HomeTest, a_write_back_is_acknowledged_with_its_tenure_and_sequence) {
    settle(MessageKind::get_exclusive, 1, 10);
    receive(MessageKind::write_back, 1, 0, claim().tenure, flag_payload, 3);
    ASSERT_TRUE(sent(MessageKind::written_back, 1));
    EXPECT_EQ(sent(MessageKind::written_back, 1)->sequence, 3u);
    receive(MessageKind::write_back, 1, 0, claim().tenure, flag_payload, 2);
    EXPECT_EQ(count(Action::Kind::apply_copy), 0u);  // older
}

TEST_F(HomeTest, no_space_is_said_instead_of_a_grant_to_write) {
    Message message;
    message.kind = MessageKind::get_exclusive;
    message.from = 1;
    message.request_id = 10;
    message.page = page;
    Event event = Event::message_of(message);
    event.no_space = true;
    deliver(event);
    EXPECT_TRUE(sent(MessageKind::no_space, 1));
    EXPECT_EQ(home_.find(page), nullptr);
}

TEST_F(HomeTest, a_home_whose_store_failed_takes_no_dirty_page_and_makes_none) {
    receive(MessageKind::get_exclusive, 1, 10);
    receive(MessageKind::done, 1, 10, claim().tenure);
    const auto receive_failed = [&](MessageKind kind, HostId from, uint8_t flags, DirtyMask dirty) {
        Message message;
        message.kind = kind;
        message.from = from;
        message.page = page;
        message.request_id = 11;
        message.tenure = claim().tenure;
        message.flags = flags;
        message.dirty = dirty;
        Event event = Event::message_of(message, flags != 0 ? FrameId{7} : no_frame);
        event.store_failed = true;
        deliver(event);
    };
    receive_failed(MessageKind::evict, 1, flag_payload, 1);
    ASSERT_TRUE(sent(MessageKind::refused, 1));
    EXPECT_TRUE(sent(MessageKind::refused, 1)->has(flag_lost));
    EXPECT_EQ(count(Action::Kind::apply_copy), 0u);
    EXPECT_EQ(count(Action::Kind::release_frame), 1u);
    EXPECT_EQ(claim().owner, 1);
    receive_failed(MessageKind::get_exclusive, 2, 0, 0);
    ASSERT_TRUE(sent(MessageKind::no_space, 2));
    EXPECT_TRUE(sent(MessageKind::no_space, 2)->has(flag_lost));
    EXPECT_EQ(claim().owner, 1);
}

TEST_F(HomeTest, a_home_whose_store_failed_leaves_dirty_bytes_with_whom_it_asked_to_share_them) {
    settle(MessageKind::get_exclusive, 1, 10);
    receive(MessageKind::get_shared, 2, 20);
    const Tenure tenure = claim().tenure;
    Message copy;
    copy.kind = MessageKind::home_copy;
    copy.from = 1;
    copy.page = page;
    copy.tenure = tenure;
    copy.flags = flag_payload;
    copy.dirty = 1;
    Event event = Event::message_of(copy, payload);
    event.store_failed = true;
    deliver(event);
    EXPECT_EQ(count(Action::Kind::apply_copy), 0u);
    EXPECT_EQ(count(Action::Kind::release_frame), 1u);
    EXPECT_EQ(count(Action::Kind::copy_arrived), 1u) << "a flush that waits for it has failed";
    EXPECT_EQ(home_.copies().used(), 0u);
    receive(MessageKind::done, 2, 20, tenure);
    EXPECT_FALSE(sent(MessageKind::free, 1)) << "only it has the bytes";
    EXPECT_EQ(claim().anchor, 1);

    receive(MessageKind::get_shared, 3, 30);
    ASSERT_TRUE(sent(MessageKind::copy, 1)) << "readers copy from it";
    receive(MessageKind::done, 3, 30, tenure);
    EXPECT_FALSE(sent(MessageKind::free, 1));
    receive(MessageKind::evict, 1, 11, tenure);
    ASSERT_TRUE(sent(MessageKind::refused, 1));
    EXPECT_TRUE(sent(MessageKind::refused, 1)->has(flag_bytes));
}

TEST_F(HomeTest, a_repeated_request_is_ordered_once) {
    receive(MessageKind::get_shared, 1, 10);
    receive(MessageKind::get_shared, 1, 10);
    EXPECT_EQ(actions_.size(), 0u);
}

TEST_F(HomeTest, done_closes_its_own_order_only) {
    receive(MessageKind::get_shared, 1, 10);
    receive(MessageKind::done, 1, 9, claim().tenure);
    EXPECT_EQ(home_.requests().used(), 1u);
    receive(MessageKind::done, 1, 10, claim().tenure);
    EXPECT_EQ(home_.requests().used(), 0u);
}

TEST_F(HomeTest, a_void_reader_of_a_page_that_home_has_just_leaves) {
    settle(MessageKind::get_shared, 1, 10);
    settle(MessageKind::get_shared, 2, 20);
    deliver(Event::peer_up_of(1, {2, 2}, {1, 1}));
    EXPECT_EQ(claim().readers, set_of(2));
    EXPECT_EQ(count(Action::Kind::record_loss), 0u);
}

TEST_F(HomeTest, a_void_owner_is_a_recorded_loss_before_the_page_is_served) {
    settle(MessageKind::get_exclusive, 1, 10);
    receive(MessageKind::get_shared, 2, 20);
    deliver(Event::peer_up_of(1, {2, 2}, {1, 1}));
    EXPECT_EQ(count(Action::Kind::record_loss), 1u);
    ASSERT_TRUE(sent(MessageKind::recall, 2));
    receive(MessageKind::report, 2, 20, claim().tenure);
    EXPECT_FALSE(sent(MessageKind::grant, 2));
    deliver(Event::about(Event::Kind::loss_recorded, page));
    EXPECT_TRUE(sent(MessageKind::grant, 2));
}

TEST_F(HomeTest, a_resolve_takes_the_newest_report_and_orders_anew) {
    settle(MessageKind::get_exclusive, 1, 10);
    receive(MessageKind::get_exclusive, 2, 20);
    const Tenure chained = claim().tenure;
    receive(MessageKind::resolve, 2, 20);
    EXPECT_TRUE(claim().resolving);
    const Tenure recalled = claim().tenure;
    Message report;
    report.kind = MessageKind::report;
    report.from = 1;
    report.page = page;
    report.tenure = recalled;
    report.hosts = chained - 1;
    report.sequence = last_sequence;
    report.flags = flag_payload;
    deliver(Event::message_of(report, payload));
    EXPECT_EQ(count(Action::Kind::apply_copy), 1u);
    receive(MessageKind::report, 2, 20, recalled);
    EXPECT_FALSE(claim().resolving);
    EXPECT_EQ(claim().owner, 2);
    EXPECT_GT(claim().tenure, recalled);
    EXPECT_TRUE(sent(MessageKind::grant, 2));
    EXPECT_TRUE(sent(MessageKind::free, 1));
}

TEST_F(HomeTest, a_request_that_nobody_waits_for_is_not_ordered_again) {
    settle(MessageKind::get_exclusive, 1, 10);
    receive(MessageKind::get_exclusive, 2, 20);
    receive(MessageKind::resolve, 2, 20);
    const Tenure recalled = claim().tenure;
    receive(MessageKind::report, 1, 0, recalled);
    receive(MessageKind::report, 2, 0, recalled);  // it is complete, or given up
    EXPECT_EQ(home_.find(page), nullptr);
}

}  // namespace
}  // namespace tarn::protocol
