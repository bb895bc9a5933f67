// Whether somebody claims a block device: has it mounted, as a part of another one, or open for himself alone.
#pragma once

#include <chrono>
#include <string>

namespace tarn {

// path: /dev/nbd0. For a process of one thread: another process asks, as opening a device may wait for its partition
// table, and nothing ends that wait where no tarnd answers. What is not known by then counts as unclaimed.
bool is_claimed(const std::string& path, std::chrono::milliseconds within);

}  // namespace tarn
