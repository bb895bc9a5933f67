// Run: one seed. Three whole hosts, clients on each, and what befalls the hosts meanwhile: links break in the middle of
// a page, processes are killed, stopped for a while or in order, power is cut, disks fail.
//
// What clients saw of each sector must be linearizable (C2) and must not lose what a flush covered (D1), nor anything
// but by a power cut (D2, D3); who could have seen what is lost is told (D4); an error of a disk fails the flushes that
// it concerns (D6). Whoever waits goes on once the hosts are linked again, and then everything comes to rest
// (rest.hpp).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/sim/hosts/record_log.hpp"
#include "tests/sim/hosts/register_client.hpp"

namespace tarn::hosts_sim {

class Run final : InProcessNetwork::Courier {
  public:
    Run(uint64_t seed, Counts& counts);
    ~Run() override;
    // Empty, or what went wrong.
    std::string run();
    uint64_t hash() const { return world_.kernel.hash(); }

  private:
    enum class Blow : uint8_t { none, power_cut, kill, kill_of_all, disk_failure };

    void carry(size_t count, std::function<void(size_t)> arrive) override;
    sim::Random& random() { return world_.random(); }
    void make_clients();
    void go_through_round(bool first);
    void disturb();
    void strike(SimHost& host, Blow blow);
    void restart(SimHost& host, Blow by);
    void mend_disks();
    void stop_in_order(SimHost& host);
    void cut_power_of_all();
    void go_on(HostId host, unsigned count);
    bool all_idle() const;
    // Until they are idle. Hosts that are killed meanwhile start again.
    void await_clients();
    void come_to_rest(bool flushed = false);
    // Whether all is flushed, too.
    bool look_at_all();
    bool is_good() const { return world_.failure.empty(); }

    World world_;
    unsigned cut_percent_;
    unsigned pause_percent_;
    unsigned kill_percent_;
    bool disks_fail_;
    uint64_t delay_max_ns_;
    uint64_t disturbed_until_ns_ = 0;
    std::vector<std::unique_ptr<Registers>> registers_;
    std::unique_ptr<RecordLog> log_;
    std::vector<std::unique_ptr<Client>> clients_;
};

}  // namespace tarn::hosts_sim
