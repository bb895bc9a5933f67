// Calls: requests between hosts beside the protocol's messages, and this host's handler for each kind. They belong to
// the control plane: small, rare, never on the path of a page.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "tiers/page.hpp"
#include "utils/result.hpp"
#include "utils/task.hpp"

namespace tarn {

// Values on the wire. The handler of a kind defines its request and answer.
enum class CallKind : uint8_t {
    // Cache
    verifier = 1,
    settled_verifier = 2,
    end_older_copies = 7,
    // Volumes
    stored_runs = 3,
    zeroing_over = 4,
    // The process
    standing = 8,
    stopping = 9,
    flushed = 10,
    knows_of_host = 11,
    host_is_dead = 12,
    // Catalog
    space = 16,
    usage = 17,
    records = 18,
    change = 19,
    removal = 20,
    give_up = 21,
    // Block devices
    resized = 22,
};

// Reads a plain struct without gaps from the bytes of a request or answer; nothing if their size differs.
template <class T>
std::string pack(const T& value) {
    static_assert(std::has_unique_object_representations_v<T>);
    return {reinterpret_cast<const char*>(&value), sizeof value};
}
template <class T>
std::optional<T> unpack(std::string_view bytes) {
    static_assert(std::has_unique_object_representations_v<T>);
    T value;
    if (bytes.size() != sizeof value) return std::nullopt;
    bytes.copy(reinterpret_cast<char*>(&value), sizeof value);
    return value;
}

class CallHandlers {
  public:
    using Handler = std::function<Task<Result<std::string>>(HostId from, std::string request)>;

    // Sets the handler of a kind, before any link can come up. It runs on the shard of the link, as a task of its own.
    void set(CallKind kind, Handler handler) { handlers_[static_cast<size_t>(kind)] = std::move(handler); }
    // Errors: unsupported if no handler is set; else the handler's.
    Task<Result<std::string>> answer(CallKind kind, HostId from, std::string request) const {
        const auto number = static_cast<size_t>(kind);
        if (number < handlers_.size() && handlers_[number]) return handlers_[number](from, std::move(request));
        return unknown();
    }

  private:
    static Task<Result<std::string>> unknown() { co_return fail(Errc::unsupported, 0, "fabric.call: unknown"); }

    std::array<Handler, 32> handlers_;
};

}  // namespace tarn
