// Session: one client of the volume under test, over NBD or through a file of a mount. Synchronous; one thread each.
//
// Over NBD it has two connections, and takes them in turn: what it does over one must count for the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tarn::checker {

// How bytes become zeros.
enum class Zeroing : uint8_t { trim, zero };

class Session {
  public:
    virtual ~Session() = default;
    // False: it failed, and whether a write took effect is unknown.
    virtual bool read(uint64_t offset_bytes, std::span<std::byte> into) = 0;
    virtual bool write(uint64_t offset_bytes, std::span<const std::byte> from) = 0;
    // Durable by itself when it succeeds.
    virtual bool write_through(uint64_t offset_bytes, std::span<const std::byte> from) = 0;
    virtual bool zero(uint64_t offset_bytes, uint64_t size_bytes, Zeroing how) = 0;
    virtual bool flush() = 0;
    // What failed last was refused with an error, and the session goes on; else it is of no more use.
    virtual bool was_refused() const = 0;
    virtual size_t connection_count() const = 0;
};

// where: an NBD URI, or the path of a file. Null: it cannot be opened now.
std::unique_ptr<Session> open_session(const std::string& where);

}  // namespace tarn::checker
