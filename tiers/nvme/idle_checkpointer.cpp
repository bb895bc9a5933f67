#include "tiers/nvme/idle_checkpointer.hpp"

#include <chrono>

namespace tarn {

namespace {

constexpr std::chrono::milliseconds looks_every(200);

}  // namespace

Task<> IdleCheckpointer::run() {
    for (uint64_t seen = store_.journal_status().changes; co_await pause_.sleep(looks_every);) {
        const uint64_t now = store_.journal_status().changes;
        if (now == seen) store_.catch_up(loop_);
        seen = now;
    }
}

Task<> IdleCheckpointer::close() {
    pause_.cancel();
    co_await gate_.close();
}

}  // namespace tarn
