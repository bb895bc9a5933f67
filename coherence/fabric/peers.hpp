// Peers: sends the protocol's messages to other hosts. A host alone has no fabric, and sends nothing.
#pragma once

#include "coherence/executor/effects.hpp"
#include "coherence/fabric/fabric.hpp"
#include "coherence/membership/membership.hpp"
#include "tiers/dram/frame_pool.hpp"

namespace tarn {

class Peers final : public Outbox {
  public:
    Peers(const Membership& membership, const Store& store, FramePool& pool)
        : membership_(membership), store_(store), pool_(pool) {}

    // Call it before any link can come up.
    void set_fabric(Fabric& fabric) { fabric_ = &fabric; }
    Fabric* fabric() const { return fabric_; }

    // Sends the message with the bytes of the frame, if any. A page known to be zeros, or lost, goes as a flag.
    void send(HostId to, const protocol::Message& message, FrameId frame) override;
    // Sends the message with these bytes, or none.
    void send_bytes(HostId to, const protocol::Message& message, std::span<const std::byte> bytes);

    // Fills in the fields that every message of this host carries.
    void stamp(protocol::Message& message) const;

  private:
    const Membership& membership_;
    const Store& store_;
    FramePool& pool_;
    Fabric* fabric_ = nullptr;
};

}  // namespace tarn
