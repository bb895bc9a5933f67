// Who uses a mount, as far as /proc tells: processes with files of it open, or with their working directory in it. Of
// processes of others, which we may not look into, only those that opened a file themselves are known.
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
