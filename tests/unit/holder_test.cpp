// Holder: waiters, grants in any order, orders that come too early, and what is kept.
#include "coherence/protocol/holder.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "coherence/protocol/stripe.hpp"

namespace tarn::protocol {
namespace {

constexpr HostId self = 1;
constexpr HostId home_host = 0;
constexpr PageId page = PageId::of(0, 5);
constexpr Tenure tenure = 100;
constexpr std::array<HostId, 1> homes{home_host};

class HolderTest : public testing::Test {
  protected:
    void deliver(const Event& event) {
        actions_.clear();
        holder_.reserve();
        holder_.on(event, actions_);
    }
    void acquire(Want want, WaiterToken waiter, FrameId frame) {
        deliver(Event::acquire_of(page, want, waiter, frame));
    }
    Message message(MessageKind kind, HostId from, Tenure of) const {
        Message message;
        message.kind = kind;
        message.from = from;
        message.page = page;
        message.tenure = of;
        message.request_id = awaited_;
        return message;
    }
    void grant(Tenure of, uint8_t flags, HostSet ackers = 0, HostId source = no_host) {
        Message grant = message(MessageKind::grant, home_host, of);
        grant.flags = flags;
        grant.hosts = ackers;
        grant.host = source;
        deliver(Event::message_of(grant, grant.has_bytes() ? holding().awaited.landing : no_frame));
    }
    void order(MessageKind kind, Tenure of, HostId requester, uint8_t flags = 0) {
        Message order = message(kind, home_host, of);
        order.host = requester;
        order.request_id = 900;
        order.flags = flags;
        deliver(Event::message_of(order));
    }
    // Owner of the page in frame 7, nobody waiting.
    void own() {
        acquire(Want::exclusive, 1, 7);
        remember_request();
        grant(tenure, flag_exclusive | flag_payload);
        deliver(Event::about(Event::Kind::served, page));
    }
    void read() {
        acquire(Want::shared, 1, 7);
        remember_request();
        grant(tenure, flag_payload);
        deliver(Event::about(Event::Kind::served, page));
    }
    void remember_request() { awaited_ = holding().awaited.request_id; }

    const Holding& holding() const { return *holder_.find(page); }
    const Action* find(Action::Kind kind) const {
        for (const Action& action : actions_)
            if (action.kind == kind) return &action;
        return nullptr;
    }
    const Action* sent(MessageKind kind) const {
        for (const Action& action : actions_)
            if (action.kind == Action::Kind::send && action.message.kind == kind) return &action;
        return nullptr;
    }
    std::vector<WaiterToken> woken() const {
        std::vector<WaiterToken> waiters;
        for (const Action& action : actions_)
            if (action.kind == Action::Kind::wake) waiters.push_back(action.waiter);
        return waiters;
    }

    RangeMap ranges_{1, homes};
    Holder holder_{self, ranges_};
    Actions actions_;
    RequestId awaited_ = 0;
};

using Waiters = std::vector<WaiterToken>;

TEST_F(HolderTest, several_waiters_share_one_request) {
    acquire(Want::shared, 1, 7);
    ASSERT_TRUE(sent(MessageKind::get_shared));
    EXPECT_EQ(sent(MessageKind::get_shared)->message.frame, 7u);
    remember_request();
    acquire(Want::shared, 2, 8);
    acquire(Want::shared, 3, 9);
    EXPECT_FALSE(sent(MessageKind::get_shared));
    EXPECT_EQ(find(Action::Kind::release_frame)->frame, 9u);
    grant(tenure, flag_payload);
    EXPECT_EQ(woken(), (Waiters{1, 2, 3}));
    EXPECT_FALSE(sent(MessageKind::done));
    for (int served = 0; served < 3; ++served) deliver(Event::about(Event::Kind::served, page));
    EXPECT_TRUE(sent(MessageKind::done));
}

TEST_F(HolderTest, grant_bytes_and_acknowledgements_come_in_any_order) {
    acquire(Want::exclusive, 1, 7);
    remember_request();
    deliver(Event::message_of(message(MessageKind::acknowledge, 3, tenure)));
    Message data = message(MessageKind::data, 2, tenure);
    data.flags = flag_payload;
    deliver(Event::message_of(data, 7));
    EXPECT_TRUE(woken().empty());
    grant(tenure, flag_exclusive, set_of(2) | set_of(3), 2);
    EXPECT_EQ(woken(), Waiters{1});
    EXPECT_EQ(holding().ownership, Ownership::exclusive);
}

// The stripe takes a grant that brings the bytes of the holder beside home for the two messages it is.
TEST(Stripe, a_joined_grant_is_a_grant_and_its_data) {
    const RangeMap ranges(1, homes);
    Stripe stripe(self, 1, {.last_in_doubt = 1}, ranges);
    Actions actions;
    stripe.on(Event::acquire_of(page, Want::shared, 1, 7), actions);
    Message joined;
    joined.kind = MessageKind::grant;
    joined.from = joined.host = home_host;
    joined.hosts = set_of(home_host);
    joined.flags = flag_payload;
    joined.page = page;
    joined.tenure = tenure;
    joined.request_id = stripe.holder().find(page)->awaited.request_id;
    actions.clear();
    stripe.reserve();
    stripe.on(Event::message_of(joined, 8), actions);
    const Holding& holding = *stripe.holder().find(page);
    EXPECT_EQ(holding.ownership, Ownership::shared);
    EXPECT_EQ(holding.frame, 8);
    EXPECT_EQ(holding.tenure, tenure);
    EXPECT_EQ(holding.awaited.request_id, 0);
    size_t woken = 0;
    for (const Action& action : actions) woken += action.kind == Action::Kind::wake;
    EXPECT_EQ(woken, 1);
}

TEST_F(HolderTest, acknowledgements_of_another_tenure_do_not_count) {
    acquire(Want::exclusive_no_read, 1, 7);
    remember_request();
    deliver(Event::message_of(message(MessageKind::acknowledge, 3, tenure - 1)));
    grant(tenure, flag_exclusive, set_of(3));
    EXPECT_TRUE(woken().empty());
    deliver(Event::message_of(message(MessageKind::acknowledge, 3, tenure)));
    EXPECT_EQ(woken(), Waiters{1});
}

TEST_F(HolderTest, a_stronger_want_upgrades_after_the_weaker_is_served) {
    acquire(Want::shared, 1, 7);
    remember_request();
    acquire(Want::exclusive, 2, 8);
    grant(tenure, flag_payload);
    EXPECT_EQ(woken(), Waiters{1});
    deliver(Event::about(Event::Kind::served, page));
    ASSERT_TRUE(sent(MessageKind::get_exclusive));
    remember_request();
    grant(tenure + 1, flag_exclusive);
    EXPECT_EQ(woken(), Waiters{2});
    EXPECT_EQ(holding().frame, 7u);
    EXPECT_EQ(find(Action::Kind::release_frame)->frame, 8u);
}

TEST_F(HolderTest, a_blank_page_is_first_written_whole_then_open_to_all) {
    acquire(Want::exclusive_no_read, 1, 7);
    remember_request();
    acquire(Want::shared, 2, 8);
    grant(tenure, flag_exclusive);
    EXPECT_EQ(woken(), Waiters{1});
    EXPECT_FALSE(find(Action::Kind::set_access));
    deliver(Event::about(Event::Kind::served, page));
    EXPECT_EQ(woken(), Waiters{2});
    EXPECT_TRUE(find(Action::Kind::set_access));
}

TEST_F(HolderTest, a_move_waits_for_the_bytes_and_the_served) {
    acquire(Want::exclusive, 1, 7);
    remember_request();
    order(MessageKind::move, tenure + 1, 2, flag_bytes);
    EXPECT_EQ(actions_.size(), 0u);
    grant(tenure, flag_exclusive | flag_payload);
    EXPECT_EQ(woken(), Waiters{1});
    EXPECT_FALSE(find(Action::Kind::quiesce));
    deliver(Event::about(Event::Kind::served, page));
    ASSERT_TRUE(find(Action::Kind::quiesce));
    deliver(Event::quiesced_of(page, 0x03));
    ASSERT_TRUE(sent(MessageKind::data));
    EXPECT_EQ(sent(MessageKind::data)->to, 2);
    ASSERT_TRUE(sent(MessageKind::home_copy));
    EXPECT_EQ(sent(MessageKind::home_copy)->message.dirty, 0x03);
    EXPECT_EQ(holding().kept_frame, 7u);
}

TEST_F(HolderTest, a_clean_page_moves_with_a_clean_answer_to_home) {
    own();
    order(MessageKind::move, tenure + 1, 2, flag_bytes);
    deliver(Event::quiesced_of(page, 0));
    ASSERT_TRUE(sent(MessageKind::home_copy));
    EXPECT_FALSE(sent(MessageKind::home_copy)->message.has_bytes());
}

TEST_F(HolderTest, kept_bytes_are_released_by_free) {
    own();
    order(MessageKind::move, tenure + 1, 2, flag_bytes);
    deliver(Event::quiesced_of(page, 1));
    deliver(Event::message_of(message(MessageKind::free, home_host, tenure)));  // of an older order
    EXPECT_EQ(actions_.size(), 0u);
    deliver(Event::message_of(message(MessageKind::free, home_host, tenure + 1)));
    EXPECT_EQ(find(Action::Kind::release_frame)->frame, 7u);
    EXPECT_EQ(holder_.find(page), nullptr);
}

TEST_F(HolderTest, a_drop_while_the_grant_is_unknown_is_not_acknowledged) {
    acquire(Want::shared, 1, 7);
    remember_request();
    order(MessageKind::drop, tenure + 1, 2);
    EXPECT_FALSE(sent(MessageKind::acknowledge));
    grant(tenure, flag_payload);
    EXPECT_FALSE(sent(MessageKind::acknowledge));  // the waiting read comes first
    deliver(Event::about(Event::Kind::served, page));
    deliver(Event::quiesced_of(page, 0));
    EXPECT_TRUE(sent(MessageKind::acknowledge));
}

TEST_F(HolderTest, a_drop_older_than_the_grant_is_acknowledged_at_once) {
    acquire(Want::shared, 1, 7);
    remember_request();
    grant(tenure, 0, set_of(2), 2);
    order(MessageKind::drop, tenure, 3);
    EXPECT_TRUE(sent(MessageKind::acknowledge));
}

TEST_F(HolderTest, a_copy_that_its_drop_overtook_is_served_from_what_was_kept) {
    read();
    order(MessageKind::drop, tenure + 1, 2, flag_anchor | flag_bytes);
    deliver(Event::quiesced_of(page, 0));
    order(MessageKind::copy, tenure, 3, flag_bytes);
    ASSERT_TRUE(sent(MessageKind::data));
    EXPECT_EQ(sent(MessageKind::data)->to, 3);
    EXPECT_EQ(sent(MessageKind::data)->frame, 7u);
}

TEST_F(HolderTest, a_page_is_not_served_while_its_eviction_is_unanswered) {
    own();
    deliver(Event::about(Event::Kind::evict, page));
    deliver(Event::quiesced_of(page, 0xff));
    ASSERT_TRUE(sent(MessageKind::evict));
    EXPECT_EQ(find(Action::Kind::set_access)->ownership, Ownership::none);
    Message answer = message(MessageKind::refused, home_host, tenure);
    answer.request_id = holding().eviction.id;
    acquire(Want::shared, 2, 8);
    EXPECT_TRUE(woken().empty());
    deliver(Event::message_of(answer));
    EXPECT_EQ(woken(), Waiters{2});
}

TEST_F(HolderTest, an_owner_may_go_before_a_host_that_waits) {
    own();
    order(MessageKind::move, tenure + 1, 2, flag_bytes);
    ASSERT_TRUE(find(Action::Kind::quiesce));
    EXPECT_TRUE(find(Action::Kind::quiesce)->recalled);
}

TEST_F(HolderTest, no_local_operation_goes_before_a_recall) {
    own();
    deliver(Event::message_of(message(MessageKind::recall, home_host, tenure + 1)));
    ASSERT_TRUE(find(Action::Kind::quiesce));
    EXPECT_FALSE(find(Action::Kind::quiesce)->recalled);
}

TEST_F(HolderTest, an_eviction_that_is_asked_for_its_bytes_comes_again_with_them) {
    read();
    deliver(Event::about(Event::Kind::evict, page));
    deliver(Event::quiesced_of(page, 0));
    ASSERT_TRUE(sent(MessageKind::evict));
    EXPECT_FALSE(sent(MessageKind::evict)->message.has_bytes());
    Message refused = message(MessageKind::refused, home_host, tenure);
    refused.request_id = holding().eviction.id;
    refused.flags = flag_bytes;
    deliver(Event::message_of(refused));
    ASSERT_TRUE(find(Action::Kind::quiesce));
    deliver(Event::quiesced_of(page, 0));
    ASSERT_TRUE(sent(MessageKind::evict));
    EXPECT_TRUE(sent(MessageKind::evict)->message.has_bytes());
    EXPECT_EQ(sent(MessageKind::evict)->frame, 7u);
}

TEST_F(HolderTest, what_a_grant_says_of_losses_goes_with_the_frame) {
    acquire(Want::shared, 1, 7);
    remember_request();
    Message lost = message(MessageKind::grant, home_host, tenure);
    lost.flags = flag_payload;
    lost.sequence = 3;
    deliver(Event::message_of(lost, holding().awaited.landing));
    EXPECT_EQ(find(Action::Kind::set_access)->lost, 3u);
    EXPECT_EQ(find(Action::Kind::wake)->lost, 3u);
}

TEST_F(HolderTest, an_evicted_page_is_asked_for_again_by_who_waits) {
    read();
    deliver(Event::about(Event::Kind::evict, page));
    deliver(Event::quiesced_of(page, 0));
    acquire(Want::shared, 2, 8);
    Message answer = message(MessageKind::evicted, home_host, tenure);
    answer.request_id = holding().eviction.id;
    deliver(Event::message_of(answer));
    EXPECT_EQ(find(Action::Kind::release_frame)->frame, 7u);
    EXPECT_EQ(sent(MessageKind::get_shared)->message.frame, 8u);
}

TEST_F(HolderTest, a_write_back_is_answered_by_its_own_sequence_only) {
    own();
    deliver(Event::about(Event::Kind::write_back, page, 50));
    deliver(Event::quiesced_of(page, 0x0f));
    ASSERT_TRUE(sent(MessageKind::write_back));
    EXPECT_TRUE(find(Action::Kind::begin_writing));
    Message answer = message(MessageKind::written_back, home_host, tenure);
    answer.sequence = sent(MessageKind::write_back)->message.sequence + 1;
    deliver(Event::message_of(answer));
    EXPECT_FALSE(find(Action::Kind::written));
    --answer.sequence;
    deliver(Event::message_of(answer));
    ASSERT_TRUE(find(Action::Kind::written));
    EXPECT_EQ(find(Action::Kind::written)->waiter, 50u);
    EXPECT_TRUE(find(Action::Kind::clear_writing));
}

TEST_F(HolderTest, a_write_back_of_a_page_that_leaves_is_answered_at_once) {
    own();
    deliver(Event::about(Event::Kind::write_back, page, 50));
    deliver(Event::quiesced_of(page, 0x0f));
    order(MessageKind::move, tenure + 1, 2, flag_bytes);
    deliver(Event::quiesced_of(page, 0x0f));
    EXPECT_TRUE(find(Action::Kind::written));
    EXPECT_EQ(sent(MessageKind::home_copy)->message.dirty, 0x0f);
}

TEST_F(HolderTest, a_cancelled_waiter_is_not_woken_but_the_grant_is_accepted) {
    acquire(Want::shared, 1, 7);
    remember_request();
    deliver(Event::about(Event::Kind::cancel, page, 1));
    grant(tenure, flag_payload);
    EXPECT_TRUE(woken().empty());
    EXPECT_TRUE(sent(MessageKind::done));
    EXPECT_EQ(holding().ownership, Ownership::shared);
}

TEST_F(HolderTest, no_space_fails_the_writers) {
    acquire(Want::exclusive, 1, 7);
    remember_request();
    deliver(Event::message_of(message(MessageKind::no_space, home_host, 0)));
    EXPECT_EQ(find(Action::Kind::fail)->waiter, 1u);
    EXPECT_EQ(find(Action::Kind::release_frame)->frame, 7u);
    EXPECT_EQ(holder_.find(page), nullptr);
}

TEST_F(HolderTest, a_recall_turns_the_frame_into_kept_bytes_and_reports_them) {
    own();
    Message recall = message(MessageKind::recall, home_host, tenure + 1);
    recall.hosts = tenure - 1;
    recall.sequence = last_sequence;
    deliver(Event::message_of(recall));
    deliver(Event::quiesced_of(page, 1));
    ASSERT_TRUE(sent(MessageKind::report));
    EXPECT_EQ(sent(MessageKind::report)->frame, 7u);
    EXPECT_EQ(sent(MessageKind::report)->message.hosts, tenure);
    EXPECT_EQ(holding().floor, tenure + 1);
}

TEST_F(HolderTest, after_a_recall_only_a_newer_grant_counts_for_the_same_request) {
    acquire(Want::shared, 1, 7);
    remember_request();
    Message recall = message(MessageKind::recall, home_host, tenure + 1);
    deliver(Event::message_of(recall));
    EXPECT_EQ(sent(MessageKind::report)->message.request_id, awaited_);
    grant(tenure, flag_payload);
    EXPECT_TRUE(woken().empty());
    grant(tenure + 1, flag_payload);
    EXPECT_EQ(woken(), Waiters{1});
}

TEST_F(HolderTest, a_restarted_home_is_told_what_is_here_and_confirms_it) {
    own();
    deliver(Event::peer_up_of(home_host, {2, 2}, {1, 1}));
    ASSERT_TRUE(sent(MessageKind::hello));
    EXPECT_TRUE(sent(MessageKind::hello)->message.has(flag_exclusive));
    EXPECT_TRUE(find(Action::Kind::mark_dirty));
    deliver(Event::about(Event::Kind::evict, page));
    EXPECT_EQ(actions_.size(), 0u);  // not while unconfirmed
    deliver(Event::message_of(message(MessageKind::confirm, home_host, first_tenure_of(2) + 1)));
    EXPECT_EQ(holding().tenure, first_tenure_of(2) + 1);
    EXPECT_EQ(holding().trust, Trust::confirmed);
}

// Few seeds of the simulator show these two.
TEST_F(HolderTest, an_anchor_that_writes_stays_one_until_its_bytes_are_home) {
    own();
    order(MessageKind::move_shared, tenure + 1, 2, flag_bytes);
    deliver(Event::quiesced_of(page, 1));
    ASSERT_EQ(holding().anchor_since, tenure + 1);
    acquire(Want::exclusive, 2, 8);
    remember_request();
    grant(tenure + 2, flag_exclusive);
    deliver(Event::about(Event::Kind::served, page));
    ASSERT_EQ(holding().ownership, Ownership::exclusive);
    // Home crashes, and adopts its memory: what was on its way there is in no mask.
    deliver(Event::peer_up_of(home_host, {1, 2}, {1, 1}));
    ASSERT_TRUE(sent(MessageKind::hello));
    EXPECT_TRUE(sent(MessageKind::hello)->message.has(flag_anchor));
    EXPECT_TRUE(find(Action::Kind::mark_dirty));
}

// Of a volume that is no more.
TEST_F(HolderTest, a_page_that_is_discarded_leaves_at_once_with_what_is_dirty) {
    own();
    deliver(Event::discard_of(page));
    ASSERT_TRUE(find(Action::Kind::quiesce)) << "a thread may be inside";
    deliver(Event::quiesced_of(page, 0xff));
    ASSERT_TRUE(sent(MessageKind::evict));
    EXPECT_TRUE(sent(MessageKind::evict)->message.has(flag_evicting));
    EXPECT_FALSE(sent(MessageKind::evict)->message.has_bytes());
    EXPECT_EQ(sent(MessageKind::evict)->message.dirty, 0);
    EXPECT_TRUE(find(Action::Kind::release_frame));
    ASSERT_TRUE(holder_.find(page)) << "until its home has answered";
    Message answer = message(MessageKind::evicted, home_host, tenure);
    answer.request_id = holding().eviction.id;
    deliver(Event::message_of(answer));
    EXPECT_FALSE(holder_.find(page));
}

TEST_F(HolderTest, a_dirty_page_whose_eviction_is_unanswered_is_discarded_with_it) {
    own();
    deliver(Event::about(Event::Kind::evict, page));
    deliver(Event::quiesced_of(page, 0xff));
    ASSERT_EQ(holding().custody, Custody::evicting);
    deliver(Event::discard_of(page));
    EXPECT_TRUE(find(Action::Kind::release_frame));
    Message answer = message(MessageKind::refused, home_host, tenure);
    answer.request_id = holding().eviction.id;
    answer.flags = flag_bytes;
    deliver(Event::message_of(answer));
    ASSERT_TRUE(sent(MessageKind::evict)) << "home is told that the bytes are gone";
    EXPECT_FALSE(sent(MessageKind::evict)->message.has_bytes());
}

// What that host sent before its side of the link was up is lost.
TEST_F(HolderTest, home_resolves_what_a_host_may_have_answered_once_that_has_greeted) {
    acquire(Want::exclusive, 1, 7);
    deliver(Event::peer_up_of(3, {1, 1}, {1, 1}));
    EXPECT_FALSE(sent(MessageKind::resolve));
    deliver(Event::peer_greeted_of(3));
    ASSERT_TRUE(sent(MessageKind::resolve));
    EXPECT_EQ(sent(MessageKind::resolve)->to, home_host);
    EXPECT_EQ(sent(MessageKind::resolve)->message.request_id, holding().awaited.request_id);
    deliver(Event::peer_greeted_of(home_host));
    EXPECT_FALSE(sent(MessageKind::resolve)) << "home itself knows what it sent";
}

TEST_F(HolderTest, nobody_is_asked_to_resolve_a_page_that_is_not_waited_for) {
    read();
    deliver(Event::peer_greeted_of(3));
    EXPECT_FALSE(sent(MessageKind::resolve));
}

TEST_F(HolderTest, a_clean_page_leaves_at_once_and_is_asked_for_again_after_the_answer) {
    read();
    deliver(Event::evict_at_once(page));
    deliver(Event::quiesced_of(page, 0));
    ASSERT_TRUE(sent(MessageKind::evict));
    EXPECT_TRUE(sent(MessageKind::evict)->message.has(flag_evicting));
    EXPECT_EQ(find(Action::Kind::release_frame)->frame, 7u);
    acquire(Want::shared, 2, 8);
    EXPECT_FALSE(sent(MessageKind::get_shared)) << "the eviction might be taken for one of what it gets";
    order(MessageKind::copy, tenure, 2, flag_bytes);
    EXPECT_FALSE(sent(MessageKind::data)) << "it has nothing; home resolves the page when it hears of that";
    order(MessageKind::drop, tenure + 1, 2);
    EXPECT_TRUE(sent(MessageKind::acknowledge));
    Message evicted = message(MessageKind::evicted, home_host, tenure);
    evicted.request_id = holding().eviction.id;
    deliver(Event::message_of(evicted));
    EXPECT_TRUE(sent(MessageKind::get_shared));
}

}  // namespace
}  // namespace tarn::protocol
