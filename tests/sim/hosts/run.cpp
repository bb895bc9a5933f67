#include "tests/sim/hosts/run.hpp"

#include <algorithm>

#include "tests/sim/hosts/rest.hpp"

namespace tarn::hosts_sim {

namespace {

constexpr unsigned steps_per_round = 50;
constexpr uint64_t ms_ns = 1'000'000;
constexpr uint64_t timeout_ns = 20'000 * ms_ns;
constexpr uint64_t rest_ns = 3000 * ms_ns;  // hosts are linked, and asked about each other, within less

// On both sides of where ranges meet, so that requests have two homes. Few pages are fought for; many do not fit.
std::vector<uint64_t> pages_of(uint64_t count) {
    std::vector<uint64_t> pages;
    for (uint64_t range = 1; range < host_count; ++range)
        for (uint64_t i = 0; i < count / (host_count - 1); ++i)
            pages.push_back(range * pages_per_range_default - count / 4 + i);
    return pages;
}

}  // namespace

Run::Run(uint64_t seed, Counts& counts)
    : world_(seed, counts, *this),
      cut_percent_(random().chance(80) ? 45 : 0),
      pause_percent_(random().chance(30) ? 10 : 0),
      kill_percent_(random().chance(50) ? 80 : 10),
      disks_fail_(random().chance(40)),
      delay_max_ns_(random().chance(50) ? ms_ns / 5 : 5 * ms_ns) {
    world_.timeout_percent = random().chance(40) ? 60 : 0;
    const SimHost::Shape shape{.frame_count = random().chance(50) ? size_t{192} : 512,
                               .shard_count = random().chance(50) ? 2u : 1u};
    for (HostId host = 0; host < host_count; ++host)
        world_.hosts.push_back(std::make_unique<SimHost>(world_.kernel, world_.network, host, shape));
    const uint64_t page_count = random().chance(50) ? 8 : shape.frame_count * 3 / 2;
    const unsigned volumes = random().chance(30) ? 2 : 1;
    for (unsigned i = 0; i < volumes; ++i)
        registers_.push_back(std::make_unique<Registers>(volume_id_first + i, pages_of(page_count)));
    if (random().chance(50)) log_ = std::make_unique<RecordLog>(volume_id_first + volume_count_max - 1);
    make_clients();
}

Run::~Run() {
    for (const auto& host : world_.hosts)
        if (host->is_up()) host->cut_power();
}

void Run::make_clients() {
    const auto next = [&] { return static_cast<unsigned>(clients_.size()) + 1; };
    for (HostId host = 0; host < host_count; ++host) {
        for (unsigned i = 0; i < 2; ++i)
            clients_.push_back(
                std::make_unique<RegisterClient>(world_, host, next(), *registers_[i % registers_.size()]));
        if (log_) clients_.push_back(std::make_unique<LogClient>(world_, host, next(), *log_, host == 0));
    }
}

void Run::carry(size_t count, std::function<void(size_t)> arrive) {
    while (count > 0) {
        const size_t piece = random().chance(50) ? count : random().between(1, count);
        world_.kernel.after(random().below(delay_max_ns_), [arrive, piece] { arrive(piece); });
        count -= piece;
    }
}

void Run::go_on(HostId host, unsigned count) {
    for (const auto& client : clients_)
        if (client->host() == host) client->go_on(count);
}

bool Run::all_idle() const {
    return std::ranges::none_of(clients_, [](const auto& client) { return client->busy(); });
}

void Run::disturb() {
    if (all_idle() || world_.kernel.now_ns() >= disturbed_until_ns_) return;
    const auto one = static_cast<HostId>(random().below(host_count));
    if (random().chance(cut_percent_)) {
        world_.network.cut(SimHost::name_of(one), SimHost::name_of(static_cast<HostId>((one + 1) % host_count)));
        ++world_.counts.cuts;
    }
    if (random().chance(pause_percent_) && world_.hosts[one]->is_up()) {
        world_.hosts[one]->pause(random().below(1500 * ms_ns));
        ++world_.counts.pauses;
    }
    world_.kernel.after(random().below(50 * ms_ns), [this] { disturb(); });
}

void Run::strike(SimHost& host, Blow blow) {
    switch (blow) {
        case Blow::none: return;
        case Blow::power_cut: return restart(host, blow);
        case Blow::kill: return host.begin_kill(static_cast<unsigned>(random().below(40)));
        // As when one machine runs all of them. Now and then one of them loses its memory with that.
        case Blow::kill_of_all:
            for (const auto& each : world_.hosts) each->begin_kill(static_cast<unsigned>(random().below(40)));
            if (random().chance(20)) restart(host, Blow::power_cut);
            return;
        case Blow::disk_failure:
            ++world_.counts.failed_disks;
            ++world_.failed_disks;
            return host.fail_disk({.read = static_cast<unsigned>(random().chance(70) ? random().below(5000) : 0),
                                   .write = static_cast<unsigned>(random().chance(40) ? random().below(300) : 0),
                                   .flush = static_cast<unsigned>(random().chance(40) ? random().below(3000) : 0)});
    }
}

// It is away for a while, and what it is asked for waits.
void Run::restart(SimHost& host, Blow by) {
    if (by == Blow::power_cut) {
        ++world_.counts.power_cuts;
        world_.losses.push_back({.begun = world_.tick(), .ended = checker::never});
        host.cut_power();
    } else {
        ++world_.counts.kills;
        host.kill();
    }
    if (random().chance(50)) world_.kernel.run_for(random().below(1000 * ms_ns));
    host.start();
}

void Run::await_clients() {
    const auto killed = [&] { return std::ranges::find_if(world_.hosts, [](auto& h) { return h->is_killed(); }); };
    const auto is_over = [&] { return all_idle() || !is_good() || killed() != world_.hosts.end(); };
    while (is_good()) {
        // What waits for a store that failed may wait for another process there.
        if (!world_.kernel.run_until(is_over, timeout_ns)) {
            mend_disks();
            if (!world_.kernel.run_until(is_over)) return world_.fail("somebody waits forever");
        }
        if (killed() == world_.hosts.end()) return;
        SimHost& host = **killed();
        restart(host, Blow::kill);
        go_on(host.id(), steps_per_round / 2);
        if (world_.kernel.now_ns() < disturbed_until_ns_ && random().chance(50))
            strike(*world_.hosts[random().below(host_count)], random().chance(30) ? Blow::kill_of_all : Blow::kill);
    }
}

void Run::go_through_round(bool first) {
    for (HostId host = 0; host < host_count; ++host) go_on(host, steps_per_round);
    disturbed_until_ns_ = world_.kernel.now_ns() + 3000 * ms_ns;
    disturb();
    const uint64_t turns = world_.kernel.turn_count() + random().below(3000);
    (void)world_.kernel.run_until([&] { return world_.kernel.turn_count() >= turns || all_idle() || !is_good(); });
    Blow blow = Blow::none;
    if (disks_fail_ && random().chance(60))
        blow = Blow::disk_failure;
    else if (random().chance(kill_percent_))
        blow = random().chance(40) ? Blow::kill_of_all : Blow::kill;
    else if (!first || random().chance(50))
        blow = Blow::power_cut;
    SimHost& host = *world_.hosts[random().below(host_count)];
    if (is_good()) strike(host, blow);
    if (blow == Blow::power_cut) go_on(host.id(), steps_per_round / 2);
    await_clients();
}

// Only another process looks at its store again.
void Run::mend_disks() {
    for (const auto& host : world_.hosts) {
        host->fail_disk({});
        if (host->is_killed())
            restart(*host, Blow::kill);
        else if (host->store->failed())
            restart(*host, random().chance(50) ? Blow::kill : Blow::power_cut);
    }
}

void Run::come_to_rest(bool flushed) {
    if (!is_good()) return;
    mend_disks();
    world_.kernel.run_for(rest_ns);
    for (checker::Loss& loss : world_.losses)
        if (loss.ended == checker::never) loss.ended = world_.tick();
    if (const std::string wrong = explain_unrest(world_.hosts, flushed); !wrong.empty()) world_.fail(wrong);
}

void Run::stop_in_order(SimHost& host) {
    ++world_.counts.stops;
    if (!host.stop()) world_.fail("a stop leaves something that is not durable");
    if (random().chance(50)) world_.kernel.run_for(random().below(1000 * ms_ns));
    host.start();
    world_.kernel.run_for(rest_ns);
}

void Run::cut_power_of_all() {
    world_.losses.push_back({.begun = world_.tick(), .ended = checker::never});
    for (const auto& host : world_.hosts) host->cut_power();
    for (const auto& host : world_.hosts) host->start();
    ++world_.counts.power_cuts;
}

bool Run::look_at_all() {
    if (!is_good()) return false;
    for (const auto& client : clients_) client->look_at_all();
    await_clients();
    return std::ranges::all_of(clients_, [](const auto& client) { return client->is_flushed(); });
}

std::string Run::run() {
    for (const auto& host : world_.hosts) host->start();
    const uint64_t rounds = random().between(1, 3);
    for (uint64_t round = 0; round < rounds && is_good(); ++round) {
        go_through_round(round == 0);
        come_to_rest();
        if (is_good() && random().chance(25)) stop_in_order(*world_.hosts[random().below(host_count)]);
    }
    come_to_rest(look_at_all());
    if (is_good() && random().chance(50)) {
        cut_power_of_all();
        come_to_rest();
        (void)look_at_all();
    }
    for (const auto& each : registers_)
        if (is_good()) world_.fail(each->check(world_.losses));
    ++world_.counts.seeds;
    world_.counts.turns += world_.kernel.turn_count();
    return world_.failure;
}

}  // namespace tarn::hosts_sim
