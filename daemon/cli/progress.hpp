// Progress: one line on a terminal while work takes long, removed when it is done.
//
// Nothing is written during the first second, and nothing to a stream that is not a terminal.
#pragma once

#include <chrono>
#include <functional>
#include <ostream>
#include <stop_token>
#include <string>
#include <thread>

namespace tarn {

class Progress {
  public:
    static constexpr std::chrono::milliseconds default_interval{1000};

    // out: null shows nothing. detail: gives the rest of the line; called for each update, on a thread of its own.
    Progress(std::ostream* out, std::string what, std::function<std::string()> detail,
             std::chrono::milliseconds interval = default_interval);
    Progress(const Progress&) = delete;

  private:
    void show(const std::stop_token& stop) const;

    std::ostream* out_;
    std::string what_;
    std::function<std::string()> detail_;
    std::chrono::milliseconds interval_;
    std::jthread thread_;  // ends before the rest does
};

}  // namespace tarn
