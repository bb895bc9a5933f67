// Calls: what hosts ask each other beside the messages of the protocol, and who answers which of it on this host.
// Questions of the control plane: small, rare, never on the path of a page.
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

// On the wire. What request and answer are, says who answers.
enum class CallKind : uint8_t {
    // Cache
    verifier = 1,
    settled_verifier = 2,
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
};

// The bytes of a plain struct without gaps, as requests and answers have them; nothing, if they are not of its size.
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

    // Before any link can come up; one for each kind. Runs on the shard of the link, as a task of its own.
    void set(CallKind kind, Handler handler) { handlers_[static_cast<size_t>(kind)] = std::move(handler); }
    // Errors: unsupported for what nobody answers here; else the handler's.
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
