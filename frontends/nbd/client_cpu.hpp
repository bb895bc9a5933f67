// ClientCpu: on which CPU an NBD client runs, as far as the kernel tells.
//
// Over TCP it is the CPU that took in the connection's last packet: the client's own over loopback, else that of the
// network card's queue. On a Unix socket it is the CPU on which the client's process ran last; of its threads, those
// count that do the work, and the connections of one client are shared out among them. A process in another PID
// namespace is unknown, and so is one that has ended: a process that got its id since is never taken for it.
//
// Belongs to the connection's shard; goes with it to another one.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>

#include "frontends/nbd/sessions.hpp"
#include "utils/unique_fd.hpp"

namespace tarn::nbd {

class ClientCpu {
  public:
    using Clock = std::chrono::steady_clock;
    // How often the threads of a process are compared: more seldom the more there are. Of one that has more than so
    // many nothing is known.
    static constexpr std::chrono::milliseconds comparison_time{1000};
    static constexpr std::chrono::milliseconds comparison_time_per_thread{20};
    static constexpr size_t threads_max = 256;
    // A thread does the work if it ran at least this part of the time of the busiest one.
    static constexpr unsigned busy_part = 8;

    // The socket and the client outlive it. place: of this connection among those of its client, for their sharing out.
    ClientCpu(int socket, const Client& client, unsigned place) : socket_(socket), client_(client), place_(place) {}

    // None: it is not known.
    std::optional<unsigned> now();

  private:
    std::optional<unsigned> of_process();
    bool find_process();
    void choose_thread(Clock::time_point now);

    const int socket_;
    const Client& client_;
    const unsigned place_;
    bool looked_ = false;
    UniqueFd tasks_;   // the directory of its threads, of this process for good
    UniqueFd thread_;  // the state of the thread that is watched
    Clock::time_point compare_at_;
    std::map<pid_t, uint64_t> run_ns_;  // of each thread, at the last comparison
};

}  // namespace tarn::nbd
