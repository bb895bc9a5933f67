// RecordingFabric: links to hosts that a test plays itself. What is sent is kept; what the hosts say the test gives to
// the receiver.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "coherence/fabric/fabric.hpp"

namespace tarn {

class RecordingFabric final : public Fabric {
  public:
    struct Sent {
        HostId to;
        protocol::Message message;
    };
    std::vector<Sent> sent;
    protocol::HostSet up = 0;
    protocol::HostSet full = 0;  // whose links are congested
    std::vector<HostId> resumed;
    std::function<void(const Sent&)> on_send;  // called with each message, once it is kept
    std::optional<std::string> answer;         // to each call; none: nobody can be called

    // How many of the kind were sent.
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
    void hold() override {}
    void let_go() override {}
    uint64_t received_count(protocol::MessageKind) const override { return 0; }
    bool linked(HostId to) const override { return protocol::contains(up, to); }
    bool congested(HostId to) const override { return protocol::contains(full, to); }
    void disconnect(HostId) override {}
    void resume(HostId from) override { resumed.push_back(from); }
    Task<Result<std::string>> call(HostId, std::string) override {
        if (answer) co_return *answer;
        co_return fail(Errc::unavailable);
    }
    Result<uint32_t> register_memory(std::span<std::byte>) override { return fail(Errc::unsupported); }
    Task<Result<>> read(RemoteMemory, std::span<std::byte>) override { co_return fail(Errc::unsupported); }
    Task<Result<>> write(RemoteMemory, std::span<const std::byte>) override { co_return fail(Errc::unsupported); }
    Task<Result<uint64_t>> compare_swap(RemoteMemory, uint64_t, uint64_t) override {
        co_return fail(Errc::unsupported);
    }
    Task<Result<uint64_t>> fetch_add(RemoteMemory, uint64_t) override { co_return fail(Errc::unsupported); }
    Task<Result<>> write_then_send(RemoteMemory, std::span<const std::byte>, const protocol::Message&) override {
        co_return fail(Errc::unsupported);
    }
};

}  // namespace tarn
