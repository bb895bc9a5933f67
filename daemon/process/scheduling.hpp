// Scheduling: how the kernel's scheduler is to treat the thread of a shard. Pure: what was measured goes in, a mode
// comes out.
//
// joined    it runs on its own CPUs.
// courteous joined, and of the class SCHED_IDLE. The scheduler wakes a client where it ran last, unless another CPU is
//           idle: then there, and each answer crosses CPUs. A CPU on which only threads of this class run counts as
//           idle, so that a client which waits for a shard on its CPU stays there. In return any other thread that
//           wants the CPU goes first: a shard that gets none for a while stops being courteous (starved). It costs
//           requests (docs/performance.md): so only while another CPU idles.
// released  it runs elsewhere, while another CPU is idle. Either its CPU belongs to somebody else: then the scheduler
//           places it. Or its clients keep that CPU busy themselves, and it was found to serve more requests beside
//           them, on other CPUs.
//
// What did not work out is tried again later (retry.hpp).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "daemon/process/retry.hpp"

namespace tarn {

class Scheduling {
  public:
    enum class Mode : uint8_t { joined, courteous, released };
    using Clock = std::chrono::steady_clock;

    static constexpr std::chrono::milliseconds window_min{50};
    // A shard waits for its CPU while its clients use it, some microseconds for each request. Somebody else takes
    // milliseconds, maybe with pauses in which the shard runs many times.
    static constexpr std::chrono::microseconds foreign_delay_min{1000};  // each time
    static constexpr std::chrono::microseconds foreign_delay_per_request_min{50};
    static constexpr unsigned foreign_delay_percent = 20;  // of the time
    static constexpr uint64_t near_wake_ups_per_s = 1000;
    // Before, clients leave the CPU again and again; then, they stay.
    static constexpr uint64_t near_part_before = 8;
    static constexpr uint64_t near_part = 4;

    // Clients that keep a CPU busy send many requests for each time that the shard sleeps.
    static constexpr uint64_t requests_per_sleep_min = 4;
    static constexpr unsigned busy_percent_min = 80;
    // Another CPU with this much time to spare is worth a move of the shard; with this much it draws clients away.
    static constexpr unsigned idle_percent_min = 50;
    static constexpr unsigned luring_percent_min = 15;
    // Beside its clients a shard waits for no CPU, unless that belongs to others by now.
    static constexpr unsigned beside_delay_percent_max = 10;
    // To be worth it.
    static constexpr double gain_min = 1.1;
    static constexpr std::chrono::seconds comparison_time{8};

    // Of the time since the last window.
    struct Window {
        std::chrono::nanoseconds time{};
        std::chrono::nanoseconds run{};
        std::chrono::nanoseconds delay{};  // it was ready to run, and did not
        uint64_t runs = 0;                 // times that it got the CPU
        uint64_t waits = 0;                // of its loop, for anything; some end at once
        uint64_t sleeps = 0;               // that left the CPU to others
        uint64_t requests = 0;             // of clients
        uint64_t near_wake_ups = 0;        // of its loop, by clients that run on its CPUs
        // Of the CPU that idled most, of those on which it might run and that are not its own; none: it is not known.
        // See asks_for_other_cpus().
        std::optional<unsigned> others_idle_percent;
        bool starved = false;  // it was courteous, and got no CPU
    };

    Mode mode() const { return mode_; }
    // While released: whether it is because of its clients.
    bool is_beside() const { return is_beside_; }
    // Whether others_idle_percent matters, which costs something to learn.
    static bool asks_for_other_cpus(const Window& window) {
        return is_foreign(window) || is_crowded(window) || has_near(window, near_part_before);
    }

    Mode next(const Window& window, Clock::time_point now) {
        if (mode_ == Mode::released)
            mode_ = is_beside_ ? beside_clients(window, now) : now >= joining_.next() ? Mode::joined : Mode::released;
        else
            mode_ = on_its_cpus(window, now);
        return mode_;
    }

  private:
    Mode on_its_cpus(const Window& window, Clock::time_point now) {
        if (window.starved || (mode_ == Mode::courteous && is_foreign(window))) {
            courtesy_.failed(now);
            return Mode::joined;
        }
        if (is_foreign(window) && another_cpu_idles(window)) {
            joining_.failed(now);
            is_beside_ = false;
            return Mode::released;
        }
        if (is_crowded(window) && another_cpu_idles(window) && now >= beside_.next()) {
            is_beside_ = true;
            rate_before_ = rate(window);
            windows_beside_ = 0;
            rate_beside_ = 0;
            compare_at_ = now + comparison_time;
            return Mode::released;
        }
        const uint64_t part = mode_ == Mode::courteous ? near_part : near_part_before;
        return has_near(window, part) && may_lure(window) && now >= courtesy_.next() ? Mode::courteous : Mode::joined;
    }

    // The first window is for the scheduler to settle; the second shows whether it is worth it.
    Mode beside_clients(const Window& window, Clock::time_point now) {
        ++windows_beside_;
        if (windows_beside_ == 2) {
            if (rate(window) < rate_before_ * gain_min) {
                beside_.failed(now);
                return Mode::joined;
            }
            rate_beside_ = rate(window);
        }
        if (window.delay * 100 > window.time * beside_delay_percent_max) {
            beside_.failed(now);
            return Mode::joined;
        }
        // One that is faster than its clients sleeps often.
        const bool goes_on = is_deep(window) || rate(window) * 2 >= rate_beside_;
        return goes_on && now < compare_at_ ? Mode::released : Mode::joined;
    }

    static bool is_foreign(const Window& window) {
        const bool is_long = window.runs > 0 && window.delay / window.runs >= foreign_delay_min;
        const bool is_long_by_requests =
            window.requests > 0 && window.delay / window.requests >= foreign_delay_per_request_min;
        return (is_long || is_long_by_requests) && window.delay * 100 >= window.time * foreign_delay_percent;
    }
    static bool another_cpu_idles(const Window& window) { return window.others_idle_percent >= idle_percent_min; }
    static bool may_lure(const Window& window) {
        return window.others_idle_percent.value_or(100) >= luring_percent_min;
    }
    static bool is_deep(const Window& window) {
        return window.requests > 0 && window.requests >= requests_per_sleep_min * window.sleeps;
    }
    // The CPU has no time left: when the shard does not run, it is ready to.
    static bool is_crowded(const Window& window) {
        return is_deep(window) && (window.run + window.delay) * 100 >= window.time * busy_percent_min;
    }
    static double rate(const Window& window) {
        return static_cast<double>(window.requests) / static_cast<double>(window.time.count());
    }
    // Enough wake-ups are by clients on its CPUs: one in `part` at least.
    static bool has_near(const Window& window, uint64_t part) {
        const auto per_window = near_wake_ups_per_s * static_cast<uint64_t>(window.time.count()) / 1'000'000'000;
        return window.near_wake_ups * part >= window.waits && window.near_wake_ups >= per_window;
    }

    Mode mode_ = Mode::joined;
    Retry courtesy_;
    Retry joining_;
    Retry beside_;
    bool is_beside_ = false;  // why it is released
    double rate_before_ = 0;
    double rate_beside_ = 0;  // 0: not known yet
    unsigned windows_beside_ = 0;
    Clock::time_point compare_at_;
};

}  // namespace tarn
