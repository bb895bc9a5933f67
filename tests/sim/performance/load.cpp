#include "tests/sim/performance/load.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace tarn::sim_performance {

double microseconds(const std::vector<Time>& sorted, double percentile) {
    if (sorted.empty()) return 0;
    const auto rank = static_cast<size_t>(percentile / 100 * static_cast<double>(sorted.size() - 1));
    return static_cast<double>(sorted[rank]) / 1000;
}

double Measured::hit_ratio() const {
    return operations == 0 ? 0 : 1 - static_cast<double>(misses) / static_cast<double>(operations);
}

double Measured::messages_per_operation() const {
    return operations == 0 ? 0 : static_cast<double>(messages) / static_cast<double>(operations);
}

double Measured::max_to_min_share() const {
    const auto [least, most] = std::ranges::minmax(shares);
    return least == 0 ? std::numeric_limits<double>::infinity()
                      : static_cast<double>(most) / static_cast<double>(least);
}

bool is_aside(MessageKind kind) {
    switch (kind) {
        case MessageKind::done:
        case MessageKind::home_copy:
        case MessageKind::free:
        case MessageKind::evict:
        case MessageKind::evicted:
        case MessageKind::write_back:
        case MessageKind::written_back: return true;
        default: return false;
    }
}

Load::Load(Machine& machine, System& system, unsigned clients_per_host, uint64_t seed, Next next)
    : machine_(machine), system_(system), clients_per_host_(clients_per_host), next_(std::move(next)) {
    take();
    const Random root(seed);
    for (unsigned i = 0; i < machine.host_count() * clients_per_host; ++i) clients_.push_back({root.split(i)});
    system_.finished = [this](HostId host, unsigned client, bool was_hit) { finished(host, client, was_hit); };
}

void Load::begin() {
    for (HostId host = 0; host < machine_.host_count(); ++host)
        for (unsigned client = 0; client < clients_per_host_; ++client) issue(host, client);
}

void Load::issue(HostId host, unsigned client) {
    Client& self = clients_[host * clients_per_host_ + client];
    self.began = machine_.now();
    system_.start(host, client, next_(host, self.random));
}

void Load::finished(HostId host, unsigned client, bool was_hit) {
    const Time took = machine_.now() - clients_[host * clients_per_host_ + client].began;
    ++counted_.operations;
    counted_.latencies.push_back(took);
    if (!was_hit) {
        ++counted_.misses;
        ++counted_.shares[host];
        counted_.waits.push_back(took);
    }
    issue(host, client);
}

Measured Load::take() {
    for (unsigned kind = 0; kind < 256; ++kind) {
        const auto each = static_cast<MessageKind>(kind);
        counted_.messages += machine_.sent(each);
        if (is_aside(each)) counted_.messages_aside += machine_.sent(each);
    }
    machine_.forget_counts();
    std::ranges::sort(counted_.latencies);
    std::ranges::sort(counted_.waits);
    return std::exchange(counted_, {.shares = std::vector<uint64_t>(machine_.host_count())});
}

Measured Load::measure(Time warm_up, Time duration) {
    machine_.run_until(machine_.now() + warm_up);
    take();
    machine_.run_until(machine_.now() + duration);
    Measured measured = take();
    measured.seconds = static_cast<double>(duration) * 1e-9;
    return measured;
}

Zipf::Zipf(uint64_t count, double exponent) : cumulative_(count) {
    double sum = 0;
    for (uint64_t rank = 0; rank < count; ++rank)
        cumulative_[rank] = sum += 1 / std::pow(static_cast<double>(rank + 1), exponent);
}

uint64_t Zipf::draw(Random& random) const {
    const double point = static_cast<double>(random.next() >> 11) * 0x1p-53 * cumulative_.back();
    const auto rank = static_cast<uint64_t>(std::ranges::upper_bound(cumulative_, point) - cumulative_.begin());
    const uint64_t count = cumulative_.size();
    // A step that shares no divisor with the count visits every page once.
    uint64_t step = count / 2 + 1;
    while (std::gcd(step, count) != 1) ++step;
    return std::min(rank, count - 1) * step % count;
}

}  // namespace tarn::sim_performance
