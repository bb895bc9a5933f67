// SimCluster: which faults come, and when.
//
// A paused host is a stopped process: its links stay up, incoming messages pile up, and it does nothing until it goes
// on, or is killed. A link with a stuck direction carries the messages of one host but not the other's: those all come
// late together, or are lost with the link.
#include <utility>

#include "tests/sim/protocol/sim_cluster.hpp"

namespace tarn::sim {

namespace {
constexpr unsigned crashes_max = 4;
constexpr unsigned cuts_max = 30;  // then nothing heals any more what waits for an answer that was lost
constexpr unsigned store_failures_max = 2;
constexpr size_t many_messages = 10;
}  // namespace

void SimCluster::begin_faults() {
    if (scenario_.crash_interval != 0)
        schedule(faults_.between(1, 2 * scenario_.crash_interval), {.kind = Task::Kind::crash});
    if (scenario_.cut_interval != 0)
        schedule(faults_.between(1, 2 * scenario_.cut_interval), {.kind = Task::Kind::cut});
    if (scenario_.pause_interval != 0)
        schedule(disturbances_.between(1, 2 * scenario_.pause_interval), {.kind = Task::Kind::pause});
}

void SimCluster::crash_somebody(const Task& task) {
    SimHost& victim = hosts_[faults_.below(hosts_.size())];
    if (victim.is_up && ++crash_count_ <= crashes_max) crash(victim);
    if (clients_are_busy() && crash_count_ < crashes_max)
        schedule(faults_.between(1, 2 * scenario_.crash_interval), task);
}

void SimCluster::cut_something(const Task& task) {
    const auto a = static_cast<HostId>(faults_.below(hosts_.size()));
    const auto b = static_cast<HostId>(faults_.below(hosts_.size()));
    if (a != b && link_is_up_[a][b] && disturbances_.chance(scenario_.one_way_percent)) {
        stick(a, b);
    } else if (a != b && link_is_up_[a][b]) {
        coverage_.reached(Sometimes::link_cut);
        set_link_down(a, b);
        schedule(faults_.between(1, 300), {.kind = Task::Kind::link_up, .host = a, .from = b});
    }
    if (clients_are_busy() && ++cut_count_ < cuts_max) schedule(faults_.between(1, 2 * scenario_.cut_interval), task);
}

void SimCluster::stick(HostId from, HostId to) {
    if (std::exchange(is_stuck_[from][to], true)) return;
    coverage_.reached(Sometimes::direction_stuck);
    schedule(disturbances_.between(1, 600),
             {.kind = Task::Kind::unstick, .host = to, .from = from, .link_epoch = link_epoch_[from][to]});
}

void SimCluster::unstick(const Task& task) {
    if (disturbances_.chance(50)) {
        set_link_down(task.from, task.host);
        schedule(disturbances_.between(1, 300), {.kind = Task::Kind::link_up, .host = task.host, .from = task.from});
        return;
    }
    is_stuck_[task.from][task.host] = false;
    std::vector<Task> late = std::exchange(stuck_[task.from][task.host], {});
    if (!late.empty()) coverage_.reached(Sometimes::stuck_messages_late);
    for (Task& each : late) schedule_first(std::move(each));
}

void SimCluster::pause_somebody(const Task& task) {
    SimHost& host = hosts_[disturbances_.below(hosts_.size())];
    if (host.is_up && !std::exchange(host.is_paused, true)) {
        coverage_.reached(Sometimes::host_paused);
        schedule(disturbances_.between(20, 3000), {.kind = Task::Kind::resume, .host = host.id, .epoch = host.epoch});
    }
    if (clients_are_busy()) schedule(disturbances_.between(1, 2 * scenario_.pause_interval), task);
}

// Everything that piled up happens now, in the order in which it came.
void SimCluster::resume(SimHost& host) {
    if (!std::exchange(host.is_paused, false)) return;
    host.resumed_at = now_;
    std::vector<Task> waiting = std::exchange(piled_up_[host.id], {});
    size_t messages = 0;
    for (Task& each : waiting) {
        messages += each.kind == Task::Kind::message;
        schedule_first(std::move(each));
    }
    if (messages >= many_messages) coverage_.reached(Sometimes::messages_piled_up);
}

// True if the task must wait; it is then kept.
bool SimCluster::hold_back(Task& task) {
    if (task.kind == Task::Kind::resume || task.host == no_host) return false;
    const bool travels = task.kind == Task::Kind::message || task.kind == Task::Kind::hello_done;
    if (travels && task.from != task.host && is_stuck_[task.from][task.host]) {
        stuck_[task.from][task.host].push_back(std::move(task));
        return true;
    }
    HostId waits_for = task.host;
    // A link needs both processes to run.
    if (task.kind == Task::Kind::link_up && hosts_[task.from].is_paused) waits_for = task.from;
    if (!hosts_[waits_for].is_paused || task.kind == Task::Kind::unstick) return false;
    piled_up_[waits_for].push_back(std::move(task));
    return true;
}

// The store fails for good, as far as this process knows: flushes fail, and dirty pages stay where they are. Nothing
// may hang because of that, except pages whose loss cannot be recorded: in runs with crashes an operator restarts it.
void SimCluster::fail_store(SimHost& host) {
    if (host.store_failed || store_failure_count_ == store_failures_max) return;
    host.store_failed = true;
    ++store_failure_count_;
    coverage_.reached(Sometimes::store_failed);
    if (scenario_.crash_interval != 0)
        schedule(disturbances_.between(100, 3000),
                 {.kind = Task::Kind::replace_store, .host = host.id, .epoch = host.epoch});
}

// Flushes that wait for bytes which nobody will take now fail.
void SimCluster::check_store_failure(SimHost& host) {
    if (std::exchange(host.store_failure_told, true)) return;
    if (host.memory.flush_home.flush_count() > 1) coverage_.reached(Sometimes::flushes_failed_by_another);
    protocol::FlushActions actions;
    host.memory.flush_home.on_store_failed(host.verifier(), actions);
    perform_flush(host, actions);
}

bool SimCluster::refuses_writes(const SimHost& host, PageId page) const {
    const HostId home = ranges_.home_of(page);
    return home == host.id ? host.store_failed : contains(host.memory.failed_stores, home);
}

bool SimCluster::knows_a_failed_store(const SimHost& host) const {
    return host.store_failed || host.memory.failed_stores != 0;
}

// True: the peer would answer a request at once.
bool SimCluster::answers(const SimHost& host, const SimHost& peer) const {
    return has_met(host, peer) && !peer.is_paused && !is_stuck_[host.id][peer.id] && !is_stuck_[peer.id][host.id];
}

}  // namespace tarn::sim
