// LogLimit: bounds the log lines about an event that anybody can cause at will: so many per window of time. The first
// line of a later window says how many were left out before it.
//
// One thread, or one lock of the caller's.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "utils/clock.hpp"

namespace tarn {

class LogLimit {
  public:
    constexpr LogLimit(unsigned lines_max, std::chrono::nanoseconds window)
        : lines_max_(lines_max), window_ns_(static_cast<uint64_t>(window.count())) {}

    // Nothing: leave this line out. Otherwise a text to append to it: empty, or how many lines were left out.
    std::optional<std::string> admit(uint64_t now_ns = monotonic_ns()) {
        if (lines_ == 0 || now_ns - began_ns_ >= window_ns_) {
            began_ns_ = now_ns;
            lines_ = 0;
        }
        if (lines_ == lines_max_) {
            ++left_out_;
            return std::nullopt;
        }
        ++lines_;
        const uint64_t left_out = std::exchange(left_out_, 0);
        return left_out == 0 ? "" : " (and " + std::to_string(left_out) + " like it, left out)";
    }

  private:
    const unsigned lines_max_;
    const uint64_t window_ns_;
    uint64_t began_ns_ = 0;
    unsigned lines_ = 0;
    uint64_t left_out_ = 0;
};

}  // namespace tarn
