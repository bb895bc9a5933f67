// Whether a tarnd is just starting, whose control socket is worth waiting for.
#pragma once

#include <string>

namespace tarn {

// A guess from /proc: a tarnd younger than a minute whose command line names no other control socket.
bool is_daemon_starting(const std::string& control);

}  // namespace tarn
