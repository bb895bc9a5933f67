// SimCluster: prints a run: one line per step, and the state after a failure.
#include <cstdio>

#include "tests/sim/protocol/sim_cluster.hpp"

namespace tarn::sim {

namespace {
constexpr size_t trace_lines_max = 40;  // with the state of three hosts, a page
}

void SimCluster::trace(const Task& task) {
    trace_hash_ = mix64(trace_hash_ ^ now_ ^ static_cast<uint64_t>(task.kind) << 56 ^ uint64_t{task.host} << 48 ^
                        task.message.tenure << 8 ^ static_cast<uint64_t>(task.message.kind) ^ task.number << 20);
    if (tracing_ == Tracing::off) return;
    static constexpr const char* names[] = {"start",      "leave_latch", "serve",         "retry",         "cancel",
                                            "message",    "home_read",   "store_flushed", "loss_recorded", "marked",
                                            "evict_hint", "hello_done",  "lease_over",    "crash",         "restart",
                                            "forget",     "cut",         "link_up",       "side_up",       "unstick",
                                            "pause",      "resume",      "leave",         "new store",     "opened"};
    char line[256];
    int size = std::snprintf(line, sizeof line, "%8llu host %d %-13s", static_cast<unsigned long long>(now_),
                             task.host == no_host ? -1 : task.host, names[static_cast<size_t>(task.kind)]);
    char* const rest = line + size;
    const size_t room = sizeof line - static_cast<size_t>(size);
    if (task.kind == Task::Kind::message || task.kind == Task::Kind::home_read) {
        const protocol::Message& message = task.message;
        size = std::snprintf(
            rest, room,
            " %-12s from %d page %x.%llx tenure %llx request %u flags %02x host %d hosts %llx sequence %u run %u parts "
            "%u%s%lld",
            protocol::to_string(message.kind), message.from, message.page.volume(),
            static_cast<unsigned long long>(message.page.number()), static_cast<unsigned long long>(message.tenure),
            message.request_id, message.flags, message.host == no_host ? -1 : message.host,
            static_cast<unsigned long long>(message.hosts), message.sequence, message.run, message.parts,
            task.has_content ? " version " : " -", static_cast<long long>(task.has_content ? task.content.version : 0));
    } else {
        static constexpr const char* kinds[] = {"", "read", "write", "flush"};
        const Operation* operation = nullptr;
        if (task.host != no_host && task.client < hosts_[task.host].clients.size())
            operation = &hosts_[task.host].clients[task.client].operation;
        size = std::snprintf(rest, room, " from %d client %u %s %llu frame %d", task.from == no_host ? -1 : task.from,
                             task.client, operation ? kinds[static_cast<size_t>(operation->kind)] : "",
                             static_cast<unsigned long long>(task.number), static_cast<int>(task.frame));
    }
    if (tracing_ == Tracing::all) {
        std::puts(line);
        return;
    }
    trace_lines_.emplace_back(line);
    if (trace_lines_.size() > trace_lines_max) trace_lines_.pop_front();
}

void SimCluster::describe() const {
    for (const std::string& line : trace_lines_) std::puts(line.c_str());
    const auto hex = [](uint64_t value) { return static_cast<unsigned long long>(value); };
    for (const SimHost& host : hosts_) {
        std::printf("host %d %s, %u of %u frames\n", host.id, host.is_up ? "up" : "down", host.memory.used_frames,
                    scenario_.frame_count);
        for (const Client& client : host.clients)
            std::printf("  client: %u left, operation kind %d page %u.%llx\n", client.remaining,
                        static_cast<int>(client.operation.kind), client.operation.page.volume(),
                        hex(client.operation.page.number()));
        for (const PageId page : pages_) {
            if (!host.is_up) continue;
            if (const protocol::Holding* holding = host.stripe_of(page).holder().find(page))
                std::printf(
                    "  holds %u.%llx: ownership %d tenure %llx frame %d kept %d (%llx) awaits %u granted %llx ackers "
                    "%llx heard %llx bytes %d floor %llx unserved %u %s%s%s%s%s\n",
                    page.volume(), hex(page.number()), static_cast<int>(holding->ownership), hex(holding->tenure),
                    static_cast<int>(holding->frame), static_cast<int>(holding->kept_frame), hex(holding->kept_order),
                    holding->awaited.request_id, hex(holding->awaited.granted), hex(holding->awaited.ackers),
                    hex(holding->awaited.heard), holding->awaited.has_bytes, hex(holding->floor),
                    holding->unserved_count, holding->custody == protocol::Custody::quiescing ? "quiescing " : "",
                    holding->custody == protocol::Custody::evicting ? "evicting " : "",
                    holding->trust != protocol::Trust::confirmed ? "unconfirmed " : "",
                    holding->report_due ? "report due " : "",
                    holding->custody == protocol::Custody::blank ? "blank " : "");
            if (const protocol::Claim* claim = host.stripe_of(page).home().find(page))
                std::printf(
                    "  claim %u.%llx: tenure %llx owner %d anchor %d readers %llx applied %llx.%x%s missing "
                    "%llx%s%s%s%s\n",
                    page.volume(), hex(page.number()), hex(claim->tenure), claim->owner == no_host ? -1 : claim->owner,
                    claim->anchor == no_host ? -1 : claim->anchor, hex(claim->readers), hex(claim->applied.tenure),
                    claim->applied.sequence, claim->resolving ? " resolving" : "", hex(claim->missing),
                    claim->loss_pending ? " loss pending" : "", claim->orders.empty() ? "" : " open orders",
                    claim->queue.empty() ? "" : " queue", claim->copies.empty() ? "" : " copies");
        }
    }
}

}  // namespace tarn::sim
