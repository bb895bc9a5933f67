// Session: one client of the volume under test, over NBD or through a file of a mount. Synchronous; one thread each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tarn::checker {

class Session {
  public:
    virtual ~Session() = default;
    // False: it failed, and whether a write took effect is unknown. The session is of no more use then.
    virtual bool read(uint64_t offset_bytes, std::span<std::byte> into) = 0;
    virtual bool write(uint64_t offset_bytes, std::span<const std::byte> from) = 0;
    virtual bool flush() = 0;
};

// where: an NBD URI, or the path of a file. Null: it cannot be opened now.
std::unique_ptr<Session> open_session(const std::string& where);

}  // namespace tarn::checker
