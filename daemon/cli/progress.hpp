// Progress: one line on a person's terminal while something takes long, gone when it is done.
//
// Nothing is written for what is done within the first second, nor to what is no terminal.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <ostream>
#include <string>
#include <thread>

namespace tarn {

class Progress {
  public:
    static constexpr std::chrono::milliseconds default_interval{1000};

    // out: none: nothing is shown. detail: what else there is to say, asked each time, on a thread of its own.
    Progress(std::ostream* out, std::string what, std::function<std::string()> detail,
             std::chrono::milliseconds interval = default_interval);
    Progress(const Progress&) = delete;
    ~Progress();

  private:
    void show();

    std::ostream* out_;
    std::string what_;
    std::function<std::string()> detail_;
    std::chrono::milliseconds interval_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool done_ = false;
    std::thread thread_;
};

}  // namespace tarn
