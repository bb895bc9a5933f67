// Whether a tarnd is just starting, so that it is worth waiting for: its control socket is not there yet.
#pragma once

#include <string>

namespace tarn {

// A guess from /proc: a tarnd that is younger than a minute and was not told to listen elsewhere than at control.
bool is_daemon_starting(const std::string& control);

}  // namespace tarn
