#include "tests/sim/hosts/host.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <array>

namespace tarn::hosts_sim {

namespace {

constexpr uint64_t slab_count = 24;

StoreIdentity identity_of(HostId host) {
    return {.cluster = {}, .host = host};
}

// As it is at this moment.
UniqueFd copy_of(int memory) {
    UniqueFd copy(::memfd_create("arena", MFD_CLOEXEC));
    struct stat status{};
    TARN_ASSERT(copy && ::fstat(memory, &status) == 0 && ::ftruncate(copy.get(), status.st_size) == 0);
    static std::array<std::byte, 1 << 20> piece;
    for (off_t at = 0; at < status.st_size;) {
        const ssize_t size = ::pread(memory, piece.data(), piece.size(), at);
        TARN_ASSERT(size > 0 && ::pwrite(copy.get(), piece.data(), static_cast<size_t>(size), at) == size);
        at += size;
    }
    return copy;
}

}  // namespace

SimHost::SimHost(Kernel& kernel, InProcessNetwork& network, HostId id, const Shape& shape)
    : kernel_(kernel), network_(network), id_(id), shape_(shape) {
    const StoreLayout layout = StoreLayout::of({.slab_count = slab_count, .journal_size = journal_size_min});
    disk_ = std::make_unique<store_sim::Disk>(store_sim::Image(layout.end), kernel_.random().next(), true);
    const StoreFormat format{.identity = identity_of(id),
                             .store = {static_cast<uint8_t>(id + 1), 7},
                             .size_bytes = layout.end,
                             .journal_size = journal_size_min};
    TARN_ASSERT(Store::format_device(*disk_, format));
}

SimHost::~SimHost() {
    if (is_up()) cut_power();
}

void SimHost::spawn(size_t shard, Task<> task) {
    struct Spawn final : Loop::Posted {
        Spawn(Loop& on, Task<> what) : loop(on), task(std::move(what)) {}
        void run() override {
            const std::unique_ptr<Spawn> self(this);
            loop.spawn(std::move(task));
        }
        Loop& loop;
        Task<> task;
    };
    Loop& loop = *loops[shard % loops.size()];
    loop.post(*std::make_unique<Spawn>(loop, std::move(task)).release());
}

void SimHost::run(Task<> task) {
    struct Run {
        static Task<> to_end(Task<> what, bool& over) {
            co_await std::move(what);
            over = true;
        }
    };
    bool ended = false;
    spawn(0, Run::to_end(std::move(task), ended));
    TARN_ASSERT(kernel_.run_until([&] { return ended; }));
}

void SimHost::start() {
    disk_->faults = {};
    for (unsigned i = 0; i < shape_.shard_count; ++i) {
        loops.push_back(kernel_.make_loop());
        loops.back()->set_cpus({i});
    }
    run(begin());
}

Task<> SimHost::begin() {
    Loop& loop = *loops.front();
    auto disk = std::make_unique<SlowDisk>(*disk_, kernel_);
    slow_disk_ = disk.get();
    store = std::move(*co_await Store::open(loop, std::move(disk), identity_of(id_), {.use_later = true}));
    std::unique_ptr<Arena> arena;
    if (memory_) {
        arena = std::move(*Arena::adopt(std::move(memory_)));
        TARN_ASSERT(Adoption::claim(*arena, *store));
    }
    TARN_ASSERT(co_await store->begin_use(loop));
    CacheConfiguration configuration{.self = id_, .frame_count = shape_.frame_count};
    LinkedFabricConfiguration links{.self = id_, .key = "a key of the cluster"};
    for (const auto& each : loops) configuration.shards.push_back(each.get());
    links.shards = configuration.shards;
    for (HostId host = 0; host < host_count; ++host) {
        configuration.hosts.push_back(host);
        if (host != id_) links.peers.push_back({.host = host, .address = name_of(host)});
    }
    cache = std::move(*Cache::create(configuration, *store, std::move(arena)));
    links.process = cache->membership().process();
    ears_ = std::make_unique<Ears>(cache->inbox(), [this](HostId host) { network_.cut(name_of(id_), name_of(host)); });
    fabric = std::make_unique<LinksToKill>(links, network_.join(name_of(id_)), *ears_);
    fabric->may_kill = [this] { return !ears_->is_greeting(); };
    fabric->on_kill = [this] {
        ++life_;
        ears_->close();
        slow_disk_->cut_off();
        memory_ = copy_of(cache->pool().arena().fd());
    };
    cache->set_fabric(*fabric);
    volumes = std::make_unique<VolumeContext>(*cache);
    volumes->answer_calls(fabric->calls());
    cache->inbox().set_next_volume_id([]() -> Task<Result<VolumeId>> { co_return volume_id_first + volume_count_max; });
    mark_sweeper_ = std::make_unique<MarkSweeper>(cache->home_store().marker(), loop);
    fabric->start();
}

void SimHost::pause(uint64_t duration_ns) {
    for (const auto& loop : loops) kernel_.pause(*loop, kernel_.now_ns() + duration_ns);
}

void SimHost::cut_power() {
    ++life_;
    slow_disk_->cut_off();
    // The disk of the next life. What this one still does reaches neither it nor another host.
    auto next = std::make_unique<store_sim::Disk>(disk_->cut(kernel_.random()), kernel_.random().next(), true);
    for (HostId host = 0; host < host_count; ++host)
        if (host != id_) network_.cut(name_of(id_), name_of(host));
    run(end());
    end_process();
    memory_.reset();
    disk_ = std::move(next);
}

void SimHost::begin_kill(unsigned messages) {
    if (messages != 0) return fabric->kill_after(messages);
    fabric->kill();
}

// What it had sent still arrives.
void SimHost::kill() {
    fabric->kill();
    kernel_.run_for(1'000'000);
    run(end());
    end_process();
}

bool SimHost::stop() {
    bool durable = false;
    run(end_in_order(durable));
    ++life_;
    UniqueFd memory(::fcntl(cache->pool().arena().fd(), F_DUPFD_CLOEXEC, 0));
    end_process();
    if (!durable) memory_ = std::move(memory);
    return durable;
}

Task<> SimHost::end() const {
    fabric->stop();
    cache->abandon();
    co_await mark_sweeper_->close();
}

// As Node::stop().
Task<> SimHost::end_in_order(bool& durable) {
    co_await mark_sweeper_->close();
    durable = co_await flush_all();
    if (durable) co_await cache->provider().give_up_all();
    fabric->stop();
    cache->abandon();
    const bool has_served = !cache->membership().recovering();
    if (has_served && durable) durable = (co_await cache->home_store().writer().store_rest()).has_value();
    if (!co_await store->close(*loops.front(), has_served ? durable : store->was_complete())) durable = false;
}

Task<bool> SimHost::flush_all() {
    co_await cache->flusher().hear_from_homes();
    for (const VolumeId id : cache->home_store().writer().dirty_volumes()) {
        CachedVolume volume(*volumes, id);
        if (!co_await volume.flush_homes(cache->membership().host_set())) co_return false;
    }
    co_return true;
}

void SimHost::end_process() {
    for (const auto& loop : loops) {
        kernel_.pause(*loop, 0);
        loop->stop();
        kernel_.join(*loop);
    }
    fabric.reset();
    ears_.reset();
    volumes.reset();
    mark_sweeper_.reset();
    cache.reset();
    store.reset();
    loops.clear();
}

}  // namespace tarn::hosts_sim
