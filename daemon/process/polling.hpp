// Polling: whether a shard whose CPU would idle looks for what comes for a moment before it sleeps. Pure: what was
// measured goes in, how long it may look comes out.
//
// A CPU without anything to run halts, and to wake it takes longer than a small request, above all on a virtual
// machine. So a shard whose clients and peers wait for each answer, and run elsewhere, tries it for a while, and goes
// on while it then serves a quarter more. It stops as soon as another thread wants the CPU. What did not work out is
// tried again later (retry.hpp).
#pragma once

#include <chrono>
#include <cstdint>

#include "daemon/process/retry.hpp"

namespace tarn {

class Polling {
  public:
    using Clock = std::chrono::steady_clock;

    static constexpr std::chrono::microseconds look_for{100};
    // Answers that far apart are not worth it: most looks would be in vain.
    static constexpr uint64_t work_per_s_min = 4000;
    // Clients on the shard's own CPUs need them.
    static constexpr uint64_t near_part_max = 8;
    // The part of the time that the thread sleeps, before it is tried.
    static constexpr unsigned sleep_percent_min = 20;
    static constexpr double gain_min = 1.25;
    // Then it is compared anew.
    static constexpr std::chrono::seconds comparison_time{8};

    // Of the time since the last window.
    struct Window {
        std::chrono::nanoseconds time{};
        std::chrono::nanoseconds run{};
        std::chrono::nanoseconds delay{};
        uint64_t work = 0;  // requests of clients, and messages of hosts
        uint64_t near_wake_ups = 0;
        bool is_joined = false;
        bool is_contended = false;  // while it looked, another thread used the CPU
    };

    // For how long to look until the next window; 0: not at all.
    std::chrono::nanoseconds next(const Window& window, Clock::time_point now) {
        if (is_on_ ? goes_on(window, now) : begins(window, now)) return look_for;
        is_on_ = false;
        return {};
    }

  private:
    bool begins(const Window& window, Clock::time_point now) {
        const auto slept = window.time - window.run - window.delay;
        if (!is_wanted(window) || slept * 100 < window.time * sleep_percent_min || now < retry_.next()) return false;
        is_on_ = true;
        rate_before_ = rate(window);
        windows_ = 0;
        compare_at_ = now + comparison_time;
        return true;
    }
    // The first window is for the clients to settle; the second shows whether it is worth it.
    bool goes_on(const Window& window, Clock::time_point now) {
        ++windows_;
        if (window.is_contended || (windows_ == 2 && rate(window) < rate_before_ * gain_min)) {
            retry_.failed(now);
            return false;
        }
        return is_wanted(window) && now < compare_at_;
    }
    static bool is_wanted(const Window& window) {
        const uint64_t work_min = work_per_s_min * static_cast<uint64_t>(window.time.count()) / 1'000'000'000;
        return window.is_joined && window.work >= work_min && window.near_wake_ups * near_part_max <= window.work;
    }
    static double rate(const Window& window) {
        return static_cast<double>(window.work) / static_cast<double>(window.time.count());
    }

    bool is_on_ = false;
    double rate_before_ = 0;
    unsigned windows_ = 0;
    Clock::time_point compare_at_;
    Retry retry_;
};

}  // namespace tarn
