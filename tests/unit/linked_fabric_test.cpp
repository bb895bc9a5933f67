// One host's fabric against a peer played by the test over a plain socket: it says what a host may say, in awkward
// pieces, and then what no host may say.
#include "tests/unit/played_peer.hpp"

namespace tarn::played_peer {
namespace {

TEST_F(PlayedPeerTest, pages_arrive_whole_however_they_are_cut) {
    const UniqueFd fd = link();
    const std::string bytes = with_page('a') + with_page('b') + with_page('c');
    for (size_t done = 0, size = 1; done < bytes.size(); done += size, size = size * 3 % 1009 + 1)
        send(fd, bytes.data() + done, std::min(size, bytes.size() - done));
    ASSERT_TRUE(recorder_.comes([&] { return recorder_.messages.size() == 3; }));
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(recorder_.pages[i], std::string(page_size, static_cast<char>('a' + i)));
    EXPECT_EQ(recorder_.to_lend, 4);
}

TEST_F(PlayedPeerTest, many_messages_at_once_arrive_in_order) {
    const UniqueFd fd = link();
    constexpr uint32_t count = 1000;
    std::string bytes;
    for (uint32_t i = 0; i < count; ++i) {
        Message each = message(MessageKind::acknowledge);
        each.request_id = i + 1;
        bytes.append(reinterpret_cast<const char*>(&each), sizeof each);
    }
    send(fd, bytes.data(), bytes.size());
    ASSERT_TRUE(recorder_.comes([&] { return recorder_.messages.size() == count; }));
    for (uint32_t i = 0; i < count; ++i) EXPECT_EQ(recorder_.messages[i].request_id, i + 1);
    EXPECT_EQ(loop_->messages(), count) << "counted before they are delivered";
}

TEST_F(PlayedPeerTest, messages_that_arrive_together_are_announced_and_delivered_together) {
    const UniqueFd fd = link();
    std::string bytes;
    for (uint64_t i = 0; i < 8; ++i) {
        Message each =
            message(i % 2 == 0 ? MessageKind::acknowledge : MessageKind::data, i % 2 == 0 ? 0 : protocol::flag_payload);
        each.page = PageId::of(5, i);
        bytes.append(reinterpret_cast<const char*>(&each), sizeof each);
        if (i % 2 != 0) bytes += std::string(page_size, 'p');
    }
    send(fd, bytes.data(), bytes.size());
    ASSERT_TRUE(recorder_.comes([&] { return recorder_.messages.size() == 8; }));
    // The kernel may hand them over in more than one piece, but each was announced before it came, and in order.
    const std::lock_guard guard(recorder_.mutex);
    std::vector<PageId> announced;
    for (const auto& batch : recorder_.batches)
        for (const PageId page : batch)
            if (announced.empty() || announced.back() != page) announced.push_back(page);
    ASSERT_EQ(announced.size(), 8);
    for (uint64_t i = 0; i < 8; ++i) EXPECT_EQ(announced[i], PageId::of(5, i));
}

TEST_F(PlayedPeerTest, what_may_wait_goes_with_the_next_message_or_alone) {
    const UniqueFd fd = link();
    ASSERT_TRUE(recorder_.comes([&] { return recorder_.links_up == 1; }));
    Message greeted;
    ASSERT_TRUE(receive(fd, &greeted, sizeof greeted));
    // Alone: nothing follows, and it comes all the same.
    fabric_->send(1, message(MessageKind::done), {});
    Message seen;
    ASSERT_TRUE(receive(fd, &seen, sizeof seen));
    EXPECT_EQ(seen.kind, MessageKind::done);
    // In order with what takes it along, and only once.
    for (int i = 0; i < 100; ++i) {
        fabric_->send(1, message(MessageKind::free), {});
        fabric_->send(1, message(MessageKind::get_shared), {});
    }
    for (int i = 0; i < 200; ++i) {
        ASSERT_TRUE(receive(fd, &seen, sizeof seen));
        EXPECT_EQ(seen.kind, i % 2 == 0 ? MessageKind::free : MessageKind::get_shared) << i;
    }
}

TEST_F(PlayedPeerTest, what_is_held_together_becomes_one_message) {
    const UniqueFd fd = link();
    ASSERT_TRUE(recorder_.comes([&] { return recorder_.links_up == 1; }));
    Message seen;
    ASSERT_TRUE(receive(fd, &seen, sizeof seen));  // greeted
    // From another shard, while the link's would send.
    other_->run_until_done([](LinkedFabric& fabric, Message each, Loop& links, Loop::Posted& nothing) -> Task<> {
        const Fabric::Cork cork(&fabric);
        for (uint32_t i = 0; i < 40; ++i) {
            each.page = PageId::of(5, 8 + i);
            each.request_id = 1 + i;
            fabric.send(1, each, {});
            if (i == 20) links.post(nothing);
        }
        each.page = PageId::of(5, 1000);
        each.request_id = 7;
        fabric.send(1, each, {});
        co_return;
    }(*fabric_, message(MessageKind::get_shared), *loop_, nothing_));
    ASSERT_TRUE(receive(fd, &seen, sizeof seen));
    EXPECT_EQ(seen.run, 7) << "pages 8 to 15";
    EXPECT_EQ(seen.page, PageId::of(5, 8));
    ASSERT_EQ(seen.parts, 3) << "pages 16 to 31, 32 to 47, and 1000";
    std::array<protocol::Part, 3> parts;
    ASSERT_TRUE(receive(fd, parts.data(), sizeof parts));
    EXPECT_TRUE(protocol::validate(seen, parts));
    EXPECT_EQ(parts[0].page, PageId::of(5, 16));
    EXPECT_EQ(parts[0].request_id, 9);
    EXPECT_EQ(parts[1].run, 15);
    EXPECT_EQ(parts[2].page, PageId::of(5, 1000));
    EXPECT_EQ(parts[2].request_id, 7);
}

// Pages 0 to 15 and 100 to 107, as a host asks for them.
std::string a_batch(Message head) {
    head.kind = MessageKind::get_shared;
    head.page = PageId::of(5, 0);
    head.run = 15;
    head.parts = 2;
    const std::array<protocol::Part, 2> parts{protocol::Part{.page = PageId::of(5, 100), .request_id = 50, .run = 3},
                                              protocol::Part{.page = PageId::of(5, 104), .request_id = 80, .run = 3}};
    return std::string(reinterpret_cast<const char*>(&head), sizeof head) +
           std::string(reinterpret_cast<const char*>(parts.data()), sizeof parts);
}

TEST_F(PlayedPeerTest, a_batch_arrives_as_its_runs_however_it_is_cut) {
    const UniqueFd fd = link();
    std::string bytes;
    for (int i = 0; i < 20; ++i) bytes += a_batch(message(MessageKind::get_shared)) + with_page('b');
    for (size_t done = 0, size = 1; done < bytes.size(); done += size, size = size * 3 % 1009 + 1)
        send(fd, bytes.data() + done, std::min(size, bytes.size() - done));
    ASSERT_TRUE(recorder_.comes([&] { return recorder_.messages.size() == 80; }));
    for (size_t i = 0; i < 80; i += 4) {
        for (size_t run = 0; run < 3; ++run) {
            const Message& seen = recorder_.messages[i + run];
            EXPECT_EQ(seen.page, PageId::of(5, std::array{0, 100, 104}[run]));
            EXPECT_EQ(seen.request_id, (std::array{1u, 50u, 80u}[run]));
            EXPECT_EQ(seen.run, (std::array{15, 3, 3}[run]));
            EXPECT_EQ(seen.parts, 0);
        }
        EXPECT_EQ(recorder_.pages[i + 3], std::string(page_size, 'b'));
    }
    EXPECT_EQ(fabric_->received_count(MessageKind::get_shared), 20);
    EXPECT_EQ(fabric_->received_count(MessageKind::data), 20);
}

TEST_F(PlayedPeerTest, without_a_page_to_lend_the_link_waits_and_then_goes_on) {
    recorder_.change([&] { recorder_.to_lend = 0; });
    const UniqueFd fd = link();
    const Message plain = message(MessageKind::acknowledge);
    const std::string bytes = with_page('x') + std::string(reinterpret_cast<const char*>(&plain), sizeof plain);
    send(fd, bytes.data(), bytes.size());
    ASSERT_TRUE(recorder_.comes([&] { return recorder_.refused == 1; }));
    EXPECT_TRUE(recorder_.messages.empty()) << "the second must not overtake the first";
    recorder_.change([&] { recorder_.to_lend = 1; });
    fabric_->resume(1);
    ASSERT_TRUE(recorder_.comes([&] { return recorder_.messages.size() == 2; }));
    EXPECT_EQ(recorder_.pages[0], std::string(page_size, 'x'));
}

TEST_F(PlayedPeerTest, a_link_that_is_not_read_is_congested_until_it_is_or_breaks) {
    const std::vector<std::byte> page(page_size, std::byte{7});
    Message data = message(MessageKind::data, protocol::flag_payload);
    data.from = 0;
    for (int round = 0; round < 2; ++round) {
        UniqueFd fd = link();
        ASSERT_TRUE(recorder_.comes([&] { return recorder_.links_up == static_cast<unsigned>(round + 1); }));
        EXPECT_FALSE(fabric_->congested(1));
        size_t sent = 0;
        uint64_t drained = fabric_->drained().count();  // before the look at the link, as whoever waits for it does
        for (; !fabric_->congested(1) && sent < (size_t{64} << 20); sent += page_size) {
            fabric_->send(1, data, page);
            drained = fabric_->drained().count();
        }
        ASSERT_LT(sent, size_t{64} << 20) << "more than any socket takes";
        if (round == 0) {
            std::vector<std::byte> bytes(1 << 20);
            // Without a wait: the last bytes may be here before the link has noticed that they are gone.
            const auto until = std::chrono::steady_clock::now() + 10s;
            while (fabric_->drained().count() == drained && std::chrono::steady_clock::now() < until)
                if (::recv(fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) < 0) std::this_thread::yield();
            EXPECT_FALSE(fabric_->congested(1));
        } else {
            fd.reset();
            ASSERT_TRUE(recorder_.comes([&] { return recorder_.links_down == 2; }));
            EXPECT_FALSE(fabric_->congested(1));
        }
        EXPECT_GT(fabric_->drained().count(), drained) << "and who waits is told";
    }
}

TEST_F(PlayedPeerTest, a_waiting_link_can_break) {
    recorder_.change([&] { recorder_.to_lend = 0; });
    const UniqueFd first = link();
    const std::string bytes = with_page('x');
    send(first, bytes.data(), bytes.size());
    ASSERT_TRUE(recorder_.comes([&] { return recorder_.refused == 1; }));
    const UniqueFd second = link();  // the peer started again
    ASSERT_TRUE(recorder_.comes([&] { return recorder_.links_up == 2; }));
    EXPECT_TRUE(recorder_.comes([&] { return recorder_.links_down == 1; }));
}

TEST_F(PlayedPeerTest, a_page_cut_off_in_the_middle_goes_back) {
    {
        const UniqueFd fd = link();
        const std::string bytes = with_page('x');
        send(fd, bytes.data(), sizeof(Message) + 100);
        ASSERT_TRUE(recorder_.comes([&] { return recorder_.lent == 1; }));
    }
    ASSERT_TRUE(recorder_.comes([&] { return recorder_.links_down == 1; }));
    EXPECT_EQ(recorder_.returned, 1);
    EXPECT_TRUE(recorder_.messages.empty());
}

TEST_F(PlayedPeerTest, what_no_host_says_ends_the_link_and_nothing_else) {
    Message unknown = message(MessageKind::acknowledge);
    unknown.kind = static_cast<MessageKind>(99);
    Message old = message(MessageKind::acknowledge);
    old.version = 77;
    Message impostor = message(MessageKind::acknowledge);
    impostor.from = 0;
    Message stale = message(MessageKind::acknowledge);
    stale.incarnation = peer_incarnation - 1;
    Message long_call = message(static_cast<MessageKind>(ControlRecord::Kind::call));
    long_call.sequence = ControlRecord::body_size_max + 1;
    Message endless = message(MessageKind::evict);
    endless.parts = 0xffff;
    Message grants = message(MessageKind::grant);
    grants.parts = 1;
    Message unknown_record = message(static_cast<MessageKind>(250));
    unknown_record.sequence = 0;
    unsigned links = 0;
    for (const Message& bad : {unknown, old, impostor, stale, long_call, endless, grants, unknown_record}) {
        const UniqueFd fd = link();
        send(fd, &bad, sizeof bad);
        EXPECT_TRUE(hung_up(fd));
        ++links;
        ASSERT_TRUE(recorder_.comes([&] { return recorder_.links_down == links; }));
    }
    {
        std::string lie = a_batch(message(MessageKind::get_shared));
        lie[sizeof(Message) + offsetof(protocol::Part, run)] = 16;
        const UniqueFd fd = link();
        send(fd, lie.data(), lie.size());
        EXPECT_TRUE(hung_up(fd));
        EXPECT_TRUE(recorder_.messages.empty()) << "not even the part of it that could be";
    }
    const UniqueFd fd = link();
    const Message good = message(MessageKind::acknowledge);
    send(fd, &good, sizeof good);
    ASSERT_TRUE(recorder_.comes([&] { return recorder_.messages.size() == 1; }));
}

TEST_F(PlayedPeerTest, stopping_waits_for_no_handshake) {
    const UniqueFd fd = connect();
    const timeval limit{.tv_sec = 3, .tv_usec = 0};  // less than a handshake may take
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    const Introduction own = introduce(1, peer_process, {});
    send(fd, &own, sizeof own);
    Introduction theirs;
    Proof proof{};
    ASSERT_TRUE(receive(fd, &theirs, sizeof theirs));
    ASSERT_TRUE(receive(fd, &proof, sizeof proof));
    stop();
    EXPECT_TRUE(hung_up(fd));
}

TEST_F(PlayedPeerTest, there_is_no_link_with_a_store_that_is_older_than_the_other_host_remembers_it) {
    {
        const UniqueFd fd = connect();
        prove_us(fd);
        const Account::Standing newer{.nonce = 1, .position = 1, .epoch = Recorder::own.epoch + 1};
        EXPECT_EQ(compare_stores(fd, newer, Verdict::agreed), Verdict::mine_is_older);
        EXPECT_TRUE(hung_up(fd));
    }
    {
        const UniqueFd fd = connect();
        prove_us(fd);
        EXPECT_EQ(compare_stores(fd, {}, Verdict::mine_is_older), Verdict::agreed);
        EXPECT_TRUE(hung_up(fd));
    }
    recorder_.change([&] {
        EXPECT_EQ(recorder_.links_up, 0);
        EXPECT_TRUE(recorder_.standings.empty());
    });
    const UniqueFd fd = link(key, {.nonce = 30, .position = 1, .epoch = Recorder::own.epoch});
    ASSERT_TRUE(recorder_.comes([&] { return recorder_.links_up == 1; }));
    const StoreStanding ours{.epoch = peer_incarnation, .nonce = 5, .position = 4096};
    EXPECT_EQ(recorder_.standings, (std::vector<std::pair<HostId, StoreStanding>>{{1, ours}}));
}

TEST_F(PlayedPeerTest, an_account_with_bits_that_mean_nothing_yet_is_refused) {
    for (const bool of_own : {true, false}) {
        const UniqueFd fd = connect();
        prove_us(fd);
        Account ours;
        (of_own ? ours.own : ours.of_you).flags = 4;
        send(fd, &ours, sizeof ours);
        Account theirs;
        EXPECT_TRUE(receive(fd, &theirs, sizeof theirs));
        Verdict verdict{};
        EXPECT_FALSE(receive(fd, &verdict, sizeof verdict)) << "it has hung up";
    }
}

TEST_F(PlayedPeerTest, strangers_are_refused_before_anything_is_told) {
    EXPECT_TRUE(hung_up(link("another key")));
    {
        const UniqueFd fd = connect();
        const std::string garbage(sizeof(Introduction), 'G');
        send(fd, garbage.data(), garbage.size());
        EXPECT_TRUE(hung_up(fd));
    }
    for (const HostId host : {HostId{0}, HostId{2}, HostId{200}}) {
        const UniqueFd fd = connect();
        const Introduction own = introduce(host, peer_process, {});
        send(fd, &own, sizeof own);
        EXPECT_TRUE(hung_up(fd));
    }
    {
        const UniqueFd fd = connect();
        const Introduction own = introduce(1, peer_process, {1, 2, 3});
        send(fd, &own, sizeof own);
        EXPECT_TRUE(hung_up(fd)) << "of another cluster";
    }
    EXPECT_EQ(recorder_.links_up, 0);
}

TEST_F(PlayedPeerTest, few_strangers_are_kept_at_a_time_and_a_host_gets_through) {
    std::vector<UniqueFd> silent;
    for (size_t i = 0; i < 4 * Strangers::count_of_origin_max; ++i) silent.push_back(connect());
    EXPECT_EQ(hung_up_count(silent, 3 * Strangers::count_of_origin_max), 3 * Strangers::count_of_origin_max);
    EXPECT_TRUE(hung_up(silent.front())) << "who came first leaves first";
    const UniqueFd fd = link();
    EXPECT_TRUE(recorder_.comes([&] { return recorder_.links_up == 1; }));
    // The others are not of that address; one of the silent ones made room for the host, and left a place.
    for (uint8_t from = 2; silent.size() < 4 * Strangers::count_of_origin_max + Strangers::count_max; ++from)
        for (size_t i = 0; i < Strangers::count_of_origin_max; ++i) silent.push_back(connect(from));
    constexpr size_t gone = 4 * Strangers::count_of_origin_max;
    EXPECT_EQ(hung_up_count(silent, gone), gone) << "of all of them, as many are kept as there are places";
    const UniqueFd again = link();
    EXPECT_TRUE(recorder_.comes([&] { return recorder_.links_up == 2; }));
}

TEST_F(PlayedPeerTest, a_process_that_was_declared_dead_is_refused_and_a_younger_one_is_not) {
    recorder_.dead_incarnation = peer_incarnation;
    {
        const UniqueFd fd = connect();
        prove_us(fd);
        Account account;
        send(fd, &account, sizeof account);
        EXPECT_TRUE(receive(fd, &account, sizeof account));
        EXPECT_EQ(account.own.flags, Account::you_are_dead) << "it is told why";
        EXPECT_TRUE(hung_up(fd));
    }
    EXPECT_EQ(recorder_.links_up, 0);
    EXPECT_TRUE(recorder_.standings.empty());
    recorder_.dead_incarnation = peer_incarnation - 1;
    const UniqueFd fd = link(key);
    EXPECT_TRUE(recorder_.comes([&] { return recorder_.links_up == 1; }));
}

class PlayedPeerListens : public PlayedPeerTest {
  protected:
    std::chrono::milliseconds listen_for() const override { return 20ms; }
    // Whether it comes true soon.
    bool soon(bool answers) const {
        const auto deadline = std::chrono::steady_clock::now() + timeout;
        while (fabric_->answers(1) != answers && std::chrono::steady_clock::now() < deadline)
            std::this_thread::sleep_for(1ms);
        return fabric_->answers(1) == answers;
    }
    static constexpr uint8_t ask_kind = static_cast<uint8_t>(ControlRecord::Kind::ask);
    static constexpr uint8_t here_kind = static_cast<uint8_t>(ControlRecord::Kind::here);
};

TEST_F(PlayedPeerListens, a_peer_that_says_nothing_is_asked_and_then_does_not_answer_until_it_does) {
    const UniqueFd fd = link();
    ASSERT_TRUE(recorder_.comes([&] { return recorder_.links_up == 1; }));
    Message seen;
    ASSERT_TRUE(receive(fd, &seen, sizeof seen));  // greeted
    ASSERT_TRUE(receive(fd, &seen, sizeof seen));
    EXPECT_EQ(static_cast<uint8_t>(seen.kind), ask_kind);
    EXPECT_TRUE(soon(false));
    EXPECT_TRUE(fabric_->linked(1)) << "it is waited for";
    Message here = message(static_cast<MessageKind>(here_kind));
    here.sequence = 0;
    send(fd, &here, sizeof here);
    EXPECT_TRUE(soon(true));
    EXPECT_TRUE(soon(false));
    const Message any = message(MessageKind::acknowledge);
    send(fd, &any, sizeof any);
    EXPECT_TRUE(soon(true));
}

TEST_F(PlayedPeerListens, who_is_asked_says_that_he_is_there) {
    const UniqueFd fd = link();
    Message ask = message(static_cast<MessageKind>(ask_kind));
    ask.sequence = 0;
    send(fd, &ask, sizeof ask);
    Message seen;
    do {
        ASSERT_TRUE(receive(fd, &seen, sizeof seen));
    } while (static_cast<uint8_t>(seen.kind) != here_kind);
}

TEST_F(PlayedPeerListens, a_peer_that_answers_each_question_is_never_taken_for_silent) {
    const UniqueFd fd = link();
    Message seen;
    ASSERT_TRUE(receive(fd, &seen, sizeof seen));  // greeted
    for (int asked = 0; asked < 5; ++asked) {
        ASSERT_TRUE(receive(fd, &seen, sizeof seen));
        ASSERT_EQ(static_cast<uint8_t>(seen.kind), ask_kind);
        EXPECT_TRUE(fabric_->answers(1));
        Message here = message(static_cast<MessageKind>(here_kind));
        here.sequence = 0;
        send(fd, &here, sizeof here);
    }
}

TEST_F(PlayedPeerListens, a_peer_that_was_silent_answers_when_it_links_anew) {
    {
        const UniqueFd fd = link();
        ASSERT_TRUE(recorder_.comes([&] { return recorder_.links_up == 1; }));
        ASSERT_TRUE(soon(false));
    }
    ASSERT_TRUE(recorder_.comes([&] { return recorder_.links_down == 1; }));
    bool answers = false;
    recorder_.change([&] { recorder_.says_first = [&] { answers = fabric_->answers(1); }; });
    const UniqueFd fd = link();
    ASSERT_TRUE(recorder_.comes([&] { return recorder_.links_up == 2; }));
    EXPECT_TRUE(answers);
}

TEST_F(PlayedPeerListens, while_it_is_not_read_for_lack_of_room_a_peer_is_not_taken_for_silent) {
    recorder_.change([&] { recorder_.to_lend = 0; });
    const UniqueFd fd = link();
    const std::string bytes = with_page('x');
    send(fd, bytes.data(), bytes.size());
    ASSERT_TRUE(recorder_.comes([&] { return recorder_.refused == 1; }));
    std::this_thread::sleep_for(10 * listen_for());  // nothing is to happen
    EXPECT_TRUE(fabric_->answers(1));
}

TEST_F(PlayedPeerTest, calls_are_answered_and_an_answer_nobody_waits_for_is_ignored) {
    const UniqueFd fd = link();
    Message greeted;
    ASSERT_TRUE(receive(fd, &greeted, sizeof greeted));
    Message answer = message(static_cast<MessageKind>(ControlRecord::Kind::answer));
    answer.sequence = 0;
    answer.request_id = 4711;
    send(fd, &answer, sizeof answer);
    Message call = message(static_cast<MessageKind>(ControlRecord::Kind::call));
    call.sequence = 4;
    call.flags = static_cast<uint8_t>(CallKind::change);
    send(fd, &call, sizeof call);
    send(fd, "ping", 4);
    Message header;
    char body[5];
    ASSERT_TRUE(receive(fd, &header, sizeof header));
    ASSERT_TRUE(receive(fd, body, sizeof body));
    EXPECT_EQ(std::string(body, sizeof body), "ping!");
    call.sequence = 0;
    for (const unsigned unknown : {0u, 31u, 32u, 255u}) {
        call.flags = static_cast<uint8_t>(unknown);
        send(fd, &call, sizeof call);
        ASSERT_TRUE(receive(fd, &header, sizeof header));
        EXPECT_EQ(header.flags, static_cast<uint8_t>(Errc::unsupported) + 1) << unknown;
    }
}

}  // namespace
}  // namespace tarn::played_peer
