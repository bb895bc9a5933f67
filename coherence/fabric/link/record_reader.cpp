#include "coherence/fabric/link/record_reader.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "coherence/fabric/link/link.hpp"

namespace tarn {

using protocol::Message;

RecordReader::~RecordReader() {
    if (page_) receiver_.return_page(page_);
}

Task<Result<>> RecordReader::read_all() {
    size_t rest_bytes = 0;  // of the last result that were not taken
    for (size_t taken = 0; !ended_;) {
        const std::span page_rest(page_ ? page_ + page_filled_ : nullptr, page_ ? page_size - page_filled_ : 0);
        CO_TRY(const Channel::Received received, co_await channel_.receive(page_rest, taken));
        ++receive_count_;
        link_.count_bytes(received.page_bytes + received.bytes.size() - rest_bytes);
        taken = 0;
        if (page_) {
            page_filled_ += received.page_bytes;
            rest_bytes = received.bytes.size();
            if (page_filled_ < page_size) continue;
            CO_TRY_VOID(deliver());
        }
        CO_TRY(taken, co_await take(received.bytes));
        rest_bytes = received.bytes.size() - taken;
    }
    co_return fail(Errc::closed);
}

Task<Result<size_t>> RecordReader::take(std::span<const std::byte> bytes) {
    Front front(*this, bytes);
    for (Next next = Next::turn; next != Next::bytes;) {
        std::array<PageId, messages_at_once_max> pages;
        receiver_.on_batch({pages.data(), look_ahead(front.rest, pages)}, front);
        CO_TRY(next, front.taken);
        // Their replies leave, and the tasks they woke go on, before the rest is handled.
        if (next == Next::turn) co_await Yield(loop_);
        if (next == Next::page && !ended_) {
            waits_for_room_ = true;
            co_await room_.wait();
            waits_for_room_ = false;
        }
        if (ended_) co_return fail(Errc::closed);
    }
    co_return bytes.size() - front.rest.size();
}

// Collects the pages of the messages at the front, as far as they can be told.
size_t RecordReader::look_ahead(std::span<const std::byte> bytes, std::span<PageId> pages) const {
    size_t count = 0;
    const auto add = [&](const Message& run) {
        for (uint32_t i = 0; i <= run.run && i < protocol::run_pages_max && count < pages.size(); ++i)
            pages[count++] = protocol::part_of(run, i).page;
    };
    for (size_t left = runs_left_; left > 0; --left) add(protocol::run_of(message_, parts_, parts_.size() + 1 - left));
    while (count < pages.size() && bytes.size() >= sizeof(Message)) {
        Message header;
        std::memcpy(&header, bytes.data(), sizeof header);
        if (header.version != protocol::message_version || ControlRecord::is_header(header)) break;
        add(header);
        bytes = bytes.subspan(sizeof header);
        for (size_t part = 0; part < header.parts && bytes.size() >= sizeof(protocol::Part); ++part) {
            protocol::Part each;
            std::memcpy(&each, bytes.data(), sizeof each);
            add(protocol::run_of(header, {&each, 1}, 1));
            bytes = bytes.subspan(sizeof each);
        }
        bytes = bytes.subspan(std::min(header.has(protocol::flag_payload) ? page_size : 0, bytes.size()));
    }
    return count;
}

// Takes some of the messages, or all that are there, without a wait.
Result<RecordReader::Next> RecordReader::take_batch(std::span<const std::byte>& rest) {
    for (unsigned taken = 0; runs_left_ > 0 || rest.size() >= sizeof(Message);) {
        if (taken >= messages_at_once_max) return Next::turn;
        if (runs_left_ > 0) {
            TRY(const unsigned pages, deliver_run());
            taken += pages;
            continue;
        }
        Message header;
        std::memcpy(&header, rest.data(), sizeof header);
        if (header.version != protocol::message_version)
            return fail(Errc::protocol, 0, "fabric.receive: another version");
        if (ControlRecord::is_header(header)) {
            TRY(const bool whole, take_control(header, rest));
            if (!whole) break;
            ++taken;
            continue;
        }
        TRY(message_, checked(rest.first<sizeof(Message)>()));
        if (protocol::may_be_joined(message_.kind) && !message_.has_bytes()) {
            TRY(const bool whole, take_parts(rest));
            if (!whole) break;
            continue;
        }
        ++taken;
        if (message_.has_bytes() && !(page_ = receiver_.lend_page(peer_))) return Next::page;
        rest = rest.subspan(sizeof(Message));
        if (message_.has(protocol::flag_payload)) {
            page_filled_ = std::min(page_size, rest.size());
            std::memcpy(page_, rest.data(), page_filled_);
            rest = rest.subspan(page_filled_);
            if (page_filled_ < page_size) break;
        }
        TRY_VOID(deliver());
    }
    return Next::bytes;
}

Result<bool> RecordReader::take_control(const Message& header, std::span<const std::byte>& bytes) {
    const uint32_t body_size = ControlRecord::body_size_of(header);
    if (body_size > ControlRecord::body_size_max) return fail(Errc::protocol, 0, "fabric.receive: too long");
    if (bytes.size() < sizeof(Message) + body_size) return false;
    const auto* const body = reinterpret_cast<const char*>(bytes.data() + sizeof(Message));
    TRY_VOID(link_.on_control(ControlRecord::of(header, std::string(body, body_size))));
    bytes = bytes.subspan(sizeof(Message) + body_size);
    return true;
}

Result<bool> RecordReader::take_parts(std::span<const std::byte>& rest) {
    const size_t size = message_.parts * sizeof(protocol::Part);
    if (rest.size() < sizeof(Message) + size) return false;
    parts_.resize(message_.parts);
    if (size != 0) std::memcpy(parts_.data(), rest.data() + sizeof(Message), size);
    rest = rest.subspan(sizeof(Message) + size);
    TRY_VOID(protocol::validate(message_, parts_));
    runs_left_ = 1 + parts_.size();
    link_.count_message(message_.kind);
    return true;
}

Result<unsigned> RecordReader::deliver_run() {
    const Message run = protocol::run_of(message_, parts_, parts_.size() + 1 - runs_left_);
    --runs_left_;
    TRY_VOID(receiver_.on_message(run, nullptr));
    return 1u + run.run;
}

Result<Message> RecordReader::checked(std::span<const std::byte> bytes) const {
    TRY(const Message message, protocol::decode(bytes.first<sizeof(Message)>()));
    if (message.from != peer_) return fail(Errc::protocol, 0, "fabric.receive: speaks for another host");
    if (message.incarnation != incarnation_) return fail(Errc::protocol, 0, "fabric.receive: another incarnation");
    return message;
}

Result<> RecordReader::deliver() {
    link_.count_message(message_.kind);
    return receiver_.on_message(message_, std::exchange(page_, nullptr));
}

}  // namespace tarn
