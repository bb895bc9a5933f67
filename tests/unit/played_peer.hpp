// PlayedPeerTest: one host's fabric against a peer played by the test over a plain socket.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>

#include "coherence/fabric/link/linked_fabric.hpp"
#include "coherence/fabric/transport/tcp/tcp_transport.hpp"

namespace tarn::played_peer {

using namespace std::chrono_literals;
using protocol::Message;
using protocol::MessageKind;

inline constexpr auto timeout = 10s;
inline constexpr Incarnation peer_incarnation = 7;
inline constexpr Process peer_process{.incarnation = peer_incarnation, .epoch = peer_incarnation};
inline constexpr std::string_view key = "the key of both hosts";

// Notes what the fabric tells it; has as many pages to lend as the test says.
class Recorder final : public Fabric::Receiver {
  public:
    LinkDecision decide_on_link(HostId, Incarnation incarnation) override {
        return incarnation > dead_incarnation ? LinkDecision::accept : LinkDecision::refuse;
    }
    static constexpr StoreStanding own{.epoch = 3, .nonce = 30, .position = 300};
    static constexpr StoreStanding remembered{.epoch = 6, .nonce = 60, .position = 600};
    StoreStanding own_standing() override { return own; }
    StoreStanding remembered_of(HostId) override { return remembered; }
    Result<> accepts_memory(HostId, const StoreStanding& of_us) override {
        return of_us.epoch > own.epoch ? Result<>(fail(Errc::refused, 0, "older")) : Result<>();
    }
    void on_standing(HostId host, const StoreStanding& standing) override {
        change([&] { standings.emplace_back(host, standing); });
    }
    void on_link_up(HostId, Process) override {
        std::function<void()> first;
        change([&] { first = says_first; });
        if (first) first();
        change([&] { ++links_up; });
    }
    void on_link_down(HostId) override {
        change([&] { ++links_down; });
    }
    void on_greeted(HostId) override {
        change([&] { ++greetings; });
    }
    void on_batch(std::span<const PageId> about, Batch& batch) override {
        change([&] { batches.emplace_back(about.begin(), about.end()); });
        batch.deliver();
    }
    Result<> on_message(const Message& message, std::byte* page) override {
        change([&] {
            messages.push_back(message);
            pages.push_back(page ? std::string(reinterpret_cast<const char*>(page), page_size) : "");
            if (page) ++to_lend;
        });
        delete[] page;
        return {};
    }
    std::byte* lend_page(HostId) override {
        const std::lock_guard guard(mutex);
        if (to_lend == 0) {
            ++refused;
            changed.notify_all();
            return nullptr;
        }
        --to_lend;
        ++lent;
        changed.notify_all();
        return new std::byte[page_size];
    }
    void return_page(std::byte* page) override {
        delete[] page;
        change([&] { ++returned; });
    }

    template <class Function>
    void change(Function&& function) {
        const std::lock_guard guard(mutex);
        function();
        changed.notify_all();
    }
    // Whether it comes true soon.
    template <class Predicate>
    bool comes(Predicate&& predicate) {
        std::unique_lock guard(mutex);
        return changed.wait_for(guard, timeout, predicate);
    }

    std::function<void()> says_first;  // over a new link
    std::mutex mutex;
    std::condition_variable changed;
    std::atomic<Incarnation> dead_incarnation{0};
    std::vector<std::pair<HostId, StoreStanding>> standings;
    unsigned links_up = 0;
    unsigned links_down = 0;
    unsigned greetings = 0;
    unsigned returned = 0;
    unsigned refused = 0;
    unsigned to_lend = 4;
    unsigned lent = 0;
    std::vector<std::vector<PageId>> batches;
    std::vector<Message> messages;
    std::vector<std::string> pages;
};

class PlayedPeerTest : public testing::Test {
  protected:
    void SetUp() override {
        port_ = static_cast<uint16_t>(20000 + ::getpid() % 20000);
        loop_ = std::move(*Loop::create());
        other_ = std::move(*Loop::create());
        for (;; ++port_) {
            auto transport = TcpTransport::listen("127.0.0.1:" + std::to_string(port_));
            if (!transport) continue;
            LinkedFabricConfiguration configuration{
                .self = 0,
                .process = {3, 3},
                .key = std::string(key),
                .peers = {{.host = 1, .address = "127.0.0.1:9"}},
                .shards = {loop_.get(), loop_.get(), other_.get()},  // host 1 is the second one's
                .listen_for = listen_for()};
            fabric_ = std::make_unique<LinkedFabric>(std::move(configuration), std::move(*transport), recorder_);
            break;
        }
        fabric_->calls().set(CallKind::change, [](HostId, std::string request) { return answer(std::move(request)); });
        thread_ = std::thread([this] { loop_->run(); });
        loop_->post(start_);
    }
    static Task<Result<std::string>> answer(std::string request) { co_return request + "!"; }
    void TearDown() override {
        if (!stopping_) stop();
        thread_.join();
    }
    void stop() {
        stopping_ = true;
        loop_->post(stop_);
    }

    // from: the last byte of the loopback address to come from.
    UniqueFd connect(uint8_t from = 1) const {
        UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in source{};
        source.sin_family = AF_INET;
        source.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + from);
        EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&source), sizeof source), 0);
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = htons(port_);
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
        const timeval limit{.tv_sec = 4, .tv_usec = 0};  // less than a handshake may take
        ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        return fd;
    }
    // How many of these connections have been hung up on, once that are so many; long before a handshake may take too
    // long.
    size_t hung_up_count(const std::vector<UniqueFd>& connections, size_t awaited) const {
        const auto deadline = std::chrono::steady_clock::now() + 3s;
        for (;;) {
            size_t count = 0;
            char byte;
            for (const UniqueFd& fd : connections)
                count += ::recv(fd.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0 || errno == ECONNRESET;
            if (count >= awaited || std::chrono::steady_clock::now() > deadline) return count;
            std::this_thread::yield();
        }
    }
    // The whole handshake; what the fabric then says first is left to be read.
    UniqueFd link(std::string_view with_key = key, const Account::Standing& of_fabric = {}) {
        UniqueFd fd = connect();
        prove_us(fd, with_key);
        if (with_key == key) compare_stores(fd, of_fabric, Verdict::agreed);
        return fd;
    }
    // Its first half: who we are.
    static void prove_us(const UniqueFd& fd, std::string_view with_key = key) {
        const Introduction own = introduce(1, peer_process, {});
        send(fd, &own, sizeof own);
        Introduction theirs;
        Proof proof{};
        EXPECT_TRUE(receive(fd, &theirs, sizeof theirs));
        EXPECT_TRUE(receive(fd, &proof, sizeof proof));
        const Proof ours = prove(with_key, Direction::connecting, own, theirs);
        send(fd, ours.data(), ours.size());
    }
    // What each side says of its store, and of the other's. Returns what the fabric thought of our memory of it.
    static Verdict compare_stores(const UniqueFd& fd, const Account::Standing& of_fabric, Verdict of_us) {
        const Account ours{.own = {.nonce = 5, .position = 4096, .epoch = peer_incarnation}, .of_you = of_fabric};
        send(fd, &ours, sizeof ours);
        send(fd, &of_us, sizeof of_us);
        Account theirs;
        EXPECT_TRUE(receive(fd, &theirs, sizeof theirs));
        EXPECT_EQ(theirs.own.epoch, Recorder::own.epoch);
        EXPECT_EQ(theirs.of_you.position, Recorder::remembered.position);
        Verdict verdict{};
        EXPECT_TRUE(receive(fd, &verdict, sizeof verdict));
        return verdict;
    }
    static void send(const UniqueFd& fd, const void* bytes, size_t size) {
        ASSERT_EQ(::send(fd.get(), bytes, size, MSG_NOSIGNAL), static_cast<ssize_t>(size));
    }
    static bool receive(const UniqueFd& fd, void* into, size_t size) {
        ssize_t got = 0;
        do {
            got = ::recv(fd.get(), into, size, MSG_WAITALL);
        } while (got < 0 && errno == EINTR);  // the kernel tidies up an earlier test's ring on this thread
        return got == static_cast<ssize_t>(size);
    }
    // Skips what is sent first; true once the fabric has hung up.
    static bool hung_up(const UniqueFd& fd) {
        char byte = 0;
        ssize_t got = 0;
        do {
            got = ::recv(fd.get(), &byte, 1, 0);
        } while (got > 0 || (got < 0 && errno == EINTR));
        return got == 0 || errno == ECONNRESET;
    }
    static Message message(MessageKind kind, uint8_t flags = 0) {
        Message made;
        made.kind = kind;
        made.from = 1;
        made.flags = flags;
        made.incarnation = peer_incarnation;
        made.page = PageId::of(5, 1);
        made.tenure = 1;
        made.request_id = 1;
        return made;
    }
    // A message with a page of this letter.
    static std::string with_page(char letter) {
        const Message header = message(MessageKind::data, protocol::flag_payload);
        return std::string(reinterpret_cast<const char*>(&header), sizeof header) + std::string(page_size, letter);
    }

    // The peer of most tests says nothing by itself.
    virtual std::chrono::milliseconds listen_for() const { return 0ms; }

    struct Start final : Loop::Posted {
        explicit Start(PlayedPeerTest& of) : test(of) {}
        void run() override { test.fabric_->start(); }
        PlayedPeerTest& test;
    };
    struct Stop final : Loop::Posted {
        explicit Stop(PlayedPeerTest& of) : test(of) {}
        void run() override {
            test.fabric_->stop();
            test.loop_->stop();
        }
        PlayedPeerTest& test;
    };

    struct Nothing final : Loop::Posted {
        void run() override {}
    };

    uint16_t port_ = 0;
    Nothing nothing_;
    bool stopping_ = false;
    Recorder recorder_;
    Start start_{*this};
    Stop stop_{*this};
    std::unique_ptr<Loop> loop_;
    std::unique_ptr<Loop> other_;  // a shard that a test runs itself
    std::unique_ptr<LinkedFabric> fabric_;
    std::thread thread_;
};

}  // namespace tarn::played_peer
