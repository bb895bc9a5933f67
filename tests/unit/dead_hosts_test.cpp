// Hosts that an operator declares dead: who is asked, who is told, and when it is refused. The test plays the others.
#include "daemon/process/dead_hosts.hpp"

#include <optional>

#include "tests/unit/home_on_device.hpp"

namespace tarn::home_on_device {
namespace {

constexpr HostId other = 2;

// As on the wire.
struct Notice {
    HostId host = 0;
    uint8_t linked = 0;
    uint16_t reserved = 0;
    Incarnation incarnation = 0;
    bool operator==(const Notice&) const = default;
};

// `peer` is the host that dies; `other` is asked and told.
class DeadHostsTest : public HomeOnDevice {
  protected:
    DeadHostsTest() {
        fabric_.on_call = [this](HostId to, CallKind kind, std::string request) {
            return play_other(to, kind, std::move(request));
        };
        loop_->run_until_done([](DeadHostsTest& self) -> Task<bool> {
            self.dead_hosts_.emplace(*self.cache_, std::vector<HostId>{peer, other});
            co_return true;
        }(*this));
        cut();
        fabric_.up = set_of(other);
    }
    ~DeadHostsTest() override {
        cache_->abandon();
        loop_->run_until_done(tasks_.close());
        fabric_.on_call = {};
    }

    Task<Result<std::string>> play_other(HostId to, CallKind kind, std::string request) {
        EXPECT_EQ(to, other);
        const Notice notice = *unpack<Notice>(request);
        if (kind == CallKind::knows_of_host) {
            ++asked_;
            if (!knows_) co_return fail(Errc::unavailable);
            Notice answer = notice;
            answer.linked = knows_->linked;
            answer.incarnation = knows_->incarnation;
            co_return pack(answer);
        }
        EXPECT_EQ(kind, CallKind::host_is_dead);
        told_.push_back(notice);
        co_return takes_it_;
    }
    Result<DeadHosts::Outcome> forget() { return loop_->run_until_done(dead_hosts_->forget(peer)); }
    Result<std::string> hear(CallKind kind, HostId from, std::string request) {
        return loop_->run_until_done(fabric_.calls().answer(kind, from, std::move(request)));
    }
    void let_run() { loop_->run_until_done(turns(*loop_)); }

    std::optional<DeadHosts> dead_hosts_;
    std::optional<Notice> knows_ = Notice{.incarnation = 1};
    Result<std::string> takes_it_ = std::string();
    unsigned asked_ = 0;
    std::vector<Notice> told_;
    Gate tasks_;
};

TEST_F(DeadHostsTest, all_hosts_are_told) {
    const auto outcome = forget();
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->told, std::vector<HostId>{other});
    EXPECT_TRUE(outcome->not_told.empty());
    EXPECT_TRUE(cache_->membership().is_dead(peer));
    EXPECT_EQ(told_, (std::vector<Notice>{{.host = peer, .incarnation = 1}}));
}

TEST_F(DeadHostsTest, the_youngest_process_that_anybody_met_is_the_dead_one) {
    knows_->incarnation = 5;
    ASSERT_TRUE(forget());
    EXPECT_EQ(cache_->membership().dead_incarnation(peer), 5u);
    ASSERT_EQ(told_.size(), 1u);
    EXPECT_EQ(told_.front().incarnation, 5u);
}

TEST_F(DeadHostsTest, a_host_that_is_linked_here_is_not_dead) {
    fabric_.up |= set_of(peer);
    const auto refused = forget();
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::busy);
    EXPECT_EQ(asked_, 0u);
    EXPECT_FALSE(cache_->membership().is_dead(peer));
}

TEST_F(DeadHostsTest, a_host_that_is_linked_elsewhere_is_not_dead) {
    knows_->linked = 1;
    const auto refused = forget();
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::busy);
    EXPECT_TRUE(told_.empty());
    EXPECT_FALSE(cache_->membership().is_dead(peer));
}

TEST_F(DeadHostsTest, a_host_that_is_away_is_not_told) {
    knows_.reset();
    takes_it_ = fail(Errc::unavailable);
    const auto outcome = forget();
    ASSERT_TRUE(outcome);
    EXPECT_TRUE(outcome->told.empty());
    EXPECT_EQ(outcome->not_told, std::vector<HostId>{other});
    EXPECT_TRUE(cache_->membership().is_dead(peer));
}

TEST_F(DeadHostsTest, a_host_that_refuses_does_not_count_as_told) {
    takes_it_ = fail(Errc::busy);
    const auto outcome = forget();
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->not_told, std::vector<HostId>{other});
    takes_it_ = std::string();
    const auto again = forget();
    ASSERT_TRUE(again) << "once more is no error";
    EXPECT_EQ(again->told, std::vector<HostId>{other});
    EXPECT_TRUE(cache_->membership().is_dead(peer));
}

TEST_F(DeadHostsTest, another_host_may_declare_it) {
    const Notice notice{.host = peer, .incarnation = 1};
    EXPECT_TRUE(hear(CallKind::host_is_dead, other, pack(notice)));
    EXPECT_TRUE(cache_->membership().is_dead(peer));
    EXPECT_TRUE(hear(CallKind::host_is_dead, other, pack(notice)));
    EXPECT_EQ(cache_->membership().dead_incarnation(peer), 1u);
}

TEST_F(DeadHostsTest, a_younger_process_of_it_is_not_meant) {
    peer_process_ = {.incarnation = 3, .epoch = 3};
    fabric_.up |= set_of(peer);
    cache_->inbox().on_link_up(peer, peer_process_);
    cache_->inbox().on_greeted(peer);
    cut();
    EXPECT_TRUE(hear(CallKind::host_is_dead, other, pack(Notice{.host = peer, .incarnation = 2})));
    EXPECT_FALSE(cache_->membership().is_dead(peer));
}

TEST_F(DeadHostsTest, tells_what_is_known_of_a_host) {
    const Notice question{.host = peer};
    EXPECT_EQ(*unpack<Notice>(*hear(CallKind::knows_of_host, other, pack(question))),
              (Notice{.host = peer, .incarnation = 1}));
    fabric_.up |= set_of(peer);
    EXPECT_EQ(*unpack<Notice>(*hear(CallKind::knows_of_host, other, pack(question))),
              (Notice{.host = peer, .linked = 1, .incarnation = 1}));
}

TEST_F(DeadHostsTest, hosts_that_are_none_of_the_cluster_are_refused) {
    for (const CallKind kind : {CallKind::knows_of_host, CallKind::host_is_dead}) {
        for (const HostId host : {HostId{0}, other, HostId{3}, no_host}) {
            const auto refused = hear(kind, other, pack(Notice{.host = host, .incarnation = 9}));
            ASSERT_FALSE(refused) << unsigned{host};
            EXPECT_EQ(refused.error().code, Errc::protocol);
        }
        EXPECT_EQ(hear(kind, other, "short").error().code, Errc::protocol);
    }
    EXPECT_FALSE(cache_->membership().is_dead(peer));
}

TEST_F(DeadHostsTest, who_comes_back_is_told_once_with_each_link) {
    ASSERT_TRUE(forget());
    told_.clear();
    fabric_.up = 0;
    tasks_.spawn(dead_hosts_->keep_told());
    let_run();
    EXPECT_TRUE(told_.empty());
    for (unsigned links = 1; links <= 2; ++links) {
        fabric_.up = set_of(other);
        cache_->membership().changed().announce();
        let_run();
        EXPECT_EQ(told_, std::vector<Notice>(links, Notice{.host = peer, .incarnation = 1}));
        cache_->membership().changed().announce();
        let_run();
        EXPECT_EQ(told_.size(), links) << "the link is the same";
        fabric_.up = 0;
        cache_->membership().changed().announce();
        let_run();
    }
}

}  // namespace
}  // namespace tarn::home_on_device
