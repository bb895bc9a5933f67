#include "tests/sim/protocol/shrink.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>

namespace tarn::sim {

namespace {

constexpr unsigned seeds_per_try = 60;  // a smaller run is another run: several seeds are tried

// Values to try for a number of the scenario, best first.
std::vector<unsigned> smaller(std::string_view name, unsigned value) {
    std::vector<unsigned> values;
    const auto offer = [&](unsigned candidate) {
        if (candidate < value) values.push_back(candidate);
    };
    if (name == "hosts") {
        offer(2);
        if (value > 2) offer(value - 1);
    } else if (name == "pages" || name == "volumes" || name == "clients" || name == "delay" || name == "store" ||
               name == "late_max") {
        offer(1);
        offer(std::max(1u, value / 2));
    } else if (name == "operations") {
        offer(std::max(1u, value / 4));
        offer(std::max(1u, value / 2));
        offer(std::max(1u, value - 1));
    } else if (name == "frames" || name == "tenures" || name == "reads") {
        // A smaller value is not simpler.
    } else {
        offer(0);
    }
    return values;
}

}  // namespace

Failed shrink(const Failed& failed, unsigned mutant, double seconds_max) {
    Failed smallest = failed;
    // From here on the whole scenario is set, so that other seeds can be tried with it.
    smallest.run.set.clear();
    Scenario scenario = failed.run.scenario();
    scenario.for_each_field(
        [&](std::string_view name, unsigned& value) { smallest.run.set.emplace_back(std::string(name), value); });
    const auto start = std::chrono::steady_clock::now();
    const auto is_over = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > seconds_max;
    };
    const auto try_with = [&](size_t field, unsigned value) -> std::optional<Failed> {
        Batch batch;
        batch.failed_max = 1;
        batch.seconds_max = 5;
        batch.mutant = mutant;
        for (unsigned seed = 0; seed < seeds_per_try; ++seed) {
            Case& run = batch.cases.emplace_back(smallest.run);
            run.seed += seed;
            run.set[field].second = value;
        }
        const Totals totals = run_batch(batch);
        if (totals.failed.empty()) return std::nullopt;
        return totals.failed.front();
    };
    for (bool again = true; again && !is_over();) {
        again = false;
        for (size_t field = 0; field < smallest.run.set.size() && !is_over(); ++field) {
            for (const unsigned value : smaller(smallest.run.set[field].first, smallest.run.set[field].second)) {
                if (const auto found = try_with(field, value)) {
                    smallest = *found;
                    again = true;
                    break;
                }
            }
        }
    }
    return smallest;
}

}  // namespace tarn::sim
