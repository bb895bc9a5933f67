#include "tests/sim/performance/machine.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "utils/assert.hpp"

namespace tarn::sim_performance {

void Machine::at(Time when, std::function<void()> what) {
    TARN_ASSERT(when >= now_);
    due_.push({when, next_number_++, std::move(what)});
}

uint64_t Machine::sent() const {
    return std::accumulate(sent_.begin(), sent_.end(), uint64_t{0});
}

void Machine::take_next() {
    Due next = std::move(const_cast<Due&>(due_.top()));
    due_.pop();
    now_ = next.when;
    next.what();
}

void Machine::run_until(Time end) {
    while (!due_.empty() && due_.top().when <= end) take_next();
    now_ = std::max(now_, end);
}

void Machine::run_until_idle() {
    while (!due_.empty()) take_next();
}

void Machine::send(HostId from, HostId to, const Message& message) {
    TARN_ASSERT(from != to && to < hosts_.size());
    ++sent_[static_cast<size_t>(message.kind)];
    auto& outbox = hosts_[from].outbox;
    const bool has_page = message.has(protocol::flag_payload);
    auto packet =
        std::ranges::find_if(outbox, [&](const Packet& each) { return each.to == to && each.has_pages == has_page; });
    const Time due = now_ + (protocol::may_wait(message.kind) ? costs_.waiting_max : 0);
    if (packet == outbox.end()) packet = outbox.insert(outbox.end(), {to, has_page, due, {}});
    packet->due = std::min(packet->due, due);
    packet->messages.push_back(message);
    if (due == now_)
        wake(from);
    else
        at(due, [this, from] { wake(from); });
}

void Machine::wake(HostId id) {
    if (std::exchange(hosts_[id].runs, true)) return;
    at(now_, [this, id] { turn(id); });
}

void Machine::turn(HostId id) {
    Host& host = hosts_[id];
    if (host.inbox.empty() || host.turn_messages == turn_messages_max) return end_turn(id);
    ++host.turn_messages;
    const Host::Arrived arrived = host.inbox.front();
    host.inbox.pop_front();
    const Time cpu = costs_.message_cpu + (arrived.begins_packet ? costs_.packet_cpu : 0);
    at(now_ + cpu, [this, id, message = arrived.message] {
        receiver_(id, message);
        turn(id);
    });
}

void Machine::end_turn(HostId id) {
    Host& host = hosts_[id];
    host.turn_messages = 0;
    const auto due = std::ranges::find_if(host.outbox, [&](const Packet& each) { return each.due <= now_; });
    if (due == host.outbox.end()) {
        host.runs = !host.inbox.empty();
        if (host.runs) turn(id);
        return;
    }
    Packet packet = std::move(*due);
    host.outbox.erase(due);
    at(now_ + costs_.packet_cpu, [this, id, packet = std::move(packet)] {
        transmit(id, packet);
        end_turn(id);  // the rest of what this turn has to send
    });
}

// The delay of the cost model is that of one message, or one page; more of them take longer by their length.
void Machine::transmit(HostId from, Packet packet) {
    const size_t size = sizeof(Message) + (packet.has_pages ? page_size : 0);
    const auto occupancy_of = [&](size_t count) {
        return static_cast<Time>(static_cast<double>(count * size) / costs_.link_bytes_per_ns);
    };
    const Time occupancy = occupancy_of(packet.messages.size());
    const Time delay = packet.has_pages ? costs_.page : costs_.message;
    Host& sender = hosts_[from];
    const Time begins = std::max(now_, sender.egress_free);
    sender.egress_free = begins + occupancy;
    // When the first bit is there, the receiver's end of the link becomes busy.
    at(begins + delay - std::min(delay, occupancy_of(1)), [this, occupancy, packet = std::move(packet)] {
        Host& receiver = hosts_[packet.to];
        receiver.ingress_free = std::max(now_, receiver.ingress_free) + occupancy;
        at(receiver.ingress_free, [this, packet] { arrive(packet); });
    });
}

void Machine::arrive(const Packet& packet) {
    bool begins_packet = true;
    for (const Message& message : packet.messages)
        hosts_[packet.to].inbox.push_back({message, std::exchange(begins_packet, false)});
    wake(packet.to);
}

void Machine::read_store(HostId id, std::function<void()> then) {
    Host& host = hosts_[id];
    host.store_free = std::max(now_, host.store_free + costs_.store_interval);
    at(host.store_free + costs_.store_read, std::move(then));
}

}  // namespace tarn::sim_performance
