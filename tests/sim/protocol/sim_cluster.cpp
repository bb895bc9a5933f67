#include "tests/sim/protocol/sim_cluster.hpp"

#include <algorithm>

#include "tests/sim/support/failure.hpp"

namespace tarn::sim {

namespace {

constexpr uint64_t pages_per_block = 16;
constexpr uint64_t events_max = 400'000;  // a run beyond this makes no progress

// Neighbours that are requested together may lie in two blocks of one home.
uint64_t pages_per_range_of(const Scenario& scenario) {
    return scenario.together_percent != 0 ? 2 * pages_per_block : pages_per_block;
}
uint64_t first_page_of(const Scenario& scenario) {
    return scenario.together_percent != 0 ? pages_per_block - 4 : 0;
}

std::vector<HostId> first_hosts(unsigned count) {
    std::vector<HostId> hosts;
    for (HostId host = 0; host < count; ++host) hosts.push_back(host);
    return hosts;
}

}  // namespace

SimCluster::SimCluster(uint64_t seed, const Scenario& scenario, Tracing tracing)
    : scenario_(scenario),
      tracing_(tracing),
      network_(Random(seed).split(1)),
      workload_(Random(seed).split(2)),
      faults_(Random(seed).split(3)),
      store_(Random(seed).split(4)),
      disturbances_(Random(seed).split(5)),
      marks_(Random(seed).split(6)),
      ranges_(1, first_hosts(scenario_.host_count), pages_per_range_of(scenario_)),
      truth_(*this, coverage_) {
    for (unsigned index = 0; index < scenario_.page_count; ++index) {
        // Some pages share a range, some a stripe; some neighbours only a range.
        const uint64_t number = first_page_of(scenario_) + index * (workload_.chance(50) ? 1 : pages_per_block);
        pages_.push_back(PageId::of(1 + index % scenario_.volume_count, number));
    }
    std::ranges::sort(pages_);
    pages_.erase(std::unique(pages_.begin(), pages_.end()), pages_.end());
    hosts_.resize(scenario_.host_count);
    for (HostId id = 0; id < scenario_.host_count; ++id) {
        hosts_[id].id = id;
        hosts_[id].clients.resize(scenario_.clients_per_host);
        for (Client& client : hosts_[id].clients) client.remaining = scenario_.operations_per_client;
        boot(hosts_[id]);
    }
    begin_faults();
}

uint32_t SimCluster::incarnation_of(HostId host) const {
    return hosts_[host].is_up || hosts_[host].keeps_memory ? hosts_[host].incarnation : 0;
}

uint64_t SimCluster::stored_version_of(PageId page) const {
    const SimHost& home = hosts_[ranges_.home_of(page)];
    const auto stored = home.store.find(page);
    return stored == home.store.end() ? 0 : stored->second.content.version;
}

protocol::Verifier SimCluster::verifier_of(PageId page) const {
    const HostId home = ranges_.home_of(page);
    return protocol::verifier_of(incarnation_of(home), hosts_[home].loss_generation);
}

uint32_t SimCluster::enter(Time delay, Task task, uint64_t sequence) {
    if (free_slots_.empty()) {
        free_slots_.push_back(static_cast<uint32_t>(slots_.size()));
        slots_.emplace_back();
    }
    const uint32_t slot = free_slots_.back();
    free_slots_.pop_back();
    slots_[slot] = std::move(task);
    due_.push({now_ + delay, sequence, slot});
    return slot;
}

void SimCluster::run() {
    while (!due_.empty()) {
        const Due due = due_.top();
        due_.pop();
        now_ = due.time;
        require(++event_count_ < events_max, "C4: no progress");
        run_if_alive(slots_[due.slot]);
        free_slots_.push_back(due.slot);
    }
    check_end();
}

void SimCluster::run_if_alive(Task& task) {
    if (is_dead(task)) {
        if (task.message.run != 0 || task.message.parts != 0) coverage_.reached(Sometimes::run_lost_with_link);
        const bool has_its_process =
            task.host != no_host && hosts_[task.host].is_up && hosts_[task.host].epoch == task.epoch;
        if (task.kind == Task::Kind::leave && has_its_process) finish_send(task, false);
        return;
    }
    if (hold_back(task)) return;
    trace(task);
    run_task(task);
}

// Tasks of a crashed host or a broken link are dropped.
bool SimCluster::is_dead(const Task& task) const {
    if (task.epoch != 0 && (!hosts_[task.host].is_up || hosts_[task.host].epoch != task.epoch)) return true;
    if (task.from == no_host || task.from == task.host || task.kind == Task::Kind::link_up) return false;
    const bool is_up = link_is_up_[task.from][task.host] || link_is_up_[task.host][task.from];
    return task.link_epoch != link_epoch_[task.from][task.host] || !is_up;
}

void SimCluster::run_task(Task& task) {
    SimHost* host = task.host == no_host ? nullptr : &hosts_[task.host];
    switch (task.kind) {
        case Task::Kind::start_operation: start_operation(*host, task.client); break;
        case Task::Kind::leave_latch: leave_latch(*host, task); break;
        case Task::Kind::serve: serve(*host, task); break;
        case Task::Kind::retry:
            access_or_wait(*host, task.client, host->clients[task.client].operation.access_to(task.page));
            break;
        case Task::Kind::cancel: cancel(*host, task); break;
        case Task::Kind::message: deliver(task); break;
        case Task::Kind::home_read: read_home_bytes(*host, task); break;
        case Task::Kind::store_flushed: finish_store_flush(*host, task); break;
        case Task::Kind::loss_recorded: record_loss(*host, task); break;
        case Task::Kind::marked: finish_mark(*host, task); break;
        case Task::Kind::evict_hint:
            evict_something(*host);
            if (scenario_.mark_delay_max != 0) clear_a_mark(*host);
            if (clients_are_busy()) schedule(workload_.between(1, 2 * scenario_.evict_interval), task);
            break;
        case Task::Kind::hello_done:
            open_volumes(*host, hosts_[task.from]);
            step_all(*host, Event::peer_greeted_of(task.from));
            host->memory.recovery.on_reported(task.from);
            recover_if_all_have_reported(*host);
            break;
        case Task::Kind::lease_over: {
            Frame& frame = host->memory.frames[task.frame];
            if (!frame.recalled || frame.page != task.page) break;
            coverage_.reached(Sometimes::write_lease_spent);
            frame.recalled = false;
            frame.busy = true;
            break;
        }
        case Task::Kind::crash: crash_somebody(task); break;
        case Task::Kind::restart: boot(*host); break;
        case Task::Kind::forget:
            if (!host->is_up) forget(*host);
            break;
        case Task::Kind::cut: cut_something(task); break;
        case Task::Kind::link_up: link_up(task.host, task.from); break;
        case Task::Kind::side_up: side_up(task.host, task.from); break;
        case Task::Kind::unstick: unstick(task); break;
        case Task::Kind::pause: pause_somebody(task); break;
        case Task::Kind::resume: resume(*host); break;
        case Task::Kind::leave: finish_send(task, true); break;
        case Task::Kind::replace_store: crash(*host); break;
        case Task::Kind::volumes_opened: open_volumes(*host, hosts_[task.from]); break;
    }
}

bool SimCluster::clients_are_busy() const {
    return std::ranges::any_of(hosts_, [](const SimHost& host) {
        return std::ranges::any_of(host.clients, [](const Client& client) {
            return client.remaining > 0 || client.operation.kind != Operation::Kind::none;
        });
    });
}

}  // namespace tarn::sim
