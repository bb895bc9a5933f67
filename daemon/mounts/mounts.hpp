// Mounts: the mounts of this daemon, from the request of a caller to their end. On the first shard.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "daemon/control/caller.hpp"
#include "daemon/control/control.hpp"
#include "frontends/fuse/mount.hpp"
#include "frontends/volumes/volumes.hpp"
#include "utils/loop.hpp"
#include "utils/sync.hpp"

namespace tarn {

class Mounts {
  public:
    // named: directories that every user of the control socket may mount on. The volumes outlive the mounts.
    Mounts(std::vector<Loop*> shards, Volumes& volumes, std::vector<std::string> named)
        : shards_(std::move(shards)), volumes_(volumes), named_(std::move(named)) {}

    std::vector<Mount> list() const;
    // See Control.
    Task<Result<>> mount(Mount mount, Caller caller);
    Task<Result<Unmounting>> unmount(std::string path, bool force);
    // Returns when none is left.
    Task<> stop();

  private:
    fuse::Mount* find(const std::string& path) const;
    bool lives(const fuse::Mount* mount) const;
    bool is_taken(const std::string& path) const;
    Task<> serve(fuse::Mount& mount);

    std::vector<Loop*> shards_;
    Volumes& volumes_;
    std::vector<std::string> named_;
    std::vector<std::unique_ptr<fuse::Mount>> mounts_;
    Event ended_;
};

}  // namespace tarn
