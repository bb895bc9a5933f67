// What every transport must do, told once: three hosts are linked over it, on one loop, and talk.
//
// A transport takes part with a Network and one line at the end. What is TCP's alone, and how a link takes bytes
// however they are cut, is in linked_fabric_test.cpp.
#include "tests/unit/linked_hosts.hpp"

namespace tarn::linked_hosts {
namespace {

class TransportConformance : public LinkedHosts, public testing::WithParamInterface<std::unique_ptr<Network> (*)()> {
  protected:
    void SetUp() override { join(GetParam()()); }

    // As a host that is played by the test: the whole handshake with host 0; then nothing is read but how it ends.
    std::unique_ptr<Channel> connect_as(HostId host) { return loop_->run_until_done(connect(*this, host)); }
    template <class Sender>
    void say(Sender& sender, std::string_view bytes) {
        EXPECT_TRUE(loop_->run_until_done(say_all(sender, std::as_bytes(std::span(bytes)))));
    }
    template <class Receiver>
    bool hangs_up(Receiver& receiver) {
        return loop_->run_until_done(await_end(receiver));
    }
    static std::string bytes_of(const Message& message) {
        return {reinterpret_cast<const char*>(&message), sizeof message};
    }

    template <class Sender>
    static Task<bool> say_all(Sender& sender, std::span<const std::byte> bytes) {
        while (!bytes.empty()) {
            const Result<size_t> sent = co_await sender.send(bytes);
            if (!sent || *sent == 0) co_return false;
            bytes = bytes.subspan(*sent);
        }
        co_return true;
    }
    static Task<bool> hear_all(Connection& connection, std::span<std::byte> into) {
        while (!into.empty()) {
            const Result<size_t> received = co_await connection.receive(into);
            if (!received || *received == 0) co_return false;
            into = into.subspan(*received);
        }
        co_return true;
    }
    static Task<bool> await_end(Connection& connection) {
        std::byte byte{};
        while (co_await hear_all(connection, std::span(&byte, 1))) continue;
        co_return true;
    }
    static Task<bool> await_end(Channel& channel) {
        size_t taken = 0;
        while (const auto received = co_await channel.receive({}, taken)) taken = received->bytes.size();
        co_await channel.close();
        co_return true;
    }
    static Task<std::unique_ptr<Channel>> connect(TransportConformance& self, HostId host) {
        std::unique_ptr<Connection> connection = self.places_[host].transport->open(self.places_[0].address);
        EXPECT_TRUE(co_await connection->connect());
        const Introduction own = introduce(host, process_of(host), {});
        EXPECT_TRUE(co_await say_all(*connection, std::as_bytes(std::span(&own, 1))));
        Introduction theirs;
        Proof proof{};
        EXPECT_TRUE(co_await hear_all(*connection, std::as_writable_bytes(std::span(&theirs, 1))));
        EXPECT_TRUE(co_await hear_all(*connection, proof));
        EXPECT_TRUE(equal(proof, prove(key, Direction::accepting, own, theirs)));
        const Proof ours = prove(key, Direction::connecting, own, theirs);
        EXPECT_TRUE(co_await say_all(*connection, ours));
        Account account;
        Verdict verdict = Verdict::agreed;
        EXPECT_TRUE(co_await say_all(*connection, std::as_bytes(std::span(&account, 1))));
        EXPECT_TRUE(co_await say_all(*connection, std::as_bytes(std::span(&verdict, 1))));
        EXPECT_TRUE(co_await hear_all(*connection, std::as_writable_bytes(std::span(&account, 1))));
        EXPECT_TRUE(co_await hear_all(*connection, std::as_writable_bytes(std::span(&verdict, 1))));
        EXPECT_EQ(verdict, Verdict::agreed);
        co_return connection->become_channel(*self.loop_);
    }
};

TEST_P(TransportConformance, messages_and_pages_of_all_links_arrive_whole_and_in_order) {
    start_all();
    constexpr uint32_t count = 2000;
    const auto has_page = [](uint32_t number) { return number % 3 == 0; };
    for (uint32_t number = 1; number <= count; ++number)
        for (HostId from = 0; from < host_count; ++from)
            for (HostId to = 0; to < host_count; ++to)
                if (to != from) send(from, to, number, has_page(number));
    ASSERT_TRUE(comes([&] {
        for (HostId to = 0; to < host_count; ++to)
            for (HostId from = 0; from < host_count; ++from)
                if (to != from && recorder(to).heard[from].size() < count) return false;
        return true;
    }));
    for (HostId to = 0; to < host_count; ++to)
        for (HostId from = 0; from < host_count; ++from)
            for (uint32_t number = 1; to != from && number <= count; ++number)
                ASSERT_EQ(recorder(to).heard[from][number - 1], expected(from, number, has_page(number)));
}

TEST_P(TransportConformance, without_a_page_to_lend_nothing_overtakes_and_then_it_goes_on) {
    start_all();
    recorder(1).to_lend = 0;
    send(0, 1, 1, true);
    send(0, 1, 2, false);
    send(2, 1, 1, false);
    ASSERT_TRUE(comes([&] { return recorder(1).refused > 0 && recorder(1).heard[2].size() == 1; }));
    EXPECT_TRUE(recorder(1).heard[0].empty());
    recorder(1).to_lend = 1;
    fabric(1).resume(0);
    ASSERT_TRUE(comes([&] { return recorder(1).heard[0].size() == 2; }));
    EXPECT_EQ(recorder(1).heard[0][0], expected(0, 1, true));
    EXPECT_EQ(recorder(1).heard[0][1], expected(0, 2, false));
}

TEST_P(TransportConformance, who_sends_to_a_host_that_does_not_receive_is_congested_until_it_does) {
    start_all();
    recorder(1).to_lend = 0;
    constexpr uint32_t most = (64 << 20) / page_size;  // more than any transport takes
    uint32_t sent = 0;
    while (!fabric(0).congested(1) && sent < most) {
        for (unsigned i = 0; i < 64; ++i) send(0, 1, ++sent, true);
        unsigned turns = 0;
        comes([&] { return !fabric(0).congested(1) || ++turns == 50; });  // it may only seem so
    }
    ASSERT_TRUE(fabric(0).congested(1));
    EXPECT_FALSE(fabric(0).congested(2));
    const uint64_t drained = fabric(0).drained().count();
    ASSERT_TRUE(comes([&] { return recorder(1).refused > 0; }));
    recorder(1).to_lend = 4;
    fabric(1).resume(0);
    ASSERT_TRUE(comes([&] { return recorder(1).heard[0].size() == sent; }));
    ASSERT_TRUE(comes([&] { return !fabric(0).congested(1); }));
    EXPECT_GT(fabric(0).drained().count(), drained) << "and who waits is told";
    for (uint32_t number = 1; number <= sent; ++number)
        ASSERT_EQ(recorder(1).heard[0][number - 1], expected(0, number, true));
}

TEST_P(TransportConformance, a_break_is_told_once_to_both_and_what_is_sent_without_a_link_is_dropped) {
    start_all();
    constexpr uint32_t count = 500;
    constexpr uint32_t lost = 1000;
    recorder(0).on_down = [&](HostId) {
        EXPECT_FALSE(fabric(0).linked(1));
        send(0, 1, lost, false);
        send(0, 1, lost + 1, true);
    };
    for (uint32_t number = 1; number <= count; ++number) send(0, 1, number, true);
    ASSERT_TRUE(comes([&] { return !recorder(1).heard[0].empty(); }));
    fabric(0).disconnect(1);
    ASSERT_TRUE(comes([&] { return recorder(0).greetings[1] == 2 && recorder(1).greetings[0] == 2; }));
    EXPECT_EQ(recorder(0).downs[1], 1u);
    EXPECT_EQ(recorder(1).downs[0], 1u);
    send(0, 1, lost + 2, false);
    const std::vector<Heard>& heard = recorder(1).heard[0];
    ASSERT_TRUE(comes([&] { return heard.back() == expected(0, lost + 2, false); }));
    for (uint32_t number = 1; number < heard.size(); ++number)
        ASSERT_EQ(heard[number - 1], expected(0, number, true)) << "what had arrived before it, and nothing after";
    EXPECT_EQ(recorder(2).downs[0] + recorder(0).downs[2], 0u) << "other links go on";
}

TEST_P(TransportConformance, the_end_of_a_host_is_told_to_the_others_and_ends_what_waits_on_it) {
    start_all();
    recorder(1).to_lend = 0;
    for (uint32_t number = 1; number <= 200; ++number) send(0, 1, number, true);
    ASSERT_TRUE(comes([&] { return recorder(1).refused > 0; }));
    fabric(1).stop();
    ASSERT_TRUE(comes([&] { return recorder(0).downs[1] == 1 && recorder(2).downs[1] == 1; }));
    EXPECT_FALSE(fabric(0).linked(1));
    EXPECT_FALSE(fabric(0).congested(1));
    EXPECT_TRUE(fabric(0).linked(2));
}

TEST_P(TransportConformance, the_longest_call_is_answered_while_pages_pass) {
    start_all();
    for (uint32_t number = 1; number <= 200; ++number) send(0, 1, number, true);
    const std::string longest(ControlRecord::body_size_max, 'c');
    const auto answer = loop_->run_until_done(fabric(0).call(1, CallKind::change, longest));
    ASSERT_TRUE(answer);
    EXPECT_EQ(*answer, longest);
    EXPECT_EQ(recorder(1).heard[0].size(), 200u) << "what was sent before it came before it";
}

TEST_P(TransportConformance, bad_bytes_end_the_link_and_a_page_that_is_cut_off_goes_back) {
    start(0);
    start(2);
    Message old = message(1, 1, false);
    old.version = 77;
    Message impostor = message(2, 1, false);
    const Message page = message(1, 1, true);
    unsigned links = 0;
    for (const std::string& bad : {bytes_of(old), bytes_of(impostor), bytes_of(page) + "the beginning of one"}) {
        const std::unique_ptr<Channel> channel = connect_as(1);
        say(*channel, bytes_of(message(1, 7, false)) + bad);
        if (bad.size() > sizeof(Message)) {
            ASSERT_TRUE(comes([&] { return recorder(0).lent_count() == 1; }));
            channel->shut_down();
        }
        EXPECT_TRUE(hangs_up(*channel));
        ++links;
        ASSERT_TRUE(comes([&] { return recorder(0).downs[1] == links; }));
    }
    EXPECT_EQ(recorder(0).heard[1], std::vector(3, expected(1, 7, false)));
    EXPECT_EQ(recorder(0).returned, 1);
    EXPECT_EQ(recorder(0).downs[2], 0u) << "nothing but that link";
}

TEST_P(TransportConformance, strangers_are_hung_up_on) {
    start(0);
    const auto made = places_[1].transport->open(places_[0].address);
    EXPECT_TRUE(loop_->run_until_done(made->connect()));
    say(*made, std::string(sizeof(Introduction), 'G'));
    EXPECT_TRUE(hangs_up(*made));
    EXPECT_EQ(recorder(0).ups[1], 0u);
}

std::unique_ptr<Network> over_tcp() {
    return std::make_unique<TcpNetwork>();
}
std::unique_ptr<Network> on_one_machine() {
    return std::make_unique<OneMachine>();
}
std::unique_ptr<Network> over_tcp_and_then_shm() {
    return std::make_unique<UpgradedNetwork>();
}
std::unique_ptr<Network> in_one_process() {
    return std::make_unique<OneProcess>();
}
INSTANTIATE_TEST_SUITE_P(Tcp, TransportConformance, testing::Values(over_tcp));
INSTANTIATE_TEST_SUITE_P(Shm, TransportConformance, testing::Values(on_one_machine));
INSTANTIATE_TEST_SUITE_P(Upgraded, TransportConformance, testing::Values(over_tcp_and_then_shm));
INSTANTIATE_TEST_SUITE_P(InProcess, TransportConformance, testing::Values(in_one_process));

}  // namespace
}  // namespace tarn::linked_hosts
