// Requests of the transmission phase: decoding, and the check that comes before anything is done.
//
// Pure: bytes in, a request or an error out. A request that passes valid_for() lies within the export and fits the
// limits, so what serves it may assert.
#pragma once

#include <cstdint>
#include <span>

#include "frontends/nbd/wire.hpp"
#include "utils/result.hpp"

namespace tarn::nbd {

// What was agreed about the volume when the handshake ended.
struct Export {
    uint64_t size_bytes = 0;
    bool structured = false;       // replies are structured
    bool base_allocation = false;  // the client may ask for block status
};

struct Request {
    Command command;
    uint16_t flags;
    uint64_t cookie;  // opaque, in the client's byte order
    uint64_t offset_bytes;
    uint32_t size_bytes;

    bool has(uint16_t flag) const { return (flags & flag) != 0; }
};

// Errors: protocol, when this is no request: where the next one starts is then unknown, and the connection ends.
Result<Request> decode_request(std::span<const std::byte, request_size> bytes);

// Whether the request may be served. A refused write has sent its payload all the same.
Errno check(const Request& request, const Export& exported);

// The one place where our errors become the client's.
Errno to_errno(const Error& error);
inline Errno to_errno(const Result<>& result) {
    return result ? Errno::none : to_errno(result.error());
}

}  // namespace tarn::nbd
