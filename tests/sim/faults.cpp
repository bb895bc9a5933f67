// Cluster: which faults come, and when.
#include "tests/sim/cluster.hpp"

namespace tarn::sim {

namespace {
constexpr unsigned crashes_max = 4;
}

void Cluster::begin_faults() {
    if (scenario_.crash_interval != 0)
        schedule(faults_.between(1, 2 * scenario_.crash_interval), {.kind = Task::Kind::crash});
    if (scenario_.cut_interval != 0)
        schedule(faults_.between(1, 2 * scenario_.cut_interval), {.kind = Task::Kind::cut});
}

void Cluster::crash_somebody(const Task& task) {
    SimHost& victim = hosts_[faults_.below(hosts_.size())];
    if (victim.is_up && ++crash_count_ <= crashes_max) crash(victim);
    if (clients_are_busy() && crash_count_ < crashes_max)
        schedule(faults_.between(1, 2 * scenario_.crash_interval), task);
}

void Cluster::cut_something(const Task& task) {
    const auto a = static_cast<HostId>(faults_.below(hosts_.size()));
    const auto b = static_cast<HostId>(faults_.below(hosts_.size()));
    if (a != b && link_is_up_[a][b]) {
        coverage_.reached(Sometimes::link_cut);
        set_link_down(a, b);
        schedule(faults_.between(1, 300), {.kind = Task::Kind::link_up, .host = a, .from = b});
    }
    if (clients_are_busy()) schedule(faults_.between(1, 2 * scenario_.cut_interval), task);
}

}  // namespace tarn::sim
