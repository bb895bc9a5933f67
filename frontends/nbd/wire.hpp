// The words of the NBD protocol: constants, and numbers in network byte order.
//
// Only what tarn speaks: fixed newstyle, simple and structured replies, and extended headers. The text: the
// "doc/proto.md" of the NBD project, for the last one that of its branch extension-ext-header, but without the payload
// by which a client may ask for some of its metadata contexts. Nothing here reads or writes a socket.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tarn::nbd {

template <std::unsigned_integral T>
constexpr T big_endian(T value) {
    if constexpr (std::endian::native == std::endian::big || sizeof(T) == 1) return value;
    return std::byteswap(value);
}

template <std::unsigned_integral T>
T load_big(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return big_endian(value);
}

// Returns the first byte after the number, so that fields follow one another.
template <std::unsigned_integral T>
std::byte* store_big(std::byte* to, T value) {
    value = big_endian(value);
    std::memcpy(to, &value, sizeof value);
    return to + sizeof value;
}

// Handshake.
inline constexpr uint64_t greeting_magic = 0x4e42444d41474943;  // "NBDMAGIC"
inline constexpr uint64_t option_magic = 0x49484156454f5054;    // "IHAVEOPT"
inline constexpr uint64_t option_reply_magic = 0x0003e889045565a9;

inline constexpr uint16_t handshake_fixed_newstyle = 1 << 0;
inline constexpr uint16_t handshake_no_zeroes = 1 << 1;
inline constexpr uint32_t client_fixed_newstyle = 1 << 0;
inline constexpr uint32_t client_no_zeroes = 1 << 1;

enum class Option : uint32_t {
    export_name = 1,
    abort = 2,
    list = 3,
    start_tls = 5,
    info = 6,
    go = 7,
    structured_reply = 8,
    list_meta_context = 9,
    set_meta_context = 10,
    extended_headers = 11,
};

enum class OptionReply : uint32_t {
    acknowledge = 1,
    server = 2,
    info = 3,
    meta_context = 4,
    error_unsupported = 0x80000001,
    error_policy = 0x80000002,
    error_invalid = 0x80000003,
    error_tls_required = 0x80000005,
    error_unknown = 0x80000006,
    error_shutdown = 0x80000007,
    error_too_big = 0x80000009,
    error_extended_headers_required = 0x8000000a,
};

enum class Info : uint16_t { export_size = 0, name = 1, description = 2, block_size = 3 };

inline constexpr size_t client_flags_size = 4;
inline constexpr size_t option_header_size = 16;
inline constexpr size_t string_size_max = 4096;                // of every text in the protocol
inline constexpr uint32_t option_size_max = 64 * 1024;         // larger options are refused unread
inline constexpr uint32_t option_skip_max = 32 * 1024 * 1024;  // still larger ones end the connection

// Transmission flags.
inline constexpr uint16_t transmission_has_flags = 1 << 0;
inline constexpr uint16_t transmission_read_only = 1 << 1;
inline constexpr uint16_t transmission_flush = 1 << 2;
inline constexpr uint16_t transmission_fua = 1 << 3;
inline constexpr uint16_t transmission_trim = 1 << 5;
inline constexpr uint16_t transmission_write_zeroes = 1 << 6;
inline constexpr uint16_t transmission_dont_fragment = 1 << 7;
inline constexpr uint16_t transmission_multi_connection = 1 << 8;
inline constexpr uint16_t transmission_cache = 1 << 10;
inline constexpr uint16_t transmission_fast_zero = 1 << 11;

// Block sizes: any request works, whole pages work best.
inline constexpr uint32_t block_size_min = 1;
inline constexpr uint32_t block_size_preferred = 4096;
inline constexpr uint32_t payload_size_max = 32 * 1024 * 1024;

// Requests.
inline constexpr uint32_t request_magic = 0x25609513;
inline constexpr size_t request_size = 28;  // magic 4, flags 2, command 2, cookie 8, offset 8, length 4
inline constexpr uint32_t extended_request_magic = 0x21e41c71;
inline constexpr size_t extended_request_size = 32;  // the same with a length of 8

enum class Command : uint16_t {
    read = 0,
    write = 1,
    disconnect = 2,
    flush = 3,
    trim = 4,
    cache = 5,
    write_zeroes = 6,
    block_status = 7,
};

inline constexpr uint16_t request_fua = 1 << 0;
inline constexpr uint16_t request_no_hole = 1 << 1;
inline constexpr uint16_t request_dont_fragment = 1 << 2;
inline constexpr uint16_t request_one_extent = 1 << 3;
inline constexpr uint16_t request_fast_zero = 1 << 4;
inline constexpr uint16_t request_payload_length = 1 << 5;  // with extended headers: length is that of a payload

// Replies.
inline constexpr uint32_t simple_reply_magic = 0x67446698;
inline constexpr uint32_t structured_reply_magic = 0x668e33ef;
inline constexpr size_t simple_reply_size = 16;      // magic 4, error 4, cookie 8
inline constexpr size_t structured_reply_size = 20;  // magic 4, flags 2, type 2, cookie 8, length 4
inline constexpr uint32_t extended_reply_magic = 0x6e8a278c;
inline constexpr size_t extended_reply_size = 32;  // magic 4, flags 2, type 2, cookie 8, offset 8, length 8
inline constexpr uint16_t chunk_done = 1 << 0;

enum class Chunk : uint16_t {
    none = 0,
    offset_data = 1,
    block_status = 5,
    block_status_extended = 6,
    error = 0x8001,
};

// Metadata contexts: base:allocation of the protocol's text, and tarn:tier, which is ours (packaging/tarnd.8.scd).
inline constexpr uint32_t allocation_id = 1;
inline constexpr uint32_t extent_hole = 1 << 0;
inline constexpr uint32_t extent_zero = 1 << 1;
inline constexpr uint32_t tier_id = 2;
inline constexpr uint32_t tier_dram = 1 << 0;
inline constexpr uint32_t tier_remote = 1 << 1;
inline constexpr uint32_t tier_nvme = 1 << 2;
inline constexpr uint32_t tier_hole = 1 << 3;
inline constexpr size_t extents_max = 16 * 1024;  // of one reply; the client asks again for the rest
static_assert(extents_max <= 1 << 20, "the protocol wants no more in one reply");

// The only error numbers that may go over the wire.
enum class Errno : uint32_t {
    none = 0,
    not_permitted = 1,
    io = 5,
    invalid = 22,
    no_space = 28,
    unsupported = 95,
    shutdown = 108,
};

}  // namespace tarn::nbd
