// Home after a start: what it takes from the hellos of those who hold its pages, and whom it believes.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "coherence/protocol/home.hpp"

namespace tarn::protocol {
namespace {

constexpr HostId home_host = 0;
constexpr PageId page = PageId::of(1, 5);

// A home since its start.
struct Started {
    explicit Started(uint32_t epoch) : Started(epoch, epoch) {}
    Started(uint32_t epoch, uint32_t last_in_doubt) : home(home_host, epoch, last_in_doubt) {}
    void deliver(const Event& event) {
        actions.clear();
        home.reserve();
        home.on(event, actions);
    }
    auto find_sent(MessageKind kind) const {
        return std::ranges::find_if(actions, [&](const Action& action) {
            return action.kind == Action::Kind::send && action.message.kind == kind;
        });
    }
    Home home;
    Actions actions;
};

Message about_page(MessageKind kind, HostId from) {
    Message message;
    message.kind = kind;
    message.from = from;
    message.page = page;
    return message;
}
Event get(MessageKind kind, HostId from) {
    Message message = about_page(kind, from);
    message.request_id = 20;
    return Event::message_of(message);
}
Event owner_hello(Tenure tenure) {
    Message message = about_page(MessageKind::hello, 1);
    message.flags = flag_exclusive;
    message.tenure = tenure;
    return Event::message_of(message);
}
// The store of home has bytes of the page, and does not know how new they are.
Event hello(HostId from, uint8_t flags, Tenure tenure, Tenure kept) {
    Message message = about_page(MessageKind::hello, from);
    message.flags = flags;
    message.tenure = tenure;
    message.hosts = kept;
    Event event = Event::message_of(message);
    event.stored_tenure = unknown_tenure;
    return event;
}

TEST(HomeRestart, serves_only_after_every_peer_has_reported) {
    Started started(2);
    started.deliver(owner_hello(9));
    started.deliver(get(MessageKind::get_shared, 2));
    for (const Action& action : started.actions) EXPECT_NE(action.kind, Action::Kind::send);
    started.deliver(Event::about(Event::Kind::recovered, PageId{}));
    std::vector<MessageKind> kinds;
    for (const Action& action : started.actions)
        if (action.kind == Action::Kind::send) kinds.push_back(action.message.kind);
    EXPECT_EQ(kinds, (std::vector{MessageKind::confirm, MessageKind::grant, MessageKind::move_shared}));
    EXPECT_GT(started.home.find(page)->tenure, first_tenure_of(2));
}

TEST(HomeRecovery, kept_bytes_never_win_over_stored_ones_of_an_unknown_tenure) {
    Started started(2);
    started.deliver(hello(1, flag_bytes, 0, first_tenure_of(1) + 8));
    started.deliver(hello(2, flag_exclusive, first_tenure_of(1) + 8, 0));
    started.deliver(Event::about(Event::Kind::recovered, PageId{}));
    bool freed = false;
    for (const Action& action : started.actions) {
        freed |= action.to == 1 && action.message.kind == MessageKind::free;
        EXPECT_NE(action.message.kind, MessageKind::recall);
    }
    EXPECT_TRUE(freed);
    EXPECT_EQ(started.home.find(page)->owner, 2);
    // Should the owner die before it wrote anything back, what is stored stands.
    started.deliver(Event::peer_up_of(2, {2, 2}, {1, 1}));
    for (const Action& action : started.actions) EXPECT_NE(action.message.kind, MessageKind::recall);
}

// The word that frees the kept bytes may be lost, or late.
TEST(HomeRecovery, bytes_that_home_decided_against_are_not_asked_for_when_their_host_is_recalled) {
    Started started(2);
    started.deliver(hello(1, flag_bytes, 0, first_tenure_of(1) + 8));
    started.deliver(hello(2, flag_exclusive, first_tenure_of(1) + 9, 0));
    started.deliver(Event::about(Event::Kind::recovered, PageId{}));
    started.deliver(get(MessageKind::get_exclusive, 1));
    started.deliver(Event::peer_up_of(2, {2, 2}, {1, 1}));
    const auto recall = started.find_sent(MessageKind::recall);
    ASSERT_NE(recall, started.actions.end());
    EXPECT_EQ(recall->to, 1);
    // What is newer than this it reports: nothing of before this process.
    EXPECT_GE((PageVersion{recall->message.hosts, recall->message.sequence}), last_before(first_tenure_of(2)));
}

// It may lack what another host lost with its memory while this home knew no claims. So may a process before, whose
// word did not reach an owner that has missed that process. A process that was not in doubt leaves no doubt behind.
TEST(HomeRecovery, an_owner_is_told_to_write_back_what_a_home_in_doubt_may_lack) {
    struct Case {
        bool has_memory;
        bool is_on_record;
        uint32_t last_in_doubt;  // the home's epoch
        uint32_t last_heard;     // likewise
        bool is_told;
    };
    const std::vector<LossRange> ranges{{.first = page, .last = page, .generation = 3}};
    const LossRanges losses(ranges);
    for (const auto& [has_memory, is_on_record, last_in_doubt, last_heard, is_told] :
         {Case{false, false, 2, 2, true}, Case{true, false, 2, 2, false}, Case{true, true, 2, 2, true},
          Case{true, false, 2, 1, true}, Case{true, false, 1, 1, false}}) {
        Started started(3, last_in_doubt);
        started.deliver(owner_hello(first_tenure_of(last_heard) + 3));
        Event recovered = Event::about(Event::Kind::recovered, PageId{});
        recovered.has_memory = has_memory;
        recovered.losses = is_on_record ? &losses : nullptr;
        started.deliver(recovered);
        const auto confirm = started.find_sent(MessageKind::confirm);
        ASSERT_NE(confirm, started.actions.end());
        EXPECT_EQ(confirm->message.has(flag_anchor), is_told);
    }
}

}  // namespace
}  // namespace tarn::protocol
