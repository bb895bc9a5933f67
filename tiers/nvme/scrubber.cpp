#include "tiers/nvme/scrubber.hpp"

#include <algorithm>
#include <chrono>

#include "utils/clock.hpp"
#include "utils/log.hpp"

namespace tarn {

namespace {

constexpr size_t run_pages_max = 64;
constexpr size_t bad_pages_max = 100;

}  // namespace

Result<> Scrubber::start(std::optional<VolumeId> volume, uint64_t rate_bytes) {
    if (progress_.running) return fail(Errc::busy, 0, "verify: a pass is under way");
    progress_ = {.volume = volume, .running = true, .bad_pages = {}, .passes = progress_.passes};
    began_ns_ = monotonic_ns();
    pause_.emplace(loop_);
    gate_.spawn(run(volume, rate_bytes));
    return {};
}

void Scrubber::cancel() {
    if (!progress_.running) return;
    progress_.cancelled = true;
    pause_->cancel();
}

Task<> Scrubber::close() {
    cancel();
    co_await gate_.close();
}

Task<> Scrubber::run(std::optional<VolumeId> volume, uint64_t rate_bytes) {
    std::vector<VolumeId> volumes = volume ? std::vector{*volume} : store_.volumes();
    std::vector<std::pair<VolumeId, PageRun>> runs;
    for (const VolumeId each : volumes) {
        for (const PageRun& run : co_await store_.stored_runs(loop_, each)) {
            runs.emplace_back(each, run);
            progress_.pages_total += run.count;
        }
    }
    for (const auto& [each, run] : runs) {
        co_await check(each, run, rate_bytes);
        if (progress_.cancelled) break;
    }
    progress_.running = false;
    if (progress_.cancelled) co_return;
    ++progress_.passes;
    if (progress_.bad_page_count > 0)
        log::error("verify: {} of {} pages are bad; their reads fail until they are written anew",
                   progress_.bad_page_count, progress_.pages_checked);
    else
        log::info("verify: {} pages are good", progress_.pages_checked);
}

Task<> Scrubber::check(VolumeId volume, PageRun run, uint64_t rate_bytes) {
    for (uint64_t done = 0; done < run.count && !progress_.cancelled;) {
        const size_t count = std::min<uint64_t>(run_pages_max, run.count - done);
        const auto bad_pages = co_await store_.check_run(loop_, PageId::of(volume, run.first + done), count);
        done += count;
        progress_.pages_checked += count;
        progress_.bad_page_count += bad_pages.size();
        for (const BadPage& bad : bad_pages)
            if (progress_.bad_pages.size() < bad_pages_max) progress_.bad_pages.push_back(bad.page);
        if (rate_bytes == 0) continue;
        const auto due = std::chrono::nanoseconds(static_cast<uint64_t>(
            static_cast<double>(progress_.pages_checked * page_size) * 1e9 / static_cast<double>(rate_bytes)));
        const auto passed = std::chrono::nanoseconds(monotonic_ns() - began_ns_);
        if (due > passed) static_cast<void>(co_await pause_->sleep(due - passed));
    }
}

}  // namespace tarn
