#include "daemon/cli/progress.hpp"

#include <fmt/format.h>

#include <utility>

#include "utils/printable.hpp"

namespace tarn {

Progress::Progress(std::ostream* out, std::string what, std::function<std::string()> detail,
                   std::chrono::milliseconds interval)
    : out_(out), what_(std::move(what)), detail_(std::move(detail)), interval_(interval) {
    if (out_) thread_ = std::thread([this] { show(); });
}

Progress::~Progress() {
    {
        const std::lock_guard lock(mutex_);
        done_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
}

void Progress::show() {
    const auto began = std::chrono::steady_clock::now();
    bool shown = false;
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, interval_, [this] { return done_; })) {
        lock.unlock();
        const std::string detail = detail_ ? detail_() : "";
        const auto passed = std::chrono::steady_clock::now() - began;
        lock.lock();
        if (done_) break;
        *out_ << fmt::format("\r\033[K{}, {} s{}", printable(what_),
                             std::chrono::duration_cast<std::chrono::seconds>(passed).count(), printable(detail))
              << std::flush;
        shown = true;
    }
    if (shown) *out_ << "\r\033[K" << std::flush;
}

}  // namespace tarn
