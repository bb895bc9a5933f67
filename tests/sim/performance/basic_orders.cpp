#include "tests/sim/performance/basic_orders.hpp"

#include <fmt/format.h>

#include "tests/sim/performance/tarn_system.hpp"

namespace tarn::sim_performance {

namespace {

constexpr auto reads = Operation::Kind::read;
constexpr auto writes = Operation::Kind::write;
constexpr auto writes_whole = Operation::Kind::write_whole;

}  // namespace

// The home of the page is host 0.
const std::vector<BasicOrder>& basic_orders() {
    static const std::vector<BasicOrder> orders{
        {"read, nobody holds the page", {{1, reads}}, 2, 1, 2},
        {"read, another host owns it", {{2, writes}, {1, reads}}, 4, 3, 3},
        {"read, its home owns it", {{0, writes}, {1, reads}}, 2, 1, 2},
        {"read by its home, another host owns it", {{2, writes}, {0, reads}}, 2, 2, 2},
        {"read, others read it", {{2, reads}, {3, reads}, {1, reads}}, 2, 1, 2},
        {"write, nobody holds the page", {{1, writes}}, 2, 1, 2},
        {"write, another host owns it", {{2, writes}, {1, writes}}, 4, 3, 3},
        {"write, three others read it", {{2, reads}, {3, reads}, {4, reads}, {1, writes}}, 8, 1, 3},
        {"write by its only reader", {{1, reads}, {1, writes}}, 2, 1, 2},
        {"write by a reader, two others read it", {{1, reads}, {2, reads}, {3, reads}, {1, writes}}, 6, 1, 3},
        {"write of the whole page, another host owns it", {{2, writes}, {1, writes_whole}}, 4, 3, 3},
        {"eviction", {{1, writes}, {1, writes, true}}, 0, 2, 0},
    };
    return orders;
}

Counted count(const BasicOrder& order) {
    constexpr unsigned hosts = 5;
    Machine machine(Costs::delays(), hosts);
    TarnSystem system(machine, {});
    Time ended = 0;
    system.finished = [&](HostId, unsigned, bool) { ended = machine.now(); };
    Time began = 0;
    for (const Access& access : order.accesses) {
        machine.forget_counts();
        began = ended = machine.now();
        if (access.evicts)
            system.evict(access.host, 0);
        else
            system.start(access.host, 0, {access.kind, 0});
        machine.run_until_idle();
    }
    Counted counted{.delays = ended - began};
    for (unsigned kind = 0; kind < 256; ++kind) {
        const auto each = static_cast<MessageKind>(kind);
        (is_aside(each) ? counted.aside : counted.messages) += machine.sent(each);
    }
    return counted;
}

std::string basic_orders_table(uint64_t) {
    std::string table = "| access | messages it waits for | one-way delays | messages beside |\n|---|---|---|---|\n";
    for (const BasicOrder& order : basic_orders()) {
        const Counted counted = count(order);
        table += fmt::format("| {} | {} | {} | {} |\n", order.name, counted.messages, counted.delays, counted.aside);
    }
    return table;
}

}  // namespace tarn::sim_performance
