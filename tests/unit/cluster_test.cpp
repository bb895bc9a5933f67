// Three hosts in one process, over real sockets and real stores: what one writes every other reads at once, with pools
// far smaller than the volume, and flushes cover everybody's writes.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <random>
#include <thread>

#include "coherence/cache/cached_volume.hpp"
#include "coherence/cache/page_provider.hpp"
#include "coherence/fabric/tcp_fabric.hpp"
#include "utils/run_on.hpp"

namespace tarn {
namespace {

using namespace std::chrono_literals;

constexpr size_t host_count = 3;
constexpr size_t frame_count = 512;
constexpr VolumeId volume_id = 5;

class Host {
  public:
    Host(HostId id, const std::string& directory, std::vector<std::string> addresses, std::string key)
        : id_(id),
          path_(directory + "/store-" + std::to_string(id)),
          addresses_(std::move(addresses)),
          key_(std::move(key)) {
        EXPECT_TRUE(Store::format(path_, 192 << 20, identity(), false));
    }
    ~Host() {
        if (loop) stop();
    }
    void start() {
        loop = std::move(*Loop::create());
        other = std::move(*Loop::create());
        threads_.emplace_back([this] { loop->run(); });
        threads_.emplace_back([this] { other->run(); });
        struct Begin final : Loop::Posted {
            Host* host = nullptr;
            std::atomic<bool> done{false};
            static Task<> begin(Begin& self) {
                Host& host = *self.host;
                auto opened = co_await Store::open(*host.loop, host.path_, host.identity());
                EXPECT_TRUE(opened);
                host.store = std::move(*opened);
                host.cache = std::move(*Cache::create({.self = host.id_,
                                                       .hosts = {0, 1, 2},
                                                       .frame_count = frame_count,
                                                       .shards = {host.loop.get(), host.other.get()}},
                                                      *host.store));
                TcpFabricConfiguration fabric{.self = host.id_,
                                              .incarnation = static_cast<uint32_t>(host.store->home_epoch()),
                                              .key = host.key_,
                                              .listen = host.addresses_[host.id_],
                                              .shards = {host.loop.get(), host.other.get()}};
                for (HostId peer = 0; peer < host_count; ++peer)
                    if (peer != host.id_) fabric.peers.push_back({.host = peer, .address = host.addresses_[peer]});
                auto made = TcpFabric::create(fabric, *host.cache);
                EXPECT_TRUE(made);
                host.fabric = std::move(*made);
                host.cache->set_fabric(*host.fabric);
                host.fabric->start();
                self.done = true;
                self.done.notify_all();
            }
            void run() override { host->loop->spawn(begin(*this)); }
        } begin;
        begin.host = this;
        loop->post(begin);
        begin.done.wait(false);
    }
    // As SIGKILL: nothing is flushed.
    void stop() {
        struct End final : Loop::Posted {
            Host* host = nullptr;
            void run() override {
                host->fabric->stop();
                host->cache->abandon();
                host->loop->stop();
            }
        } end;
        end.host = this;
        loop->post(end);
        threads_[0].join();
        other->stop();
        threads_[1].join();
        threads_.clear();
        fabric.reset();
        cache.reset();
        store.reset();
        loop.reset();
        other.reset();
    }

    // The device ends in the middle, from now on.
    void lose_store() const { std::filesystem::resize_file(path_, 4096); }

    std::unique_ptr<Loop> loop;
    std::unique_ptr<Loop> other;
    std::unique_ptr<Store> store;
    std::unique_ptr<Cache> cache;
    std::unique_ptr<TcpFabric> fabric;

  private:
    static StoreIdentity identity_of(HostId id) { return {.cluster = {}, .host = id}; }
    StoreIdentity identity() const { return identity_of(id_); }
    HostId id_;
    std::string path_;
    std::vector<std::string> addresses_;
    std::string key_;
    std::vector<std::thread> threads_;
};

class Cluster : public testing::Test {
  protected:
    void SetUp() override {
        char name[] = "/var/tmp/tarn-cluster-test-XXXXXX";
        directory_ = ::mkdtemp(name);
        driver_ = std::move(*Loop::create());
        const unsigned base = 20000 + static_cast<unsigned>(::getpid()) % 20000;
        for (unsigned i = 0; i < host_count; ++i) addresses_.push_back("127.0.0.1:" + std::to_string(base + i));
        for (HostId id = 0; id < host_count; ++id)
            hosts_.push_back(std::make_unique<Host>(id, directory_, addresses_, "a key of the cluster"));
        for (const auto& host : hosts_) host->start();
    }
    void TearDown() override {
        hosts_.clear();
        std::filesystem::remove_all(directory_);
    }

    template <class T>
    T on(HostId host, Task<T> task) {
        return driver_->run_until_done(run_on(*hosts_[host]->loop, std::move(task)));
    }

    std::string directory_;
    std::vector<std::string> addresses_;
    std::unique_ptr<Loop> driver_;
    std::vector<std::unique_ptr<Host>> hosts_;
};

Task<Result<>> write(Cache& cache, uint64_t offset, std::span<const std::byte> from) {
    CachedVolume volume(cache, volume_id);
    if (volume.try_write(offset, from)) co_return Result<>{};
    co_return co_await volume.write(offset, from);
}
Task<Result<>> read(Cache& cache, uint64_t offset, std::span<std::byte> into) {
    CachedVolume volume(cache, volume_id);
    if (volume.try_read(offset, into)) co_return Result<>{};
    co_return co_await volume.read(offset, into);
}
Task<Result<>> flush(Cache& cache) {
    CachedVolume volume(cache, volume_id);
    CO_TRY_VOID(co_await volume.write_growing(0, std::span<const std::byte>()));
    co_return co_await volume.flush_up_to(uint64_t{256} << 20);
}

TEST_F(Cluster, what_one_host_wrote_every_other_reads) {
    std::vector<std::byte> bytes(10000);
    std::vector<std::byte> seen(10000);
    for (int round = 0; round < 30; ++round) {
        const auto writer = static_cast<HostId>(round % 3);
        for (std::byte& byte : bytes) byte = static_cast<std::byte>(round * 7 + 1);
        ASSERT_TRUE(on(writer, write(*hosts_[writer]->cache, 5000, bytes)));
        for (HostId reader = 0; reader < host_count; ++reader) {
            ASSERT_TRUE(on(reader, read(*hosts_[reader]->cache, 5000, seen)));
            ASSERT_EQ(seen, bytes) << "round " << round << " reader " << unsigned{reader};
        }
    }
}

struct Hammer {
    std::vector<std::byte> model;
    Result<> result;
    uint64_t seed = 0;
    size_t sector = 0;
    int requests = 0;
};

// Each task has a sector of every page for itself; the pages are everybody's.
Task<> hammer(Cache& cache, Hammer& self) {
    constexpr size_t pages = frame_count * 3;
    constexpr size_t stride = 20;  // so that the pages lie in all ranges and on all homes
    CachedVolume volume(cache, volume_id);
    std::mt19937_64 random(self.seed);
    for (int i = 0; i < self.requests && self.result; ++i) {
        const size_t page = random() % pages;
        const std::span<std::byte> mine = std::span(self.model).subspan(page * 512, 512);
        const uint64_t offset = page * stride * page_size + self.sector * 512;
        if (random() % 2 == 0) {
            for (std::byte& byte : mine) byte = static_cast<std::byte>(random());
            if (!volume.try_write(offset, mine)) self.result = co_await volume.write(offset, mine);
        } else {
            std::byte seen[512];
            if (!volume.try_read(offset, seen)) self.result = co_await volume.read(offset, seen);
            if (self.result && std::memcmp(seen, mine.data(), 512) != 0) self.result = fail(Errc::corrupt, 0, "test");
        }
        if (self.result && i % 100 == 99) self.result = co_await volume.flush_up_to(uint64_t{256} << 20);
    }
}

Task<> hammer_all(std::vector<std::unique_ptr<Host>>& hosts, std::vector<Hammer>& hammers) {
    struct One {
        static Task<> run(Loop& loop, Cache& cache, Hammer& hammer_of) {
            co_await run_on(loop, hammer(cache, hammer_of));
        }
    };
    Gate gate;
    for (size_t i = 0; i < hammers.size(); ++i) {
        Host& host = *hosts[i % host_count];
        gate.spawn(One::run(i % 2 ? *host.loop : *host.other, *host.cache, hammers[i]));
    }
    co_await gate.close();
}

TEST_F(Cluster, eight_writers_on_three_hosts_share_every_page) {
    std::vector<Hammer> hammers(8);
    for (size_t i = 0; i < hammers.size(); ++i)
        hammers[i] = {
            .model = std::vector<std::byte>(frame_count * 3 * 512), .seed = i + 1, .sector = i, .requests = 500};
    driver_->run_until_done(hammer_all(hosts_, hammers));
    for (const Hammer& hammer_of : hammers) EXPECT_TRUE(hammer_of.result) << hammer_of.result.error().where;
}

TEST_F(Cluster, flushed_writes_of_all_hosts_survive_the_kill_of_one) {
    std::vector<std::byte> bytes(page_size * 40);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31 / 7);
    for (HostId host = 0; host < host_count; ++host)
        ASSERT_TRUE(on(host, write(*hosts_[host]->cache, (uint64_t{64} << 20) * host + 4096, bytes)));
    ASSERT_TRUE(on(1, flush(*hosts_[1]->cache)));
    for (HostId killed = 0; killed < host_count; ++killed) {
        hosts_[killed]->stop();
        hosts_[killed]->start();
        std::vector<std::byte> seen(bytes.size());
        for (HostId range = 0; range < host_count; ++range) {
            for (HostId reader = 0; reader < host_count; ++reader) {
                ASSERT_TRUE(on(reader, read(*hosts_[reader]->cache, (uint64_t{64} << 20) * range + 4096, seen)));
                ASSERT_EQ(seen, bytes) << "killed " << unsigned{killed} << ", read by " << unsigned{reader};
            }
        }
    }
}

TEST_F(Cluster, a_page_that_its_home_cannot_read_fails_everywhere_until_it_is_written_anew) {
    const std::vector<std::byte> bytes(page_size, std::byte{42});
    const auto start_of = [](HostId range) { return (uint64_t{64} << 20) * range; };
    for (HostId range = 0; range < host_count; ++range)
        ASSERT_TRUE(on(0, write(*hosts_[0]->cache, start_of(range), bytes)));
    ASSERT_TRUE(on(0, flush(*hosts_[0]->cache)));
    hosts_[0]->stop();
    hosts_[0]->start();
    hosts_[0]->lose_store();
    unsigned failed = 0;
    for (HostId range = 0; range < host_count; ++range) {
        std::vector<std::byte> seen(page_size);
        const Result<> first = on(1, read(*hosts_[1]->cache, start_of(range), seen));
        const Result<> second = on(2, read(*hosts_[2]->cache, start_of(range), seen));
        EXPECT_EQ(first.has_value(), second.has_value());
        if (first) continue;
        ++failed;
        EXPECT_EQ(first.error().code, Errc::io);
        EXPECT_FALSE(on(1, write(*hosts_[1]->cache, start_of(range) + 512, std::span(bytes).first(512))));
        ASSERT_TRUE(on(1, write(*hosts_[1]->cache, start_of(range), bytes)));
        ASSERT_TRUE(on(2, read(*hosts_[2]->cache, start_of(range), seen)));
        EXPECT_EQ(seen, bytes);
    }
    EXPECT_EQ(failed, 1);
}

// Host 1's part of the next test. Null: as it should be.
Task<const char*> old_and_new_session(Host& home, Cache& cache) {
    const std::vector<std::byte> bytes(page_size, std::byte{7});
    const uint64_t size = uint64_t{256} << 20;
    CachedVolume old(cache, volume_id);
    for (HostId range = 0; range < host_count; ++range)
        if (!co_await old.write((uint64_t{64} << 20) * range, bytes)) co_return "a write of the old session";
    if (!co_await old.flush_up_to(size)) co_return "the old session's flush before the loss";
    for (HostId range = 0; range < host_count; ++range)
        if (!co_await old.write((uint64_t{64} << 20) * range, bytes)) co_return "a write of the old session";
    if (!co_await run_on(*home.loop, home.store->raise_loss_generation(*home.loop))) co_return "the loss";
    co_await cache.flusher().hear_from_homes();
    CachedVolume young(cache, volume_id);
    if (!co_await young.write(page_size, bytes)) co_return "a write of the new session";
    if (!co_await young.flush_up_to(size)) co_return "the new session's flush, which has lost nothing";
    if (co_await old.flush_up_to(size)) co_return "the old session's flush succeeded over a loss";
    co_return nullptr;
}

TEST_F(Cluster, a_loss_is_not_held_against_a_session_that_opens_after_it) {
    const char* const wrong = on(1, old_and_new_session(*hosts_[0], *hosts_[1]->cache));
    EXPECT_EQ(wrong, nullptr) << wrong;
}

}  // namespace
}  // namespace tarn
