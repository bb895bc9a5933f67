#include "tests/cluster/cluster.hpp"

#include "coherence/fabric/transport/tcp/tcp_transport.hpp"

namespace tarn::three_hosts {

Host::Host(HostId id, const std::string& directory, std::vector<std::string> addresses, std::string key)
    : id_(id),
      path_(directory + "/store-" + std::to_string(id)),
      addresses_(std::move(addresses)),
      key_(std::move(key)) {
    EXPECT_TRUE(Store::format(path_, 192 << 20, identity(), false));
}

void Host::start() {
    loop = std::move(*Loop::create());
    other = std::move(*Loop::create());
    // So that a link is on the one or the other, as its packets come in; the threads run anywhere all the same.
    loop->set_cpus({0});
    other->set_cpus({1});
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
            LinkedFabricConfiguration fabric{.self = host.id_,
                                             .process = host.cache->membership().process_of(host.id_),
                                             .key = host.key_,
                                             .shards = {host.loop.get(), host.other.get()}};
            for (HostId peer = 0; peer < host_count; ++peer)
                if (peer != host.id_) fabric.peers.push_back({.host = peer, .address = host.addresses_[peer]});
            auto transport = TcpTransport::listen(host.addresses_[host.id_]);
            TARN_ASSERT(transport);
            host.fabric = std::make_unique<LinkedFabric>(fabric, std::move(*transport), host.cache->inbox());
            host.cache->set_fabric(*host.fabric);
            host.volumes = std::make_unique<VolumeContext>(*host.cache);
            host.volumes->answer_calls(host.fabric->calls());
            host.cache->inbox().set_next_volume_id([]() -> Task<Result<VolumeId>> { co_return next_volume_id; });
            if (host.make_on_top) host.on_top = host.make_on_top(host);
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

void Host::stop() {
    struct End final : Loop::Posted {
        Host* host = nullptr;
        std::atomic<bool> done{false};
        static Task<> end(End& self) {
            self.host->fabric->stop();
            self.host->cache->abandon();
            if (self.host->on_top) co_await self.host->on_top->end();
            self.done = true;
            self.done.notify_all();
        }
        void run() override { host->loop->spawn(end(*this)); }
    } end;
    end.host = this;
    loop->post(end);
    end.done.wait(false);
    // As a process: what is under way on the other shards may wait for the first.
    other->stop();
    threads_[1].join();
    loop->stop();
    threads_[0].join();
    threads_.clear();
    on_top.reset();
    fabric.reset();
    volumes.reset();
    cache.reset();
    store.reset();
    loop.reset();
    other.reset();
}

void Cluster::SetUp() {
    driver_ = std::move(*Loop::create());
    // Below the kernel's ephemeral ports: a port that is free while its host is down stays free.
    const unsigned base = 10000 + static_cast<unsigned>(::getpid()) % 7000 * host_count;
    for (unsigned i = 0; i < host_count; ++i) addresses_.push_back("127.0.0.1:" + std::to_string(base + i));
    for (HostId id = 0; id < host_count; ++id)
        hosts_.push_back(std::make_unique<Host>(id, directory_.path(), addresses_, "a key of the cluster"));
    for (const auto& host : hosts_) {
        prepare(*host);
        host->start();
    }
}

Task<bool> Cluster::knows_links(Host& host, size_t count) {
    const auto links = [&host] {
        size_t links = 0;
        for (HostId other = 0; other < host_count; ++other) links += host.fabric->linked(other);
        return links;
    };
    Broadcast& changed = host.cache->membership().changed();
    for (uint64_t seen = changed.count(); links() != count; seen = changed.count()) co_await changed.next(seen);
    co_return true;
}

Task<bool> Cluster::joined(Host& host) {
    if (!co_await host.cache->home_start().ended()) co_return false;
    co_return co_await knows_links(host, host_count - 1);
}

uint64_t Cluster::homed_at(HostId home, VolumeId volume) const {
    const Cache& cache = *hosts_[0]->cache;
    uint64_t at = 0;
    while (cache.home_of(PageId::of(volume, at / page_size)) != home)
        at += cache.membership().ranges().pages_per_range() * page_size;
    return at;
}

Task<Result<>> write(Host& host, uint64_t offset, std::span<const std::byte> from) {
    CachedVolume volume(*host.volumes, volume_id);
    if (volume.try_write(offset, from)) co_return Result<>{};
    co_return co_await volume.write(offset, from);
}
Task<Result<>> read(Host& host, uint64_t offset, std::span<std::byte> into) {
    CachedVolume volume(*host.volumes, volume_id, OnLoss::revert);
    if (volume.try_read(offset, into)) co_return Result<>{};
    co_return co_await volume.read(offset, into);
}
Task<Result<>> flush(Host& host) {
    CachedVolume volume(*host.volumes, volume_id);
    CO_TRY_VOID(co_await volume.write_growing(0, std::span<const std::byte>()));
    co_return co_await volume.flush_up_to(volume_bytes);
}

Task<Result<>> evict_all(Host& host, VolumeId volume) {
    Cache& cache = *host.cache;
    for (bool again = true; again;) {
        again = false;
        std::vector<FrameId> to_store;
        {
            const Fabric::Cork cork(cache.fabric());
            for (FrameId id = 0; id < cache.pool().frame_count(); ++id) {
                const Frame& frame = cache.pool().frame(id);
                if (frame.uses.load() == 0 || frame.page_id().volume() != volume) continue;
                again = true;  // until its home has answered
                (void)cache.eviction().try_evict(id, to_store);
            }
        }
        if (!to_store.empty()) CO_TRY_VOID(co_await cache.eviction().evict_home_bytes(std::move(to_store)));
        co_await Yield(*Loop::current());
    }
    co_return Result<>{};
}

}  // namespace tarn::three_hosts
