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
    explicit Started(uint32_t epoch) : Started(epoch, {.last_in_doubt = epoch}) {}
    Started(uint32_t epoch, const Home::Past& past) : home(home_host, epoch, past) {}
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
    bool sends(MessageKind kind, HostId to) const {
        return std::ranges::any_of(actions, [&](const Action& action) {
            return action.kind == Action::Kind::send && action.message.kind == kind && action.to == to;
        });
    }
    bool records_loss() const {
        return std::ranges::any_of(actions,
                                   [](const Action& action) { return action.kind == Action::Kind::record_loss; });
    }
    void serve() { deliver(Event::about(Event::Kind::recovered, PageId{})); }
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
Event restart_of(HostId host) {
    return Event::peer_up_of(host, {2, 2}, {1, 1});
}
// Of a host that holds the page; the store of home has never had any bytes of it.
Event holder_hello(HostId from, uint8_t flags, Tenure tenure) {
    Message message = about_page(MessageKind::hello, from);
    message.flags = flags;
    message.tenure = tenure;
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
        Home::Past past;
        uint32_t last_heard;  // the home's epoch
        bool is_told;
    };
    const std::vector<LossRange> ranges{{.first = page, .last = page, .generation = 3}};
    const LossRanges losses(ranges);
    const Home::Past doubt_in_3{.last_in_doubt = 3};
    const Home::Past doubt_in_2{.last_in_doubt = 2};
    const Home::Past loss_in_3{.last_in_doubt = 2, .last_loss = 3};
    for (const auto& [has_memory, is_on_record, past, last_heard, is_told] :
         {Case{false, false, doubt_in_3, 3, true}, Case{true, false, doubt_in_3, 3, false},
          Case{true, false, doubt_in_3, 2, true}, Case{true, false, doubt_in_2, 2, false},
          Case{true, true, doubt_in_2, 2, false}, Case{true, true, loss_in_3, 3, true},
          Case{true, false, loss_in_3, 3, false}, Case{true, true, loss_in_3, 4, false}}) {
        Started started(5, past);
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

TEST(HomeRecovery, the_last_tenure_before_a_home_in_doubt_has_missed_it) {
    for (const Tenure tenure : {first_tenure_of(3) - 1, first_tenure_of(3)}) {
        Started started(5, {.last_in_doubt = 3});
        started.deliver(owner_hello(tenure));
        Event recovered = Event::about(Event::Kind::recovered, PageId{});
        recovered.has_memory = true;
        started.deliver(recovered);
        const auto confirm = started.find_sent(MessageKind::confirm);
        ASSERT_NE(confirm, started.actions.end());
        EXPECT_EQ(confirm->message.has(flag_anchor), tenure < first_tenure_of(3));
    }
}

// Its bytes may be the newer ones.
TEST(HomeRecovery, of_two_hosts_that_say_they_own_the_page_both_are_asked) {
    Started started(2);
    started.deliver(holder_hello(1, flag_exclusive, first_tenure_of(1) + 9));
    started.deliver(holder_hello(2, flag_exclusive, first_tenure_of(1) + 8));
    started.serve();
    for (const HostId host : {1, 2}) {
        EXPECT_TRUE(started.sends(MessageKind::recall, host));
        EXPECT_FALSE(started.sends(MessageKind::confirm, host));
    }
}

TEST(HomeRecovery, a_page_is_not_confirmed_to_an_owner_and_to_readers) {
    for (const Tenure tenure : {8, 9}) {
        Started started(2);
        started.deliver(holder_hello(1, flag_exclusive, first_tenure_of(1) + 9));
        started.deliver(holder_hello(2, flag_shared, first_tenure_of(1) + tenure));
        started.serve();
        for (const HostId host : {1, 2}) {
            EXPECT_TRUE(started.sends(MessageKind::recall, host));
            EXPECT_FALSE(started.sends(MessageKind::confirm, host));
        }
    }
}

// Whatever the reason: it may have missed that the page was written.
TEST(HomeRecovery, who_holds_older_bytes_than_another_host_or_home_is_asked_and_not_confirmed) {
    const Tenure newest = first_tenure_of(1) + 9;
    for (const uint8_t flags : {flag_shared, flag_exclusive}) {
        for (const bool other_says_so_first : {false, true}) {
            Started of_another(2);
            if (other_says_so_first) of_another.deliver(holder_hello(2, flag_shared, newest));
            of_another.deliver(holder_hello(1, flags, newest - 1));
            if (!other_says_so_first) of_another.deliver(holder_hello(2, flag_shared, newest));
            of_another.serve();
            for (const HostId host : {1, 2}) {
                EXPECT_TRUE(of_another.sends(MessageKind::recall, host));
                EXPECT_FALSE(of_another.sends(MessageKind::confirm, host));
            }
        }
        for (const bool is_older : {false, true}) {
            Started of_home(2);
            Event hello = holder_hello(1, flags, is_older ? newest - 1 : newest);
            hello.stored_tenure = newest;
            of_home.deliver(hello);
            of_home.serve();
            EXPECT_EQ(of_home.sends(MessageKind::recall, 1), is_older);
            EXPECT_EQ(of_home.sends(MessageKind::confirm, 1), !is_older);
        }
    }
}

// Nobody holds it any more, so there is nothing to ask for.
TEST(HomeRecovery, older_bytes_of_a_host_that_loses_its_memory_before_home_serves_count_for_nothing) {
    Started started(2);
    Event hello = holder_hello(1, flag_shared, first_tenure_of(1) + 8);
    hello.stored_tenure = first_tenure_of(1) + 9;
    started.deliver(hello);
    started.deliver(get(MessageKind::get_shared, 2));
    started.deliver(restart_of(1));
    started.serve();
    EXPECT_FALSE(started.sends(MessageKind::recall, 1));
    EXPECT_TRUE(std::ranges::any_of(started.actions, [](const Action& action) {
        return action.kind == Action::Kind::send_home_bytes && action.to == 2;
    }));
}

TEST(HomeRecovery, a_host_that_only_wanted_to_read_loses_nothing_with_its_memory) {
    Started started(2);
    started.serve();
    started.deliver(get(MessageKind::get_shared, 1));
    started.deliver(restart_of(1));
    EXPECT_FALSE(started.records_loss());
}

// Its request stands while the page is resolved, and nobody counts as the owner then.
TEST(HomeRecovery, a_host_that_wanted_to_write_may_lose_writes_with_its_memory) {
    Started started(2);
    started.serve();
    started.deliver(get(MessageKind::get_exclusive, 1));
    started.deliver(get(MessageKind::get_exclusive, 2));
    started.deliver(Event::peer_up_of(1, {1, 1}, {1, 1}));  // another link
    ASSERT_TRUE(started.sends(MessageKind::recall, 1));
    ASSERT_TRUE(started.sends(MessageKind::recall, 2));
    Message report = about_page(MessageKind::report, 1);
    report.tenure = started.home.find(page)->tenure;
    report.request_id = 20;  // it waits still
    started.deliver(Event::message_of(report));
    started.deliver(restart_of(1));
    EXPECT_TRUE(started.records_loss());
}

TEST(HomeRecovery, with_the_memory_of_the_anchor_writes_are_lost_and_the_other_readers_are_asked) {
    Started started(2);
    started.deliver(holder_hello(1, flag_shared | flag_anchor, first_tenure_of(1) + 8));
    started.deliver(holder_hello(2, flag_shared, first_tenure_of(1) + 8));
    started.serve();
    ASSERT_EQ(started.home.find(page)->anchor, 1);
    started.deliver(restart_of(1));
    EXPECT_TRUE(started.records_loss());
    EXPECT_TRUE(started.sends(MessageKind::recall, 2));
    EXPECT_FALSE(started.sends(MessageKind::recall, 1));
}

TEST(HomeRecovery, an_anchor_that_loses_its_memory_before_home_serves_is_none) {
    Started started(2);
    started.deliver(holder_hello(1, flag_shared | flag_anchor, first_tenure_of(1) + 8));
    started.deliver(holder_hello(2, flag_shared, first_tenure_of(1) + 8));
    started.deliver(restart_of(1));
    started.serve();
    EXPECT_FALSE(started.sends(MessageKind::confirm, 1));
    EXPECT_EQ(started.home.find(page)->anchor, 2);
}

TEST(HomeRecovery, of_a_page_that_nobody_holds_home_has_the_newest_bytes) {
    Started started(2);
    started.deliver(get(MessageKind::get_shared, 1));
    started.serve();
    EXPECT_TRUE(std::ranges::any_of(started.actions, [](const Action& action) {
        return action.kind == Action::Kind::send_home_bytes && action.to == 1;
    }));
    EXPECT_TRUE(started.home.find(page)->home_has_bytes());
}

// It said so before it heard of the order, which tells it what to do.
TEST(HomeRecovery, who_is_ordered_to_give_the_page_away_and_says_that_it_holds_it_is_not_asked_again) {
    Started started(2);
    started.serve();
    started.deliver(get(MessageKind::get_exclusive, 1));
    const Tenure tenure = started.home.find(page)->tenure;
    Message done = about_page(MessageKind::done, 1);
    done.request_id = 20;
    started.deliver(Event::message_of(done));
    started.deliver(get(MessageKind::get_exclusive, 2));
    ASSERT_TRUE(started.sends(MessageKind::move, 1));
    started.deliver(holder_hello(1, flag_exclusive, tenure));
    EXPECT_EQ(started.actions.size(), 0u);
}

TEST(HomeRecovery, a_report_of_a_host_that_was_not_asked_counts_for_nothing) {
    Started started(2);
    started.deliver(holder_hello(1, flag_exclusive, first_tenure_of(1) + 9));
    started.deliver(holder_hello(2, flag_shared, first_tenure_of(1) + 8));
    started.serve();
    const Claim& claim = *started.home.find(page);
    ASSERT_TRUE(claim.resolving);
    Message report = about_page(MessageKind::report, 3);
    report.tenure = claim.tenure;
    report.hosts = claim.tenure - 1;
    report.flags = flag_payload;
    Event event = Event::message_of(report, 5);
    started.deliver(event);
    ASSERT_EQ(started.actions.size(), 1u);
    EXPECT_EQ(started.actions.begin()->kind, Action::Kind::release_frame);
}

TEST(HomeRecovery, one_of_the_readers_that_missed_a_home_in_doubt_or_a_loss_is_to_write_back) {
    const std::vector<LossRange> ranges{{.first = page, .last = page, .generation = 3}};
    const LossRanges losses(ranges);
    const Home::Past doubt_in_3{.last_in_doubt = 3};
    const Home::Past loss_in_3{.last_in_doubt = 2, .last_loss = 3};
    for (const Home::Past& past : {doubt_in_3, loss_in_3}) {
        Started started(5, past);
        for (const HostId host : {1, 2}) started.deliver(holder_hello(host, flag_shared, first_tenure_of(2)));
        Event recovered = Event::about(Event::Kind::recovered, PageId{});
        recovered.has_memory = true;
        recovered.losses = &losses;
        started.deliver(recovered);
        for (const HostId host : {1, 2}) EXPECT_TRUE(started.sends(MessageKind::confirm, host));
        EXPECT_EQ(started.home.find(page)->anchor, 1);
    }
}

TEST(HomeRecovery, of_three_hosts_that_say_they_own_the_page_all_are_asked) {
    Started started(2);
    for (const HostId host : {1, 2, 3})
        started.deliver(holder_hello(host, flag_exclusive, first_tenure_of(1) + 10 - host));
    started.serve();
    for (const HostId host : {1, 2, 3}) EXPECT_TRUE(started.sends(MessageKind::recall, host)) << host;
}

TEST(HomeRecovery, all_who_have_kept_bytes_are_asked) {
    Started started(2);
    for (const HostId host : {1, 2, 3}) started.deliver(holder_hello(host, flag_bytes, 0));
    started.serve();
    for (const HostId host : {1, 2, 3}) EXPECT_TRUE(started.sends(MessageKind::recall, host)) << host;
}

}  // namespace
}  // namespace tarn::protocol
