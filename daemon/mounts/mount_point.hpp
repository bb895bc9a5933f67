// Where a caller may mount: on an empty directory that he may write himself, or on one that the configuration names.
// The daemon itself may mount anywhere, and must not lend that right to every user of its socket (over /etc/cron.d,
// say).
//
// The directory that was checked is the one that is mounted on, even if others change where its path leads: from the
// first look on it is held by a descriptor. So is its parent, through which the mount is found when it is to be
// removed.
#pragma once

#include <string>
#include <vector>

#include "daemon/control/caller.hpp"
#include "frontends/fuse/mount.hpp"
#include "utils/task.hpp"

namespace tarn {

// Checks with the rights of the caller alone, on a thread of its own, since the file system there may be slow to
// answer. Removes a mount that a dead tarnd has left there. Called on a loop. named: the directories of the
// configuration. Errors: not_found, invalid (not a directory), busy (not empty, or a dead mount of another program),
// refused (with the reason), io.
Task<Result<fuse::MountPoint>> take_mount_point(std::string path, Caller caller, std::vector<std::string> named);

}  // namespace tarn
