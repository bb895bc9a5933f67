#include "frontends/nbd/request.hpp"

#include <cerrno>

namespace tarn::nbd {

namespace {

// All but the length, in which the two forms differ.
Result<Request> decode_front(const std::byte* from, uint32_t magic) {
    if (load_big<uint32_t>(from) != magic) return fail(Errc::protocol, 0, "nbd.request: magic");
    Request request{};
    request.flags = load_big<uint16_t>(from + 4);
    request.command = static_cast<Command>(load_big<uint16_t>(from + 6));
    std::memcpy(&request.cookie, from + 8, sizeof request.cookie);
    request.offset_bytes = load_big<uint64_t>(from + 16);
    return request;
}

}  // namespace

Result<Request> decode_request(std::span<const std::byte, request_size> bytes) {
    TRY(Request request, decode_front(bytes.data(), request_magic));
    request.size_bytes = load_big<uint32_t>(bytes.data() + 24);
    return request;
}

Result<Request> decode_extended_request(std::span<const std::byte, extended_request_size> bytes) {
    TRY(Request request, decode_front(bytes.data(), extended_request_magic));
    request.size_bytes = load_big<uint64_t>(bytes.data() + 24);
    request.extended = true;
    if (request.payload_bytes() > payload_size_max)
        return fail(Errc::protocol, 0, "nbd.request: a payload beyond all limits");
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
            if (request.extended) flags = request_payload_length;
            if (request.size_bytes > payload_size_max) return Errno::invalid;
            break;
        case Command::write_zeroes:
            flags = request_no_hole | request_fast_zero;
            past_the_end = Errno::no_space;
            break;
        case Command::block_status:
            flags = request_one_extent;
            if (!(exported.base_allocation || exported.tier) || request.size_bytes == 0) return Errno::invalid;
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
    if (exported.read_only && is_write(request.command)) return Errno::not_permitted;
    if (!within(request, exported)) return past_the_end;
    // Fast means: no slower than a trim. The edges of an unaligned range are written, and so is space to be kept.
    if (request.has(request_fast_zero)) {
        const bool aligned = (request.offset_bytes | request.size_bytes) % block_size_preferred == 0;
        if (!aligned || request.has(request_no_hole)) return Errno::unsupported;
    }
    return Errno::none;
}

// Several connections may share an export because a flush covers the whole volume, whoever wrote (D1).
uint16_t transmission_flags(const Export& exported) {
    uint16_t flags = transmission_has_flags | transmission_flush | transmission_fua | transmission_trim |
                     transmission_write_zeroes | transmission_multi_connection | transmission_cache |
                     transmission_fast_zero;
    if (exported.structured) flags |= transmission_dont_fragment;
    if (exported.read_only) flags |= transmission_read_only;
    return flags;
}

Errno to_errno(const Error& error) {
    switch (error.code) {
        case Errc::no_space: return Errno::no_space;
        case Errc::invalid: return Errno::invalid;
        case Errc::refused: return Errno::not_permitted;
        case Errc::unsupported: return Errno::unsupported;
        case Errc::cancelled: return Errno::shutdown;
        case Errc::io:
            // The protocol wants each of these told as no space.
            if (error.sys_errno == ENOSPC || error.sys_errno == EDQUOT || error.sys_errno == EFBIG)
                return Errno::no_space;
            return Errno::io;
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
