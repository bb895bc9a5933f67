// Replacement: hit ratio and cost of tarn's policy beside its competitors, on traces of page accesses. Prints a table.
//
// The cost of a hit is what the policy adds to finding the page and reading its frame's header, which every access
// does: the time of a run of hits, less that of the same run with a policy that does nothing. By one thread, and by two
// at once, as the shards of tarnd hit: what changes a list with every hit is then waited for. Costs are medians of
// interleaved runs.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <ctime>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <thread>

#include "tests/bench/policies.hpp"

namespace tarn::bench {
namespace {

constexpr size_t slot_count = 1 << 18;
constexpr size_t page_count = slot_count * 10;
constexpr size_t access_count = 12'000'000;
constexpr int runs = 7;

using Trace = std::vector<Page>;

class Nothing final : public Policy {
  public:
    void on_hit(Slot) override {}
    void on_fill(Slot, Page) override {}
    void pick(std::vector<Slot>& victims) override { victims.push_back(next_++ % slot_count); }

  private:
    Slot next_ = 0;
};

// Pages by rank, the ranks spread over the page numbers.
class Zipf {
  public:
    explicit Zipf(double exponent) : sums_(page_count) {
        double sum = 0;
        for (size_t rank = 0; rank < page_count; ++rank)
            sums_[rank] = sum += 1 / std::pow(static_cast<double>(rank + 1), exponent);
    }
    Page operator()(std::mt19937_64& random) const {
        const double at = std::uniform_real_distribution(0.0, sums_.back())(random);
        const auto rank = static_cast<uint64_t>(std::ranges::lower_bound(sums_, at) - sums_.begin());
        return static_cast<Page>(rank * 0x9e3779b1u % page_count);
    }

  private:
    std::vector<double> sums_;
};

Trace zipf_trace() {
    std::mt19937_64 random(1);
    const Zipf zipf(0.9);
    Trace trace(access_count);
    for (Page& page : trace) page = zipf(random);
    return trace;
}

// One access of five is the next of a scan over everything.
Trace scan_trace() {
    Trace trace = zipf_trace();
    Page next = 0;
    for (size_t i = 0; i < trace.size(); i += 5) trace[i] = next++ % page_count;
    return trace;
}

// Uniform over four fifths of what fits, somewhere else with each of six parts.
Trace shifting_trace() {
    std::mt19937_64 random(3);
    Trace trace(access_count);
    for (size_t i = 0; i < trace.size(); ++i) {
        const size_t part = i / (access_count / 6);
        trace[i] = static_cast<Page>((part * slot_count + random() % (slot_count * 4 / 5)) % page_count);
    }
    return trace;
}

class Cache {
  public:
    Cache(Policy& policy, FramePool& pool)
        : policy_(policy), pool_(pool), slot_of_(page_count, no_slot), page_of_(slot_count) {
        for (Slot slot = slot_count; slot-- > 0;) free_.push_back(slot);
    }
    // Whether it hit.
    bool access(Page page) {
        if (const Slot slot = slot_of_[page]; slot != no_slot && !FrameWord::latched(pool_.frame(slot).word.load())) {
            policy_.on_hit(slot);
            return true;
        }
        if (free_.empty()) {
            policy_.pick(free_);
            for (const Slot slot : free_) slot_of_[page_of_[slot]] = no_slot;
        }
        const Slot slot = free_.back();
        free_.pop_back();
        page_of_[slot] = page;
        slot_of_[page] = slot;
        policy_.on_fill(slot, page);
        return false;
    }

  private:
    Policy& policy_;
    FramePool& pool_;
    std::vector<Slot> slot_of_;
    std::vector<Page> page_of_;
    std::vector<Slot> free_;
};

double hit_ratio(Policy& policy, FramePool& pool, const Trace& trace) {
    Cache cache(policy, pool);
    size_t hits = 0;
    size_t counted = 0;
    for (size_t i = 0; i < trace.size(); ++i) {
        const bool hit = cache.access(trace[i]);
        if (i < slot_count * 2) continue;  // while it fills
        ++counted;
        if (hit) ++hits;
    }
    return static_cast<double>(hits) / static_cast<double>(counted);
}

// CPU time of this thread: other work on the machine does not count.
double own_cpu_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// Of accesses that all hit, by so many threads at once.
double hit_ns(Policy& policy, FramePool& pool, unsigned thread_count) {
    Cache cache(policy, pool);
    for (Page page = 0; page < slot_count; ++page) cache.access(page);
    std::atomic<unsigned> ready = 0;
    std::vector<double> took(thread_count);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < thread_count; ++i) {
        threads.emplace_back([&, i] {
            std::mt19937_64 random(5 + i);
            Trace trace(2'000'000);
            for (Page& page : trace) page = static_cast<Page>(random() % slot_count);
            ++ready;
            while (ready < thread_count) {
            }
            const double start = own_cpu_ns();
            for (const Page page : trace)
                if (!cache.access(page)) std::abort();
            took[i] = (own_cpu_ns() - start) / static_cast<double>(trace.size());
        });
    }
    for (std::thread& thread : threads) thread.join();
    return std::accumulate(took.begin(), took.end(), 0.0) / thread_count;
}

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

int run() {
    const std::unique_ptr<FramePool> frames = std::move(*FramePool::create(slot_count));
    FramePool& pool = *frames;
    // Frames are taken in the order of their numbers, as the slots are, and all of them may be victims.
    for (size_t i = 0; i < slot_count; ++i)
        pool.frame(pool.try_take(use_holder, 0)).cached.store(true, std::memory_order_relaxed);
    using Make = std::function<std::unique_ptr<Policy>()>;
    const std::vector<std::pair<std::string, Make>> policies = {
        {"epoch sampling (tarnd)", [&] { return std::make_unique<EpochSampling>(pool); }},
        {"exact LRU", [] { return std::make_unique<ExactLru>(slot_count); }},
        {"clock", [] { return std::make_unique<Clock>(slot_count); }},
        {"2Q", [] { return std::make_unique<TwoQueues>(slot_count); }},
        {"cooling buckets", [] { return std::make_unique<CoolingBuckets>(slot_count); }},
    };
    const Trace traces[] = {zipf_trace(), scan_trace(), shifting_trace()};
    constexpr std::array<unsigned, 2> thread_counts = {1, 2};
    std::map<std::string, std::vector<double>> costs[thread_counts.size()];
    for (int i = 0; i < runs; ++i) {
        for (size_t t = 0; t < thread_counts.size(); ++t) {
            Nothing nothing;
            const double baseline = hit_ns(nothing, pool, thread_counts[t]);
            for (const auto& [name, make] : policies)
                costs[t][name].push_back(hit_ns(*make(), pool, thread_counts[t]) - baseline);
        }
    }
    fmt::print(
        "| | Zipf 0.9 | scan and Zipf | shifting | cost of a hit, one thread | to exact LRU | two threads | to exact "
        "LRU "
        "|\n|---|---|---|---|---|---|---|---|\n");
    for (const auto& [name, make] : policies) {
        fmt::print("| {} |", name);
        for (const Trace& trace : traces) fmt::print(" {:.1f} % |", hit_ratio(*make(), pool, trace) * 100);
        for (auto& cost : costs) {
            const double ns = median(cost[name]);
            fmt::print(" {:.1f} ns | × {:.2f} |", ns, ns / median(cost["exact LRU"]));
        }
        fmt::print("\n");
    }
    return 0;
}

}  // namespace
}  // namespace tarn::bench

int main() {
    return tarn::bench::run();
}
