// Who uses a mount, as far as /proc tells: processes that have files of it open, or their working directory in it. A
// process of another user, which we may not look into, is found only if it opened a file of the mount itself.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "utils/task.hpp"

namespace tarn {

// "cat (process 1234)", in the order of their numbers. openers: threads that opened files which are still open. Looks
// on a thread of its own. On a loop.
Task<std::vector<std::string>> find_mount_users(std::string path, std::vector<pid_t> openers);

}  // namespace tarn
