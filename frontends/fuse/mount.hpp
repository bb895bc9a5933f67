// Mount: the cluster's volumes as a file system at one directory of this host.
//
// create() mounts, serve() answers, stop() unmounts; when an administrator unmounts it, serve() returns by itself.
// The daemon must never touch files below a path it mounted: the request would wait for the thread that makes it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "frontends/fuse/channel.hpp"
#include "frontends/fuse/file_system.hpp"
#include "frontends/volumes/volumes.hpp"
#include "utils/loop.hpp"
#include "utils/sync.hpp"
#include "utils/unique_fd.hpp"

namespace tarn::fuse {

// A directory to mount on, independent of where its path leads by now: the directory, its parent, its name there.
struct MountPoint {
    UniqueFd parent;
    std::string name;
    UniqueFd directory;
};

struct MountOptions {
    std::string path;
    // Checked by the caller. Without it, the path is mounted on.
    std::optional<MountPoint> point;
    bool read_only = false;
    bool allow_other = true;       // every user of the host; else only the daemon's
    mode_t directory_mode = 0755;  // of all directories, which belong to the daemon's user
};

class Mount {
  public:
    // The loops outlive the mount and run until serve() returned. A mount that a dead daemon left there is removed.
    // Errors: not_found, invalid (no directory), io (with the reason; the device /dev/fuse may be missing).
    static Result<std::unique_ptr<Mount>> create(std::vector<Loop*> shards, Volumes& volumes, MountOptions options);
    Mount(const Mount&) = delete;
    ~Mount();

    const std::string& path() const { return options_.path; }
    bool read_only() const { return options_.read_only; }

    // Whether this process sees a mount of tarn at the path. An administrator may have taken it from there, while it
    // lives on elsewhere.
    bool is_there() const;

    // Spawn it on the first shard. Returns when the mount ended, by stop() or from outside, and nothing is in flight.
    Task<> serve();
    // From the first shard. Files that are still open get ENOTCONN from then on, and requests that wait EINTR.
    Task<> stop();
    // If nobody uses it; serve() then returns, and the mount may be gone when this does. Errors: busy (files are open,
    // or it is somebody's working directory), io.
    Task<Result<>> unmount();
    // Threads that have opened files which are still open; they may have ended.
    std::vector<pid_t> openers() { return file_system_.openers(); }

    // For the callbacks: the channel that read the request in hand.
    Channel& channel_here();
    // Any thread. id: see Interrupts.
    void interrupted(uint64_t id) { channels_[Interrupts::index_of(id)]->interrupts().interrupted(id); }
    FileSystem& file_system() { return file_system_; }

  private:
    Mount(Volumes& volumes, MountOptions options);
    Result<> attach(const std::vector<Loop*>& shards);
    Result<> mount_on(const MountPoint& point);
    // By which the kernel finds the mount.
    std::string target() const;
    void detach();
    Result<> make_rings();
    Task<> open_rings();
    Task<> end_connection();

    MountOptions options_;
    FileSystem file_system_;
    fuse_session* session_ = nullptr;
    bool mounted_ = false;
    bool rings_open_ = false;
    std::vector<std::unique_ptr<Channel>> channels_;
    Gate stops_;  // which look at all channels, also if the mount ends meanwhile
};

// The table of the operations (callbacks.cpp); their user data is the Mount.
const fuse_lowlevel_ops& operations();

}  // namespace tarn::fuse
