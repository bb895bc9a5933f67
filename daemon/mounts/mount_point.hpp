// Where a caller may mount: an empty directory that he may write himself, or one that the configuration names. The
// daemon may mount anywhere, and must not lend that to everybody who may use its socket: over /etc/cron.d, say.
//
// What was checked is what is mounted on: from the first look on the directory is held by a descriptor, as is the one
// above it, by which the mount is found again when it is to go. What its names lead to may be changed by others
// meanwhile.
#pragma once

#include <string>
#include <vector>

#include "daemon/control/caller.hpp"
#include "frontends/fuse/mount.hpp"
#include "utils/task.hpp"

namespace tarn {

// Looks as the caller, with his rights alone, on a thread of its own: the look may wait for whatever file system is
// there. A mount that a dead tarnd has left there is removed. On a loop. named: by the configuration. Errors:
// not_found, invalid (no directory), refused (why), io.
Task<Result<fuse::MountPoint>> take_mount_point(std::string path, Caller caller, std::vector<std::string> named);

}  // namespace tarn
