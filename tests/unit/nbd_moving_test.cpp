// Connections that follow a client from shard to shard: no request is lost, repeated or answered with other bytes, and
// who looks for connections finds each of them.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <map>
#include <random>
#include <thread>

#include "frontends/nbd/server.hpp"
#include "tests/support/memory_volumes.hpp"
#include "tests/support/nbd_bytes.hpp"
#include "tests/support/tls_client.hpp"
#include "utils/run_on.hpp"

namespace tarn::nbd {
namespace {

using namespace std::chrono_literals;

constexpr uint32_t block_size = 4096;
constexpr uint64_t blocks_each = 64;
constexpr uint64_t block_count = 4 * blocks_each;
constexpr auto time_max = 10s;

// A client over TCP, so that the kernel says exactly on which CPU it runs.
class MovingClient {
  public:
    // Clients with different numbers use different blocks.
    explicit MovingClient(uint16_t port, uint64_t number = 0, bool within_tls = false)
        : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), first_block_(number * blocks_each) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
        const int on = 1;
        ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        constexpr size_t greeting_size = 18;
        constexpr size_t go_size = 20 + 12 + 20 + 14 + 20;
        send(Bytes().client_flags());
        receive(greeting_size);
        if (within_tls) begin_tls();
        send(Bytes().option(Option::go, info_payload("disk")));
        receive(go_size);
    }

    // Sends some requests, to blocks that no other one is under way to, and receives until few are under way. False:
    // the server has disconnected us.
    bool exchange(size_t left_under_way_max = 4) {
        Bytes requests;
        const size_t count = expected_.size() + 1 + random_() % 8;
        for (uint64_t at = random_(); expected_.size() < count; ++at) {
            const uint64_t block = first_block_ + at % blocks_each;
            if (std::ranges::any_of(expected_, [&](const auto& each) { return each.second.block == block; })) continue;
            const uint64_t cookie = ++last_cookie_;
            const bool writes = !contents_.contains(block) || random_() % 2 == 0;
            const auto fill = static_cast<std::byte>(random_());
            requests.request(writes ? Command::write : Command::read, cookie, block * block_size, block_size);
            if (writes) requests.fill(block_size, fill);
            if (writes) contents_[block] = fill;
            expected_[cookie] = {.block = block, .reads = !writes, .fill = contents_[block]};
        }
        if (!send(requests)) return false;
        while (expected_.size() > left_under_way_max) {
            const std::vector<std::byte> header = receive(16);
            if (header.empty()) return false;
            EXPECT_EQ(load_big<uint32_t>(header.data()), simple_reply_magic);
            const auto error = load_big<uint32_t>(header.data() + 4);
            if (error == static_cast<uint32_t>(Errno::shutdown)) return false;
            EXPECT_EQ(error, 0u);
            const auto found = expected_.find(load_big<uint64_t>(header.data() + 8));
            if (found == expected_.end()) {
                ADD_FAILURE() << "an answer to nothing";
                return false;
            }
            if (found->second.reads) {
                const std::vector<std::byte> bytes = receive(block_size);
                if (bytes.empty()) return false;
                EXPECT_EQ(std::ranges::count(bytes, found->second.fill), block_size);
            }
            expected_.erase(found);
        }
        return true;
    }

    // Writes 64 KiB to the first blocks and reads them again. Calls at_half in the middle of the payload; each of the
    // many small parts of its rest follows when a shard has had a turn, as turns() counts them, for the one before.
    void write_in_parts(const std::function<void()>& at_half, const std::function<uint64_t()>& turns) {
        constexpr uint32_t size = 16 * block_size;
        constexpr size_t part_size = 128;
        const Bytes request = Bytes().request(Command::write, 1, 0, size).fill(size / 2, std::byte{3});
        ASSERT_TRUE(send(request));
        at_half();
        for (size_t sent = size / 2; sent < size; sent += part_size) {
            const uint64_t before = turns();
            ASSERT_TRUE(send(Bytes().fill(part_size, std::byte{4})));
            const auto until = std::chrono::steady_clock::now() + time_max;
            while (turns() == before && std::chrono::steady_clock::now() < until) std::this_thread::yield();
        }
        ASSERT_EQ(receive(16).size(), 16u);
        ASSERT_TRUE(send(Bytes().request(Command::read, 2, 0, size)));
        ASSERT_EQ(receive(16).size(), 16u);
        const std::vector<std::byte> bytes = receive(size);
        EXPECT_EQ(std::ranges::count(bytes, std::byte{3}), size / 2);
        EXPECT_EQ(std::ranges::count(bytes, std::byte{4}), size / 2);
    }

  private:
    void begin_tls() {
        send(Bytes().option(Option::start_tls));
        receive(20);
        tls_ = std::make_unique<TlsClient>(socket_.get());
        EXPECT_TRUE(tls_->shake_hands());
    }
    struct Expected {
        uint64_t block;
        bool reads;
        std::byte fill;
    };
    bool send(const Bytes& bytes) {
        std::span<const std::byte> rest = bytes.bytes();
        if (tls_) return tls_->send(rest);
        while (!rest.empty()) {
            const ssize_t sent = ::send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
            if (sent <= 0) return false;
            rest = rest.subspan(static_cast<size_t>(sent));
        }
        return true;
    }
    // Empty: the server has disconnected us.
    std::vector<std::byte> receive(size_t size) {
        std::vector<std::byte> bytes(size);
        if (tls_) bytes = tls_->receive(size);
        const ssize_t count =
            tls_ ? static_cast<ssize_t>(bytes.size()) : ::recv(socket_.get(), bytes.data(), size, MSG_WAITALL);
        if (count != static_cast<ssize_t>(size)) bytes.clear();
        return bytes;
    }

    UniqueFd socket_;
    std::unique_ptr<TlsClient> tls_;
    const uint64_t first_block_;
    std::minstd_rand random_{17};
    uint64_t last_cookie_ = 0;
    std::map<uint64_t, std::byte> contents_;
    std::map<uint64_t, Expected> expected_;  // of requests that are under way, by cookie
};

// A server with a shard for each of two CPUs. Its threads run wherever they like.
class NbdMoving : public testing::Test {
  protected:
    void SetUp() override {
        const CpuSet all = *CpuSet::of_thread();
        if (all.size() < 2) GTEST_SKIP() << "needs two CPUs";
        cpus_ = {all.list().front(), all.list().back()};
        for (const unsigned cpu : cpus_) {
            loops_.push_back(std::move(*Loop::create()));
            loops_.back()->set_cpus(CpuSet{cpu});
            list_.push_back(loops_.back().get());
        }
        volumes_.add("disk", block_count * block_size, false);
        volumes_.faults.miss_every = 5;
        volumes_.faults.cold_delay_us = 500;  // so that often some requests are in work
        volumes_.faults.on_write = [this](std::span<const std::byte>) { writer_ = std::this_thread::get_id(); };
        server_ = std::make_unique<Server>(list_, volumes_, size_t{16} << 20, Settings(), landing_);
        Admission admission;
        admission.tls = TlsMode::on;
        admission.credentials = *TlsCredentials::load(tls_files(directory_));
        server_->set_admission(std::move(admission));
        port_ = *server_->listen_tcp("127.0.0.1", 0);
        list_.front()->spawn(server_->serve());
        for (Loop* const loop : list_) threads_.emplace_back([loop] { loop->run(); });
    }
    void TearDown() override {
        for (Loop* const loop : list_) loop->stop();
        for (std::thread& thread : threads_) thread.join();
    }
    // From outside of the loops; returns when the task is done.
    void on_first_shard(Task<> task) {
        std::atomic<bool> done{false};
        const auto mark = [](Task<> task, std::atomic<bool>& done) -> Task<> {
            co_await std::move(task);
            done.store(true);
            done.notify_one();
        };
        struct Start final : Loop::Posted {
            Start(Loop& on, Task<> what) : loop(on), task(std::move(what)) {}
            void run() override { loop.spawn(std::move(task)); }
            Loop& loop;
            Task<> task;
        } start(*list_.front(), mark(std::move(task), done));
        list_.front()->post(start);
        done.wait(false);
    }
    // Until the shard of this CPU serves the client, which runs there.
    bool is_followed_to(size_t shard, MovingClient& client) {
        EXPECT_TRUE(CpuSet{cpus_[shard]}.bind());
        const uint64_t requests = list_[shard]->requests();
        const auto until = std::chrono::steady_clock::now() + time_max;
        while (list_[shard]->requests() == requests && std::chrono::steady_clock::now() < until)
            if (!client.exchange()) return false;
        return list_[shard]->requests() != requests;
    }
    // Runs on a thread whose affinity may change.
    template <class Function>
    static void as_client(Function function) {
        std::thread(function).join();
    }

    std::vector<unsigned> cpus_;
    std::vector<std::unique_ptr<Loop>> loops_;
    std::vector<Loop*> list_;
    std::vector<std::thread> threads_;
    std::atomic<std::thread::id> writer_{};  // of what was written at once, last
    MemoryVolumes volumes_;
    ScratchDirectory directory_;
    std::vector<std::byte> landing_ = std::vector<std::byte>(LandingBuffers::size_bytes + page_size);
    std::unique_ptr<Server> server_;
    uint16_t port_ = 0;
};

TEST_F(NbdMoving, a_connection_follows_its_client_and_loses_nothing) {
    as_client([&] {
        MovingClient client(port_);
        for (size_t i = 0; i < 30; ++i) ASSERT_TRUE(is_followed_to(i % 2, client)) << "move " << i;
        EXPECT_EQ(server_->connection_count(), 1u);
    });
    on_first_shard(server_->stop());
    EXPECT_EQ(server_->connection_count(), 0u);
}

TEST_F(NbdMoving, writes_come_in_where_the_volumes_want_them_as_far_as_there_is_room) {
    as_client([&] {
        MovingClient client(port_);
        ASSERT_TRUE(is_followed_to(0, client));
        ASSERT_TRUE(is_followed_to(1, client));
    });
    on_first_shard(server_->stop());
    const auto is_untouched = [](std::span<const std::byte> memory) {
        return std::ranges::all_of(memory, [](std::byte byte) { return byte == std::byte{0}; });
    };
    const std::span<const std::byte> memory(landing_);
    EXPECT_FALSE(is_untouched(memory.first(LandingBuffers::size_bytes)));
    EXPECT_TRUE(is_untouched(memory.subspan(LandingBuffers::size_bytes))) << "too little for the second shard";
}

TEST_F(NbdMoving, a_connection_within_tls_follows_its_client_and_loses_nothing) {
    as_client([&] {
        MovingClient client(port_, 0, true);
        for (size_t i = 0; i < 30; ++i) ASSERT_TRUE(is_followed_to(i % 2, client)) << "move " << i;
    });
    on_first_shard(server_->stop());
    EXPECT_EQ(server_->connection_count(), 0u);
}

TEST_F(NbdMoving, half_a_write_moves_with_its_connection) {
    volumes_.faults.miss_every = 0;
    as_client([&] {
        MovingClient client(port_);
        ASSERT_TRUE(is_followed_to(0, client));
        ASSERT_TRUE(client.exchange(0));
        client.write_in_parts([&] { EXPECT_TRUE(CpuSet{cpus_[1]}.bind()); },
                              [&] { return list_[0]->turns() + list_[1]->turns(); });
        EXPECT_EQ(writer_.load(), threads_[1].get_id()) << "it has moved before the write was complete";
    });
    on_first_shard(server_->stop());
}

// Clients that change their CPU all the time, until they are disconnected.
class ClientsAbout {
  public:
    ClientsAbout(uint16_t port, std::vector<unsigned> cpus, size_t count) {
        for (size_t i = 0; i < count; ++i)
            threads_.emplace_back([this, port, cpus, i] {
                MovingClient client(port, i);
                std::minstd_rand random(static_cast<unsigned>(i + 1));
                begun_.fetch_add(1);
                do EXPECT_TRUE(CpuSet{cpus[random() % cpus.size()]}.bind());
                while (client.exchange() && client.exchange() && client.exchange());
                ended_.fetch_add(1);
            });
        while (begun_.load() < count) std::this_thread::yield();
    }
    ~ClientsAbout() {
        for (std::thread& thread : threads_) thread.join();
    }
    size_t ended() const { return ended_.load(); }

  private:
    std::atomic<size_t> begun_{0};
    std::atomic<size_t> ended_{0};
    std::vector<std::thread> threads_;
};

TEST_F(NbdMoving, the_server_stops_while_connections_move) {
    for (int i = 0; i < 10; ++i) {
        // What those before have written may take effect until their connections have ended.
        while (server_->connection_count() > 0) std::this_thread::yield();
        const ClientsAbout clients(port_, cpus_, 3);
        const auto requests = [&] { return list_.front()->requests() + list_.back()->requests(); };
        for (const uint64_t until = requests() + static_cast<uint64_t>(i) * 50; requests() < until;)
            std::this_thread::yield();
        if (i < 9) {
            on_first_shard(server_->end_clients_of(1));
            continue;
        }
        on_first_shard(server_->stop());
        EXPECT_EQ(server_->connection_count(), 0u);
    }
}

TEST_F(NbdMoving, the_server_stops_while_clients_come_and_counts_none_of_them_afterwards) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::vector<UniqueFd> clients;
    for (int i = 0; i < 50; ++i) {
        clients.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        ASSERT_EQ(::connect(clients.back().get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    }
    while (server_->connection_count() < clients.size() / 2) std::this_thread::yield();
    on_first_shard(server_->stop());
    EXPECT_EQ(server_->connection_count(), 0u);
    EXPECT_EQ(server_->connections_by_shard(), (std::vector<size_t>{0, 0}));
}

TEST_F(NbdMoving, each_client_of_a_volume_is_found_and_ended_wherever_it_is) {
    for (int i = 0; i < 10; ++i) {
        while (server_->connection_count() > 0) std::this_thread::yield();  // those before see their end first
        const ClientsAbout clients(port_, cpus_, 3);
        std::vector<std::string> found;
        on_first_shard([](Server& server, std::vector<std::string>& found) -> Task<> {
            found = co_await server.clients_of(1);
        }(*server_, found));
        EXPECT_EQ(found.size(), 3u);
        on_first_shard(server_->end_clients_of(1));
    }
    on_first_shard(server_->stop());
}

}  // namespace
}  // namespace tarn::nbd
