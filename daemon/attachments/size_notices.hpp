// SizeNotices: who changes a volume's size has all hosts tell it to their kernels, so that the block devices of the
// volume have it when the change is over. A device whose host does not answer gets it with its next request.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "coherence/fabric/fabric.hpp"

namespace tarn {

class SizeNotices {
  public:
    // On the first shard, before any link can come up. peers: the other hosts. The fabric calls us as long as it runs.
    SizeNotices(Loop& loop, Fabric& fabric, HostId self, std::vector<HostId> peers);
    // Of a host alone.
    explicit SizeNotices(HostId self) : self_(self) {}

    // Gives this host's devices of a volume its size. Once there can be some.
    using Follow = std::function<Task<Result<>>(VolumeId)>;
    void set_follow(Follow follow) { follow_ = std::move(follow); }

    // Returns the hosts that did not say in time that their devices have the size as it is now. On the first shard.
    Task<std::vector<HostId>> tell(VolumeId volume);

  private:
    Task<Result<std::string>> hear(std::string request);
    Task<Result<>> tell_here(VolumeId volume);

    const HostId self_;
    Fabric* fabric_ = nullptr;
    std::vector<HostId> peers_;
    Follow follow_;
};

}  // namespace tarn
