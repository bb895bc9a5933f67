// Bytes as an NBD client writes them, for tests.
#pragma once

#include <string_view>
#include <vector>

#include "frontends/nbd/wire.hpp"

namespace tarn::nbd {

constexpr uint32_t number_of(OptionReply type) {
    return static_cast<uint32_t>(type);
}

class Bytes {
  public:
    template <std::unsigned_integral T>
    Bytes& number(T value) {
        const size_t size = bytes_.size();
        bytes_.resize(size + sizeof value);
        store_big(bytes_.data() + size, value);
        return *this;
    }
    Bytes& text(std::string_view value) {
        for (const char byte : value) bytes_.push_back(static_cast<std::byte>(byte));
        return *this;
    }
    Bytes& fill(size_t count, std::byte value = std::byte{0}) {
        bytes_.insert(bytes_.end(), count, value);
        return *this;
    }
    Bytes& add(const Bytes& other) {
        bytes_.insert(bytes_.end(), other.bytes_.begin(), other.bytes_.end());
        return *this;
    }

    Bytes& client_flags() { return number(client_fixed_newstyle | client_no_zeroes); }
    Bytes& option(uint32_t option, const Bytes& payload = {}) {
        number(option_magic).number(option).number(static_cast<uint32_t>(payload.bytes_.size()));
        return add(payload);
    }
    Bytes& option(Option known, const Bytes& payload = {}) { return option(static_cast<uint32_t>(known), payload); }
    Bytes& request(Command command, uint64_t cookie, uint64_t offset_bytes, uint32_t size_bytes, uint16_t flags = 0) {
        number(request_magic).number(flags).number(static_cast<uint16_t>(command)).number(cookie);
        return number(offset_bytes).number(size_bytes);
    }

    Bytes& extended_request(Command command, uint64_t cookie, uint64_t offset_bytes, uint64_t size_bytes,
                            uint16_t flags = 0) {
        number(extended_request_magic).number(flags).number(static_cast<uint16_t>(command)).number(cookie);
        return number(offset_bytes).number(size_bytes);
    }

    const std::vector<std::byte>& bytes() const { return bytes_; }

  private:
    std::vector<std::byte> bytes_;
};

// The payload of INFO and GO.
inline Bytes info_payload(std::string_view name) {
    return Bytes().number(static_cast<uint32_t>(name.size())).text(name).number(uint16_t{0});
}

}  // namespace tarn::nbd
