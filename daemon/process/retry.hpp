// Retry: when to try again what did not work out: each time after twice the time. Pure.
#pragma once

#include <algorithm>
#include <chrono>

namespace tarn {

class Retry {
  public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::milliseconds wait_min{250};
    static constexpr std::chrono::milliseconds wait_max{64'000};
    static constexpr std::chrono::milliseconds soon_min{1000};

    // Not before.
    Clock::time_point next() const { return next_; }
    // One that went well for long begins anew.
    void failed(Clock::time_point now) {
        const bool soon = next_ != Clock::time_point{} && now - next_ < std::max(wait_, soon_min);
        wait_ = soon ? std::min(wait_ * 2, wait_max) : wait_min;
        next_ = now + wait_;
    }

  private:
    Clock::time_point next_;
    std::chrono::milliseconds wait_ = wait_min;
};

}  // namespace tarn
