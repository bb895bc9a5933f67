#include "daemon/control/http_request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "daemon/configuration/text.hpp"

namespace tarn {

namespace {

bool is_unreserved(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
           c == '_' || c == '~';
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
    return std::ranges::equal(a, b, {}, lower, lower);
}

std::string_view trim(std::string_view text) {
    while (text.starts_with(' ') || text.starts_with('\t')) text.remove_prefix(1);
    while (text.ends_with(' ') || text.ends_with('\t')) text.remove_suffix(1);
    return text;
}

// "GET /v1/status HTTP/1.1"
std::optional<HttpRefusal> take_request_line(std::string_view line, HttpRequest& request) {
    const size_t first = line.find(' ');
    const size_t last = line.rfind(' ');
    if (first == std::string_view::npos || first == last) return HttpRefusal{400, "malformed request line"};
    request.method = line.substr(0, first);
    std::string_view target = line.substr(first + 1, last - first - 1);
    const std::string_view protocol = line.substr(last + 1);
    if (protocol != "HTTP/1.1" && protocol != "HTTP/1.0") return HttpRefusal{505, "not HTTP/1.1"};
    request.keep_alive = protocol == "HTTP/1.1";
    target = target.substr(0, target.find('?'));
    if (!target.starts_with('/')) return HttpRefusal{400, "malformed target"};
    // Split before decoding: an encoded slash belongs to a name.
    while (!target.empty()) {
        target.remove_prefix(1);
        const size_t slash = std::min(target.find('/'), target.size());
        auto part = percent_decode(target.substr(0, slash));
        if (!part) return HttpRefusal{400, "malformed percent-encoding"};
        request.path.push_back(*std::move(part));
        target.remove_prefix(slash);
    }
    return std::nullopt;
}

std::optional<HttpRefusal> take_header(std::string_view line, HttpHead& head, bool& has_length) {
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || colon == 0 || line[0] == ' ' || line[0] == '\t')
        return HttpRefusal{400, "malformed header"};
    const std::string_view name = line.substr(0, colon);
    const std::string_view value = trim(line.substr(colon + 1));
    if (equal_ignoring_case(name, "Transfer-Encoding")) return HttpRefusal{501, "Transfer-Encoding is not supported"};
    if (equal_ignoring_case(name, "Connection")) {
        if (equal_ignoring_case(value, "close")) head.request.keep_alive = false;
    } else if (equal_ignoring_case(name, "Expect")) {
        head.expects_continue = equal_ignoring_case(value, "100-continue");
    } else if (equal_ignoring_case(name, "Content-Length")) {
        const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), head.body_size_bytes);
        if (has_length || error == std::errc::invalid_argument || end != value.data() + value.size())
            return HttpRefusal{400, "malformed Content-Length"};
        if (error == std::errc::result_out_of_range || head.body_size_bytes > http_body_size_max)
            return HttpRefusal{413, "body too large"};
        has_length = true;
    }
    return std::nullopt;
}

std::string_view status_text(int status) {
    switch (status) {
        case 200: return "OK";
        case 201: return "Created";
        case 202: return "Accepted";
        case 400: return "Bad Request";
        case 403: return "Forbidden";
        case 404: return "Not Found";
        case 405: return "Method Not Allowed";
        case 409: return "Conflict";
        case 413: return "Content Too Large";
        case 431: return "Request Header Fields Too Large";
        case 501: return "Not Implemented";
        case 503: return "Service Unavailable";
        case 505: return "HTTP Version Not Supported";
        case 507: return "Insufficient Storage";
        default: return "Internal Server Error";
    }
}

}  // namespace

std::optional<std::expected<HttpHead, HttpRefusal>> parse_http_head(std::string_view bytes) {
    const size_t end = bytes.substr(0, http_head_size_max).find("\r\n\r\n");
    if (end == std::string_view::npos) {
        if (bytes.size() < http_head_size_max) return std::nullopt;
        return std::unexpected(HttpRefusal{431, "request head too large"});
    }
    HttpHead head;
    head.head_size_bytes = end + 4;
    std::string_view rest = bytes.substr(0, end + 2);
    const auto next_line = [&rest] {
        const size_t size = rest.find("\r\n");
        const std::string_view line = rest.substr(0, size);
        rest.remove_prefix(size + 2);
        return line;
    };
    const std::string_view line = next_line();
    const bool clean = std::ranges::none_of(bytes.substr(0, end), [](char c) { return c == '\0' || c == '\x7f'; });
    if (!clean) return std::unexpected(HttpRefusal{400, "control characters"});
    if (const auto refusal = take_request_line(line, head.request)) return std::unexpected(*refusal);
    bool has_length = false;
    while (!rest.empty())
        if (const auto refusal = take_header(next_line(), head, has_length)) return std::unexpected(*refusal);
    return head;
}

std::optional<std::string> percent_decode(std::string_view text) {
    std::string decoded;
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            decoded += text[i];
            continue;
        }
        const auto byte = parse_hex(text.substr(i + 1, 2));
        if (!byte) return std::nullopt;
        decoded += static_cast<char>(*byte);
        i += 2;
    }
    return decoded;
}

std::string percent_encode(std::string_view text) {
    std::string encoded;
    for (const char c : text)
        encoded += is_unreserved(c) ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
    return encoded;
}

std::string format_http_response(int status, std::string_view body, bool keep_alive) {
    return fmt::format(
        "HTTP/1.1 {} {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: {}\r\n\r\n{}", status,
        status_text(status), body.size(), keep_alive ? "keep-alive" : "close", body);
}

}  // namespace tarn
