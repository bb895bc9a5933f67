// Hosts find each other over TCP, and their links move to what both have beside it; or stay, whatever goes wrong.
#include <fcntl.h>
#include <unistd.h>

#include "tests/unit/linked_hosts.hpp"
#include "utils/unix_socket.hpp"

namespace tarn::linked_hosts {
namespace {

class LinkUpgrade : public LinkedHosts {
  protected:
    LinkUpgrade() { join(std::make_unique<UpgradedNetwork>()); }

    // Where the host's memory can be asked for.
    std::string path_of(HostId host) const {
        const Transport& shm = *places_[host].upgrade;
        return *shm.address_in(shm.offer());
    }
    TransportKind transport(HostId from, HostId to) { return fabric(from).link_status(to).transport; }
    // Both ways.
    bool are_linked(HostId one, HostId other) {
        return recorder(one).greetings[other] > 0 && recorder(other).greetings[one] > 0;
    }
    void expect_a_page_passes(HostId from, HostId to) {
        const std::vector<Heard>& heard = recorder(to).heard[from];
        const size_t before = heard.size();
        send(from, to, 7, true);
        ASSERT_TRUE(comes([&] { return heard.size() > before; }));
        EXPECT_EQ(heard.back(), expected(from, 7, true));
    }
};

TEST_F(LinkUpgrade, goes_to_what_both_have_before_the_link_comes_up) {
    start_all();
    for (HostId host = 0; host < host_count; ++host)
        for (HostId peer = 0; peer < host_count; ++peer)
            if (peer != host) {
                EXPECT_EQ(transport(host, peer), TransportKind::shm);
                EXPECT_EQ(recorder(host).ups[peer], 1u) << "not once over each";
                expect_a_page_passes(host, peer);
            }
}

TEST_F(LinkUpgrade, is_not_for_a_host_that_has_nothing_else) {
    places_[1].upgrade.reset();
    start_all();
    EXPECT_EQ(transport(0, 1), TransportKind::tcp);
    EXPECT_EQ(transport(2, 1), TransportKind::tcp);
    EXPECT_EQ(transport(0, 2), TransportKind::shm);
    expect_a_page_passes(1, 0);
    expect_a_page_passes(2, 1);
}

TEST_F(LinkUpgrade, that_leads_nowhere_leaves_the_link_where_it_is) {
    const std::string path = path_of(0);
    start(0);
    ASSERT_EQ(::unlink(path.c_str()), 0);
    start(1);
    ASSERT_TRUE(comes([&] { return are_linked(0, 1); }));
    EXPECT_EQ(transport(0, 1), TransportKind::tcp);
    EXPECT_EQ(transport(1, 0), TransportKind::tcp);
    expect_a_page_passes(0, 1);
    expect_a_page_passes(1, 0);
}

// It accepts, and says nothing; then nobody is there.
TEST_F(LinkUpgrade, to_who_is_not_that_host_leaves_the_link_where_it_is) {
    const std::string path = path_of(0);
    start(0);
    ASSERT_EQ(::unlink(path.c_str()), 0);
    Result<UniqueFd> other = listen_unix(path, 0600, 8);
    ASSERT_TRUE(other);
    start(1);
    ASSERT_TRUE(comes([&] { return are_linked(0, 1); }));
    EXPECT_EQ(transport(1, 0), TransportKind::tcp);
    expect_a_page_passes(1, 0);
    other->reset();
    start(2);
    ASSERT_TRUE(comes([&] { return are_linked(0, 2); }));
    EXPECT_EQ(transport(2, 0), TransportKind::tcp);
    expect_a_page_passes(2, 0);
}

TEST_F(LinkUpgrade, comes_again_with_the_next_link) {
    const std::string path = path_of(0);
    const std::string aside = path + ".aside";
    start(0);
    ASSERT_EQ(::rename(path.c_str(), aside.c_str()), 0);
    start(1);
    ASSERT_TRUE(comes([&] { return are_linked(0, 1); }));
    EXPECT_EQ(transport(0, 1), TransportKind::tcp);
    ASSERT_EQ(::rename(aside.c_str(), path.c_str()), 0);
    fabric(0).disconnect(1);
    ASSERT_TRUE(comes([&] { return recorder(0).greetings[1] == 2 && recorder(1).greetings[0] == 2; }));
    EXPECT_EQ(transport(0, 1), TransportKind::shm);
    EXPECT_EQ(fabric(1).link_status(0).links, 2u);
    expect_a_page_passes(1, 0);
}

TEST_F(LinkUpgrade, a_link_that_breaks_at_once_is_made_again_after_a_pause_that_grows) {
    start(0);
    constexpr unsigned breaks = 4;
    const auto began = std::chrono::steady_clock::now();
    recorder(0).on_up = [&](HostId peer) {
        if (recorder(0).ups[peer] <= breaks) fabric(0).disconnect(peer);
    };
    start(1);
    ASSERT_TRUE(comes([&] { return recorder(0).ups[1] > breaks; }));
    EXPECT_GE(std::chrono::steady_clock::now() - began, 50ms + 100ms + 200ms + 400ms);
}

TEST_F(LinkUpgrade, what_passes_is_counted) {
    listen_for_ = 10ms;
    start_all();
    const LinkStatus before = fabric(0).link_status(1);
    expect_a_page_passes(0, 1);
    send(0, 1, 8, false);
    ASSERT_TRUE(comes([&] { return recorder(1).heard[0].size() == 2; }));
    const LinkStatus sent = fabric(0).link_status(1);
    const LinkStatus received = fabric(1).link_status(0);
    EXPECT_EQ(sent.messages_sent, before.messages_sent + 2);
    EXPECT_EQ(received.messages_received, 2u);
    EXPECT_GE(received.bytes_received, page_size + 2 * sizeof(Message));
    EXPECT_LE(received.bytes_received, 2 * page_size);
    EXPECT_GE(sent.bytes_sent, page_size + 2 * sizeof(Message));
    EXPECT_TRUE(comes([&] {
        return fabric(0).link_status(1).round_trip.count() > 0 && fabric(1).link_status(0).round_trip.count() > 0;
    })) << "both ask, though each hears the other's questions";
}

}  // namespace
}  // namespace tarn::linked_hosts
