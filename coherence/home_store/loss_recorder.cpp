#include "coherence/home_store/loss_recorder.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "utils/clock.hpp"
#include "utils/log.hpp"

namespace tarn {

namespace {
constexpr std::chrono::milliseconds retry_after{500};
}

void LossRecorder::add(std::vector<PageId> pages, HostId host) {
    {
        const std::lock_guard guard(mutex_);
        for (const PageId page : pages) pending_.push_back({.page = page, .host = host});
        if (std::exchange(running_, true)) return;
        unrecorded_since_ = parts_.membership.begin_page_losses();
    }
    Loop::current()->spawn(record());
}

Task<> LossRecorder::record() {
    for (;;) {
        std::vector<Lost> lost;
        {
            const std::lock_guard guard(mutex_);
            lost.swap(pending_);
            running_ = !lost.empty();
            if (!running_) parts_.membership.end_unrecorded_losses(unrecorded_since_);
        }
        if (lost.empty()) co_return;
        const Result<uint32_t> recorded = co_await parts_.store.record_losses(*Loop::current(), runs_of(lost));
        if (!recorded) {
            // They stay unavailable: they must not be served as if nothing had happened. And they stay
            // unrecorded, so that the next process records them if this one cannot.
            if (!std::exchange(failed_, true))
                log::error("store: a loss of {} pages could not be recorded: {}; they are unavailable until it is",
                           lost.size(), log::describe(recorded.error()));
            {
                const std::lock_guard guard(mutex_);
                pending_.insert(pending_.end(), lost.begin(), lost.end());
            }
            parts_.flushes.on_store_failed();
            co_await Loop::current()->sleep(retry_after);
            if (parts_.stripes.abandoned()) co_return;
            continue;
        }
        failed_ = false;
        say(lost, *recorded);  // before anybody can see the remaining bytes
        for (const Lost& each : lost) parts_.stripes.step(protocol::Event::loss_recorded_of(each.page, *recorded));
    }
}

std::vector<Loss> LossRecorder::runs_of(std::vector<Lost>& lost) {
    std::ranges::sort(lost, {}, [](const Lost& each) { return std::pair(each.host, each.page); });
    std::vector<Loss> runs;
    for (const Lost& each : lost) {
        const bool goes_on = !runs.empty() && runs.back().host == each.host &&
                             runs.back().last.value + 1 == each.page.value &&
                             runs.back().last.volume() == each.page.volume();
        if (!goes_on) runs.push_back({.first = each.page, .at_ns = realtime_ns(), .host = each.host});
        runs.back().last = each.page;
        ++runs.back().page_count;
    }
    return runs;
}

void LossRecorder::say(std::span<const Lost> lost, uint32_t generation) {
    for (auto first = lost.begin(); first != lost.end();) {
        const auto end = std::find_if(first, lost.end(), [&](const Lost& each) {
            return each.host != first->host || each.page.volume() != first->page.volume();
        });
        log::error(
            "volume {}: host {} lost its memory, and maybe unflushed writes of {} pages from page {} to {}; they "
            "are as they last reached this home, and clients from before get I/O errors (loss generation {})",
            first->page.volume(), Fabric::name_of(parts_.peers.fabric(), first->host), end - first,
            first->page.number(), (end - 1)->page.number(), generation);
        first = end;
    }
    page_count_.fetch_add(lost.size(), std::memory_order_relaxed);
}

}  // namespace tarn
