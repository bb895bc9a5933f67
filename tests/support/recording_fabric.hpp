// RecordingFabric: links to hosts that a test plays itself. What is sent is kept; what the hosts say the test gives to
// the receiver.
#pragma once

#include <algorithm>
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

    // The last message of the kind; null: there is none.
    const protocol::Message* last(protocol::MessageKind kind) const {
        const auto found =
            std::find_if(sent.rbegin(), sent.rend(), [&](const Sent& each) { return each.message.kind == kind; });
        return found == sent.rend() ? nullptr : &found->message;
    }

    void send(HostId to, const protocol::Message& message, std::span<const std::byte>) override {
        sent.push_back({to, message});
    }
    void hold() override {}
    void let_go() override {}
    uint64_t received_count(protocol::MessageKind) const override { return 0; }
    bool linked(HostId to) const override { return protocol::contains(up, to); }
    void disconnect(HostId) override {}
    void resume(HostId) override {}
    Task<Result<std::string>> call(HostId, std::string) override { co_return fail(Errc::unavailable); }
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
