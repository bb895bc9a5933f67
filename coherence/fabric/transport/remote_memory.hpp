// RemoteMemory: one-sided operations: a host reads and changes another host's memory without that host's CPU.
//
// A transport that has them gives one to each channel. TCP has none: there, messages do it.
// tests/unit/remote_memory_conformance_test.cpp checks what each transport must do:
//   - Operations take effect in the order in which they were begun, and before anything sent on the channel afterwards:
//     a message may say that bytes are there.
//   - compare_swap and fetch_add are atomic with each other and with the owner's own atomics on that word. A read
//     concurrent with a write may return a mix: data beside the bytes (a version) must detect that.
//   - After close() nothing lands in that memory any more, whatever was under way: it may be used for something else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "utils/result.hpp"
#include "utils/task.hpp"

namespace tarn {

// Memory that its owner has opened to the other host of a channel, in the form that is sent to that host. The owner's
// side checks every access.
struct RemoteRegion {
    uint64_t address = 0;  // of its first byte, in the transport's numbering
    uint64_t size_bytes = 0;
    uint64_t key = 0;
};

// Used on the loop of the channel, which outlives it.
class RemoteMemory {
  public:
    virtual ~RemoteMemory() = default;

    // Opens this host's memory to the other one, until close() or until the channel breaks. Errors: io.
    virtual Result<RemoteRegion> open(std::span<std::byte> memory) = 0;
    virtual Task<> close(RemoteRegion region) = 0;

    // The other host's memory. Errors: closed (the channel broke; nobody knows whether it took effect), refused (the
    // region is not open, or ends before), invalid (no aligned word).
    virtual Task<Result<>> read(RemoteRegion region, uint64_t offset_bytes, std::span<std::byte> into) = 0;
    virtual Task<Result<>> write(RemoteRegion region, uint64_t offset_bytes, std::span<const std::byte> from) = 0;
    // Both work on a word of 8 bytes and return its previous value.
    virtual Task<Result<uint64_t>> compare_swap(RemoteRegion region, uint64_t offset_bytes, uint64_t expected,
                                                uint64_t desired) = 0;
    virtual Task<Result<uint64_t>> fetch_add(RemoteRegion region, uint64_t offset_bytes, uint64_t summand) = 0;
};

}  // namespace tarn
