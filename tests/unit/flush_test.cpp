// Flush: whom it asks, what it waits for, and when it admits a loss.
#include "coherence/protocol/flush.hpp"

#include <gtest/gtest.h>

namespace tarn::protocol {
namespace {

constexpr VolumeId volume = 1;
constexpr PageId page = PageId::of(volume, 0);
constexpr Verifier verifier = verifier_of(1, 0);

class FlushHomeTest : public testing::Test {
  protected:
    FlushHomeTest() { home_.on_recovered(actions_); }

    void flush(Verifier known = verifier, Verifier noted = 0) {
        Message message;
        message.kind = MessageKind::flush;
        message.from = 2;
        message.page = page;
        message.request_id = 5;
        message.hosts = noted;
        message.tenure = known;
        actions_.clear();
        home_.on_message(message, actions_);
    }
    void answer(HostId host) {
        Message message;
        message.kind = MessageKind::flush_answer;
        message.from = host;
        message.page = page;
        message.request_id = 1;
        actions_.clear();
        home_.on_message(message, actions_);
    }
    bool asked(HostId host) const {
        for (const FlushAction& action : actions_)
            if (action.to == host && action.message.kind == MessageKind::flush_ask) return true;
        return false;
    }
    const FlushAction* store_flush() const {
        for (const FlushAction& action : actions_)
            if (action.kind == FlushAction::Kind::store_flush) return &action;
        return nullptr;
    }
    // Finishes the store flush; whether the reply admits a loss.
    bool is_lost(Verifier now) {
        const uint64_t ticket = store_flush()->ticket;
        actions_.clear();
        home_.on_store_flushed(ticket, false, now, actions_);
        EXPECT_EQ(actions_.at(0).to, 2);
        return actions_.at(0).message.has(flag_lost);
    }

    FlushHome home_{0};
    FlushActions actions_;
};

TEST_F(FlushHomeTest, nothing_outstanding_goes_to_the_store_at_once) {
    flush();
    ASSERT_TRUE(store_flush());
    EXPECT_FALSE(is_lost(verifier));
}

TEST_F(FlushHomeTest, every_holder_of_the_volume_is_asked_once_and_waited_for) {
    home_.holder_added(page, 3);
    home_.holder_added(PageId::of(volume, 1), 3);
    home_.holder_added(PageId::of(2, 0), 4);
    flush();
    EXPECT_TRUE(asked(3));
    EXPECT_FALSE(asked(4));
    EXPECT_FALSE(store_flush());
    answer(3);
    EXPECT_TRUE(store_flush());
}

TEST_F(FlushHomeTest, copies_expected_before_an_answer_are_waited_for) {
    home_.holder_added(page, 3);
    flush();
    home_.copy_expected(page, 7);
    answer(3);
    EXPECT_FALSE(store_flush());
    home_.copy_expected(page, 8);  // of a later order: not this flush's
    home_.copy_arrived(page, 7, actions_);
    EXPECT_TRUE(store_flush());
}

TEST_F(FlushHomeTest, a_loss_while_the_flush_ran_is_admitted) {
    flush();
    EXPECT_TRUE(is_lost(verifier_of(1, 1)));
}

TEST_F(FlushHomeTest, writes_made_under_another_verifier_are_lost) {
    flush(verifier, verifier_of(1, 5));
    EXPECT_TRUE(is_lost(verifier));
}

TEST_F(FlushHomeTest, when_the_store_fails_nobody_is_waited_for) {
    home_.holder_added(page, 1);
    flush();
    ASSERT_TRUE(asked(1));
    actions_.clear();
    home_.on_store_failed(verifier, actions_);
    ASSERT_EQ(actions_.size(), 1u);
    EXPECT_EQ(actions_[0].to, 2);
    EXPECT_EQ(actions_[0].message.kind, MessageKind::flushed);
    EXPECT_EQ(actions_[0].message.request_id, 5u);
    EXPECT_TRUE(actions_[0].message.has(flag_lost));
    EXPECT_EQ(home_.flush_count(), 0u);
    answer(1);  // late
    EXPECT_TRUE(actions_.empty());
    Message later;
    later.kind = MessageKind::flush;
    later.from = 1;
    later.page = page;
    later.request_id = 9;
    home_.refuse(later, verifier, actions_);
    ASSERT_EQ(actions_.size(), 1u);
    EXPECT_EQ(actions_[0].to, 1);
    EXPECT_TRUE(actions_[0].message.has(flag_lost));
}

TEST_F(FlushHomeTest, a_recovering_home_begins_nothing) {
    FlushHome recovering(0);
    Message message;
    message.kind = MessageKind::flush;
    message.from = 2;
    message.page = page;
    message.request_id = 5;
    actions_.clear();
    recovering.on_message(message, actions_);
    EXPECT_TRUE(actions_.empty());
    recovering.on_recovered(actions_);
    EXPECT_TRUE(store_flush());
}

TEST_F(FlushHomeTest, an_ask_is_repeated_over_a_new_link) {
    home_.holder_added(page, 3);
    flush();
    actions_.clear();
    home_.on_peer_up(3, {1, 1}, {1, 1}, actions_);
    EXPECT_TRUE(asked(3));
}

TEST(FlushHolder, answers_when_every_write_back_is_applied) {
    FlushHolder holder(1);
    FlushActions actions;
    Message ask;
    ask.from = 0;
    ask.page = page;
    ask.request_id = 9;
    const WaiterToken waiter = holder.on_ask(ask);
    holder.on_written(waiter, actions);  // may come before begun
    holder.begun(waiter, 2, actions);
    EXPECT_TRUE(actions.empty());
    holder.on_written(waiter, actions);
    ASSERT_EQ(actions.size(), 1u);
    EXPECT_EQ(actions[0].message.request_id, 9u);
    EXPECT_EQ(holder.ask_count(), 0u);
}

TEST_F(FlushHomeTest, a_host_with_too_many_flushes_is_refused) {
    home_.holder_added(page, 3);  // none of them comes to its end
    Message message;
    message.kind = MessageKind::flush;
    message.from = 2;
    message.page = page;
    for (RequestId id = 1; id <= flushes_of_a_host_max; ++id) {
        message.request_id = id;
        ASSERT_TRUE(home_.accepts(message));
        home_.on_message(message, actions_);
    }
    EXPECT_FALSE(home_.accepts(message));
    message.from = 1;
    EXPECT_TRUE(home_.accepts(message));
}

TEST(FlushRequester, completes_when_every_home_has_answered) {
    FlushRequester requester(2);
    FlushActions actions;
    requester.open(7, volume);
    requester.heard(volume, 0, verifier);
    requester.heard(volume, 1, verifier);
    requester.wrote(7, 0, page, page, requester.known(volume, 0));
    requester.start(7, set_of(0) | set_of(1), 42, actions);
    ASSERT_EQ(actions.size(), 2u);
    EXPECT_EQ(actions[0].message.hosts, verifier);
    EXPECT_EQ(actions[1].message.hosts, 0u);
    Message flushed = actions[0].message;
    flushed.kind = MessageKind::flushed;
    flushed.from = 0;
    actions.clear();
    requester.on_message(flushed, actions);
    EXPECT_TRUE(actions.empty());
    flushed.from = 1;
    requester.on_message(flushed, actions);
    ASSERT_EQ(actions.size(), 1u);
    EXPECT_EQ(actions[0].waiter, 42u);
    EXPECT_FALSE(actions[0].lost);
}

TEST(FlushRequester, a_loss_stays_until_the_session_ends) {
    FlushRequester requester(2);
    FlushActions actions;
    requester.open(7, volume);
    requester.heard(volume, 0, verifier);
    requester.wrote(7, 0, page, page, requester.known(volume, 0));
    requester.heard(volume, 0, verifier_of(2, 0));
    requester.wrote(7, 0, page, page, requester.known(volume, 0));
    const auto flush_is_lost = [&](SessionId session) {
        actions.clear();
        requester.start(session, set_of(0), 1, actions);
        Message flushed = actions[0].message;
        flushed.kind = MessageKind::flushed;
        flushed.from = 0;
        actions.clear();
        requester.on_message(flushed, actions);
        return actions.at(0).lost;
    };
    requester.open(8, volume);
    EXPECT_TRUE(flush_is_lost(7));
    EXPECT_FALSE(flush_is_lost(8));  // it wrote nothing that is lost
    EXPECT_TRUE(flush_is_lost(7));
    requester.close(7);
    requester.open(9, volume);
    EXPECT_FALSE(flush_is_lost(9));
}

// The home may have lost what a request wrote first by the time that its last page is written.
TEST(FlushRequester, a_write_is_noted_under_the_verifier_of_before_it) {
    FlushRequester requester(2);
    FlushActions actions;
    requester.open(7, volume);
    requester.heard(volume, 0, verifier);
    const Verifier began = requester.known(volume, 0);
    requester.heard(volume, 0, verifier_of(2, 0));
    requester.wrote(7, 0, page, page, began);
    EXPECT_TRUE(requester.lost_a_write(7, 0));
    requester.start(7, set_of(0), 1, actions);
    EXPECT_EQ(actions.at(0).message.hosts, verifier);
    requester.wrote(7, 0, page, page, requester.known(volume, 0));
    EXPECT_TRUE(requester.lost_a_write(7, 0)) << "what came later does not make it good";
}

// Writes that were made durable by themselves are not held against the session.
TEST(FlushRequester, pages_that_were_flushed_alone_are_not_noted_any_more) {
    FlushRequester requester(0);
    const auto at = [](uint64_t number) { return PageId::of(volume, number); };
    const auto flushed = [&](std::vector<PageId> pages, uint64_t writes) {
        return requester.flushed_pages(7, 0, pages, writes);
    };
    requester.open(7, volume);
    requester.heard(volume, 0, verifier);
    requester.wrote(7, 0, at(4), at(5), requester.known(volume, 0));
    EXPECT_FALSE(flushed({at(4)}, 1)) << "half of it";
    EXPECT_FALSE(flushed({at(3), at(4), at(5)}, 0)) << "it was written later";
    EXPECT_TRUE(flushed({at(3), at(4), at(5)}, 1));
    requester.heard(volume, 0, verifier_of(1, 9));
    EXPECT_FALSE(requester.lost_a_write(7, 0)) << "all it wrote was durable";

    requester.wrote(7, 0, at(1), at(1), requester.known(volume, 0));
    requester.wrote(7, 0, at(2), at(2), requester.known(volume, 0));
    EXPECT_FALSE(flushed({at(1)}, requester.write_count(7, 0)));
    requester.heard(volume, 0, verifier_of(1, 10));
    EXPECT_TRUE(requester.lost_a_write(7, 0)) << "page 2 may be lost";
}

TEST(FlushRequester, of_many_writes_the_pages_are_not_kept) {
    FlushRequester requester(0);
    requester.open(7, volume);
    requester.heard(volume, 0, verifier);
    for (uint64_t number = 0; number < 1000; ++number)
        requester.wrote(7, 0, PageId::of(volume, number), PageId::of(volume, number), requester.known(volume, 0));
    EXPECT_FALSE(requester.knows_pages(7, 0));
    const std::vector<PageId> pages = {page};
    EXPECT_FALSE(requester.flushed_pages(7, 0, pages, requester.write_count(7, 0)));
    requester.heard(volume, 0, verifier_of(1, 9));
    EXPECT_TRUE(requester.lost_a_write(7, 0));
}

TEST(FlushRequester, a_home_that_is_given_up_fails_the_flush_and_not_the_next) {
    FlushRequester requester(2);
    FlushActions actions;
    requester.open(7, volume);
    requester.heard(volume, 0, verifier);
    requester.wrote(7, 0, page, page, requester.known(volume, 0));
    requester.start(7, set_of(0), 1, actions);
    actions.clear();
    requester.give_up_on(0, actions);
    ASSERT_EQ(actions.size(), 1u);
    EXPECT_TRUE(actions[0].lost);
    EXPECT_EQ(requester.flush_count(), 0u);
    actions.clear();
    requester.start(7, set_of(0), 2, actions);
    EXPECT_EQ(actions[0].message.hosts, verifier);  // still noted
}

}  // namespace
}  // namespace tarn::protocol
