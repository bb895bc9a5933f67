#include "tests/sim/performance/experiments.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <memory>

#include "tests/sim/performance/basic_orders.hpp"
#include "tests/sim/performance/directory_model.hpp"
#include "tests/sim/performance/tarn_system.hpp"
#include "tests/sim/performance/uncached_model.hpp"

namespace tarn::sim_performance {

namespace {

constexpr Time ms = 1'000'000;

using Queue = ModelOptions::Queue;
using Resolves = ModelOptions::Resolves;
using OnRead = ModelOptions::OnRead;

struct Setting {
    Costs costs = Costs::rdma();
    unsigned hosts = 5;
    unsigned clients = 1;
    uint64_t seed = 1;
    Time warm_up = 1 * ms;
    Time duration = 10 * ms;
};

template <class Made, class... Options>
Measured run(const Setting& setting, Load::Next next, const Options&... options) {
    Machine machine(setting.costs, setting.hosts);
    Made system(machine, options...);
    Load load(machine, system, setting.clients, setting.seed, std::move(next));
    load.begin();
    return load.measure(setting.warm_up, setting.duration);
}

TarnOptions without_preference(uint64_t page_count) {
    return {.lease = {.writes = 0, .time_us = 0}, .page_count = page_count};
}

std::string millions(double per_second) {
    return per_second < 999'500 ? fmt::format("{:.0f} k", per_second / 1e3) : fmt::format("{:.2f} M", per_second / 1e6);
}

std::string share(double ratio) {
    return std::isinf(ratio) ? "∞" : fmt::format("{:.2f}", ratio);
}

std::string micro(const std::vector<Time>& sorted, double percentile) {
    return fmt::format("{:.1f}", microseconds(sorted, percentile));
}

std::string verdict(bool holds) {
    return holds ? "holds" : "**missed**";
}

// --- one hot page ---

Operation write_hot_page(HostId, Random&) {
    return {Operation::Kind::write, 0};
}

Measured poll(const Setting& setting, Time& best_back_off) {
    Measured best;
    for (const Time back_off : {0, 2'000, 8'000, 32'000, 128'000}) {
        Measured measured =
            run<DirectoryModel>(setting, write_hot_page, ModelOptions{.queue = Queue::poll, .back_off = back_off});
        if (measured.misses <= best.misses) continue;
        best = std::move(measured);
        best_back_off = back_off;
    }
    return best;
}

// The result is how often the page changes hands. Its host goes on writing until it is asked for it: without write
// lease the number of these writes depends on how long asking takes, so it has a column of its own.
void hot_page_rows(const char* network, const Setting& setting, std::string& rows, std::string& goals) {
    const auto model = [&](Queue queue, Resolves resolves) {
        return run<DirectoryModel>(setting, write_hot_page, ModelOptions{.queue = queue, .resolves = resolves});
    };
    const Measured tarn = run<TarnSystem>(setting, write_hot_page, without_preference(1));
    const Measured fifo_asks = model(Queue::fifo, Resolves::requester);
    const Measured fifo_tells = model(Queue::fifo, Resolves::home);
    const double fifo = std::max(fifo_asks.misses_per_second(), fifo_tells.misses_per_second());
    const auto row = [&](const std::string& name, const Measured& measured) {
        const auto misses = static_cast<double>(measured.misses);
        const auto aside = static_cast<double>(measured.messages_aside);
        rows += fmt::format("| {} | {} | {} | {} | × {:.2f} | {} | {} | {:.1f} | {:.1f} | {} | {} |\n", network,
                            setting.hosts, name, millions(measured.misses_per_second()),
                            measured.misses_per_second() / fifo, micro(measured.waits, 50), micro(measured.waits, 99.9),
                            (static_cast<double>(measured.messages) - aside) / misses, aside / misses,
                            share(measured.max_to_min_share()), millions(measured.per_second()));
    };
    row("**tarn**", tarn);
    row("model: chain, home tells", model(Queue::chain, Resolves::home));
    row("model: chain, requester asks (ScaleStore)", model(Queue::chain, Resolves::requester));
    row("model: FIFO, home tells", fifo_tells);
    row("model: FIFO, requester asks", fifo_asks);
    Time back_off = 0;
    const Measured polls = poll(setting, back_off);
    row(fmt::format("model: polling, back-off {} µs", back_off / 1000), polls);
    const double ratio = tarn.misses_per_second() / fifo;
    goals += fmt::format("- {}, {} hosts: × {:.2f} of FIFO, at least 1.25: {}; share {}, at most 1.2: {}.\n", network,
                         setting.hosts, ratio, verdict(ratio >= 1.25), share(tarn.max_to_min_share()),
                         verdict(tarn.max_to_min_share() <= 1.2));
}

std::string hot_page_table(uint64_t seed) {
    std::string rows =
        "| network | hosts | protocol | hand-overs/s | to FIFO | p50, µs | p99.9, µs | messages it waits for | beside "
        "| "
        "max/min share | writes/s |\n|---|---|---|---|---|---|---|---|---|---|---|\n";
    std::string goals;
    for (const unsigned hosts : {2U, 5U, 16U, 60U}) hot_page_rows("RDMA", {.hosts = hosts, .seed = seed}, rows, goals);
    hot_page_rows("TCP", {.costs = Costs::tcp(), .seed = seed, .warm_up = 10 * ms, .duration = 100 * ms}, rows, goals);
    return rows + "\n" + goals;
}

// --- who asks the holders ---

std::string forwarding_table(uint64_t seed) {
    constexpr uint64_t pages = 4096;
    std::string table =
        "| hosts | clients of each | protocol | writes/s | p50, µs | p99, µs | messages "
        "|\n|---|---|---|---|---|---|---|\n";
    const auto next = [](HostId, Random& random) { return Operation{Operation::Kind::write, random.below(pages)}; };
    for (const unsigned hosts : {3U, 5U, 16U}) {
        for (const unsigned clients : {1U, 8U}) {
            const Setting setting{.hosts = hosts, .clients = clients, .seed = seed, .warm_up = 20 * ms};
            const auto row = [&](const char* name, const Measured& measured) {
                table += fmt::format("| {} | {} | {} | {} | {} | {} | {:.2f} |\n", hosts, clients, name,
                                     millions(measured.per_second()), micro(measured.latencies, 50),
                                     micro(measured.latencies, 99), measured.messages_per_operation());
            };
            row("**tarn**", run<TarnSystem>(setting, next, without_preference(pages)));
            row("model: home tells the holders",
                run<DirectoryModel>(setting, next, ModelOptions{.resolves = Resolves::home, .page_count = pages}));
            row("model: requester asks them", run<DirectoryModel>(setting, next, ModelOptions{.page_count = pages}));
        }
    }
    return table;
}

// --- what a read does to the owner ---

// Each host writes pages of its own, and reads them again; it also reads those of others.
Operation own_and_others(HostId host, Random& random) {
    constexpr uint64_t pages_per_host = 200;
    if (random.chance(40)) return {Operation::Kind::read, random.below(5 * pages_per_host)};
    const uint64_t own = host * pages_per_host + random.below(pages_per_host);
    return {random.chance(33) ? Operation::Kind::write : Operation::Kind::read, own};
}
Operation mix(HostId, Random& random) {
    return {random.chance(20) ? Operation::Kind::write : Operation::Kind::read, random.below(1000)};
}

std::string downgrade_table(uint64_t seed) {
    std::string table =
        "| accesses | protocol | operations/s | without a message | p50, µs | p99, µs | messages |\n"
        "|---|---|---|---|---|---|---|\n";
    const Setting setting{.seed = seed, .warm_up = 5 * ms};
    const auto rows = [&](const char* accesses, const Load::Next& next) {
        const auto row = [&](const char* name, const Measured& measured) {
            table +=
                fmt::format("| {} | {} | {} | {:.1f} % | {} | {} | {:.2f} |\n", accesses, name,
                            millions(measured.per_second()), measured.hit_ratio() * 100, micro(measured.latencies, 50),
                            micro(measured.latencies, 99), measured.messages_per_operation());
        };
        row("**tarn**", run<TarnSystem>(setting, next, without_preference(1000)));
        row("model: downgrade",
            run<DirectoryModel>(
                setting, next,
                ModelOptions{.resolves = Resolves::home, .on_read = OnRead::downgrade, .page_count = 1000}));
        row("model: steal",
            run<DirectoryModel>(
                setting, next, ModelOptions{.resolves = Resolves::home, .on_read = OnRead::steal, .page_count = 1000}));
    };
    rows("20 % writes of own pages, 40 % reads of own, 40 % of any", own_and_others);
    rows("20 % writes, any page", mix);
    return table;
}

// --- write lease ---

std::string preference_table(uint64_t seed) {
    std::string table =
        "| γ | writes/s | to γ = ∞ | p50, µs | p99.9, µs | longest, µs | max/min share | messages |\n"
        "|---|---|---|---|---|---|---|---|\n";
    struct Gamma {
        const char* name;
        protocol::WriteLease lease;
    };
    constexpr std::array gammas{Gamma{"0", {0, 0}}, Gamma{"64", {64, 200}}, Gamma{"256", {256, 200}},
                                Gamma{"∞", {~uint32_t{0}, ~uint32_t{0}}}};
    std::vector<Measured> measured;
    for (const Gamma& gamma : gammas)
        measured.push_back(run<TarnSystem>({.clients = 4, .seed = seed, .warm_up = 5 * ms, .duration = 20 * ms},
                                           write_hot_page, TarnOptions{.lease = gamma.lease}));
    for (size_t i = 0; i < gammas.size(); ++i)
        table += fmt::format("| {} | {} | × {:.2f} | {} | {} | {} | {} | {:.2f} |\n", gammas[i].name,
                             millions(measured[i].per_second()),
                             measured[i].per_second() / measured.back().per_second(), micro(measured[i].latencies, 50),
                             micro(measured[i].latencies, 99.9), micro(measured[i].latencies, 100),
                             share(measured[i].max_to_min_share()), measured[i].messages_per_operation());
    return table;
}

// --- scaling ---

std::string scaling_table(uint64_t seed) {
    constexpr uint64_t pages_per_host = 6144;
    std::string table = "| writes | hosts | sharing 0 % | 50 % | 100 % | loss at 100 % |\n|---|---|---|---|---|---|\n";
    std::string goals;
    for (const unsigned write_percent : {50U, 95U, 100U}) {
        for (const unsigned hosts : {1U, 2U, 4U, 8U, 16U}) {
            std::array<double, 3> speeds{};
            for (size_t i = 0; i < speeds.size(); ++i) {
                const auto sharing = static_cast<unsigned>(50 * i);
                const auto next = [=](HostId host, Random& random) {
                    const bool shared = random.chance(sharing);
                    // A host's own pages are spread over all homes as the shared ones are.
                    const uint64_t page = shared ? random.below(pages_per_host * hosts)
                                                 : pages_per_host * host + random.below(pages_per_host);
                    return Operation{random.chance(write_percent) ? Operation::Kind::write : Operation::Kind::read,
                                     page};
                };
                TarnOptions options{.page_count = pages_per_host * hosts, .frames_per_host = pages_per_host / 6};
                speeds[i] = run<TarnSystem>(Setting{.hosts = hosts, .clients = 8, .seed = seed, .warm_up = 10 * ms},
                                            next, options)
                                .per_second();
            }
            const double loss = 1 - speeds[2] / speeds[0];
            table += fmt::format("| {} % | {} | {} | {} | {} | {:.0f} % |\n", write_percent, hosts, millions(speeds[0]),
                                 millions(speeds[1]), millions(speeds[2]), loss * 100);
            if (hosts == 16)
                goals += fmt::format("- {} % writes, 16 hosts: {:.0f} % lost by sharing all, at most 38 %: {}.\n",
                                     write_percent, loss * 100, verdict(loss <= 0.38));
        }
    }
    return table + "\n" + goals;
}

// --- a cache, or none ---

std::string skew_table(uint64_t seed) {
    constexpr uint64_t pages = 16'384;
    std::string table =
        "| hosts | clients of each | cache | reads/s | to none | without a message | p50, µs | p99, µs | messages |\n"
        "|---|---|---|---|---|---|---|---|---|\n";
    std::string goals;
    const Zipf zipf(pages, 0.99);
    const auto next = [&](HostId, Random& random) { return Operation{Operation::Kind::read, zipf.draw(random)}; };
    for (const unsigned hosts : {5U, 16U}) {
        for (const unsigned clients : {1U, 8U}) {
            const Setting setting{.hosts = hosts, .clients = clients, .seed = seed, .warm_up = 60 * ms};
            const Measured none = run<UncachedModel>(setting, next);
            const auto row = [&](const std::string& cache, const Measured& measured) {
                table += fmt::format("| {} | {} | {} | {} | × {:.2f} | {:.1f} % | {} | {} | {:.2f} |\n", hosts, clients,
                                     cache, millions(measured.per_second()), measured.per_second() / none.per_second(),
                                     measured.hit_ratio() * 100, micro(measured.latencies, 50),
                                     micro(measured.latencies, 99), measured.messages_per_operation());
            };
            row("none", none);
            for (const unsigned percent : {8U, 25U, 100U}) {
                const Measured cached = run<TarnSystem>(
                    setting, next, TarnOptions{.page_count = pages, .frames_per_host = pages * percent / 100 + 64});
                row(fmt::format("{} % of the pages", percent), cached);
                const double ratio = cached.per_second() / none.per_second();
                if (percent != 100)
                    goals += fmt::format("- {} hosts, {} clients, cache for {} %: × {:.2f}, at least 3: {}.\n", hosts,
                                         clients, percent, ratio, verdict(ratio >= 3));
            }
        }
    }
    return table + "\n" + goals;
}

// --- another working set ---

std::string refill_table(uint64_t seed) {
    constexpr uint64_t set_pages = 4096;  // of each host
    std::string table =
        "| hosts | clients of each | home's bytes | until 95 % hit, ms | s per GiB and host | GiB/s of all hosts |\n"
        "|---|---|---|---|---|---|\n";
    for (const bool on_device : {false, true}) {
        for (const unsigned hosts : {5U, 16U}) {
            for (const unsigned clients : {8U, 32U}) {
                uint64_t set = 0;
                const auto next = [&](HostId host, Random& random) {
                    const uint64_t page = (set * hosts + host) * set_pages + random.below(set_pages);
                    return Operation{random.chance(5) ? Operation::Kind::write : Operation::Kind::read, page};
                };
                Machine machine(Costs::rdma(), hosts);
                TarnSystem system(machine, {.page_count = 2 * set_pages * hosts,
                                            .frames_per_host = set_pages * 5 / 4,
                                            .home_on_device = on_device});
                Load load(machine, system, clients, seed, next);
                load.begin();
                const auto until_warm = [&] {
                    const Time began = machine.now();
                    for (uint64_t all = 0, hits = 0; all == 0 || hits * 100 < all * 95;) {
                        machine.run_until(machine.now() + ms / 10);
                        const Measured counted = load.take();
                        all = counted.operations;
                        hits = all - counted.misses;
                    }
                    return machine.now() - began;
                };
                until_warm();
                set = 1;
                load.take();
                const auto took = static_cast<double>(until_warm());
                const double gib = static_cast<double>(set_pages * page_size) / (1 << 30);
                table +=
                    fmt::format("| {} | {} | {} | {:.1f} | {:.2f} | {:.1f} |\n", hosts, clients,
                                on_device ? "NVMe" : "DRAM", took / ms, took * 1e-9 / gib, gib * hosts / (took * 1e-9));
            }
        }
    }
    return table;
}

constexpr std::array all_experiments{
    Experiment{
        "orders", "What an access takes",
        "The home of the page is idle, and so is everyone else. Messages beside are those that nobody waits for: "
        "`done`, `home_copy`, `free`, and those of evictions.",
        basic_orders_table},
    Experiment{"hot-page", "One page that all hosts write",
               "One client on each host, no write lease. A hand-over is a write that had to wait for the page. "
               "A host that has the page writes on until it is asked for it, which takes a FIFO long; the last column "
               "counts those writes too. What a FIFO gains there, write lease gives without its waits (below). "
               "Of polling, the best of five back-offs is shown.",
               hot_page_table},
    Experiment{"forwarding", "Home tells the holders, or the requester asks them",
               "Writes of any of 4,096 pages, no write lease. The models send nothing home, so that a host's "
               "death would lose what it wrote; tarn's row shows what that costs when the hosts' CPUs are the limit.",
               forwarding_table},
    Experiment{"downgrade", "A read leaves the owner a copy, or steals the page",
               "Five hosts, one client on each, 1,000 pages, no write lease.", downgrade_table},
    Experiment{"lease", "Write lease",
               "One page, five hosts with four clients each, all of them writing; at most 200 µs but for γ = ∞.",
               preference_table},
    Experiment{"scaling", "More hosts, more sharing",
               "Eight clients on each host. A host's cache has room for a sixth of the pages per host, as in the "
               "experiments of SELCC; sharing 100 % means that all hosts use all pages, 0 % that each uses its own, "
               "which have their homes everywhere. One host alone sends no messages.",
               scaling_table},
    Experiment{"skew", "A cache, or none",
               "Reads of 16,384 pages by Zipf's law, exponent 0.99. Without a cache a read is one message to the home, "
               "and one back, and nothing has to be kept coherent.",
               skew_table},
    Experiment{"refill", "Another working set",
               "Each host uses 4,096 pages, 5 % of its accesses being writes, then 4,096 others. How long it takes "
               "until 95 % of the accesses find their page in the host's memory again.",
               refill_table},
};

}  // namespace

std::span<const Experiment> experiments() {
    return all_experiments;
}

}  // namespace tarn::sim_performance
