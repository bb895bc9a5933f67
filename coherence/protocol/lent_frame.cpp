#include "coherence/protocol/lent_frame.hpp"

namespace tarn::protocol {

FrameId lent_frame(const Holding* holding, const Message& message) {
    if (message.kind != MessageKind::grant && message.kind != MessageKind::data) return no_frame;
    if (holding == nullptr || holding->awaited.request_id != message.request_id) return no_frame;
    const bool is_late =
        message.tenure < holding->floor || message.tenure < holding->awaited.heard_tenure || holding->awaited.has_bytes;
    return is_late ? no_frame : holding->awaited.landing;
}

FrameId lent_frame_for_present_bytes(const Holding* holding, const Message& message) {
    const bool waits = holding != nullptr && holding->awaited.request_id == message.request_id;
    return waits ? holding->awaited.landing : no_frame;
}

}  // namespace tarn::protocol
