// Run: one seed. Three whole hosts, clients that read, write and flush on each, and links and hosts that break.
//
// What the clients saw of each sector must be linearizable (C2), must not lose what a flush covered (D1), and whoever
// waits must go on once the hosts are linked again. No sector may be torn.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tests/checker/register_history.hpp"
#include "tests/sim/hosts/host.hpp"

namespace tarn::hosts_sim {

struct Counts {
    uint64_t seeds = 0;
    uint64_t turns = 0;
    uint64_t operations = 0;
    uint64_t failed_operations = 0;
    uint64_t flushes = 0;
    uint64_t cuts = 0;
    uint64_t crashes = 0;
};

class Run final : InProcessNetwork::Courier {
  public:
    Run(uint64_t seed, Counts& counts);
    ~Run() override;
    // Empty, or what went wrong.
    std::string run();
    uint64_t hash() const { return kernel_.hash(); }

  private:
    static constexpr unsigned sectors = 2;  // of each page that clients use: its first
    struct Client {
        HostId host;
        unsigned number;
        unsigned session = 1;
        unsigned left = 0;  // operations
        bool busy = false;
    };

    void carry(size_t count, std::function<void(size_t)> arrive) override;
    uint64_t draw_page();
    std::vector<checker::Operation>& history_of(uint64_t page, unsigned sector);
    uint64_t clock() { return ++clock_; }
    Task<> work(Client& client);
    Task<bool> step(Client& client, CachedVolume& volume);
    Task<bool> write(Client& client, CachedVolume& volume, uint64_t page);
    Task<bool> read(Client& client, CachedVolume& volume, uint64_t page);
    Task<bool> flush(Client& client, CachedVolume& volume);
    void disturb();
    void crash(SimHost& host);
    void go_on(Client& client, unsigned count);
    bool all_idle() const;
    std::string check() const;
    void fail(std::string what) {
        if (failure_.empty()) failure_ = std::move(what);
    }

    Counts& counts_;
    Kernel kernel_;
    InProcessNetwork network_;
    std::vector<std::unique_ptr<SimHost>> hosts_;
    std::vector<std::unique_ptr<Client>> clients_;
    std::vector<uint64_t> pages_;
    std::vector<std::vector<checker::Operation>> histories_;  // by page and sector
    std::vector<checker::Flush> flushes_;
    std::vector<checker::Loss> losses_;
    uint64_t clock_ = 0;
    uint64_t next_value_ = 0;
    unsigned cut_percent_;
    uint64_t delay_max_ns_;
    std::string failure_;
};

}  // namespace tarn::hosts_sim
