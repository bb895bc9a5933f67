// RecordingFabric: links to hosts that a test plays itself. It keeps sent messages; the test gives the hosts' messages
// to the receiver.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "coherence/fabric/fabric.hpp"

namespace tarn {

class RecordingFabric : public Fabric {
  public:
    struct Sent {
        HostId to;
        protocol::Message message;
    };
    std::vector<Sent> sent;
    HostSet up = 0;
    HostSet full = 0;  // hosts with congested links
    std::vector<HostId> resumed;
    std::function<void(const Sent&)> on_send;  // called with each message, once it is kept
    std::optional<std::string> answer;         // to each call; none: calls fail
    std::function<Task<Result<std::string>>(HostId, CallKind, std::string)> on_call;  // answers instead, if set

    // How many messages of the kind were sent.
    size_t count(protocol::MessageKind kind) const {
        return static_cast<size_t>(
            std::ranges::count_if(sent, [&](const Sent& each) { return each.message.kind == kind; }));
    }
    // The last message of the kind; null: there is none.
    const protocol::Message* last(protocol::MessageKind kind) const {
        const auto found =
            std::find_if(sent.rbegin(), sent.rend(), [&](const Sent& each) { return each.message.kind == kind; });
        return found == sent.rend() ? nullptr : &found->message;
    }

    void send(HostId to, const protocol::Message& message, std::span<const std::byte>) override {
        sent.push_back({to, message});
        if (on_send) on_send({to, message});
    }
    void cork() override {}
    void uncork() override {}
    uint64_t received_count(protocol::MessageKind) const override { return 0; }
    bool linked(HostId to) const override { return contains(up, to); }
    bool congested(HostId to) const override { return contains(full, to); }
    void disconnect(HostId) override {}
    void resume(HostId from) override { resumed.push_back(from); }
    Task<Result<std::string>> call(HostId to, CallKind kind, std::string request) override {
        if (on_call) return on_call(to, kind, std::move(request));
        return give_answer();
    }

  private:
    Task<Result<std::string>> give_answer() const {
        if (answer) co_return *answer;
        co_return fail(Errc::unavailable);
    }
};

}  // namespace tarn
