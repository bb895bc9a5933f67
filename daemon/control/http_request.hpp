// HttpRequest: the part of HTTP/1.1 that the control socket speaks, with its limits.
//
// A request is a head of at most 8 KiB and a body of at most 64 KiB with a Content-Length; chunked bodies are refused.
// A parser only, without a socket. A refusal names the HTTP status to answer with.
#pragma once

#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tarn {

inline constexpr size_t http_head_size_max = 8192;
inline constexpr size_t http_body_size_max = 65536;

struct HttpRequest {
    std::string method;
    std::vector<std::string> path;  // percent-decoded parts: "/v1/volumes/a%2Fb" is {"v1", "volumes", "a/b"}
    std::string body;
    bool keep_alive = true;
};

struct HttpRefusal {
    int status = 400;
    std::string_view reason;
};

struct HttpHead {
    HttpRequest request;
    size_t head_size_bytes = 0;
    size_t body_size_bytes = 0;
    bool expects_continue = false;
};

// Nothing while the head is not complete.
std::optional<std::expected<HttpHead, HttpRefusal>> parse_http_head(std::string_view bytes);

std::optional<std::string> percent_decode(std::string_view text);
// Everything but letters, digits, '-', '.', '_' and '~' becomes %XX; what a path or a query may carry anywhere.
std::string percent_encode(std::string_view text);

std::string format_http_response(int status, std::string_view body, bool keep_alive);

}  // namespace tarn
