// start_thread: a thread, if the system has one to give. At a limit of processes it has none, for a while.
#pragma once

#include <chrono>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "utils/log.hpp"

namespace tarn {

// How long who needs one waits before the next try.
inline constexpr std::chrono::milliseconds thread_retry{20};

// None: there is none now.
template <class Function>
std::optional<std::thread> start_thread(Function function) noexcept {
    try {
        return std::thread(std::move(function));
    } catch (const std::system_error&) {
        return std::nullopt;
    }
}

// tries: how many there were. Whoever waits for a thread says it once, when it is more than a moment.
inline void warn_of_no_thread(int tries) {
    constexpr int tries_in_silence = 50;
    if (tries == tries_in_silence)
        log::warning(
            "no thread can be started, as at a limit of processes (ulimit -u, or TasksMax= of the unit); what needs "
            "one "
            "waits");
}

}  // namespace tarn
