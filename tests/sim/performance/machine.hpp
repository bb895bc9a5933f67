// Machine: the hosts' CPUs, the links between them and their devices, under one virtual clock.
//
// A host's CPU serves messages one at a time, in order of arrival. Its own messages leave at the end of its turn: when
// no message waits any more, or after turn_messages_max of them, in one packet for each destination, and another one if
// there are pages. Messages that may wait go with the next packet, or alone when their time is over. Thus hosts under
// load send fewer packets, as real hosts do that write once per turn of their loop. Links have a delay, and a bandwidth
// at both ends. A message without a page may overtake one with a page.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <queue>
#include <vector>

#include "coherence/protocol/message.hpp"
#include "tests/sim/performance/costs.hpp"

namespace tarn::sim_performance {

using protocol::Message;
using protocol::MessageKind;

class Machine {
  public:
    using Receiver = std::function<void(HostId to, const Message& message)>;

    Machine(const Costs& costs, unsigned host_count) : costs_(costs), hosts_(host_count) {}

    void set_receiver(Receiver receiver) { receiver_ = std::move(receiver); }
    const Costs& costs() const { return costs_; }
    unsigned host_count() const { return static_cast<unsigned>(hosts_.size()); }
    Time now() const { return now_; }

    void at(Time when, std::function<void()> what);
    void send(HostId from, HostId to, const Message& message);
    void read_store(HostId host, std::function<void()> then);

    void run_until(Time end);
    void run_until_idle();

    // Messages sent so far.
    uint64_t sent(MessageKind kind) const { return sent_[static_cast<size_t>(kind)]; }
    uint64_t sent() const;
    void forget_counts() { sent_.fill(0); }

  private:
    struct Packet {
        HostId to;
        bool has_pages;
        Time due;  // the latest departure: later than now only if all of it may wait (protocol::may_wait)
        std::vector<Message> messages;
    };
    struct Host {
        struct Arrived {
            Message message;
            bool begins_packet;
        };
        std::deque<Arrived> inbox;
        std::deque<Packet> outbox;
        bool runs = false;
        unsigned turn_messages = 0;
        Time egress_free = 0;
        Time ingress_free = 0;
        Time store_free = 0;
    };
    struct Due {
        Time when;
        uint64_t number;
        std::function<void()> what;
    };
    struct Later {
        bool operator()(const Due& a, const Due& b) const {
            return a.when != b.when ? a.when > b.when : a.number > b.number;
        }
    };
    static constexpr unsigned turn_messages_max = 16;

    void wake(HostId id);
    void turn(HostId id);
    void end_turn(HostId id);
    void transmit(HostId from, Packet packet);
    void arrive(const Packet& packet);
    void take_next();

    Costs costs_;
    std::vector<Host> hosts_;
    Receiver receiver_;
    std::priority_queue<Due, std::vector<Due>, Later> due_;
    Time now_ = 0;
    uint64_t next_number_ = 0;
    std::array<uint64_t, 256> sent_{};
};

}  // namespace tarn::sim_performance
