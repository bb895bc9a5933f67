// Who connects asks for proof as well: one host's fabric that connects to a peer played by the test.
#include "tests/unit/played_peer.hpp"

namespace tarn::played_peer {
namespace {

class PlayedAcceptor : public PlayedPeerTest {
  protected:
    void SetUp() override {
        listener_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in here{};
        here.sin_family = AF_INET;
        here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof here;
        ASSERT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&here), size), 0);
        ASSERT_EQ(::listen(listener_.get(), 8), 0);
        ASSERT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&here), &size), 0);
        const timeval limit{.tv_sec = 10, .tv_usec = 0};
        ::setsockopt(listener_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        loop_ = std::move(*Loop::create());
        other_ = std::move(*Loop::create());
        auto transport = TcpTransport::listen("127.0.0.1:0");
        ASSERT_TRUE(transport);
        const std::string address = "127.0.0.1:" + std::to_string(ntohs(here.sin_port));
        LinkedFabricConfiguration configuration{
            .self = 1,
            .process = {3, 3},
            .key = std::string(key),
            .peers = {{.host = 0, .address = address}, {.host = 2, .address = "127.0.0.1:9"}},
            .peers_digest = own_list,
            .shards = {loop_.get(), loop_.get(), loop_.get()},
            .listen_for = listen_for()};
        fabric_ = std::make_unique<LinkedFabric>(std::move(configuration), std::move(*transport), recorder_);
        thread_ = std::thread([this] { loop_->run(); });
        loop_->post(start_);
    }
    // The next connection, to which we say that we are this host; whether it then proves its own key.
    bool goes_on(HostId as, const std::array<uint8_t, 16>& cluster, std::string_view with_key,
                 const std::array<uint8_t, 3>& list = own_list) {
        UniqueFd fd;
        Introduction theirs;
        do {  // a connection may be given up before it says anything, as one beside it was refused
            do {
                fd = UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
            } while (!fd && errno == EINTR);  // see receive()
            const timeval limit{.tv_sec = 2, .tv_usec = 0};  // less than a handshake may take
            ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        } while (fd && !receive(fd, &theirs, sizeof theirs));
        EXPECT_TRUE(fd);
        const Introduction own = introduce(as, {4, 4}, cluster, list);
        const Proof ours = prove(with_key, Direction::accepting, theirs, own);
        send(fd, &own, sizeof own);
        send(fd, ours.data(), ours.size());
        Proof proof{};
        const bool has_proved = receive(fd, &proof, sizeof proof);
        EXPECT_TRUE(!has_proved || equal(proof, prove(key, Direction::connecting, theirs, own)));
        return has_proved;
    }
    static constexpr std::array<uint8_t, 3> own_list{1, 1, 1};
    UniqueFd listener_;
};

TEST_F(PlayedAcceptor, who_connects_proves_its_key_to_nobody_but_the_host_it_looks_for) {
    EXPECT_FALSE(goes_on(0, {}, "another key"));
    EXPECT_FALSE(goes_on(2, {}, key)) << "another host of the cluster";
    EXPECT_FALSE(goes_on(0, {1, 2, 3}, key)) << "a host of another cluster";
    EXPECT_FALSE(goes_on(0, {}, key, {2, 2, 2})) << "a host with another list";
    EXPECT_TRUE(goes_on(0, {}, key));
    EXPECT_EQ(recorder_.links_up, 0U);
}

TEST_F(PlayedPeerTest, who_is_of_another_cluster_is_told_no_proof) {
    for (const Introduction& own : {introduce(1, peer_process, {1, 2, 3}, {2, 2, 2}), introduce(7, peer_process, {})}) {
        const UniqueFd fd = connect();
        send(fd, &own, sizeof own);
        Introduction theirs;
        EXPECT_FALSE(receive(fd, &theirs, sizeof theirs));
    }
}

// A silence of the other side would end the handshake, too, but only after its time.
TEST_F(PlayedPeerTest, who_proves_another_key_is_told_nothing_of_stores) {
    const UniqueFd fd = connect();
    const timeval limit{.tv_sec = 2, .tv_usec = 0};  // less than a handshake may take
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    prove_us(fd, "another key");
    Account account;
    EXPECT_FALSE(receive(fd, &account, sizeof account));
    EXPECT_TRUE(recorder_.standings.empty());
}

}  // namespace
}  // namespace tarn::played_peer
