// SimHost: one host as it is shipped, from the client's calls down to its store and its links, over a disk, a network
// and time that are simulated.
//
// Its process ends in one of three ways: with the power, alone (the next one takes over its memory), or in order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "frontends/volumes/cached_volume.hpp"
#include "tests/sim/hosts/links_to_kill.hpp"
#include "tests/sim/hosts/slow_disk.hpp"
#include "tests/support/in_process_transport.hpp"

namespace tarn::hosts_sim {

inline constexpr size_t host_count = 3;
inline constexpr VolumeId volume_id_first = 5;
inline constexpr VolumeId volume_count_max = 3;

class SimHost {
  public:
    struct Shape {
        size_t frame_count;
        unsigned shard_count;
    };
    SimHost(Kernel& kernel, InProcessNetwork& network, HostId id, const Shape& shape);
    ~SimHost();

    // Until it meets others. Takes over the memory that was kept.
    void start();
    // As a power cut: what the disk had not made durable may be gone, and nothing is told to anybody from this moment
    // on.
    void cut_power();
    // As SIGKILL of tarnd, once it has sent so many messages, or soon. Its memory is kept.
    void begin_kill(unsigned messages);
    void kill();
    // As SIGTERM, with no client left. False: not everything is durable; then its memory is kept.
    bool stop();
    void fail_disk(const store_sim::DiskFaults& faults) { disk_->faults = faults; }
    // As SIGSTOP and SIGCONT.
    void pause(uint64_t duration_ns);

    bool is_up() const { return cache != nullptr; }
    bool is_killed() const { return fabric && fabric->is_killed(); }
    HostId id() const { return id_; }
    // Of the process: what one did that is no more nobody has heard.
    uint64_t life() const { return life_; }
    bool is_alive(uint64_t life) const { return life == life_ && cache && !cache->abandoned(); }
    static std::string name_of(HostId host) { return std::to_string(host); }

    // The task runs on this shard of the host. The end of the process waits for its end.
    void spawn(size_t shard, Task<> task);
    // Until it has ended.
    void run(Task<> task);

    std::vector<std::unique_ptr<Loop>> loops;
    std::unique_ptr<Store> store;
    std::unique_ptr<Cache> cache;
    std::unique_ptr<VolumeContext> volumes;
    std::unique_ptr<LinksToKill> fabric;

  private:
    Task<> begin();
    Task<> end() const;
    Task<> end_in_order(bool& durable);
    Task<bool> flush_all();
    void end_process();
    void keep_memory();

    Kernel& kernel_;
    InProcessNetwork& network_;
    HostId id_;
    Shape shape_;
    std::unique_ptr<store_sim::Disk> disk_;
    SlowDisk* slow_disk_ = nullptr;  // the store's
    std::unique_ptr<Ears> ears_;
    std::unique_ptr<MarkSweeper> mark_sweeper_;
    UniqueFd memory_;  // of a process that was killed
    uint64_t life_ = 1;
};

}  // namespace tarn::hosts_sim
