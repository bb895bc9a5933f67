// FUSE over io_uring, as in Linux 6.14: the definitions that linux/fuse.h of Debian 12 lacks. The names are our own, so
// that they do not collide with those of newer headers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tarn::fuse {

// Of fuse_init_in.flags2 and fuse_init_out.flags2: the kernel offers rings, the server wants them.
inline constexpr uint32_t init_flag2_rings = 1U << (41 - 32);

// cmd_op of a submission to the device.
enum class RingCommand : uint32_t {
    join = 1,  // an entry joins its queue: the kernel may put a request into its memory, and complete this
    answer_and_fetch = 2,
};

// In the submission's command area, which needs submissions of 128 bytes.
struct RingCommandArguments {
    uint64_t flags = 0;
    uint64_t request_id = 0;  // of the request that is answered
    uint16_t queue = 0;       // a CPU's number
    std::array<uint8_t, 6> padding{};
};
static_assert(sizeof(RingCommandArguments) == 24);

// What an entry's memory holds beside the payload. A request's header, the first of its arguments, and the rest as
// payload; its answer's header, and all else as payload.
struct RingHeaders {
    std::array<std::byte, 128> header;  // fuse_in_header, then fuse_out_header
    std::array<std::byte, 128> first_argument;
    uint64_t flags;
    uint64_t request_id;
    uint32_t payload_size_bytes;
    uint32_t padding;
    uint64_t reserved;
};
static_assert(sizeof(RingHeaders) == 288);

}  // namespace tarn::fuse
