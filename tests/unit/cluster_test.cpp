// Three hosts in one process, over real sockets and real stores: what one writes every other reads at once, with pools
// far smaller than the volume, and flushes cover everybody's writes.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <random>
#include <thread>
#include <tuple>

#include "coherence/cache/attribute_page.hpp"
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
                                              .process = host.cache->process_of(host.id_),
                                              .key = host.key_,
                                              .listen = host.addresses_[host.id_],
                                              .shards = {host.loop.get(), host.other.get()}};
                for (HostId peer = 0; peer < host_count; ++peer)
                    if (peer != host.id_) fabric.peers.push_back({.host = peer, .address = host.addresses_[peer]});
                auto made = TcpFabric::create(fabric, *host.cache);
                EXPECT_TRUE(made);
                host.fabric = std::move(*made);
                host.cache->set_fabric(*host.fabric);
                host.cache->set_volumes_end([](void*) -> Task<Result<VolumeId>> { co_return volume_id; }, nullptr);
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
// What there is, whatever was lost before: it is nobody's session.
Task<Result<>> read(Cache& cache, uint64_t offset, std::span<std::byte> into) {
    CachedVolume volume(cache, volume_id, OnLoss::revert);
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
    if (!co_await run_on(*home.loop, home.store->record_losses(*home.loop, {}))) co_return "the loss";
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

// Until the host has none of its clean pages in memory any more.
Task<Result<>> evict_all(Cache& cache) {
    for (bool again = true; again;) {
        again = false;
        std::vector<FrameId> to_store;
        {
            const Fabric::Together together(cache.fabric());
            for (FrameId id = 0; id < cache.pool().frame_count(); ++id) {
                const Frame& frame = cache.pool().frame(id);
                if (frame.uses.load() == 0 || frame.page_id().volume() != volume_id) continue;
                again = true;  // until its home has answered
                (void)cache.try_evict(id, to_store);
            }
        }
        if (!to_store.empty()) CO_TRY_VOID(co_await cache.evict_home_bytes(std::move(to_store)));
        co_await Yield(*Loop::current());
    }
    co_return Result<>{};
}

// A session that lives as long as the test wants, on one host.
struct Session {
    static Task<std::unique_ptr<CachedVolume>> open(Cache& cache) {
        co_await cache.flusher().hear_from_homes();
        co_return std::make_unique<CachedVolume>(cache, volume_id);
    }
    static Task<Result<>> read(CachedVolume& volume, uint64_t offset, std::span<std::byte> into) {
        if (volume.try_read(offset, into)) co_return Result<>{};
        co_return co_await volume.read(offset, into);
    }
    static Task<Result<>> write(CachedVolume& volume, uint64_t offset, std::span<const std::byte> from) {
        if (volume.try_write(offset, from)) co_return Result<>{};
        co_return co_await volume.write(offset, from);
    }
};
TEST_F(Cluster, who_may_have_seen_lost_writes_is_not_shown_what_was_before) {
    uint64_t lost = 0;
    while (hosts_[0]->cache->home_of(PageId::of(volume_id, lost / page_size)) != 0) lost += uint64_t{64} << 20;
    const uint64_t other = lost + page_size;
    const std::vector<std::byte> before(page_size, std::byte{1});
    const std::vector<std::byte> after(page_size, std::byte{2});
    std::vector<std::byte> seen(page_size);
    std::vector<std::byte> attributes(page_size);
    ASSERT_TRUE(on(1, write(*hosts_[1]->cache, lost, before)));
    ASSERT_TRUE(on(1, flush(*hosts_[1]->cache)));
    auto writer = on(2, Session::open(*hosts_[2]->cache));
    auto reader = on(0, Session::open(*hosts_[0]->cache));
    ASSERT_TRUE(on(2, Session::read(*writer, lost, seen)));
    ASSERT_TRUE(on(2, Session::write(*writer, other, before)));
    ASSERT_TRUE(on(1, write(*hosts_[1]->cache, lost, after)));
    hosts_[1]->stop();
    hosts_[1]->start();
    ASSERT_TRUE(on(0, read(*hosts_[0]->cache, lost, seen)));
    EXPECT_EQ(seen, before);
    EXPECT_EQ(hosts_[0]->cache->losses().page_count(), 1);

    // Host 1 also had the attributes; when they are read, that loss is on record, too.
    ASSERT_TRUE(on(0, read(*hosts_[0]->cache, attribute_page_of(volume_id).number() * page_size, attributes)));
    auto young = on(2, Session::open(*hosts_[2]->cache));
    ASSERT_TRUE(on(1, hosts_[1]->cache->recovered())) << "until it does it cannot be heard";
    (void)on(0,
             Session::open(*hosts_[0]->cache));  // it hears from the homes, so that its flushes are about the present
    for (int attempt = 0; attempt < 2; ++attempt) {
        EXPECT_FALSE(on(2, Session::read(*writer, lost, seen)));
        EXPECT_FALSE(on(0, Session::read(*reader, lost, seen)));
        EXPECT_FALSE(on(2, writer->flush_up_to(uint64_t{256} << 20))) << "its write may be lost";
        EXPECT_TRUE(on(0, reader->flush_up_to(uint64_t{256} << 20))) << "it wrote nothing";
    }
    ASSERT_TRUE(on(2, Session::read(*writer, other, seen))) << "other pages are read as ever";
    ASSERT_TRUE(on(2, Session::read(*young, lost, seen)));
    EXPECT_EQ(seen, before);

    ASSERT_TRUE(on(2, Session::write(*writer, lost + 512, std::span(after).first(512))));
    EXPECT_FALSE(on(2, Session::read(*writer, lost, seen))) << "a part of it was written";
    ASSERT_TRUE(on(2, Session::write(*writer, lost, after)));
    ASSERT_TRUE(on(2, Session::read(*writer, lost, seen)));
    EXPECT_EQ(seen, after);
    EXPECT_FALSE(on(0, Session::read(*reader, lost, seen))) << "written by another session";
    ASSERT_TRUE(on(2, Session::read(*young, lost, seen)));
    EXPECT_EQ(seen, after);
    ASSERT_TRUE(on(2, young->flush_up_to(uint64_t{256} << 20)));
}

TEST_F(Cluster, what_only_its_home_had_in_memory_is_not_shown_as_it_was_before) {
    uint64_t lost = 0;
    while (hosts_[0]->cache->home_of(PageId::of(volume_id, lost / page_size)) != 0) lost += uint64_t{64} << 20;
    const uint64_t held = lost + page_size;
    const std::vector<std::byte> before(2 * page_size, std::byte{1});
    const std::vector<std::byte> after(page_size, std::byte{2});
    std::vector<std::byte> seen(page_size);
    ASSERT_TRUE(on(1, write(*hosts_[1]->cache, lost, before)));
    ASSERT_TRUE(on(1, flush(*hosts_[1]->cache)));
    auto old = on(2, Session::open(*hosts_[2]->cache));
    ASSERT_TRUE(on(2, Session::write(*old, lost, after)));
    ASSERT_TRUE(on(0, read(*hosts_[0]->cache, lost, seen))) << "its bytes come home";
    EXPECT_EQ(seen, after);
    ASSERT_TRUE(on(2, evict_all(*hosts_[2]->cache)));
    ASSERT_TRUE(on(2, Session::write(*old, held, after)));
    hosts_[0]->stop();
    auto meanwhile = on(2, Session::open(*hosts_[2]->cache));
    hosts_[0]->start();

    ASSERT_TRUE(on(1, read(*hosts_[1]->cache, lost, seen)));
    EXPECT_TRUE(std::ranges::equal(seen, std::span(before).first(page_size))) << "what was flushed";
    auto young = on(1, Session::open(*hosts_[1]->cache));
    for (int start = 0; start < 2; ++start) {
        EXPECT_FALSE(hosts_[0]->store->losses().empty());
        EXPECT_FALSE(on(2, Session::read(*old, lost, seen)));
        ASSERT_TRUE(on(2, Session::read(*old, held, seen))) << "its host has it";
        EXPECT_EQ(seen, after);
        if (start == 1) break;
        ASSERT_TRUE(on(1, Session::read(*young, lost, seen))) << "it began later";
        ASSERT_TRUE(on(2, Session::read(*meanwhile, lost, seen))) << "it began when the memory was gone";
        hosts_[0]->stop();
        hosts_[0]->start();
    }
    ASSERT_TRUE(on(2, Session::write(*old, lost, after)));
    ASSERT_TRUE(on(2, Session::read(*old, lost, seen)));
    EXPECT_EQ(seen, after);
    EXPECT_FALSE(on(2, old->flush_up_to(uint64_t{256} << 20))) << "its first write was lost";
}

TEST_F(Cluster, a_session_whose_writes_were_all_durable_has_lost_none) {
    Host& home = *hosts_[0];
    uint64_t at = 0;
    while (home.cache->home_of(PageId::of(volume_id, at / page_size)) != 0) at += uint64_t{64} << 20;
    const std::vector<std::byte> bytes(3 * page_size, std::byte{1});
    auto session = on(0, Session::open(*home.cache));
    for (int loss = 0; loss < 3; ++loss) {
        ASSERT_TRUE(on(0, Session::write(*session, at + 512, bytes)));
        ASSERT_TRUE(on(0, session->flush_range(at + 512, bytes.size(), false)));
        ASSERT_TRUE(on(0, home.store->record_losses(*home.loop, {})));
    }
    ASSERT_TRUE(on(0, Session::write(*session, at + page_size * 8, bytes)));
    ASSERT_TRUE(on(0, Session::write(*session, at, bytes)));
    ASSERT_TRUE(on(0, session->flush_range(at, bytes.size(), false)));
    ASSERT_TRUE(on(0, home.store->record_losses(*home.loop, {})));
    ASSERT_TRUE(on(0, Session::write(*session, at, bytes)));
    EXPECT_FALSE(on(0, session->flush_range(at, bytes.size(), false))) << "another page may be lost";
}

// Host 1's part of the next test. Null: as it should be.
Task<const char*> give_up_on_hosts(Cache& cache, uint64_t far, uint64_t near) {
    const std::vector<std::byte> bytes(page_size, std::byte{9});
    std::vector<std::byte> seen(page_size);
    CachedVolume volume(cache, volume_id);
    if (!co_await volume.attributes()) co_return "the attributes";
    const auto failed = [](const Result<>& result) { return !result && result.error().sys_errno == EIO; };
    if (!failed(co_await volume.read(far, seen))) co_return "a read of what is away";
    if (!failed(co_await volume.write(far + 512, std::span(bytes).first(512)))) co_return "a write of a part";
    if (!failed(co_await volume.write(far, bytes))) co_return "a write of a page";
    if (!failed(co_await volume.flush_up_to(uint64_t{256} << 20))) co_return "a flush";
    if (!co_await volume.write(near, bytes)) co_return "a write elsewhere";
    if (!co_await volume.read(near, seen)) co_return "a read elsewhere";
    co_return nullptr;
}
Task<Result<>> set_fail_after(Cache& cache, uint32_t fail_after_ms) {
    CachedVolume volume(cache, volume_id);
    CO_TRY(const Attributes changed, co_await volume.change_attributes({.fail_after_ms = fail_after_ms}));
    co_return changed.fail_after_ms == fail_after_ms ? Result<>{} : fail(Errc::corrupt, 0, "test");
}

TEST_F(Cluster, with_fail_after_what_needs_a_host_that_is_away_fails_and_all_else_goes_on) {
    const HostId away = 2;
    const auto homed_at = [&](HostId host) {
        uint64_t at = 0;
        while (hosts_[0]->cache->home_of(PageId::of(volume_id, at / page_size)) != host) at += uint64_t{64} << 20;
        return at;
    };
    const uint64_t far = homed_at(away);
    ASSERT_TRUE(on(1, set_fail_after(*hosts_[1]->cache, 50)));
    hosts_[away]->stop();
    const char* const wrong = on(1, give_up_on_hosts(*hosts_[1]->cache, far, homed_at(1)));
    EXPECT_EQ(wrong, nullptr) << wrong;
    hosts_[away]->start();
    // The page's write goes on alone and may be done by now; a later one is never overtaken by it.
    const std::vector<std::byte> bytes(page_size, std::byte{7});
    std::vector<std::byte> seen(page_size);
    ASSERT_TRUE(on(1, write(*hosts_[1]->cache, far, bytes)));
    ASSERT_TRUE(on(0, read(*hosts_[0]->cache, far, seen)));
    EXPECT_EQ(seen, bytes);
    ASSERT_TRUE(on(0, flush(*hosts_[0]->cache)));
}

TEST_F(Cluster, the_last_copy_in_any_memory_goes_to_its_home) {
    uint64_t at = 0;
    while (hosts_[0]->cache->home_of(PageId::of(volume_id, at / page_size)) != 0) at += uint64_t{64} << 20;
    const PageId page = PageId::of(volume_id, at / page_size);
    const std::vector<std::byte> bytes(page_size, std::byte{5});
    std::vector<std::byte> seen(page_size);
    ASSERT_TRUE(on(1, write(*hosts_[1]->cache, at, bytes)));
    ASSERT_TRUE(on(1, flush(*hosts_[1]->cache)));
    hosts_[0]->stop();  // its memory has nothing now, host 1's has the page
    hosts_[0]->start();
    ASSERT_TRUE(on(1, read(*hosts_[1]->cache, at, seen)));
    // The restarted home asks for what it may lack, and has it. It may not vouch for the writes of before.
    (void)on(1, flush(*hosts_[1]->cache));
    ASSERT_TRUE(on(1, flush(*hosts_[1]->cache)));
    ASSERT_TRUE(on(0, evict_all(*hosts_[0]->cache)));
    ASSERT_TRUE(on(1, evict_all(*hosts_[1]->cache)));
    const Cache::Counters& counters = hosts_[0]->cache->counters();
    EXPECT_GT(counters.last_copies_kept, 0);
    const uint64_t store_reads = counters.store_reads;
    ASSERT_TRUE(on(2, read(*hosts_[2]->cache, at, seen)));
    EXPECT_EQ(seen, bytes);
    EXPECT_EQ(counters.store_reads, store_reads) << "from memory";
    EXPECT_FALSE(hosts_[1]->cache->holds(page));
}

struct Stream {
    std::atomic<bool> stop{false};
    Result<> result;
};

// Writes the same page in every turn of its loop.
Task<> write_on(Cache& cache, uint64_t at, Stream& self) {
    CachedVolume volume(cache, volume_id);
    const std::vector<std::byte> bytes(512, std::byte{1});
    while (!self.stop && self.result) {
        if (!volume.try_write(at, bytes)) self.result = co_await volume.write(at, bytes);
        co_await Yield(*Loop::current());
    }
}

Task<> write_beside(std::vector<std::unique_ptr<Host>>& hosts, HostId owner, HostId asking, Result<>& result) {
    struct One {
        static Task<> run(Loop& loop, Cache& cache, uint64_t at, Stream& stream) {
            co_await run_on(loop, write_on(cache, at, stream));
        }
    };
    Stream first;
    Stream second;
    Gate gate;
    gate.spawn(One::run(*hosts[owner]->loop, *hosts[owner]->cache, 0, first));
    gate.spawn(One::run(*hosts[owner]->other, *hosts[owner]->cache, 512, second));
    const std::vector<std::byte> bytes(512, std::byte{2});
    for (int i = 0; i < 100 && result; ++i)
        result = co_await run_on(*hosts[asking]->loop, write(*hosts[asking]->cache, 1024, bytes));
    first.stop = second.stop = true;
    co_await gate.close();
    if (result && !(first.result && second.result)) result = fail(Errc::corrupt, 0, "test: a stream failed");
}

// The owner's writes go first, but not for ever (C3).
TEST_F(Cluster, a_host_that_writes_on_and_on_gives_way_to_one_that_waits) {
    Result<> result;
    driver_->run_until_done(write_beside(hosts_, 1, 2, result));
    EXPECT_TRUE(result);
    EXPECT_GT(hosts_[1]->cache->counters().turns_preferred, 0);
}

// Neighbouring pages are asked for by few messages, which the home's store answers with few reads.
TEST_F(Cluster, a_large_read_costs_few_messages_and_few_reads_of_the_store) {
    constexpr size_t page_count = 256;
    uint64_t at = 0;
    while (hosts_[0]->cache->home_of(PageId::of(volume_id, at / page_size)) != 0) at += uint64_t{64} << 20;
    std::vector<std::byte> bytes(page_count * page_size);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31 / 7);
    ASSERT_TRUE(on(0, write(*hosts_[0]->cache, at, bytes)));
    ASSERT_TRUE(on(0, flush(*hosts_[0]->cache)));
    const auto requests = [&] { return hosts_[0]->fabric->received_count(protocol::MessageKind::get_shared); };
    const auto read_all = [&](HostId reader) {
        std::vector<std::byte> seen(bytes.size());
        const uint64_t before = requests();
        EXPECT_TRUE(on(reader, read(*hosts_[reader]->cache, at, seen)));
        EXPECT_EQ(seen, bytes);
        return requests() - before;
    };
    // As its home has them: in its memory as owner, as one of two readers, and only in the store.
    EXPECT_EQ(read_all(1), 1);
    EXPECT_EQ(read_all(2), 1);
    for (const HostId host : {1, 2, 0}) ASSERT_TRUE(on(host, evict_all(*hosts_[host]->cache)));
    const uint64_t reads_before = hosts_[0]->cache->counters().store_reads;
    EXPECT_EQ(read_all(1), 1);
    EXPECT_LE(hosts_[0]->cache->counters().store_reads - reads_before, page_count / 4);
}

// Also of pages that are no neighbours.
TEST_F(Cluster, evictions_are_few_messages_for_each_home) {
    constexpr size_t page_count = 200;
    uint64_t at = 0;
    while (hosts_[0]->cache->home_of(PageId::of(volume_id, at / page_size)) != 0) at += uint64_t{64} << 20;
    std::vector<std::byte> seen(512);
    for (uint64_t i = 0; i < page_count; ++i)
        for (const HostId host : {0, 1})  // home has them in its memory, and asks for no copy
            ASSERT_TRUE(on(host, read(*hosts_[host]->cache, at + i * 3 * page_size, seen)));
    const auto evictions = [&] { return hosts_[0]->fabric->received_count(protocol::MessageKind::evict); };
    const auto answers = [&] { return hosts_[1]->fabric->received_count(protocol::MessageKind::evicted); };
    const uint64_t evictions_before = evictions();
    const uint64_t answers_before = answers();
    ASSERT_TRUE(on(1, evict_all(*hosts_[1]->cache)));
    EXPECT_GT(evictions() - evictions_before, 0);
    EXPECT_LE(evictions() - evictions_before, page_count / 20);
    EXPECT_LE(answers() - answers_before, page_count / 20);
}

// That takes a look into the catalog.
TEST_F(Cluster, a_peer_that_names_pages_of_no_volume_is_disconnected) {
    const std::vector<std::byte> bytes(page_size, std::byte{5});
    std::vector<std::byte> seen(page_size);
    for (HostId range = 0; range < host_count; ++range)
        ASSERT_TRUE(on(1, write(*hosts_[1]->cache, (uint64_t{64} << 20) * range, bytes)));
    protocol::Message message;
    message.kind = protocol::MessageKind::get_shared;
    message.page = PageId::of(volume_id + 7, 0);
    while (hosts_[0]->cache->home_of(message.page) != 0)
        message.page.value += hosts_[0]->cache->ranges().pages_per_range();
    message.request_id = 1;
    hosts_[1]->cache->stamp(message);
    const uint64_t links = hosts_[0]->cache->hosts_changed().count();
    hosts_[1]->fabric->send(0, message, {});
    while (hosts_[0]->cache->hosts_changed().count() == links) std::this_thread::yield();  // down it goes
    while (hosts_[0]->cache->claim_count(message.page.volume()) != 0) std::this_thread::yield();
    for (HostId range = 0; range < host_count; ++range) {
        ASSERT_TRUE(on(0, read(*hosts_[0]->cache, (uint64_t{64} << 20) * range, seen)));
        EXPECT_EQ(seen, bytes);
    }
}

// What a host that is linked as a peer must not say ends that link; the hosts' own traffic goes on over a new one.
TEST_F(Cluster, a_peer_that_says_what_no_host_says_is_disconnected_and_nothing_else_is_affected) {
    using protocol::Message;
    using protocol::MessageKind;
    const std::vector<std::byte> bytes(page_size, std::byte{5});
    std::vector<std::byte> seen(page_size);
    for (HostId range = 0; range < host_count; ++range)
        ASSERT_TRUE(on(1, write(*hosts_[1]->cache, (uint64_t{64} << 20) * range, bytes)));
    Cache& victim = *hosts_[0]->cache;
    const auto homed_at = [&](HostId home, VolumeId volume, uint64_t number) {
        while (victim.home_of(PageId::of(volume, number)) != home) number += victim.ranges().pages_per_range();
        return PageId::of(volume, number);
    };
    // Each as host 1 would send it to host 0.
    using Lie = void (*)(Message& message);
    const PageId own = homed_at(0, volume_id, 0);
    const PageId theirs = homed_at(1, volume_id, 0);
    const PageId beyond = homed_at(0, volume_id, uint64_t{1} << 39);
    const std::vector<std::tuple<const char*, MessageKind, PageId, Lie>> lies = {
        {"a page beyond any volume", MessageKind::get_shared, beyond, [](Message&) {}},
        {"an unknown kind", MessageKind(99), own, [](Message&) {}},
        {"another version", MessageKind::done, own, [](Message& lie) { lie.version = 1; }},
        {"another host's name", MessageKind::done, own, [](Message& lie) { lie.from = 2; }},
        {"an old process", MessageKind::done, own, [](Message& lie) { lie.incarnation -= 1; }},
        {"an old view", MessageKind::done, own, [](Message& lie) { lie.view_epoch = 0; }},
        {"another range map", MessageKind::done, own, [](Message& lie) { lie.map_epoch += 1; }},
        {"a request to who is not the home", MessageKind::get_shared, theirs, [](Message&) {}},
        {"an invalidation by who is not the home", MessageKind::drop, own, [](Message& lie) { lie.host = 2; }},
        {"an order to serve oneself", MessageKind::move, theirs, [](Message& lie) { lie.host = 0; }},
        {"answers of hosts there are not", MessageKind::grant, theirs, [](Message& lie) { lie.hosts = 1 << 9; }},
        {"a tenure of a home to come", MessageKind::recall, theirs, [](Message& lie) { lie.tenure = 1ULL << 60; }},
        {"a copy of no order", MessageKind::home_copy, own, [](Message& lie) { lie.tenure += 1 << 20; }},
        {"a report of no recall", MessageKind::report, own, [](Message& lie) { lie.tenure += 1 << 20; }},
        {"a run of what stands alone", MessageKind::resolve, own, [](Message& lie) { lie.run = 1; }},
        {"a run beyond its block", MessageKind::get_shared, own, [](Message& lie) { lie.run = 16; }},
    };
    uint64_t next = own.number();
    for (const auto& [what, kind, page, lie] : lies) {
        // Once this is done the link works, in both directions, and host 0 has claims.
        ASSERT_TRUE(on(1, write(*hosts_[1]->cache, ++next * page_size, bytes))) << what;
        Message message;
        message.kind = kind;
        message.page = page;
        message.request_id = 1;
        hosts_[1]->cache->stamp(message);
        message.tenure = protocol::first_tenure_of(message.incarnation);
        lie(message);
        const uint64_t changes = victim.hosts_changed().count();
        hosts_[1]->fabric->send(0, message, {});
        const auto deadline = std::chrono::steady_clock::now() + 10s;
        while (victim.hosts_changed().count() == changes && std::chrono::steady_clock::now() < deadline)
            std::this_thread::yield();
        ASSERT_NE(victim.hosts_changed().count(), changes) << what << " was let pass";
    }
    for (HostId range = 0; range < host_count; ++range) {
        for (HostId reader = 0; reader < host_count; ++reader) {
            ASSERT_TRUE(on(reader, read(*hosts_[reader]->cache, (uint64_t{64} << 20) * range, seen)));
            EXPECT_EQ(seen, bytes);
        }
    }
}

}  // namespace
}  // namespace tarn
