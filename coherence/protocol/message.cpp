#include "coherence/protocol/message.hpp"

#include <cstring>

namespace tarn::protocol {

const char* to_string(MessageKind kind) noexcept {
    switch (kind) {
        case MessageKind::get_shared: return "get_shared";
        case MessageKind::get_exclusive: return "get_exclusive";
        case MessageKind::get_exclusive_no_read: return "get_exclusive_no_read";
        case MessageKind::done: return "done";
        case MessageKind::evict: return "evict";
        case MessageKind::home_copy: return "home_copy";
        case MessageKind::write_back: return "write_back";
        case MessageKind::report: return "report";
        case MessageKind::resolve: return "resolve";
        case MessageKind::hello: return "hello";
        case MessageKind::flush: return "flush";
        case MessageKind::flush_answer: return "flush_answer";
        case MessageKind::grant: return "grant";
        case MessageKind::move: return "move";
        case MessageKind::move_shared: return "move_shared";
        case MessageKind::copy: return "copy";
        case MessageKind::drop: return "drop";
        case MessageKind::evicted: return "evicted";
        case MessageKind::refused: return "refused";
        case MessageKind::free: return "free";
        case MessageKind::recall: return "recall";
        case MessageKind::confirm: return "confirm";
        case MessageKind::written_back: return "written_back";
        case MessageKind::no_space: return "no_space";
        case MessageKind::flush_ask: return "flush_ask";
        case MessageKind::flushed: return "flushed";
        case MessageKind::data: return "data";
        case MessageKind::acknowledge: return "acknowledge";
    }
    return nullptr;
}

bool is_for_home(MessageKind kind) noexcept {
    return kind <= MessageKind::hello;
}

bool is_from_home(MessageKind kind) noexcept {
    return kind >= MessageKind::grant && kind <= MessageKind::flushed;
}

bool is_about_flush(MessageKind kind) noexcept {
    return kind == MessageKind::flush || kind == MessageKind::flush_answer || kind == MessageKind::flush_ask ||
           kind == MessageKind::flushed;
}

bool may_wait(MessageKind kind) noexcept {
    return kind == MessageKind::done || kind == MessageKind::free;
}

namespace {

bool is_request(MessageKind kind) {
    return kind == MessageKind::get_shared || kind == MessageKind::get_exclusive ||
           kind == MessageKind::get_exclusive_no_read;
}

// True for kinds that name the host to serve, and the id of its waiting request.
bool names_requester(MessageKind kind) {
    return kind == MessageKind::move || kind == MessageKind::move_shared || kind == MessageKind::copy ||
           kind == MessageKind::drop;
}

bool is_numbered(MessageKind kind) {
    return kind == MessageKind::evict || kind == MessageKind::write_back;
}

bool always_has_bytes(MessageKind kind) {
    return kind == MessageKind::data || kind == MessageKind::write_back;
}

bool may_have_bytes(MessageKind kind) {
    return always_has_bytes(kind) || kind == MessageKind::evict || kind == MessageKind::home_copy ||
           kind == MessageKind::report || kind == MessageKind::grant;
}

}  // namespace

bool may_be_joined(MessageKind kind) noexcept {
    return is_request(kind) || kind == MessageKind::done || kind == MessageKind::evict ||
           kind == MessageKind::evicted || kind == MessageKind::free;
}

Result<> validate(const Message& message) {
    if (message.version != message_version) return fail(Errc::unsupported, 0, "message.version");
    if (to_string(message.kind) == nullptr) return fail(Errc::protocol, 0, "message.kind");
    if (message.from >= hosts_max) return fail(Errc::protocol, 0, "message.from");
    if (message.host >= hosts_max && message.host != no_host) return fail(Errc::protocol, 0, "message.host");
    if (names_requester(message.kind) && (message.host == no_host || message.request_id == 0))
        return fail(Errc::protocol, 0, "message.requester");
    if (is_request(message.kind) && message.request_id == 0) return fail(Errc::protocol, 0, "message.request_id");
    // Every valid tenure must have a successor.
    if (message.tenure >= tenure_end) return fail(Errc::protocol, 0, "message.tenure");
    // The last sequence of a tenure is reserved for the bytes that its owner hands on.
    if (is_numbered(message.kind) && message.sequence == last_sequence)
        return fail(Errc::protocol, 0, "message.sequence");
    if (message.kind == MessageKind::report && message.has_bytes() && message.hosts >= message.tenure)
        return fail(Errc::protocol, 0, "message.hosts: a version after the recall");
    if (message.reserved != 0) return fail(Errc::protocol, 0, "message.reserved");
    // The all-ones page id marks an empty slot of our tables.
    if (message.page.value == ~uint64_t{0}) return fail(Errc::protocol, 0, "message.page");
    if (message.kind == MessageKind::grant && message.hosts >> hosts_max != 0)
        return fail(Errc::protocol, 0, "message.hosts");
    if (message.has(flag_payload) && message.has(flag_zero)) return fail(Errc::protocol, 0, "message.flags");
    if (message.run != 0 || message.parts != 0) {
        if (!may_be_joined(message.kind) || message.has_bytes())
            return fail(Errc::protocol, 0, "message.run: of messages that stand alone");
        if (message.run + message.parts >= joined_pages_max)
            return fail(Errc::protocol, 0, "message.parts: more pages than one message may name");
        if (message.run >= run_pages_max - message.page.number() % run_pages_max)
            return fail(Errc::protocol, 0, "message.run: beyond its block of pages");
        if (message.page.value + message.run == ~uint64_t{0}) return fail(Errc::protocol, 0, "message.page");
        if (message.request_id != 0 && message.request_id + message.run < message.request_id)
            return fail(Errc::protocol, 0, "message.run: no such request ids");
    }
    if (message.has_bytes() ? !may_have_bytes(message.kind) : always_has_bytes(message.kind))
        return fail(Errc::protocol, 0, "message.payload");
    return {};
}

Result<Message> decode(std::span<const std::byte, sizeof(Message)> bytes) {
    Message message;
    std::memcpy(&message, bytes.data(), sizeof message);
    TRY_VOID(validate(message));
    return message;
}

}  // namespace tarn::protocol
