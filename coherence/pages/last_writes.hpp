// LastWrites: the frames that each thread wrote last, so that others can tell which are being written.
//
// A hint: a thread notes a write in a cache line that only it writes; readers see it soon. Threads beyond the number of
// lines share them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "tiers/page.hpp"

namespace tarn {

class LastWrites {
  public:
    void note(FrameId frame) {
        Line& line = lines_[own_line()];
        const uint32_t next = line.next.load(std::memory_order_relaxed);
        if (line.frames[(next - 1) % kept].load(std::memory_order_relaxed) == frame) return;
        line.frames[next % kept].store(frame, std::memory_order_relaxed);
        line.next.store(next + 1, std::memory_order_relaxed);
    }
    bool has(FrameId frame) const {
        for (const Line& line : lines_)
            for (const std::atomic<FrameId>& each : line.frames)
                if (each.load(std::memory_order_relaxed) == frame) return true;
        return false;
    }

  private:
    static constexpr size_t kept = 8;
    static constexpr size_t line_count = 16;
    struct alignas(64) Line {
        Line() {
            for (std::atomic<FrameId>& each : frames) each.store(no_frame, std::memory_order_relaxed);
        }
        std::array<std::atomic<FrameId>, kept> frames;
        std::atomic<uint32_t> next{0};
    };

    static size_t own_line() {
        static std::atomic<size_t> threads{0};
        thread_local const size_t line = threads.fetch_add(1, std::memory_order_relaxed) % line_count;
        return line;
    }

    std::array<Line, line_count> lines_;
};

}  // namespace tarn
