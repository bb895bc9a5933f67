#include "daemon/cli/progress.hpp"

#include <fmt/format.h>

#include <condition_variable>
#include <mutex>
#include <utility>

#include "utils/printable.hpp"

namespace tarn {

Progress::Progress(std::ostream* out, std::string what, std::function<std::string()> detail,
                   std::chrono::milliseconds interval)
    : out_(out), what_(std::move(what)), detail_(std::move(detail)), interval_(interval) {
    if (out_) thread_ = std::jthread([this](const std::stop_token& stop) { show(stop); });
}

void Progress::show(const std::stop_token& stop) const {
    const auto began = std::chrono::steady_clock::now();
    bool shown = false;
    std::mutex mutex;
    std::condition_variable_any interval;  // cut short by the stop alone
    for (std::unique_lock lock(mutex);;) {
        interval.wait_for(lock, stop, interval_, [] { return false; });
        const std::string detail = detail_ && !stop.stop_requested() ? detail_() : "";
        const auto passed = std::chrono::steady_clock::now() - began;
        if (stop.stop_requested()) break;
        *out_ << fmt::format("\r\033[K{}, {} s{}", printable(what_),
                             std::chrono::duration_cast<std::chrono::seconds>(passed).count(), printable(detail))
              << std::flush;
        shown = true;
    }
    if (shown) *out_ << "\r\033[K" << std::flush;
}

}  // namespace tarn
