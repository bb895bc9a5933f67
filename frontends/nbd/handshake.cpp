#include "frontends/nbd/handshake.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "utils/assert.hpp"

namespace tarn::nbd {

namespace {

struct Context {
    uint32_t id;
    std::string_view name;
    bool Export::* chosen;

    std::string_view name_space() const { return name.substr(0, name.find(':') + 1); }
};
constexpr std::array contexts = {Context{allocation_id, "base:allocation", &Export::base_allocation},
                                 Context{tier_id, "tarn:tier", &Export::tier}};

template <std::unsigned_integral T>
void append(std::vector<std::byte>& to, T value) {
    const size_t size = to.size();
    to.resize(size + sizeof value);
    store_big(to.data() + size, value);
}

void append(std::vector<std::byte>& to, std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    to.insert(to.end(), bytes.begin(), bytes.end());
}

template <class... Fields>
std::vector<std::byte> bytes_of(const Fields&... fields) {
    std::vector<std::byte> bytes;
    (append(bytes, fields), ...);
    return bytes;
}

// Reads fields off the front of an option; once something is missing, it stays failed.
class Fields {
  public:
    explicit Fields(std::span<const std::byte> bytes) : rest_(bytes) {}

    template <std::unsigned_integral T>
    T number() {
        if (rest_.size() < sizeof(T)) {
            failed_ = true;
            return 0;
        }
        const T value = load_big<T>(rest_.data());
        rest_ = rest_.subspan(sizeof(T));
        return value;
    }
    std::string text() {
        const auto size = number<uint32_t>();
        if (size > string_size_max || size > rest_.size()) failed_ = true;
        if (failed_) return {};
        std::string value(reinterpret_cast<const char*>(rest_.data()), size);
        rest_ = rest_.subspan(size);
        return value;
    }
    bool failed() const { return failed_; }
    bool complete() const { return !failed_ && rest_.empty(); }

  private:
    std::span<const std::byte> rest_;
    bool failed_ = false;
};

constexpr std::array known_options = {Option::export_name,
                                      Option::abort,
                                      Option::list,
                                      Option::start_tls,
                                      Option::info,
                                      Option::go,
                                      Option::structured_reply,
                                      Option::list_meta_context,
                                      Option::set_meta_context,
                                      Option::extended_headers};

}  // namespace

Handshake::Handshake(Tls tls) : tls_(tls) {
    output_ = bytes_of(greeting_magic, option_magic, uint16_t{handshake_fixed_newstyle | handshake_no_zeroes});
}

void Handshake::receive(std::span<const std::byte> bytes) {
    TARN_ASSERT(state_ != State::asking);
    input_.insert(input_.end(), bytes.begin(), bytes.end());
    advance();
}

void Handshake::advance() {
    size_t taken = 0;
    while (state_ == State::negotiating) {
        const size_t step_taken = step(std::span<const std::byte>(input_).subspan(taken));
        if (step_taken == 0) break;
        taken += step_taken;
    }
    input_.erase(input_.begin(), input_.begin() + static_cast<ptrdiff_t>(taken));
    // Nothing that came in plain may be taken for what the client says within TLS.
    if (state_ == State::securing && !input_.empty()) close("bytes in plain behind STARTTLS");
}

void Handshake::secured() {
    TARN_ASSERT(state_ == State::securing && input_.empty());
    secured_ = true;
    exported_ = {};
    context_name_.reset();
    state_ = State::negotiating;
}

// Returns the bytes it used; none when it needs more.
size_t Handshake::step(std::span<const std::byte> bytes) {
    if (!greeted_) return on_client_flags(bytes);
    if (skip_bytes_ > 0) {
        const size_t skipped = static_cast<size_t>(std::min<uint64_t>(skip_bytes_, bytes.size()));
        skip_bytes_ -= skipped;
        return skipped;
    }
    if (bytes.size() < option_header_size) return 0;
    if (load_big<uint64_t>(bytes.data()) != option_magic) {
        close("bytes that are no option");
        return bytes.size();
    }
    option_ = static_cast<Option>(load_big<uint32_t>(bytes.data() + 8));
    const auto size = load_big<uint32_t>(bytes.data() + 12);
    if (tls_ == Tls::required && !secured_ && option_ != Option::start_tls && option_ != Option::abort)
        return refuse_without_tls(size);
    const bool too_big = size > option_size_max;
    if (too_big || std::ranges::find(known_options, option_) == known_options.end()) {
        // EXPORT_NAME has no reply that could refuse it.
        if (size > option_skip_max || (too_big && option_ == Option::export_name)) {
            close("an option beyond all limits");
            return bytes.size();
        }
        if (too_big)
            refuse(OptionReply::error_too_big, "the option is too long");
        else
            refuse(OptionReply::error_unsupported, "the option is not supported");
        skip_bytes_ = size;
        return option_header_size;
    }
    if (bytes.size() - option_header_size < size) return 0;
    on_option(option_, bytes.subspan(option_header_size, size));
    return option_header_size + size;
}

// Returns the bytes that it used of the option, whose payload has this size.
size_t Handshake::refuse_without_tls(uint32_t size) {
    if (option_ == Option::export_name) {
        close("an export asked for without TLS");
    } else if (size > option_skip_max) {
        close("an option beyond all limits");
    } else {
        refuse(OptionReply::error_tls_required, "TLS is required");
        told_of_tls_ = true;
        skip_bytes_ = size;
    }
    return option_header_size;
}

size_t Handshake::on_client_flags(std::span<const std::byte> bytes) {
    if (bytes.size() < client_flags_size) return 0;
    const auto flags = load_big<uint32_t>(bytes.data());
    if ((flags & ~(client_fixed_newstyle | client_no_zeroes)) != 0) {
        close("unknown client flags");
        return bytes.size();
    }
    no_zeroes_ = (flags & client_no_zeroes) != 0;
    greeted_ = true;
    return client_flags_size;
}

void Handshake::on_option(Option option, std::span<const std::byte> payload) {
    switch (option) {
        case Option::export_name: return on_export_name(payload);
        case Option::abort: reply(OptionReply::acknowledge); return close("");
        case Option::list:
            if (!payload.empty()) return refuse(OptionReply::error_invalid, "LIST has no payload");
            return ask(Question::list, {});
        case Option::start_tls: return on_start_tls(payload);
        case Option::info:
        case Option::go: return on_info(payload);
        case Option::structured_reply:
            if (!payload.empty()) return refuse(OptionReply::error_invalid, "STRUCTURED_REPLY has no payload");
            if (exported_.extended)
                return refuse(OptionReply::error_extended_headers_required, "extended headers are agreed already");
            exported_.structured = true;
            return reply(OptionReply::acknowledge);
        case Option::extended_headers:
            if (!payload.empty()) return refuse(OptionReply::error_invalid, "EXTENDED_HEADERS has no payload");
            exported_.structured = exported_.extended = true;
            return reply(OptionReply::acknowledge);
        case Option::list_meta_context:
        case Option::set_meta_context: return on_meta_context(payload);
    }
}

void Handshake::on_start_tls(std::span<const std::byte> payload) {
    if (secured_) return refuse(OptionReply::error_invalid, "TLS is in use already");
    if (!payload.empty()) return refuse(OptionReply::error_invalid, "STARTTLS has no payload");
    if (tls_ == Tls::none) return refuse(OptionReply::error_policy, "TLS is not offered here");
    reply(OptionReply::acknowledge);
    state_ = State::securing;
}

void Handshake::on_export_name(std::span<const std::byte> payload) {
    if (payload.size() > string_size_max) return close("an export name beyond all limits");
    if (exported_.extended) return close("EXPORT_NAME, which has no extended headers");
    ask(Question::open, std::string(reinterpret_cast<const char*>(payload.data()), payload.size()));
}

void Handshake::on_info(std::span<const std::byte> payload) {
    Fields fields(payload);
    std::string name = fields.text();
    const auto count = fields.number<uint16_t>();
    wants_name_ = wants_description_ = false;
    for (unsigned i = 0; i < count && !fields.failed(); ++i) {
        const auto info = static_cast<Info>(fields.number<uint16_t>());
        wants_name_ |= info == Info::name;
        wants_description_ |= info == Info::description;
    }
    if (!fields.complete()) return refuse(OptionReply::error_invalid, "lengths that do not fit");
    ask(option_ == Option::go ? Question::open : Question::find, std::move(name));
}

void Handshake::on_meta_context(std::span<const std::byte> payload) {
    if (option_ == Option::set_meta_context) {
        context_name_.reset();
        for (const Context& context : contexts) exported_.*context.chosen = false;
        if (!exported_.structured)
            return refuse(OptionReply::error_invalid, "metadata contexts need structured replies");
    }
    Fields fields(payload);
    std::string name = fields.text();
    const auto count = fields.number<uint32_t>();
    queries_.clear();
    for (uint32_t i = 0; i < count && !fields.failed(); ++i) queries_.push_back(fields.text());
    if (!fields.complete()) return refuse(OptionReply::error_invalid, "lengths that do not fit");
    ask(Question::find, std::move(name));
}

void Handshake::ask(Question question, std::string name) {
    question_ = question;
    name_ = std::move(name);
    state_ = State::asking;
}

void Handshake::answer_list(std::span<const ExportEntry> entries) {
    TARN_ASSERT(state_ == State::asking && question_ == Question::list);
    for (const ExportEntry& entry : entries)
        reply(OptionReply::server, bytes_of(static_cast<uint32_t>(entry.name.size()), entry.name, entry.description));
    reply(OptionReply::acknowledge);
    state_ = State::negotiating;
    advance();
}

void Handshake::answer_found(const ExportEntry& entry) {
    TARN_ASSERT(state_ == State::asking && question_ != Question::list);
    state_ = State::negotiating;
    if (option_ == Option::list_meta_context || option_ == Option::set_meta_context) {
        answer_meta_context();
    } else {
        exported_.size_bytes = entry.size_bytes;
        exported_.read_only = entry.read_only;
        if (question_ == Question::open && context_name_ != name_)
            for (const Context& context : contexts) exported_.*context.chosen = false;
        if (option_ == Option::export_name)
            answer_export_name();
        else
            answer_info(entry);
        if (question_ == Question::open) {
            state_ = State::transmission;
            return;
        }
    }
    advance();
}

void Handshake::answer_refused(Errc code, std::string_view text) {
    TARN_ASSERT(state_ == State::asking);
    state_ = State::negotiating;
    if (option_ == Option::export_name) return close("an export that cannot be opened");
    OptionReply type = OptionReply::error_policy;
    if (code == Errc::not_found || code == Errc::invalid) type = OptionReply::error_unknown;
    if (code == Errc::cancelled || code == Errc::closed) type = OptionReply::error_shutdown;
    const bool wants_export = option_ == Option::info || option_ == Option::go;
    if (type == OptionReply::error_unknown && tls_ == Tls::for_some && !secured_ && wants_export) {
        type = OptionReply::error_tls_required;
        text = "there is no such export without TLS";
    }
    refuse(type, text);
    advance();
}

void Handshake::answer_meta_context() {
    const bool list = option_ == Option::list_meta_context;
    if (!list) context_name_ = name_;
    for (const Context& context : contexts) {
        const auto matches = [&](const std::string& query) {
            return query == context.name || (list && query == context.name_space());
        };
        if (!(list && queries_.empty()) && std::ranges::none_of(queries_, matches)) continue;
        reply(OptionReply::meta_context, bytes_of(context.id, context.name));
        if (!list) exported_.*context.chosen = true;
    }
    queries_.clear();
    reply(OptionReply::acknowledge);
}

void Handshake::answer_info(const ExportEntry& entry) {
    reply(OptionReply::info,
          bytes_of(std::to_underlying(Info::export_size), entry.size_bytes, transmission_flags(exported_)));
    if (wants_name_) reply(OptionReply::info, bytes_of(std::to_underlying(Info::name), entry.name));
    if (wants_description_ && !entry.description.empty())
        reply(OptionReply::info, bytes_of(std::to_underlying(Info::description), entry.description));
    reply(OptionReply::info,
          bytes_of(std::to_underlying(Info::block_size), block_size_min, block_size_preferred, payload_size_max));
    reply(OptionReply::acknowledge);
}

void Handshake::answer_export_name() {
    append(output_, exported_.size_bytes);
    append(output_, transmission_flags(exported_));
    if (!no_zeroes_) output_.resize(output_.size() + 124);  // reserved by the protocol
}

void Handshake::reply(OptionReply type, std::span<const std::byte> payload) {
    const auto head = bytes_of(option_reply_magic, std::to_underlying(option_), std::to_underlying(type),
                               static_cast<uint32_t>(payload.size()));
    output_.insert(output_.end(), head.begin(), head.end());
    output_.insert(output_.end(), payload.begin(), payload.end());
}

void Handshake::close(StaticText reason) {
    reason_ = reason;
    state_ = State::closed;
}

}  // namespace tarn::nbd
