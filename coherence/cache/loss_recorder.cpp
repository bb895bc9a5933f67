#include "coherence/cache/loss_recorder.hpp"

#include <algorithm>
#include <utility>

#include "coherence/cache/cache.hpp"
#include "utils/clock.hpp"
#include "utils/log.hpp"

namespace tarn {

void LossRecorder::add(std::vector<PageId> pages, HostId host) {
    {
        const std::lock_guard guard(mutex_);
        for (const PageId page : pages) pending_.push_back({.page = page, .host = host});
        if (std::exchange(running_, true)) return;
        cache_.begin_doubt();
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
            if (!running_) cache_.end_doubt();
        }
        if (lost.empty()) co_return;
        const Result<> raised = co_await cache_.store().raise_loss_generation(*Loop::current());
        if (!raised) {
            // They stay unavailable: they must not be served as if nothing had happened.
            log::error("store: a loss of {} pages could not be recorded: {}", lost.size(),
                       log::describe(raised.error()));
            continue;
        }
        const auto generation = static_cast<uint32_t>(cache_.store().loss_generation());
        for (const Lost& each : lost) cache_.loss_recorded(each.page, generation);
        note(std::move(lost), generation);
    }
}

void LossRecorder::note(std::vector<Lost> lost, uint32_t generation) {
    std::ranges::sort(
        lost, [](const Lost& a, const Lost& b) { return std::pair(a.host, a.page) < std::pair(b.host, b.page); });
    const int64_t now = realtime_ns();
    const std::lock_guard guard(mutex_);
    page_count_ += lost.size();
    for (auto first = lost.begin(); first != lost.end();) {
        const auto end = std::find_if(first, lost.end(), [&](const Lost& each) {
            return each.host != first->host || each.page.volume() != first->page.volume();
        });
        const LossRecord record{.volume = first->page.volume(),
                                .host = first->host,
                                .generation = generation,
                                .page_count = static_cast<uint64_t>(end - first),
                                .first_page = first->page.number(),
                                .last_page = (end - 1)->page.number(),
                                .at_ns = now};
        log::error(
            "volume {}: host {} lost its memory, and maybe unflushed writes of {} pages from page {} to {}; they "
            "are as they last reached this home, and clients from before get I/O errors (loss generation {})",
            record.volume, record.host, record.page_count, record.first_page, record.last_page, generation);
        if (records_.size() == records_max) records_.erase(records_.begin());
        records_.push_back(record);
        first = end;
    }
}

std::vector<LossRecord> LossRecorder::records() const {
    const std::lock_guard guard(mutex_);
    return records_;
}

uint64_t LossRecorder::page_count() const {
    const std::lock_guard guard(mutex_);
    return page_count_;
}

}  // namespace tarn
