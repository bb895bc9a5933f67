// Lent frames: who may write into a frame that this host has lent, and until when.
//
// A link is lent frames to receive pages into (FrameSupply::lend, Fabric::Receiver): it alone writes into one, until it
// hands over the page or gives the frame back. A request lends the frame in which it wants its answer
// (Awaited::landing); the two functions below say who may copy bytes into that one, in the step that delivers them. A
// link's bytes are not copied: their frame takes the place of the request's (Holder::take_bytes).
#pragma once

#include "coherence/protocol/holding.hpp"
#include "coherence/protocol/message.hpp"

namespace tarn::protocol {

// holding: the record of the message's page, or null. no_frame: the bytes go into another frame.
//
// For what the store has read. A frame is lent for one request only, and once: late bytes of an earlier request, or of
// an order that was undone, must not overwrite newer ones.
FrameId lent_frame(const Holding* holding, const Message& message);
// For what this host's own home has at hand as it answers: the present bytes, whatever came before.
FrameId lent_frame_for_present_bytes(const Holding* holding, const Message& message);

}  // namespace tarn::protocol
