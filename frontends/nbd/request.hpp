// Requests of the transmission phase: decoding, and the check that comes before anything is done.
//
// Pure: bytes in, a request or an error out. A request that check() lets pass lies within the export and fits the
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
    bool extended = false;         // requests and replies have extended headers; then it is structured, too
    bool base_allocation = false;  // the client may ask for block status in this metadata context
    bool tier = false;             // or in this one
    bool read_only = false;
};

// A request that changes bytes, or drops them.
constexpr bool is_write(Command command) {
    return command == Command::write || command == Command::trim || command == Command::write_zeroes;
}

struct Request {
    Command command;
    uint16_t flags;
    uint64_t cookie;  // opaque, in the client's byte order
    uint64_t offset_bytes;
    uint64_t size_bytes;
    bool extended = false;  // it came with an extended header, and is answered with one

    bool has(uint16_t flag) const { return (flags & flag) != 0; }
    // What follows the header: the data of a write, or, as a flag says, what is sent with a command that takes none. A
    // write has to have that flag, too, with extended headers; but qemu (10.0) omits it, and sends the data all the
    // same.
    uint64_t payload_bytes() const {
        return command == Command::write || (extended && has(request_payload_length)) ? size_bytes : 0;
    }
    // Of a read or write that check() has let pass.
    uint32_t data_bytes() const { return static_cast<uint32_t>(size_bytes); }
};

// Errors: protocol, when this is no request: where the next one starts is then unknown, and the connection ends.
Result<Request> decode_request(std::span<const std::byte, request_size> bytes);
Result<Request> decode_extended_request(std::span<const std::byte, extended_request_size> bytes);

// Whether the request may be served. A refused write has sent its payload all the same.
Errno check(const Request& request, const Export& exported);

// What the server can do, as it tells clients.
uint16_t transmission_flags(const Export& exported);

// The one place where our errors become the client's.
Errno to_errno(const Error& error);
inline Errno to_errno(const Result<>& result) {
    return result ? Errno::none : to_errno(result.error());
}

}  // namespace tarn::nbd
