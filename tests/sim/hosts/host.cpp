#include "tests/sim/hosts/host.hpp"

namespace tarn::hosts_sim {

namespace {

constexpr uint64_t slab_count = 8;
constexpr uint64_t size_bytes_of(StoreLayout layout) {
    return layout.end;
}

// Operations of the disk take their time, each its own: they end in another order than they began.
class SlowDisk final : public BlockDevice {
  public:
    SlowDisk(store_sim::Disk& disk, Kernel& kernel) : disk_(disk), kernel_(kernel) {}

    uint64_t size_bytes() const override { return disk_.size_bytes(); }
    bool direct() const override { return true; }
    Task<Result<>> read(Loop& loop, std::span<const iovec> into, uint64_t offset_bytes) override {
        co_await pass_time(loop);
        co_return co_await disk_.read(loop, into, offset_bytes);
    }
    Task<Result<>> write(Loop& loop, std::span<const iovec> from, uint64_t offset_bytes) override {
        co_await pass_time(loop);
        co_return co_await disk_.write(loop, from, offset_bytes);
    }
    Task<Result<>> flush(Loop& loop) override {
        co_await pass_time(loop);
        co_return co_await disk_.flush(loop);
    }
    Result<> read_now(std::span<std::byte> into, uint64_t offset_bytes) override {
        return disk_.read_now(into, offset_bytes);
    }
    Result<> write_now(std::span<const std::byte> from, uint64_t offset_bytes) override {
        return disk_.write_now(from, offset_bytes);
    }
    Result<> flush_now() override { return disk_.flush_now(); }

  private:
    Task<> pass_time(Loop& loop) {
        const uint64_t delay_ns = kernel_.random().chance(10) ? kernel_.random().below(20'000'000)
                                                              : kernel_.random().between(10'000, 300'000);
        co_await loop.sleep(std::chrono::nanoseconds(delay_ns));
    }

    store_sim::Disk& disk_;
    Kernel& kernel_;
};

StoreIdentity identity_of(HostId host) {
    return {.cluster = {}, .host = host};
}

}  // namespace

SimHost::SimHost(Kernel& kernel, InProcessNetwork& network, HostId id, size_t frame_count)
    : kernel_(kernel), network_(network), id_(id), frame_count_(frame_count) {
    const StoreLayout layout = StoreLayout::of({.slab_count = slab_count, .journal_size = journal_size_min});
    disk_ = std::make_unique<store_sim::Disk>(store_sim::Image(size_bytes_of(layout)), kernel_.random().next(), true);
    const StoreFormat format{.identity = identity_of(id),
                             .store = {static_cast<uint8_t>(id + 1), 7},
                             .size_bytes = size_bytes_of(layout),
                             .journal_size = journal_size_min};
    TARN_ASSERT(Store::format_device(*disk_, format));
}

void SimHost::spawn(Task<> task) {
    struct Spawn final : Loop::Posted {
        Spawn(Loop& on, Task<> what) : loop(on), task(std::move(what)) {}
        void run() override {
            const std::unique_ptr<Spawn> self(this);
            loop.spawn(std::move(task));
        }
        Loop& loop;
        Task<> task;
    };
    loop->post(*std::make_unique<Spawn>(*loop, std::move(task)).release());
}

void SimHost::start() {
    loop = kernel_.make_loop();
    bool begun = false;
    spawn(begin(begun));
    TARN_ASSERT(kernel_.run_until([&] { return begun; }));
}

Task<> SimHost::begin(bool& begun) {
    store = std::move(*co_await Store::open(*loop, std::make_unique<SlowDisk>(*disk_, kernel_), identity_of(id_)));
    std::vector<HostId> hosts;
    for (HostId host = 0; host < host_count; ++host) hosts.push_back(host);
    cache = std::move(
        *Cache::create({.self = id_, .hosts = hosts, .frame_count = frame_count_, .shards = {loop.get()}}, *store));
    LinkedFabricConfiguration configuration{
        .self = id_, .process = cache->membership().process(), .key = "a key of the cluster", .shards = {loop.get()}};
    for (const HostId host : hosts)
        if (host != id_) configuration.peers.push_back({.host = host, .address = name_of(host)});
    fabric = std::make_unique<LinkedFabric>(configuration, network_.join(name_of(id_)), cache->inbox());
    cache->set_fabric(*fabric);
    volumes = std::make_unique<VolumeContext>(*cache);
    volumes->answer_calls(fabric->calls());
    cache->inbox().set_next_volume_id([](void*) -> Task<Result<VolumeId>> { co_return volume_id + 1; }, nullptr);
    fabric->start();
    begun = true;
}

void SimHost::crash() {
    // The disk of the next life. What this one still does reaches neither it nor another host.
    auto next = std::make_unique<store_sim::Disk>(disk_->cut(kernel_.random()), kernel_.random().next(), true);
    disk_->die();
    for (HostId host = 0; host < host_count; ++host)
        if (host != id_) network_.cut(name_of(id_), name_of(host));
    bool ended = false;
    spawn(end(ended));
    TARN_ASSERT(kernel_.run_until([&] { return ended; }));
    loop->stop();
    kernel_.join(*loop);
    fabric.reset();
    volumes.reset();
    cache.reset();
    store.reset();
    loop.reset();
    disk_ = std::move(next);
}

Task<> SimHost::end(bool& ended) const {
    fabric->stop();
    cache->abandon();
    ended = true;
    co_return;
}

}  // namespace tarn::hosts_sim
