#include "coherence/fabric/peers.hpp"

namespace tarn {

using protocol::Message;

void Peers::stamp(Message& message) const {
    message.from = membership_.self();
    message.view_epoch = membership_.view_epoch();
    message.map_epoch = membership_.ranges().epoch();
    message.incarnation = membership_.process().incarnation;
    message.loss_generation = store_.loss_generation();
}

void Peers::send(HostId to, const Message& message, FrameId id) {
    if (id == no_frame) return send_bytes(to, message, {});
    Message labelled = message;
    const Frame& frame = pool_.frame(id);
    const bool lost = frame.broken.load(std::memory_order_relaxed);
    if (lost || frame.zeroed.load(std::memory_order_relaxed)) {
        labelled.flags &= static_cast<uint8_t>(~protocol::flag_payload);
        labelled.flags |= lost ? protocol::flag_zero | protocol::flag_lost : protocol::flag_zero;
        return send_bytes(to, labelled, {});
    }
    labelled.flags |= protocol::flag_payload;
    send_bytes(to, labelled, {pool_.bytes(id), page_size});
}

void Peers::send_bytes(HostId to, const Message& message, std::span<const std::byte> bytes) {
    if (!fabric_) return;
    Message stamped = message;
    stamp(stamped);
    fabric_->send(to, stamped, bytes);
}

}  // namespace tarn
