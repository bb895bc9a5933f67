// Lent frames: who may write into a frame that this host has lent, and until when.
//
// A link is lent frames to receive pages into (FrameSupply::lend, Fabric::Receiver): it alone writes into one, until it
// hands over the page or gives the frame back. A request lends a frame for its answer (Awaited::landing). Whoever
// delivers the answer asks one of the functions below in that same step: it returns that frame if the bytes may be
// copied into it. A link's bytes are not copied: their frame replaces the request's (Holder::take_bytes).
#pragma once

#include "coherence/protocol/holding.hpp"
#include "coherence/protocol/message.hpp"

namespace tarn::protocol {

// holding: the record of the message's page, or null. Both return no_frame if the bytes must not go there; the caller
// then uses another frame, or drops them.
//
// For what the store has read. A frame is lent for one request only, and once: late bytes of an earlier request, or of
// an order that was undone, must not overwrite newer ones.
FrameId lent_frame(const Holding* holding, const Message& message);
// For what this host's own home has at hand as it answers: the present bytes, whatever came before.
FrameId lent_frame_for_present_bytes(const Holding* holding, const Message& message);

}  // namespace tarn::protocol
