// ControlRecord: a record that two links exchange beside the protocol's messages: the end of the greeting, calls and
// their answers, and the question whether the other one is there.
//
// On the wire it has the layout of a message, followed by a body. Link sends and handles it; RecordReader tells it from
// messages by its kind.
#pragma once

#include <cstdint>
#include <string>

#include "coherence/protocol/message.hpp"

namespace tarn {

struct ControlRecord {
    enum class Kind : uint8_t { call = 200, answer, greeted, ask, here };
    static constexpr uint8_t kind_min = 200;  // kinds of messages are below
    static constexpr uint32_t body_size_max = 1 << 20;

    Kind kind{};
    uint8_t detail = 0;  // of a call its CallKind; of an answer 0, or one more than its error's code
    uint32_t id = 0;     // of the call
    std::string body;

    static bool is_header(const protocol::Message& header) { return static_cast<uint8_t>(header.kind) >= kind_min; }
    static uint32_t body_size_of(const protocol::Message& header) { return header.sequence; }
    static protocol::Message header_of(Kind kind, uint32_t id, uint8_t detail, size_t body_size) {
        return {.kind = static_cast<protocol::MessageKind>(kind),
                .flags = detail,
                .request_id = id,
                .sequence = static_cast<uint32_t>(body_size)};
    }
    static ControlRecord of(const protocol::Message& header, std::string body) {
        return {.kind = static_cast<Kind>(header.kind),
                .detail = header.flags,
                .id = header.request_id,
                .body = std::move(body)};
    }
};

}  // namespace tarn
