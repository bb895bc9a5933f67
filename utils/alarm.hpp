// Alarm: calls a function once a time has passed, unless end() comes first. Belongs to the loop's thread.
#pragma once

#include <functional>
#include <utility>

#include "utils/loop.hpp"

namespace tarn {

class Alarm {
  public:
    Alarm(Loop& loop, std::chrono::nanoseconds time, std::function<void()> ring) : timer_(loop) {
        gate_.spawn(run(time, std::move(ring)));
    }
    // The last call.
    Task<> end() {
        timer_.cancel();
        co_await gate_.close();
    }

  private:
    Task<> run(std::chrono::nanoseconds time, std::function<void()> ring) {
        if (co_await timer_.sleep(time)) ring();
    }

    Timer timer_;
    Gate gate_;
};

}  // namespace tarn
