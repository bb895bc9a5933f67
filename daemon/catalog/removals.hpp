// Removals: removes a volume that has no name any more from all hosts.
//
// Its record stays in the catalog until it is gone, so that a restart of the registrar goes on with it. The registrar
// asks all hosts, each at its own pace, for one step after the other:
//
//   close    NBD clients are disconnected; answered when nobody has the volume open there
//   discard  the host lets go of its pages, dirty ones as well
//   erase    as a home it forgets their bytes and gives back their space
//
// An unreachable host blocks the removal; one that was declared dead does not.
#pragma once

#include <array>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "coherence/cache/cache.hpp"
#include "daemon/catalog/catalog_table.hpp"

namespace tarn {

class Removals {
  public:
    Removals(Cache& cache, std::vector<Loop*> shards, std::vector<std::string> host_names)
        : cache_(cache), shards_(std::move(shards)), host_names_(std::move(host_names)) {}

    // The front end of this host, if there is one.
    void set_clients(VolumeClients* clients) { clients_ = clients; }

    // Any host may ask for the users; only the registrar may ask for a step.
    Task<Result<std::string>> on_call(std::string request, bool of_registrar);

    // The volume's NBD clients, on the hosts that answer.
    Task<std::vector<std::string>> users_of(VolumeId volume);
    // On the registrar: removes the volume everywhere. False: a host failed, or this one stops; the next process goes
    // on.
    Task<bool> perform(VolumeId volume);
    // Fills in which hosts the removal waits for.
    void explain(Deletion& deletion) const;
    // Once the cache is abandoned: until no step is under way on this host. On the first shard.
    Task<> end() {
        while (steps_under_way_ > 0) co_await step_ended_.wait();
    }

  private:
    static constexpr std::array<std::string_view, 3> steps = {"close", "discard", "erase"};

    Task<Result<std::string>> ask(HostId host, std::string request);
    Task<Result<std::string>> answer(std::string request);
    Task<Result<std::string>> take_step(std::string request);
    Task<> ask_until_done(HostId host, std::string_view step, VolumeId volume, bool& failed);

    Cache& cache_;
    std::vector<Loop*> shards_;
    std::vector<std::string> host_names_;
    VolumeClients* clients_ = nullptr;
    unsigned steps_under_way_ = 0;  // here
    Event step_ended_;
    mutable std::mutex mutex_;  // never held across a wait
    struct Pending {
        std::string_view step;
        HostSet hosts = 0;
    };
    std::map<VolumeId, Pending> pending_;
};

}  // namespace tarn
