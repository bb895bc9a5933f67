// UncachedModel: no cache. Each read of a page whose home is another host fetches the page from there.
//
// Only home has the bytes, so there is nothing to keep coherent, and no message besides request and answer.
#pragma once

#include <vector>

#include "tests/sim/performance/load.hpp"

namespace tarn::sim_performance {

class UncachedModel : public System {
  public:
    explicit UncachedModel(Machine& machine) : machine_(machine) {
        machine.set_receiver([this](HostId to, const Message& message) { receive(to, message); });
    }

    void start(HostId host, unsigned client, const Operation& operation) override {
        const auto home = static_cast<HostId>(operation.page % machine_.host_count());
        if (home == host) return access(host, client, true);
        Message message;
        message.kind = MessageKind::get_shared;
        message.from = host;
        message.request_id = client;
        machine_.at(machine_.now() + machine_.costs().message_cpu,
                    [this, host, home, message] { machine_.send(host, home, message); });
    }

  private:
    void receive(HostId to, const Message& message) {
        if (message.kind == MessageKind::data) return access(to, message.request_id, false);
        Message answer = message;
        answer.kind = MessageKind::data;
        answer.flags = protocol::flag_payload;
        answer.from = to;
        machine_.send(to, message.from, answer);
    }
    void access(HostId host, unsigned client, bool was_hit) {
        machine_.at(machine_.now() + machine_.costs().access,
                    [this, host, client, was_hit] { finished(host, client, was_hit); });
    }

    Machine& machine_;
};

}  // namespace tarn::sim_performance
