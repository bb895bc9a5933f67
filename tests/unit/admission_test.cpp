// Admission: what an authenticated peer may say, and how it is refused otherwise.
#include "coherence/protocol/admission.hpp"

#include <gtest/gtest.h>

#include <string_view>

#include "coherence/protocol/holder.hpp"
#include "coherence/protocol/home.hpp"

namespace tarn::protocol {
namespace {

constexpr Link link_to_1{.self = 0, .peer = 1, .process = {7, 7}, .hosts = 0b111, .view_epoch = 3, .map_epoch = 5};

Message valid(MessageKind kind) {
    Message message;
    message.kind = kind;
    message.from = 1;
    message.view_epoch = 3;
    message.map_epoch = 5;
    message.incarnation = 7;
    message.request_id = 1;
    message.page = PageId::of(1, 2);
    message.tenure = first_tenure_of(7) + 1;
    return message;
}

std::string_view refusal(const Message& message, HostId home, uint64_t page_count = 100) {
    const Result<> result = admit(message, link_to_1, home, page_count);
    return result ? "" : result.error().where;
}

TEST(Admission, a_correct_message_is_admitted) {
    EXPECT_EQ(refusal(valid(MessageKind::get_shared), 0), "");
    EXPECT_EQ(refusal(valid(MessageKind::grant), 1), "");
    EXPECT_EQ(refusal(valid(MessageKind::data), 2), "");
}

TEST(Admission, nobody_speaks_for_another_host) {
    Message message = valid(MessageKind::get_shared);
    message.from = 2;
    EXPECT_EQ(refusal(message, 0), "message.from: speaks for another host");
}

TEST(Admission, an_old_process_view_or_map_is_refused) {
    Message message = valid(MessageKind::get_shared);
    message.incarnation = 6;
    EXPECT_EQ(refusal(message, 0), "message.incarnation: not this link's");
    message = valid(MessageKind::get_shared);
    message.view_epoch = 2;
    EXPECT_EQ(refusal(message, 0), "message.view_epoch: another view");
    message = valid(MessageKind::get_shared);
    message.map_epoch = 4;
    EXPECT_EQ(refusal(message, 0), "message.map_epoch: another range map");
}

TEST(Admission, pages_outside_of_any_volume_are_refused) {
    EXPECT_EQ(refusal(valid(MessageKind::get_shared), 0, no_volume), "message.page: no such volume");
    EXPECT_EQ(refusal(valid(MessageKind::get_shared), 0, 2), "message.page: beyond the volume");
    Message run = valid(MessageKind::get_shared);
    run.run = 3;
    EXPECT_EQ(refusal(run, 0, 5), "message.page: beyond the volume") << "its last page";
    EXPECT_EQ(refusal(run, 0, 6), "");
}

TEST(Admission, home_is_home) {
    EXPECT_EQ(refusal(valid(MessageKind::get_shared), 2), "message.page: another host is its home");
    EXPECT_EQ(refusal(valid(MessageKind::drop), 0), "message.page: the sender is not its home");
    EXPECT_EQ(refusal(valid(MessageKind::drop), 2), "message.page: the sender is not its home");
}

TEST(Admission, hosts_are_of_this_cluster) {
    Message message = valid(MessageKind::grant);
    message.hosts = 0b1001;
    EXPECT_EQ(refusal(message, 1), "message.hosts: no hosts of this cluster");
    message = valid(MessageKind::move);
    message.host = 5;
    EXPECT_EQ(refusal(message, 1), "message.host: no host of this cluster");
    message.host = 0;
    EXPECT_EQ(refusal(message, 1), "message.host: an order to serve oneself");
}

TEST(Admission, a_home_gives_no_tenures_of_homes_to_come) {
    Message message = valid(MessageKind::grant);
    message.tenure = first_tenure_of(8);
    EXPECT_EQ(refusal(message, 1), "message.tenure: of a home to come");
    message.tenure = ~Tenure{0};
    EXPECT_FALSE(validate(message));
}

// Where only the state of the page tells.
class RefusalTest : public testing::Test {
  protected:
    RefusalTest() {
        home_.reserve();
        home_.on(Event::about(Event::Kind::recovered, PageId{}), actions_);
    }
    void receive(MessageKind kind, HostId from, Tenure tenure, uint8_t flags = 0) {
        Message message = valid(kind);
        message.from = from;
        message.tenure = tenure;
        message.flags = flags;
        if (message.has_bytes()) message.dirty = all_sectors;
        actions_.clear();
        home_.reserve();
        home_.on(Event::message_of(message, message.has_bytes() ? 9 : no_frame), actions_);
    }
    std::string_view refused() const {
        for (const Action& action : actions_)
            if (action.kind == Action::Kind::refuse_peer) return std::string_view(action.reason);
        return "";
    }
    bool released() const {
        for (const Action& action : actions_)
            if (action.kind == Action::Kind::release_frame) return true;
        return false;
    }
    Tenure tenure() const { return home_.find(PageId::of(1, 2))->tenure; }

    Home home_{0, 7, {.last_in_doubt = 7}};
    Actions actions_;
};

TEST_F(RefusalTest, bytes_of_a_tenure_that_home_never_gave) {
    receive(MessageKind::get_exclusive, 1, 0);
    receive(MessageKind::home_copy, 1, tenure() + 1, flag_payload);
    EXPECT_EQ(refused(), "home_copy: of no order");
    EXPECT_TRUE(released());
    receive(MessageKind::write_back, 1, tenure() + 1, flag_payload);
    EXPECT_EQ(refused(), "write_back: of no tenure");
    receive(MessageKind::report, 1, tenure() + 1);
    EXPECT_EQ(refused(), "report: of no recall");
}

TEST_F(RefusalTest, bytes_of_a_page_of_another_host) {
    receive(MessageKind::get_exclusive, 1, 0);
    receive(MessageKind::done, 1, 0);
    receive(MessageKind::write_back, 2, tenure(), flag_payload);
    EXPECT_EQ(refused(), "write_back: of a page of another host");
}

TEST_F(RefusalTest, a_copy_that_was_asked_of_another_host) {
    receive(MessageKind::get_exclusive, 1, 0);
    receive(MessageKind::get_shared, 2, 0);
    receive(MessageKind::home_copy, 2, tenure(), flag_payload);
    EXPECT_EQ(refused(), "home_copy: asked of another host");
    receive(MessageKind::home_copy, 1, tenure(), flag_payload);
    EXPECT_EQ(refused(), "");
}

TEST(Refusal, a_grant_of_something_else_than_was_asked_for) {
    const std::array<HostId, 2> hosts{0, 1};
    const RangeMap ranges(1, hosts);
    Holder holder(0, ranges);
    Actions actions;
    const PageId page = PageId::of(1, 0);  // homed at host 1
    holder.on(Event::acquire_of(page, Want::exclusive_no_read, 1, 4), actions);
    actions.clear();
    Message grant = valid(MessageKind::grant);
    grant.page = page;
    grant.request_id = holder.find(page)->awaited.request_id;
    holder.reserve();
    holder.on(Event::message_of(grant), actions);
    ASSERT_EQ(actions[0].kind, Action::Kind::refuse_peer);
    EXPECT_EQ(holder.find(page)->awaited.granted, 0u);
}

// Waits for a page of host 1, which has granted it and named host 2 as the one to answer.
class AnswerTest : public testing::Test {
  protected:
    AnswerTest() : ranges_(1, hosts_), holder_(0, ranges_) {
        holder_.on(Event::acquire_of(page_, Want::exclusive, 1, 4), actions_);
        Message grant = answer(MessageKind::grant, 1);
        grant.flags = flag_exclusive | flag_zero;
        grant.hosts = set_of(2);
        receive(grant, 5);
    }
    Message answer(MessageKind kind, HostId from) const {
        Message message = valid(kind);
        message.page = page_;
        message.from = from;
        message.request_id = holder_.find(page_)->awaited.request_id;
        return message;
    }
    void receive(const Message& message, FrameId frame = no_frame) {
        actions_.clear();
        holder_.reserve();
        holder_.on(Event::message_of(message, frame), actions_);
    }
    const Action* find(Action::Kind kind) const {
        for (const Action& action : actions_)
            if (action.kind == kind) return &action;
        return nullptr;
    }

    static constexpr std::array<HostId, 3> hosts_{0, 1, 2};
    const PageId page_ = PageId::of(1, 0);
    const RangeMap ranges_;
    Holder holder_;
    Actions actions_;
};

TEST_F(AnswerTest, forged_acknowledgements_do_not_count_and_end_the_link) {
    receive(answer(MessageKind::acknowledge, 1));
    ASSERT_TRUE(find(Action::Kind::refuse_peer));
    EXPECT_EQ(find(Action::Kind::refuse_peer)->to, 1);
    EXPECT_EQ(std::string_view(find(Action::Kind::refuse_peer)->reason), "acknowledge: of a host that was not asked");
    EXPECT_EQ(holder_.find(page_)->ownership, Ownership::none);
    Message data = answer(MessageKind::data, 1);
    data.flags = flag_payload;
    receive(data, 6);
    EXPECT_TRUE(find(Action::Kind::refuse_peer));
    ASSERT_TRUE(find(Action::Kind::release_frame));
    EXPECT_EQ(find(Action::Kind::release_frame)->frame, 6);
    receive(answer(MessageKind::acknowledge, 2));
    EXPECT_FALSE(find(Action::Kind::refuse_peer));
    EXPECT_EQ(holder_.find(page_)->ownership, Ownership::exclusive);
    EXPECT_EQ(holder_.find(page_)->frame, 5);
}

TEST_F(AnswerTest, an_acknowledgement_counts_once_however_often_it_comes) {
    const PageId other = PageId::of(1, 3);
    holder_.reserve();
    holder_.on(Event::acquire_of(other, Want::exclusive_no_read, 2, 7), actions_);
    Message early = answer(MessageKind::acknowledge, 2);
    early.page = other;
    early.request_id = holder_.find(other)->awaited.request_id;
    for (int i = 0; i < 3; ++i) receive(early);
    Message grant = early;
    grant.kind = MessageKind::grant;
    grant.from = 1;
    grant.flags = flag_exclusive;
    grant.hosts = set_of(2) | set_of(1);
    receive(grant);
    EXPECT_EQ(holder_.find(other)->ownership, Ownership::none) << "host 1 has not answered";
}

TEST_F(AnswerTest, a_drop_of_a_page_never_granted_is_answered_and_changes_nothing) {
    Message drop = valid(MessageKind::drop);
    drop.page = PageId::of(1, 3);
    drop.host = 2;
    receive(drop);
    ASSERT_TRUE(find(Action::Kind::send));
    EXPECT_EQ(find(Action::Kind::send)->message.kind, MessageKind::acknowledge);
    EXPECT_EQ(find(Action::Kind::send)->to, 2);
    EXPECT_EQ(holder_.find(drop.page), nullptr);
}

}  // namespace
}  // namespace tarn::protocol
