// Result<T>: a value or an Error that says what failed, where, and what the kernel said.
//
// Layers return errors and stay silent; daemon/ logs once; a front end translates once to its client's errno.
#pragma once

#include <cstdint>
#include <expected>

namespace tarn {

enum class Errc : uint8_t {
    io,           // a device or a socket failed; sys_errno has the kernel's word
    no_space,     // the store is full
    not_found,    // no such volume, host or file
    exists,       // the name is taken
    busy,         // held by somebody else
    invalid,      // the request makes no sense as it stands
    unavailable,  // a host that is needed cannot be reached
    refused,      // not authenticated, or not allowed
    protocol,     // a peer, client or device sent what no correct one sends
    corrupt,      // stored bytes fail their checks
    closed,       // the other side went away
    cancelled,    // given up because of shutdown or an interrupt
    unsupported,  // understood, and not offered
};

const char* to_string(Errc code) noexcept;

// A text that outlives every Error that carries it: a string literal, as the compiler checks.
class StaticText {
  public:
    consteval StaticText(const char* literal) : text_(literal) {
        while (*literal != '\0') ++literal;  // no constant expression, unless the characters are constants
    }
    // For a text that is no literal: the caller vouches that it outlives every Error that carries it.
    static constexpr StaticText vouched_for(const char* text) { return {text, Vouched()}; }
    constexpr operator const char*() const { return text_; }
    constexpr bool empty() const { return *text_ == '\0'; }

  private:
    struct Vouched {};
    constexpr StaticText(const char* text, Vouched) : text_(text) {}
    const char* text_;
};

struct Error {
    constexpr Error(Errc code, int sys_errno = 0, StaticText where = "")
        : code(code), sys_errno(sys_errno), where(where) {}
    Errc code;
    int sys_errno;
    const char* where;  // "nvme.read", "nbd.handshake"
};

// void results are values too, so that TRY works on both.
template <class T = void>
class [[nodiscard]] Result : public std::expected<T, Error> {
  public:
    using std::expected<T, Error>::expected;
};

constexpr std::unexpected<Error> fail(Errc code, int sys_errno = 0, StaticText where = "") {
    return std::unexpected(Error{code, sys_errno, where});
}
constexpr std::unexpected<Error> fail(const Error& error) {
    return std::unexpected(error);
}

}  // namespace tarn

#define TARN_CONCAT_(a, b) a##b
#define TARN_CONCAT(a, b) TARN_CONCAT_(a, b)
#define TARN_TRY_(result, declaration, expression, leave) \
    auto&& result = (expression);                         \
    if (!result) [[unlikely]]                             \
        leave std::unexpected(std::move(result).error()); \
    declaration = *std::move(result)
#define TARN_CHECK_(result, expression, leave)              \
    if (auto&& result = (expression); !result) [[unlikely]] \
    leave std::unexpected(std::move(result).error())

// TRY(auto x, f()) declares x or returns the error; TRY_VOID(f()) is for results without a value. The CO_ forms are
// for coroutines. f() may return any std::expected.
#define TRY(declaration, ...) TARN_TRY_(TARN_CONCAT(result_, __LINE__), declaration, (__VA_ARGS__), return)
#define CO_TRY(declaration, ...) TARN_TRY_(TARN_CONCAT(result_, __LINE__), declaration, (__VA_ARGS__), co_return)
#define TRY_VOID(...) TARN_CHECK_(TARN_CONCAT(result_, __LINE__), (__VA_ARGS__), return)
#define CO_TRY_VOID(...) TARN_CHECK_(TARN_CONCAT(result_, __LINE__), (__VA_ARGS__), co_return)
