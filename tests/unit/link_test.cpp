// One link as it comes up and breaks: what goes over it first, and what waits for an answer over it.
#include "tests/unit/played_peer.hpp"

namespace tarn::played_peer {
namespace {

using LinkTest = PlayedPeerTest;

Message asks_for(uint64_t page) {
    Message asks;
    asks.kind = MessageKind::get_shared;
    asks.from = 0;
    asks.page = PageId::of(5, page);
    asks.request_id = static_cast<protocol::RequestId>(page + 1);
    return asks;
}

TEST_F(LinkTest, what_other_threads_send_comes_after_what_a_host_says_first) {
    constexpr uint64_t asked_first = 16;
    const auto says_first = [&] {
        Message first = asks_for(0);
        first.kind = MessageKind::hello;
        fabric_->send(1, first, {});
        std::thread other([&] {
            for (uint64_t page = asked_first; page < asked_first + 3; ++page) fabric_->send(1, asks_for(page), {});
        });
        other.join();
        first.page = PageId::of(5, 1);
        fabric_->send(1, first, {});
    };
    recorder_.change([&] { recorder_.says_first = says_first; });
    const UniqueFd fd = link();
    Message seen;
    for (uint64_t page = 0; page < 2; ++page) {
        ASSERT_TRUE(receive(fd, &seen, sizeof seen));
        EXPECT_EQ(seen.kind, MessageKind::hello);
        EXPECT_EQ(seen.page, PageId::of(5, page));
    }
    ASSERT_TRUE(receive(fd, &seen, sizeof seen));
    EXPECT_EQ(static_cast<uint8_t>(seen.kind), static_cast<uint8_t>(ControlRecord::Kind::greeted))
        << "that it has said all";
    for (uint64_t asked = 0; asked < 3;) {
        ASSERT_TRUE(receive(fd, &seen, sizeof seen));
        EXPECT_EQ(seen.kind, MessageKind::get_shared);
        EXPECT_EQ(seen.page, PageId::of(5, asked_first + asked));
        asked += 1 + seen.run;
    }
}

// A call of the fabric's loop, and what came of it.
struct Calling final : Loop::Posted {
    explicit Calling(LinkedFabric& of, Recorder& tells) : fabric(of), recorder(tells) {}
    void run() override { Loop::current()->spawn(call(*this)); }
    static Task<> call(Calling& self) {
        Result<std::string> answer = co_await self.fabric.call(1, CallKind::change, "ping");
        self.recorder.change([&] { self.ended.emplace(std::move(answer)); });
    }
    LinkedFabric& fabric;
    Recorder& recorder;
    std::optional<Result<std::string>> ended;
};

TEST_F(LinkTest, a_call_ends_with_the_link_that_it_went_over) {
    Calling calling(*fabric_, recorder_);
    {
        const UniqueFd fd = link();
        ASSERT_TRUE(recorder_.comes([&] { return recorder_.links_up == 1; }));
        Message seen;
        ASSERT_TRUE(receive(fd, &seen, sizeof seen));  // greeted
        loop_->post(calling);
        ASSERT_TRUE(receive(fd, &seen, sizeof seen));
        EXPECT_EQ(static_cast<uint8_t>(seen.kind), static_cast<uint8_t>(ControlRecord::Kind::call));
        EXPECT_FALSE(calling.ended);
    }
    ASSERT_TRUE(recorder_.comes([&] { return calling.ended.has_value(); }));
    ASSERT_FALSE(*calling.ended);
    EXPECT_EQ(calling.ended->error().code, Errc::unavailable);
}

// Answers a call when the test says so.
struct LateAnswer final : Loop::Posted {
    void run() override { may_answer.notify_all(); }
    static Task<Result<std::string>> answer(LateAnswer& self, Recorder& recorder) {
        recorder.change([&] { self.asked = true; });
        co_await self.may_answer.wait();
        recorder.change([&] { self.has_answered = true; });
        co_return std::string("late");
    }
    Event may_answer;
    bool asked = false;
    bool has_answered = false;
};

// Its number may be that of a call of the peer's next process by then.
TEST_F(LinkTest, an_answer_goes_over_no_later_link_than_its_call_came_over) {
    LateAnswer late;
    fabric_->calls().set(CallKind::removal,
                         [&](HostId, const std::string&) { return LateAnswer::answer(late, recorder_); });
    Message call = message(static_cast<MessageKind>(ControlRecord::Kind::call));
    call.sequence = 0;
    Message seen;
    {
        const UniqueFd fd = link();
        ASSERT_TRUE(receive(fd, &seen, sizeof seen));  // greeted
        call.request_id = 1;
        call.flags = static_cast<uint8_t>(CallKind::removal);
        send(fd, &call, sizeof call);
        ASSERT_TRUE(recorder_.comes([&] { return late.asked; }));
    }
    ASSERT_TRUE(recorder_.comes([&] { return recorder_.links_down == 1; }));
    const UniqueFd fd = link();
    ASSERT_TRUE(receive(fd, &seen, sizeof seen));  // greeted
    loop_->post(late);
    ASSERT_TRUE(recorder_.comes([&] { return late.has_answered; }));
    call.request_id = 2;
    call.flags = static_cast<uint8_t>(CallKind::change);
    send(fd, &call, sizeof call);
    ASSERT_TRUE(receive(fd, &seen, sizeof seen));
    EXPECT_EQ(seen.request_id, 2U) << "an answer to a call that came over the link before";
}

TEST_F(LinkTest, nothing_that_was_sent_without_a_link_goes_over_the_next) {
    {
        const UniqueFd fd = link();
        ASSERT_TRUE(recorder_.comes([&] { return recorder_.links_up == 1; }));
        EXPECT_TRUE(fabric_->linked(1));
    }
    ASSERT_TRUE(recorder_.comes([&] { return recorder_.links_down == 1; }));
    EXPECT_FALSE(fabric_->linked(1));
    fabric_->send(1, asks_for(3), {});
    const UniqueFd fd = link();
    Message seen;
    ASSERT_TRUE(receive(fd, &seen, sizeof seen));
    EXPECT_EQ(static_cast<uint8_t>(seen.kind), static_cast<uint8_t>(ControlRecord::Kind::greeted));
    fabric_->send(1, asks_for(4), {});
    ASSERT_TRUE(receive(fd, &seen, sizeof seen));
    EXPECT_EQ(seen.page, PageId::of(5, 4));
}

// A proof that says nothing of its direction could be sent back to who made it.
TEST_F(LinkTest, a_proof_that_is_sent_back_proves_nothing) {
    const UniqueFd fd = connect();
    const Introduction own = introduce(1, peer_process, {});
    send(fd, &own, sizeof own);
    Introduction theirs;
    Proof proof{};
    ASSERT_TRUE(receive(fd, &theirs, sizeof theirs));
    ASSERT_TRUE(receive(fd, &proof, sizeof proof));
    send(fd, proof.data(), proof.size());
    EXPECT_TRUE(hung_up(fd));
    EXPECT_EQ(recorder_.links_up, 0U);
}

TEST(Authentication, a_proof_is_about_both_sides_and_their_nonces) {
    const Introduction a = introduce(1, peer_process, {});
    const Introduction b = introduce(0, {3, 3}, {});
    Introduction other_a = a;
    Introduction other_b = b;
    other_a.nonce.back() ^= 1;
    other_b.nonce.back() ^= 1;
    const Proof proof = prove(key, Direction::connecting, a, b);
    EXPECT_TRUE(equal(proof, prove(key, Direction::connecting, a, b)));
    EXPECT_FALSE(equal(proof, prove(key, Direction::connecting, other_a, b)));
    EXPECT_FALSE(equal(proof, prove(key, Direction::connecting, a, other_b)));
    EXPECT_FALSE(equal(proof, prove(key, Direction::accepting, a, b)));
    EXPECT_FALSE(equal(proof, prove("another key", Direction::connecting, a, b)));
}

TEST(Authentication, no_two_nonces_are_the_same) {
    EXPECT_NE(introduce(1, peer_process, {}).nonce, introduce(1, peer_process, {}).nonce);
}

TEST(Authentication, lists_with_names_that_end_elsewhere_differ) {
    const std::vector<std::string> one{"ab", "c"};
    const std::vector<std::string> other{"a", "bc"};
    EXPECT_NE(digest_of(one), digest_of(other));
}

TEST_F(LinkTest, a_later_connection_of_a_peer_takes_the_place_of_one_that_is_still_open) {
    const UniqueFd before = link();
    ASSERT_TRUE(recorder_.comes([&] { return recorder_.links_up == 1; }));
    const UniqueFd fd = link();
    ASSERT_TRUE(recorder_.comes([&] { return recorder_.links_up == 2; }));
    EXPECT_TRUE(hung_up(before));
    EXPECT_TRUE(fabric_->linked(1));
}

TEST_F(LinkTest, a_call_without_a_link_fails_at_once) {
    Calling calling(*fabric_, recorder_);
    loop_->post(calling);
    ASSERT_TRUE(recorder_.comes([&] { return calling.ended.has_value(); }));
    ASSERT_FALSE(*calling.ended);
    EXPECT_EQ(calling.ended->error().code, Errc::unavailable);
}

// A connection of which nothing is known but whether it is still there.
class Unused final : public Connection {
  public:
    explicit Unused(bool& is_closed) : is_closed_(is_closed) {}
    ~Unused() override { is_closed_ = true; }
    Task<Result<>> connect() override { co_return fail(Errc::unsupported); }
    Task<Result<size_t>> send(std::span<const std::byte>) override { co_return fail(Errc::unsupported); }
    Task<Result<size_t>> receive(std::span<std::byte>) override { co_return fail(Errc::unsupported); }
    void shut_down() override {}
    void cancel() override {}
    TransportKind kind() const override { return TransportKind::in_process; }
    std::string peer_name() const override { return "nobody"; }
    Origin origin() const override { return {}; }
    std::unique_ptr<Channel> become_channel(Loop&) override {
        ADD_FAILURE() << "it is served";
        return nullptr;
    }

  private:
    bool& is_closed_;
};

// Gives the link a connection in a turn of its loop, and says what became of it.
struct HandingOver final : Loop::Posted {
    explicit HandingOver(Link& to) : link(to) {}
    void run() override { link.take_over(std::make_unique<Unused>(is_closed), peer_process, *Loop::current()); }
    Link& link;
    bool is_closed = false;
};

TEST(LinkEnd, a_connection_that_comes_when_the_link_or_its_loop_has_ended_is_closed) {
    Recorder recorder;
    Broadcast drained;
    const CallHandlers calls;
    const auto loop = std::move(*Loop::create());
    Loop* const shard = loop.get();
    PerLoop<Link::Corked> corked(std::span(&shard, 1));
    Link ended(*loop, 1, "ended", recorder, calls, 1 << 20, 0ms, drained, corked);
    Link open(*loop, 2, "open", recorder, calls, 1 << 20, 0ms, drained, corked);
    struct Late {
        static Task<> hand_over(Loop& loop, HandingOver& late) {
            while (!loop.ending()) co_await Yield(loop);
            late.run();
            co_await late.link.idle();
            EXPECT_TRUE(late.is_closed);
        }
        static Task<> end_first(Loop& loop, HandingOver& late) {
            late.link.end();
            late.run();
            co_await late.link.idle();
            EXPECT_TRUE(late.is_closed);
            loop.stop();
        }
    };
    HandingOver after_the_link(ended);
    HandingOver after_the_loop(open);
    std::thread thread([&] { loop->run(); });
    struct Start final : Loop::Posted {
        Start(HandingOver& of_link, HandingOver& of_loop) : first(of_link), second(of_loop) {}
        void run() override {
            Loop& here = *Loop::current();
            here.spawn(Late::end_first(here, first));
            here.spawn(Late::hand_over(here, second));
        }
        HandingOver& first;
        HandingOver& second;
    } start(after_the_link, after_the_loop);
    loop->post(start);
    thread.join();
    EXPECT_EQ(recorder.links_up, 0u);
}

}  // namespace
}  // namespace tarn::played_peer
