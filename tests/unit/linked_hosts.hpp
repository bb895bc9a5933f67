// LinkedHosts: three hosts on one loop, joined by a network of the test's choice.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "coherence/fabric/link/linked_fabric.hpp"
#include "coherence/fabric/transport/shm/shm_transport.hpp"
#include "coherence/fabric/transport/tcp/tcp_transport.hpp"
#include "tests/support/in_process_transport.hpp"
#include "tests/support/scratch_directory.hpp"

namespace tarn::linked_hosts {

using namespace std::chrono_literals;
using protocol::Message;
using protocol::MessageKind;

inline constexpr HostId host_count = 3;
inline constexpr std::string_view key = "the key of all hosts";

// Where one host is reached, and what it is reached by.
struct Place {
    std::string address;
    std::unique_ptr<Transport> transport;
    std::unique_ptr<Transport> upgrade = nullptr;  // to which links move
};

// Whatever joins hosts by the transport under test.
class Network {
  public:
    virtual ~Network() = default;
    virtual Place make_place() = 0;
};

class TcpNetwork final : public Network {
  public:
    Place make_place() override {
        for (;; ++port_) {
            std::string address = "127.0.0.1:" + std::to_string(port_);
            if (auto transport = TcpTransport::listen(address))
                return {.address = std::move(address), .transport = std::move(*transport)};
        }
    }

  private:
    uint16_t port_ = static_cast<uint16_t>(20000 + ::getpid() % 20000);
};

class OneProcess final : public Network {
  public:
    Place make_place() override {
        const std::string name = "host " + std::to_string(count_++);
        return {.address = name, .transport = network_.join(name)};
    }

  private:
    InProcessNetwork network_;
    unsigned count_ = 0;
};

class OneMachine final : public Network {
  public:
    Place make_place() override {
        const std::string path = directory_ / std::to_string(count_++);
        auto transport = ShmTransport::listen(path);
        EXPECT_TRUE(transport);
        return {.address = path, .transport = std::move(*transport)};
    }

  private:
    ScratchDirectory directory_;
    unsigned count_ = 0;
};

// Hosts find each other over TCP, and move.
class UpgradedNetwork final : public Network {
  public:
    Place make_place() override {
        Place place = tcp_.make_place();
        place.upgrade = shm_.make_place().transport;
        return place;
    }

  private:
    TcpNetwork tcp_;
    OneMachine shm_;
};

inline Process process_of(HostId host) {
    return {.incarnation = host + 10u, .epoch = host + 10u};
}

// The number of a message, and the page that goes with it, if one does.
struct Heard {
    uint32_t number;
    std::string page;
    bool operator==(const Heard&) const = default;
};

// What one host is told; lends as many pages at a time as the test says.
class Recorder final : public Fabric::Receiver {
  public:
    LinkDecision decide_on_link(HostId, Incarnation) override { return LinkDecision::accept; }
    void on_link_up(HostId host, Process process) override {
        EXPECT_FALSE(is_up[host]) << "a link comes up once";
        EXPECT_EQ(process, process_of(host));
        is_up[host] = true;
        ++ups[host];
        if (on_up) on_up(host);
    }
    void on_link_down(HostId host) override {
        EXPECT_TRUE(is_up[host]) << "a break is told once";
        is_up[host] = false;
        ++downs[host];
        if (on_down) on_down(host);
    }
    void on_greeted(HostId host) override {
        EXPECT_TRUE(is_up[host]);
        ++greetings[host];
    }
    void on_batch(std::span<const PageId>, Batch& batch) override { batch.deliver(); }
    Result<> on_message(const Message& message, std::byte* page) override {
        EXPECT_TRUE(is_up[message.from]) << "nothing comes before the link, or after its end";
        std::string bytes;
        if (page) {
            EXPECT_EQ(lent_.count(page), 1u) << "it is in the page that was lent for it";
            bytes.assign(reinterpret_cast<const char*>(page), page_size);
            return_page(page);
            --returned;
        }
        heard[message.from].push_back({.number = message.request_id, .page = std::move(bytes)});
        return {};
    }
    std::byte* lend_page(HostId) override {
        if (lent_.size() >= to_lend) {
            ++refused;
            return nullptr;
        }
        return *lent_.insert(new std::byte[page_size]).first;
    }
    void return_page(std::byte* page) override {
        EXPECT_EQ(lent_.erase(page), 1u);
        delete[] page;
        ++returned;
    }
    size_t lent_count() const { return lent_.size(); }

    std::array<bool, host_count> is_up{};
    std::array<unsigned, host_count> ups{};
    std::array<unsigned, host_count> downs{};
    std::array<unsigned, host_count> greetings{};
    std::array<std::vector<Heard>, host_count> heard;
    size_t to_lend = 4;
    unsigned refused = 0;
    int returned = 0;  // for want of the rest of the page
    std::function<void(HostId)> on_up;
    std::function<void(HostId)> on_down;

  private:
    std::set<std::byte*> lent_;
};

class LinkedHosts : public testing::Test {
  protected:
    void join(std::unique_ptr<Network> network) {
        network_ = std::move(network);
        for (Place& place : places_) place = network_->make_place();
        for (HostId host = 0; host < host_count; ++host) recorders_.push_back(std::make_unique<Recorder>());
    }
    void TearDown() override {
        loop_->run_until_done(stop_all(*this));
        loop_->stop();
        loop_->run();
        for (const auto& recorder : recorders_) EXPECT_EQ(recorder->lent_count(), 0u);
    }

    void start(HostId host) {
        LinkedFabricConfiguration configuration{.self = host,
                                                .process = process_of(host),
                                                .key = std::string(key),
                                                .shards = {loop_.get()},
                                                .listen_for = listen_for_};
        for (HostId peer = 0; peer < host_count; ++peer)
            if (peer != host) configuration.peers.push_back({.host = peer, .address = places_[peer].address});
        fabrics_[host] = std::make_unique<LinkedFabric>(std::move(configuration), std::move(places_[host].transport),
                                                        *recorders_[host]);
        if (places_[host].upgrade) fabrics_[host]->add_upgrade(std::move(places_[host].upgrade));
        fabrics_[host]->calls().set(CallKind::change, [](HostId, std::string request) { return echo(request); });
        loop_->run_until_done(start_one(*fabrics_[host]));
    }
    void start_all() {
        for (HostId host = 0; host < host_count; ++host) start(host);
        ASSERT_TRUE(comes([&] {
            for (HostId host = 0; host < host_count; ++host)
                for (HostId peer = 0; peer < host_count; ++peer)
                    if (peer != host && recorder(host).greetings[peer] != 1) return false;
            return true;
        }));
    }
    LinkedFabric& fabric(HostId host) { return *fabrics_[host]; }
    Recorder& recorder(HostId host) { return *recorders_[host]; }

    // Whether it comes true soon.
    bool comes(const std::function<bool()>& holds) { return loop_->run_until_done(await(*loop_, holds)); }

    static Message message(HostId from, uint32_t number, bool has_page) {
        Message made;
        made.kind = has_page ? MessageKind::data : MessageKind::acknowledge;
        made.flags = has_page ? protocol::flag_payload : 0;
        made.from = from;
        made.incarnation = process_of(from).incarnation;
        made.page = PageId::of(5, uint64_t{number} * 100);
        made.tenure = 1;
        made.request_id = number;
        return made;
    }
    static Heard expected(HostId from, uint32_t number, bool has_page) {
        std::string page;
        if (has_page)
            for (size_t i = 0; i < page_size; ++i) page += static_cast<char>(from * 31 + number * 7 + i % 251);
        return {.number = number, .page = std::move(page)};
    }
    void send(HostId from, HostId to, uint32_t number, bool has_page) {
        const std::string page = expected(from, number, has_page).page;
        fabric(from).send(to, message(from, number, has_page), std::as_bytes(std::span(page)));
    }

    static Task<Result<std::string>> echo(std::string request) { co_return request; }
    static Task<> start_one(LinkedFabric& fabric) {
        fabric.start();
        co_return;
    }
    static Task<> stop_all(LinkedHosts& self) {
        for (const auto& fabric : self.fabrics_)
            if (fabric) fabric->stop();
        co_return;
    }
    static Task<bool> await(Loop& loop, const std::function<bool()>& holds) {
        const auto deadline = std::chrono::steady_clock::now() + 10s;
        while (!holds() && std::chrono::steady_clock::now() < deadline) co_await Yield(loop);
        co_return holds();
    }

    std::unique_ptr<Loop> loop_ = std::move(*Loop::create());
    std::unique_ptr<Network> network_;
    std::chrono::milliseconds listen_for_{0};
    std::array<Place, host_count> places_;
    std::vector<std::unique_ptr<Recorder>> recorders_;
    std::array<std::unique_ptr<LinkedFabric>, host_count> fabrics_;
};

}  // namespace tarn::linked_hosts
