// Handshake: the negotiation of one NBD connection, from the greeting to the first request.
//
// A pure state machine: bytes in, bytes out, and now and then a question about the cluster's volumes, which the shell
// (connection.cpp) asks and answers. Nothing is opened before the client asked to GO. Memory is bounded: an option is
// buffered up to option_size_max; a larger or unknown one is refused from its header and its payload skipped. Texts
// sent to the client never repeat what it sent.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "frontends/nbd/request.hpp"
#include "frontends/nbd/wire.hpp"
#include "utils/result.hpp"

namespace tarn::nbd {

// What a client is told of an export.
struct ExportEntry {
    std::string name;  // in full
    std::string description;
    uint64_t size_bytes = 0;
    bool read_only = false;
};

class Handshake {
  public:
    enum class State : uint8_t {
        negotiating,   // wants bytes
        asking,        // wants the answer to question()
        securing,      // send what output() has, begin TLS, then call secured(): the next bytes come within TLS
        transmission,  // over: take_rest() has the bytes that belong to requests
        closed,        // over: send what output() has, then close
    };
    enum class Question : uint8_t {
        list,  // the names and descriptions of all volumes
        find,  // the size of the volume called name()
        open,  // the same, and open it for good
    };

    // What the client is told about TLS.
    enum class Tls : uint8_t {
        none,      // it is not offered
        offered,   // whoever wants it may have it
        for_some,  // the same; an export that is not found may be there within TLS
        required,  // nothing goes without
    };

    explicit Handshake(Tls tls = Tls::none);  // output() has the greeting

    // Takes all bytes; not while asking. Buffers at most one option beyond what is given.
    void receive(std::span<const std::byte> bytes);

    State state() const { return state_; }
    Question question() const { return question_; }
    const std::string& name() const { return name_; }
    // Why it closed, for the log; empty when the client left in good order.
    StaticText reason() const { return reason_; }
    // It was told that TLS is required, and has not begun it.
    bool lacks_tls() const { return told_of_tls_ && !secured_; }

    // What the client asked for before, in plain, is forgotten: somebody in between may have said it.
    void secured();

    void answer_list(std::span<const ExportEntry> entries);
    // The volume of the question.
    void answer_found(const ExportEntry& entry);
    // The text is for the client's user.
    void answer_refused(Errc code, std::string_view text);

    std::vector<std::byte>& output() { return output_; }

    // After transmission began.
    const Export& exported() const { return exported_; }
    std::vector<std::byte> take_rest() { return std::move(input_); }

  private:
    void advance();
    size_t step(std::span<const std::byte> bytes);
    size_t on_client_flags(std::span<const std::byte> bytes);
    size_t refuse_without_tls(uint32_t size);
    void on_option(Option option, std::span<const std::byte> payload);
    void on_start_tls(std::span<const std::byte> payload);
    void on_export_name(std::span<const std::byte> payload);
    void on_info(std::span<const std::byte> payload);
    void on_meta_context(std::span<const std::byte> payload);
    void answer_meta_context();
    void answer_info(const ExportEntry& entry);
    void answer_export_name();
    void ask(Question question, std::string name);
    void close(StaticText reason);
    void reply(OptionReply type, std::span<const std::byte> payload = {});
    void refuse(OptionReply type, std::string_view text) { reply(type, std::as_bytes(std::span(text))); }

    Tls tls_;
    bool secured_ = false;
    bool told_of_tls_ = false;
    State state_ = State::negotiating;
    Question question_ = Question::list;
    Option option_ = Option::abort;  // the one being answered
    std::string name_;
    StaticText reason_ = "";
    bool greeted_ = false;
    bool no_zeroes_ = false;
    uint64_t skip_bytes_ = 0;
    std::vector<std::byte> input_;
    std::vector<std::byte> output_;

    bool wants_name_ = false;                  // INFO or GO asked for the canonical name
    bool wants_description_ = false;           // or for the description
    std::vector<std::string> queries_;         // of the metadata contexts
    std::optional<std::string> context_name_;  // the export for which they were chosen
    Export exported_;
};

}  // namespace tarn::nbd
