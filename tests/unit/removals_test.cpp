// How a volume goes that has no name any more. The test plays the other host: what it is asked, and what it answers.
#include "daemon/catalog/removals.hpp"

#include "tests/unit/home_on_device.hpp"

namespace tarn::home_on_device {
namespace {

// The NBD clients of this host.
class Clients final : public VolumeClients {
  public:
    Task<std::vector<std::string>> clients_of(VolumeId volume) override {
        co_return volume == volume_id ? users : std::vector<std::string>{};
    }
    Task<> end_clients_of(VolumeId volume) override {
        ended.push_back(volume);
        co_return;
    }
    std::vector<std::string> users;
    std::vector<VolumeId> ended;
};

class RemovalsTest : public HomeOnDevice {
  protected:
    RemovalsTest() {
        fabric_.on_call = [this](HostId, CallKind kind, std::string request) {
            EXPECT_EQ(kind, CallKind::removal);
            return play_peer(std::move(request));
        };
        removals_.set_clients(&clients_);
    }
    ~RemovalsTest() override {
        cache_->abandon();
        use_ = {};
        hangs_ = false;
        released_.announce();
        loop_->run_until_done(tasks_.close());
        loop_->run_until_done(removals_.end());
        let_run();  // a peer whose answer nobody awaits any more ends as well
        fabric_.on_call = {};
    }

    Task<Result<std::string>> play_peer(std::string request) {
        asked_.push_back(request);
        for (uint64_t seen = released_.count(); hangs_; seen = released_.count()) co_await released_.next(seen);
        co_return peer_says_;
    }
    Result<std::string> call(std::string request, bool of_registrar) {
        return loop_->run_until_done(removals_.on_call(std::move(request), of_registrar));
    }
    std::vector<std::string> users() { return loop_->run_until_done(removals_.users_of(volume_id)); }
    void let_run() { loop_->run_until_done(turns(*loop_)); }
    void begin_removal() { tasks_.spawn(perform(*this)); }
    static Task<> perform(RemovalsTest& self) {
        self.is_gone_ = co_await self.removals_.perform(volume_id);
        self.ended_ = true;
    }
    Deletion explained() const {
        Deletion deletion{.name = {}, .id = volume_id, .in_use_on = {}, .silent_hosts = {}};
        removals_.explain(deletion);
        return deletion;
    }

    Clients clients_;
    Result<std::string> peer_says_ = std::string();
    std::vector<std::string> asked_;
    bool hangs_ = false;
    Broadcast released_;
    VolumeUses::Use use_;  // of this host
    bool ended_ = false;
    bool is_gone_ = false;
    Removals removals_{*cache_, {loop_.get()}, {"here", "there"}};
    Gate tasks_;
};

TEST_F(RemovalsTest, asks_for_one_step_after_the_other) {
    begin_removal();
    let_run();
    EXPECT_TRUE(ended_ && is_gone_);
    EXPECT_EQ(asked_, (std::vector<std::string>{"close 7", "discard 7", "erase 7"}));
    EXPECT_EQ(clients_.ended, std::vector<VolumeId>{volume_id});
}

TEST_F(RemovalsTest, a_host_where_it_is_open_is_waited_for_and_named) {
    use_ = VolumeUses::Use(cache_->uses(), volume_id);
    begin_removal();
    let_run();
    EXPECT_EQ(asked_, std::vector<std::string>{"close 7"}) << "nothing is discarded while it is open somewhere";
    EXPECT_EQ(explained().in_use_on, std::vector<std::string>{"here"});
    EXPECT_TRUE(explained().silent_hosts.empty());
    use_ = {};
    let_run();
    EXPECT_TRUE(ended_ && is_gone_);
    EXPECT_TRUE(explained().in_use_on.empty());
}

TEST_F(RemovalsTest, a_host_that_comes_back_is_asked_again) {
    cut();
    peer_says_ = fail(Errc::unavailable);
    begin_removal();
    let_run();
    EXPECT_EQ(asked_.size(), 1u) << "it is not asked before anything has changed";
    EXPECT_EQ(explained().silent_hosts, std::vector<std::string>{"there"});
    peer_says_ = std::string();
    link();
    let_run();
    EXPECT_TRUE(ended_ && is_gone_);
    EXPECT_EQ(asked_, (std::vector<std::string>{"close 7", "close 7", "discard 7", "erase 7"}));
}

TEST_F(RemovalsTest, a_host_that_fails_leaves_the_volume_to_the_next_process) {
    peer_says_ = fail(Errc::io);
    begin_removal();
    let_run();
    EXPECT_TRUE(ended_);
    EXPECT_FALSE(is_gone_);
    EXPECT_EQ(asked_, std::vector<std::string>{"close 7"}) << "the next step is not begun";
}

TEST_F(RemovalsTest, a_host_that_stops_leaves_the_volume_to_the_next_process) {
    cut();
    peer_says_ = fail(Errc::unavailable);
    begin_removal();
    let_run();
    cache_->abandon();
    let_run();
    EXPECT_TRUE(ended_);
    EXPECT_FALSE(is_gone_);
}

TEST_F(RemovalsTest, only_the_registrar_may_ask_for_a_step) {
    for (const char* const step : {"close 7", "discard 7", "erase 7"}) {
        const Result<std::string> refused = call(step, false);
        ASSERT_FALSE(refused) << step;
        EXPECT_EQ(refused.error().code, Errc::protocol);
        EXPECT_TRUE(call(step, true)) << step;
    }
    EXPECT_EQ(clients_.ended.size(), 1u);
    EXPECT_EQ(*call("users 7", false), "[]");
}

TEST_F(RemovalsTest, what_is_no_request_is_refused) {
    for (const char* const request : {"", "close", "close ", "close x", "close 7x", "close 0", "close -1",
                                      "close 16777216", "open 7", "close  7", "users 0"}) {
        const Result<std::string> refused = call(request, true);
        ASSERT_FALSE(refused) << request;
        EXPECT_EQ(refused.error().code, Errc::protocol) << request;
    }
    EXPECT_TRUE(clients_.ended.empty());
}

TEST_F(RemovalsTest, names_the_users_of_all_hosts) {
    clients_.users = {"192.0.2.9:1"};
    peer_says_ = std::string(R"(["192.0.2.9:2", "192.0.2.9:3"])");
    EXPECT_EQ(users(), (std::vector<std::string>{"192.0.2.9:1 (host here)", "192.0.2.9:2 (host there)",
                                                 "192.0.2.9:3 (host there)"}));
    EXPECT_EQ(asked_, std::vector<std::string>{"users 7"});
}

TEST_F(RemovalsTest, users_of_a_host_that_does_not_answer_are_not_known) {
    clients_.users = {"192.0.2.9:1"};
    const std::vector<std::string> own{"192.0.2.9:1 (host here)"};
    peer_says_ = fail(Errc::unavailable);
    EXPECT_EQ(users(), own);
    peer_says_ = std::string("no list");
    EXPECT_EQ(users(), own);
    peer_says_ = std::string(R"([1, {}])");
    EXPECT_EQ(users(), own);
    hangs_ = true;
    EXPECT_EQ(users(), own);
    asked_.clear();
    cut();
    EXPECT_EQ(users(), own);
    EXPECT_TRUE(asked_.empty()) << "who is away is not asked";
}

}  // namespace
}  // namespace tarn::home_on_device
