// Hot path: what an access to a page held in DRAM costs beside a plain memcpy of 4 KiB from the same arena, in the same
// run. Prints a table. Time is the threads' CPU time, so that other work on the machine does not count.
//
//   random     each thread reads or writes pages drawn at random from the whole arena
//   array      beside it, the least that any table can cost: memcpy of the page whose number a bare array says
//   one page   all threads read the same page: optimistic readers write no shared cache line
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "frontends/volumes/cached_volume.hpp"
#include "tests/support/scratch_directory.hpp"

namespace tarn::bench {
namespace {

constexpr VolumeId volume_id = 5;
constexpr auto measured_for = std::chrono::milliseconds(300);
constexpr int runs = 9;

// One access of one thread; given a number that differs with each.
using Access = std::function<void(uint64_t random, std::byte* scratch)>;

double own_cpu_seconds() {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

// Accesses in a second of all threads together, each with a CPU to itself.
double rate(unsigned thread_count, const Access& access) {
    std::atomic<bool> stop = false;
    std::atomic<unsigned> ready = 0;
    std::vector<double> rates(thread_count * 16);  // cache lines apart
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < thread_count; ++i) {
        threads.emplace_back([&, i] {
            alignas(page_size) std::byte scratch[page_size] = {};
            uint64_t random = mix64(i + 1);
            uint64_t count = 0;
            ++ready;
            while (ready < thread_count) {
            }
            const double start = own_cpu_seconds();
            for (; !stop.load(std::memory_order_relaxed); count += 64)
                for (int n = 0; n < 64; ++n) access(random = mix64(random), scratch);
            rates[i * 16] = static_cast<double>(count) / (own_cpu_seconds() - start);
        });
    }
    while (ready < thread_count) {
    }
    std::this_thread::sleep_for(measured_for);
    stop = true;
    for (std::thread& thread : threads) thread.join();
    return std::accumulate(rates.begin(), rates.end(), 0.0);
}

struct Case {
    std::string name;
    Access access;
    std::vector<double> one;  // rates with one thread, by run
    std::vector<double> two;
};

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}
double nanoseconds(const std::vector<double>& rates) {
    return 1e9 / median(rates);
}
// The median of the runs' own ratios.
double ratio(const std::vector<double>& over, const std::vector<double>& under) {
    std::vector<double> ratios;
    for (size_t i = 0; i < over.size(); ++i) ratios.push_back(over[i] / under[i]);
    return median(std::move(ratios));
}

int run(size_t memory_mib) {
    const ScratchDirectory directory;
    const std::string path = directory / "store";
    const size_t page_count = (memory_mib << 20) / page_size;
    const auto loop = std::move(*Loop::create());
    if (!Store::format(path, 64 << 20, {}, false)) return 1;
    const auto store = std::move(*loop->run_until_done(Store::open(*loop, path, {})));
    const auto cache = std::move(*Cache::create(
        {.self = 0, .hosts = {0}, .frame_count = page_count + page_count / 8, .shards = {loop.get()}}, *store));
    VolumeContext volumes(*cache);
    CachedVolume volume(volumes, volume_id);
    std::byte page[page_size] = {};
    for (size_t i = 0; i < page_count; ++i)
        if (!loop->run_until_done(volume.read(i * page_size, page))) return 1;

    // The frames lie where they lie: the plain copy takes any.
    const std::byte* const arena = cache->pool().bytes().data();
    const auto must = [](bool done) {
        if (!done) std::abort();
    };
    std::vector<Case> cases;
    cases.push_back({.name = "memcpy, random", .access = [&](uint64_t random, std::byte* scratch) {
                         std::memcpy(scratch, arena + random % page_count * page_size, page_size);
                     }});
    std::vector<FrameId> numbers(page_count);
    std::iota(numbers.begin(), numbers.end(), FrameId{0});
    for (size_t i = page_count - 1; i > 0; --i) std::swap(numbers[i], numbers[mix64(i) % (i + 1)]);
    const Case plain = cases.back();
    cases.push_back({.name = "array, random", .access = [&](uint64_t random, std::byte* scratch) {
                         const size_t number = numbers[random % page_count];
                         std::memcpy(scratch, arena + number * page_size, page_size);
                     }});
    cases.push_back(plain);
    cases.push_back({.name = "read, random", .access = [&](uint64_t random, std::byte* scratch) {
                         must(volume.try_read(random % page_count * page_size, {scratch, page_size}));
                     }});
    cases.push_back({.name = "memcpy, one page",
                     .access = [&](uint64_t, std::byte* scratch) { std::memcpy(scratch, arena, page_size); }});
    cases.push_back({.name = "read, one page",
                     .access = [&](uint64_t, std::byte* scratch) { must(volume.try_read(0, {scratch, page_size})); }});
    for (int i = 0; i < runs; ++i) {
        for (Case& each : cases) {
            each.one.push_back(rate(1, each.access));
            each.two.push_back(rate(2, each.access));
        }
    }
    fmt::print(
        "| | one thread | more than memcpy | two threads, to one | to memcpy's own scaling |\n|---|---|---|---|---|\n");
    for (size_t i = 0; i < cases.size(); ++i) {
        const Case& each = cases[i];
        fmt::print("| {} | {:.0f} ns | ", each.name, nanoseconds(each.one));
        if (i % 2 == 0) {
            fmt::print("| × {:.2f} | |\n", ratio(each.two, each.one));
        } else {
            const Case& copy = cases[i - 1];
            fmt::print("{:+.0f} ns | × {:.2f} | × {:.2f} |\n", nanoseconds(each.one) - nanoseconds(copy.one),
                       ratio(each.two, each.one), ratio(each.two, each.one) / ratio(copy.two, copy.one));
        }
    }
    cache->abandon();
    loop->stop();
    loop->run();
    return 0;
}

}  // namespace
}  // namespace tarn::bench

int main(int count, char** arguments) {
    return tarn::bench::run(count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 1024);
}
