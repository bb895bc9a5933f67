// store_load: loads the NVMe tier inside one process, without a front end, and prints what it saw as JSON.
//
//   store_load --path FILE --fill 1 --size BYTES [--store-size BYTES] makes a store with one volume, every page written
//   store_load --path FILE --size BYTES [--layer cache|store] [--depth 32] [--read-percent 100] [--block 4096]
//              [--flush-every N | --fua 1] [--sustained 1] [--memory BYTES] [--threads 1] [--seconds 5]
//
// sustained: begins with a journal so full that pages must be brought into place; otherwise it is empty.
// cache: through a volume as front ends have it: page table, protocol, eviction. store: the store alone. Requests
// of 4 KiB to random pages, --depth of them at a time on so many threads, each of which flushes after its N-th write,
// or waits until its own is durable. cpu_us_per_op is this process's user and system time.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "frontends/volumes/cached_volume.hpp"
#include "tests/bench/cpu_time.hpp"
#include "tiers/nvme/store.hpp"
#include "utils/clock.hpp"
#include "utils/mapping.hpp"
#include "utils/run_on.hpp"

namespace tarn {
namespace {

constexpr VolumeId volume_id = 1;

[[noreturn]] void give_up(const std::string& text) {
    fmt::print(stderr, "store_load: {}\n", text);
    std::exit(1);
}

template <class T>
T check(Result<T> result, const char* what) {
    if (!result) give_up(fmt::format("{}: {} at {}", what, to_string(result.error().code), result.error().where));
    if constexpr (!std::is_void_v<T>) return std::move(*result);
}

struct Settings {
    std::string path;
    bool fill = false;
    bool through_cache = true;
    uint64_t size_bytes = 0;
    uint64_t store_size_bytes = 0;
    bool sustained = false;
    uint64_t memory_bytes = uint64_t{64} << 20;
    unsigned depth = 32;
    unsigned threads = 1;
    unsigned read_percent = 100;
    uint64_t flush_every = UINT64_MAX;
    bool fua = false;
    double seconds = 5;
};

Settings parse(int count, char** arguments) {
    Settings settings;
    for (int i = 1; i + 1 < count; i += 2) {
        const std::string key = arguments[i];
        const std::string value = arguments[i + 1];
        if (key == "--path")
            settings.path = value;
        else if (key == "--fill")
            settings.fill = value == "1";
        else if (key == "--layer")
            settings.through_cache = value == "cache";
        else if (key == "--size")
            settings.size_bytes = std::stoull(value);
        else if (key == "--store-size")
            settings.store_size_bytes = std::stoull(value);
        else if (key == "--sustained")
            settings.sustained = value == "1";
        else if (key == "--memory")
            settings.memory_bytes = std::stoull(value);
        else if (key == "--depth")
            settings.depth = static_cast<unsigned>(std::stoul(value));
        else if (key == "--threads")
            settings.threads = std::max(1u, static_cast<unsigned>(std::stoul(value)));
        else if (key == "--read-percent")
            settings.read_percent = static_cast<unsigned>(std::stoul(value));
        else if (key == "--flush-every")
            settings.flush_every = std::stoull(value);
        else if (key == "--fua")
            settings.fua = value == "1";
        else if (key == "--seconds")
            settings.seconds = std::stod(value);
        else if (key == "--block" && std::stoull(value) == page_size)
            continue;  // said for the reader: there is no other
        else
            give_up("unknown option " + key);
    }
    if (settings.path.empty() || settings.size_bytes < page_size) give_up("--path and --size are needed");
    return settings;
}

Task<> fill(Loop& loop, Store& store, uint64_t size_bytes) {
    constexpr size_t batch_pages = 256;
    const Mapping bytes = check(Mapping::create(batch_pages * page_size), "memory");
    for (size_t i = 0; i < bytes.bytes().size(); ++i) bytes.bytes()[i] = static_cast<std::byte>(mix64(i));
    const uint64_t page_count = size_bytes / page_size;
    std::vector<PageWrite> writes;
    for (uint64_t page = 0; page < page_count;) {
        writes.clear();
        for (; writes.size() < batch_pages && page < page_count; ++page)
            writes.push_back(
                {.page = PageId::of(volume_id, page), .bytes = bytes.bytes().data() + writes.size() * page_size});
        check(co_await store.write(loop, writes), "write");
    }
    check(co_await store.flush(loop), "flush");
}

// Random pages, one round after the other, until the store has begun to bring them into place.
Task<> fill_journal(Loop& loop, Store& store, uint64_t size_bytes) {
    constexpr size_t round_pages = 64;
    const Mapping bytes = check(Mapping::create(page_size), "memory");
    const uint64_t stride = size_bytes / page_size / round_pages;
    for (uint64_t round = 0; store.journal_status().checkpoints == 0; ++round) {
        std::vector<PageWrite> writes;
        for (uint64_t i = 0; i < round_pages; ++i)
            writes.push_back({.page = PageId::of(volume_id, i * stride + mix64(round * round_pages + i) % stride),
                              .bytes = bytes.bytes().data()});
        check(co_await store.write(loop, writes), "write");
        check(co_await store.flush(loop), "flush");
    }
}

class Load {
  public:
    Load(const Settings& settings, std::span<Loop* const> shards, Store& store, Volume* volume)
        : settings_(settings),
          shards_(shards),
          store_(store),
          volume_(volume),
          buffers_(check(Mapping::create(settings.depth * page_size), "memory")) {}

    Task<> run() {
        const uint64_t start_ns = monotonic_ns();
        const double cpu_start_us = bench::own_cpu_us();
        end_ns_ = start_ns + static_cast<uint64_t>(settings_.seconds * 1e9);
        Gate gate;
        for (unsigned i = 0; i < settings_.depth; ++i) gate.spawn(run_on(*shards_[i % shards_.size()], ask(i)));
        co_await gate.close();
        const double seconds = static_cast<double>(monotonic_ns() - start_ns) / 1e9;
        const auto ops = static_cast<double>(ops_.load());
        fmt::print("{{\"ops\": {}, \"iops\": {:.0f}, \"cpu_us_per_op\": {:.2f}}}\n", ops_.load(), ops / seconds,
                   (bench::own_cpu_us() - cpu_start_us) / ops);
    }

  private:
    // One of so many at a time, on the shard it runs on.
    Task<> ask(unsigned slot) {
        const std::span<std::byte, page_size> bytes = buffers_.bytes().subspan(slot * page_size).first<page_size>();
        uint64_t unflushed = 0;
        uint64_t asked = uint64_t{slot} << 48;
        for (; monotonic_ns() < end_ns_; ops_.fetch_add(1, std::memory_order_relaxed)) {
            const uint64_t random = mix64(++asked);
            const uint64_t page = random % (settings_.size_bytes / page_size);
            const bool reads = (random >> 40) % 100 < settings_.read_percent;
            check(volume_ ? co_await through_cache(page, reads, bytes) : co_await directly(page, reads, bytes), "load");
            if (reads || (++unflushed < settings_.flush_every && !settings_.fua)) continue;
            unflushed = 0;
            if (volume_ && settings_.fua)
                check(co_await volume_->flush_range(page * page_size, page_size, false), "flush_range");
            else
                check(volume_ ? co_await volume_->flush() : co_await store_.flush(*Loop::current()), "flush");
        }
    }

    Task<Result<>> through_cache(uint64_t page, bool reads, std::span<std::byte> bytes) {
        const uint64_t offset = page * page_size;
        if (reads ? volume_->try_read(offset, bytes) : volume_->try_write(offset, bytes)) co_return Result<>{};
        if (reads) co_return co_await volume_->read(offset, bytes);
        co_return co_await volume_->write(offset, bytes);
    }

    // Two writes of one page at a time are the caller's to order: each asks for pages of its own.
    Task<Result<>> directly(uint64_t page, bool reads, std::span<std::byte, page_size> bytes) {
        const auto slot = static_cast<uint64_t>(bytes.data() - buffers_.bytes().data()) / page_size;
        const PageId id = PageId::of(volume_id, page / settings_.depth * settings_.depth + slot);
        if (id.number() >= settings_.size_bytes / page_size) co_return Result<>{};
        if (reads) co_return co_await store_.read(*Loop::current(), id, bytes);
        const PageWrite write{.page = id, .bytes = bytes.data()};
        co_return co_await store_.write(*Loop::current(), std::span(&write, 1));
    }

    const Settings& settings_;
    std::span<Loop* const> shards_;
    Store& store_;
    Volume* volume_;  // nullptr: the store alone
    Mapping buffers_;
    uint64_t end_ns_ = 0;
    std::atomic<uint64_t> ops_ = 0;
};

// The loop of this thread, and those of others.
class Shards {
  public:
    Shards(Loop& loop, unsigned count) : loops_{&loop} {
        for (unsigned i = 1; i < count; ++i) {
            others_.push_back(check(Loop::create(), "loop"));
            loops_.push_back(others_.back().get());
            threads_.emplace_back([&other = *others_.back()] { other.run(); });
        }
    }
    // This thread's ends first: what it still does may need the others.
    ~Shards() {
        loops_.front()->stop();
        loops_.front()->run();
        for (const auto& other : others_) other->stop();
        for (std::thread& thread : threads_) thread.join();
    }
    const std::vector<Loop*>& loops() const { return loops_; }

  private:
    std::vector<Loop*> loops_;
    std::vector<std::unique_ptr<Loop>> others_;
    std::vector<std::thread> threads_;
};

Task<> register_memory(std::span<std::byte> memory) {
    check(Loop::current()->register_memory(memory), "register_memory");
    co_return;
}

void run_through_cache(const Settings& settings, Loop& loop, Store& store) {
    std::unique_ptr<Cache> cache;
    const Shards shards(loop, settings.threads);
    cache =
        check(Cache::create(
                  {.self = 0, .hosts = {0}, .frame_count = settings.memory_bytes / page_size, .shards = shards.loops()},
                  store),
              "cache");
    for (Loop* const shard : shards.loops())
        loop.run_until_done(run_on(*shard, register_memory(cache->pool().bytes())));
    {
        VolumeContext volumes(*cache);
        CachedVolume volume(volumes, volume_id);
        loop.run_until_done(Load(settings, shards.loops(), store, &volume).run());
    }
    cache->abandon();  // its own tasks end before it goes
}

int run(int count, char** arguments) {
    const Settings settings = parse(count, arguments);
    const StoreIdentity identity{.cluster = {}, .host = 0};
    if (settings.fill) {
        // The volume, and with room to spare the store's journal and tables.
        const uint64_t size_bytes = settings.size_bytes + settings.size_bytes / 8 + (uint64_t{256} << 20);
        check(Store::format(settings.path, std::max(size_bytes, settings.store_size_bytes), identity, false), "format");
    }
    const std::unique_ptr<Loop> loop = check(Loop::create(), "loop");
    const std::unique_ptr<Store> store =
        check(loop->run_until_done(Store::open(*loop, settings.path, identity)), "open");
    check(loop->run_until_done(store->close(*loop)), "close");  // empties the journal
    if (settings.sustained) loop->run_until_done(fill_journal(*loop, *store, settings.size_bytes));
    if (settings.through_cache && !settings.fill) {
        run_through_cache(settings, *loop, *store);
        return 0;
    }
    if (settings.fill)
        loop->run_until_done(fill(*loop, *store, settings.size_bytes));
    else
        loop->run_until_done(Load(settings, std::array{loop.get()}, *store, nullptr).run());
    check(loop->run_until_done(store->close(*loop)), "close");
    return 0;
}

}  // namespace
}  // namespace tarn

int main(int count, char** arguments) {
    return tarn::run(count, arguments);
}
