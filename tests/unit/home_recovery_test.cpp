// Home after a start: what it takes from the hellos of those who hold its pages, and whom it believes.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "coherence/protocol/home.hpp"

namespace tarn::protocol {
namespace {

constexpr HostId home_host = 0;
constexpr PageId page = PageId::of(1, 5);

TEST(HomeRestart, serves_only_after_every_peer_has_reported) {
    Home home(home_host, 2);
    Actions actions;
    const auto deliver = [&](const Event& event) {
        actions.clear();
        home.reserve();
        home.on(event, actions);
    };
    Message hello;
    hello.kind = MessageKind::hello;
    hello.from = 1;
    hello.page = page;
    hello.tenure = 9;
    hello.flags = flag_exclusive;
    deliver(Event::message_of(hello));
    Message get;
    get.kind = MessageKind::get_shared;
    get.from = 2;
    get.page = page;
    get.request_id = 20;
    deliver(Event::message_of(get));
    for (const Action& action : actions) EXPECT_NE(action.kind, Action::Kind::send);
    deliver(Event::about(Event::Kind::recovered, PageId{}));
    std::vector<MessageKind> kinds;
    for (const Action& action : actions)
        if (action.kind == Action::Kind::send) kinds.push_back(action.message.kind);
    EXPECT_EQ(kinds, (std::vector{MessageKind::confirm, MessageKind::grant, MessageKind::move_shared}));
    EXPECT_GT(home.find(page)->tenure, first_tenure_of(2));
}

// The store of home has bytes of the page, and does not know how new they are.
Event hello(HostId from, uint8_t flags, Tenure tenure, Tenure kept) {
    Message message;
    message.kind = MessageKind::hello;
    message.from = from;
    message.page = page;
    message.flags = flags;
    message.tenure = tenure;
    message.hosts = kept;
    Event event = Event::message_of(message);
    event.stored_tenure = unknown_tenure;
    return event;
}

TEST(HomeRecovery, kept_bytes_never_win_over_stored_ones_of_an_unknown_tenure) {
    Home home(home_host, 2);
    Actions actions;
    const auto hear = [&](const Event& event) {
        home.reserve();
        home.on(event, actions);
    };
    hear(hello(1, flag_bytes, 0, first_tenure_of(1) + 8));
    hear(hello(2, flag_exclusive, first_tenure_of(1) + 8, 0));
    actions.clear();
    home.reserve();
    home.on(Event::about(Event::Kind::recovered, PageId{}), actions);
    bool freed = false;
    for (const Action& action : actions) {
        freed |= action.to == 1 && action.message.kind == MessageKind::free;
        EXPECT_NE(action.message.kind, MessageKind::recall);
    }
    EXPECT_TRUE(freed);
    EXPECT_EQ(home.find(page)->owner, 2);
    // Should the owner die before it wrote anything back, what is stored stands.
    actions.clear();
    home.on(Event::peer_up_of(2, {2, 2}, {1, 1}), actions);
    for (const Action& action : actions) EXPECT_NE(action.message.kind, MessageKind::recall);
}

// The word that frees the kept bytes may be lost, or late.
TEST(HomeRecovery, bytes_that_home_decided_against_are_not_asked_for_when_their_host_is_recalled) {
    Home home(home_host, 2);
    Actions actions;
    const auto deliver = [&](const Event& event) {
        actions.clear();
        home.reserve();
        home.on(event, actions);
    };
    deliver(hello(1, flag_bytes, 0, first_tenure_of(1) + 8));
    deliver(hello(2, flag_exclusive, first_tenure_of(1) + 9, 0));
    deliver(Event::about(Event::Kind::recovered, PageId{}));
    Message get;
    get.kind = MessageKind::get_exclusive;
    get.from = 1;
    get.page = page;
    get.request_id = 20;
    deliver(Event::message_of(get));
    deliver(Event::peer_up_of(2, {2, 2}, {1, 1}));
    const auto recall = std::ranges::find_if(actions, [](const Action& action) {
        return action.kind == Action::Kind::send && action.message.kind == MessageKind::recall;
    });
    ASSERT_NE(recall, actions.end());
    EXPECT_EQ(recall->to, 1);
    // What is newer than this it reports: nothing of before this process.
    EXPECT_GE((PageVersion{recall->message.hosts, recall->message.sequence}), last_before(first_tenure_of(2)));
}

// It may lack what another host lost with its memory while this home knew no claims. So may the process before, whose
// word did not reach an owner that has missed that process.
TEST(HomeRecovery, an_owner_is_told_to_write_back_what_a_home_in_doubt_may_lack) {
    struct Case {
        bool has_memory;
        bool is_on_record;
        uint32_t last_heard;  // the home's epoch
        bool is_told;
    };
    const std::vector<LossRange> ranges{{.first = page, .last = page, .generation = 3}};
    const LossRanges losses(ranges);
    for (const auto& [has_memory, is_on_record, last_heard, is_told] :
         {Case{false, false, 2, true}, Case{true, false, 2, false}, Case{true, true, 2, true},
          Case{true, false, 1, true}}) {
        Home home(home_host, 3);
        Actions actions;
        Message hello;
        hello.kind = MessageKind::hello;
        hello.from = 1;
        hello.page = page;
        hello.tenure = first_tenure_of(last_heard) + 3;
        hello.flags = flag_exclusive;
        home.reserve();
        home.on(Event::message_of(hello), actions);
        Event recovered = Event::about(Event::Kind::recovered, PageId{});
        recovered.has_memory = has_memory;
        recovered.losses = is_on_record ? &losses : nullptr;
        actions.clear();
        home.reserve();
        home.on(recovered, actions);
        const auto confirm = std::ranges::find_if(actions, [](const Action& action) {
            return action.kind == Action::Kind::send && action.message.kind == MessageKind::confirm;
        });
        ASSERT_NE(confirm, actions.end());
        EXPECT_EQ(confirm->message.has(flag_anchor), is_told);
    }
}

}  // namespace
}  // namespace tarn::protocol
