#include "frontends/nbd/request.hpp"

namespace tarn::nbd {

Result<Request> decode_request(std::span<const std::byte, request_size> bytes) {
    const std::byte* const from = bytes.data();
    if (load_big<uint32_t>(from) != request_magic) return fail(Errc::protocol, 0, "nbd.request: magic");
    Request request{};
    request.flags = load_big<uint16_t>(from + 4);
    request.command = static_cast<Command>(load_big<uint16_t>(from + 6));
    std::memcpy(&request.cookie, from + 8, sizeof request.cookie);
    request.offset_bytes = load_big<uint64_t>(from + 16);
    request.size_bytes = load_big<uint32_t>(from + 24);
    return request;
}

namespace {

bool within(const Request& request, const Export& exported) {
    return request.offset_bytes <= exported.size_bytes &&
           request.size_bytes <= exported.size_bytes - request.offset_bytes;
}

// FUA is allowed, and without effect, on what does not write.
bool only_flags(const Request& request, uint16_t allowed) {
    return (request.flags & ~(allowed | request_fua)) == 0;
}

}  // namespace

Errno check(const Request& request, const Export& exported) {
    uint16_t flags = 0;
    Errno past_the_end = Errno::invalid;
    switch (request.command) {
        case Command::read:
            if (exported.structured) flags = request_dont_fragment;
            if (request.size_bytes > payload_size_max) return Errno::invalid;
            break;
        case Command::write:
            past_the_end = Errno::no_space;
            if (request.size_bytes > payload_size_max) return Errno::invalid;
            break;
        case Command::write_zeroes:
            flags = request_no_hole | request_fast_zero;
            past_the_end = Errno::no_space;
            break;
        case Command::block_status:
            flags = request_one_extent;
            if (!exported.base_allocation || request.size_bytes == 0) return Errno::invalid;
            break;
        case Command::trim:
        case Command::cache: break;
        case Command::flush:
            // Offset and length are reserved; clients that fill them in have always been served.
            return only_flags(request, 0) ? Errno::none : Errno::invalid;
        case Command::disconnect: return Errno::none;
        default: return Errno::invalid;  // a number no text names
    }
    if (!only_flags(request, flags)) return Errno::invalid;
    if (!within(request, exported)) return past_the_end;
    // Fast means: no slower than a trim. The edges of an unaligned range are written, and so is space to be kept.
    if (request.has(request_fast_zero)) {
        const bool aligned = (request.offset_bytes | request.size_bytes) % block_size_preferred == 0;
        if (!aligned || request.has(request_no_hole)) return Errno::unsupported;
    }
    return Errno::none;
}

Errno to_errno(const Error& error) {
    switch (error.code) {
        case Errc::no_space: return Errno::no_space;
        case Errc::invalid: return Errno::invalid;
        case Errc::refused: return Errno::not_permitted;
        case Errc::unsupported: return Errno::unsupported;
        case Errc::cancelled: return Errno::shutdown;
        case Errc::io:
        case Errc::not_found:
        case Errc::exists:
        case Errc::busy:
        case Errc::unavailable:
        case Errc::protocol:
        case Errc::corrupt:
        case Errc::closed: return Errno::io;
    }
    return Errno::io;
}

}  // namespace tarn::nbd
