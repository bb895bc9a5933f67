// SimHost: one host as it is shipped, from the client's calls down to its store and its links, over a disk, a network
// and time that are simulated.
#pragma once

#include <memory>
#include <string>

#include "coherence/fabric/link/linked_fabric.hpp"
#include "frontends/volumes/cached_volume.hpp"
#include "tests/sim/hosts/kernel.hpp"
#include "tests/sim/store/disk.hpp"
#include "tests/support/in_process_transport.hpp"

namespace tarn::hosts_sim {

inline constexpr size_t host_count = 3;
inline constexpr VolumeId volume_id = 5;

class SimHost {
  public:
    SimHost(Kernel& kernel, InProcessNetwork& network, HostId id, size_t frame_count);

    // Until it meets others.
    void start();
    // As SIGKILL, and the power goes with it: what the disk had not made durable may be gone, and nothing is told to
    // anybody from this moment on.
    void crash();
    bool is_up() const { return cache != nullptr; }
    static std::string name_of(HostId host) { return std::to_string(host); }

    // The task runs on this host. A crash waits for its end.
    void spawn(Task<> task);

    std::unique_ptr<Loop> loop;
    std::unique_ptr<Store> store;
    std::unique_ptr<Cache> cache;
    std::unique_ptr<VolumeContext> volumes;
    std::unique_ptr<LinkedFabric> fabric;

  private:
    Task<> begin(bool& begun);
    Task<> end(bool& ended) const;

    Kernel& kernel_;
    InProcessNetwork& network_;
    HostId id_;
    size_t frame_count_;
    std::unique_ptr<store_sim::Disk> disk_;
};

}  // namespace tarn::hosts_sim
