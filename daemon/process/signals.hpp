// Signals: the process's signals as something a loop awaits.
//
// Made before any other thread, so that every thread has them blocked and only this one hears of them.
#pragma once

#include <sys/signalfd.h>

#include "utils/loop.hpp"
#include "utils/result.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {

class Signals {
  public:
    // Blocks SIGINT, SIGTERM and SIGHUP for this thread and those it starts, and ignores SIGPIPE and SIGXFSZ: what
    // they would say comes as an error of the call. Errors: io.
    static Result<Signals> create();

    // The number of the next signal. One waiter at a time. Errors: io.
    Task<Result<int>> next(Loop& loop);

  private:
    UniqueFd fd_;
    signalfd_siginfo received_{};
};

}  // namespace tarn
