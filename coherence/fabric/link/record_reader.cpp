#include "coherence/fabric/link/record_reader.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tarn {

using protocol::Message;

RecordReader::~RecordReader() {
    if (page_) receiver_.return_page(page_);
}

Task<Result<>> RecordReader::read_all() {
    Result<> ended = co_await read_on();
    co_await readiness_.close();
    co_return ended;
}

Task<Result<>> RecordReader::read_on() {
    while (!ended_) {
        CO_TRY(size_t received, co_await receive());
        if (received == 0) co_return fail(Errc::closed);
        if (page_) {
            const size_t into_page = std::min(received, page_size - page_filled_);
            page_filled_ += into_page;
            received -= into_page;
            if (page_filled_ < page_size) continue;
            CO_TRY_VOID(deliver());
        }
        filled_ += received;
        CO_TRY_VOID(co_await take_buffered());
    }
    co_return fail(Errc::closed);
}

// The rest of the page first, if one is on its way; then the buffer. What is there is taken without a turn of the ring.
Task<Result<size_t>> RecordReader::receive() {
    if (filled_ == buffer_.size()) buffer_.resize(buffer_.size() * 2);  // a record longer than the buffer
    const std::span free = std::span(buffer_).subspan(filled_);
    const size_t page_rest = page_ ? page_size - page_filled_ : 0;
    std::array<iovec, 2> pieces{iovec{.iov_base = page_ ? page_ + page_filled_ : nullptr, .iov_len = page_rest},
                                iovec{.iov_base = free.data(), .iov_len = free.size()}};
    msghdr message{};
    message.msg_iov = page_ ? pieces.data() : pieces.data() + 1;
    message.msg_iovlen = page_ ? 2 : 1;
    for (;;) {
        if (!readable_) {
            CO_TRY(const unsigned events, co_await readiness_.wait());
            hung_up_ = hung_up_ || (events & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
        }
        const ssize_t received = ::recvmsg(fd_, &message, MSG_DONTWAIT);
        // Less than there was room for was all there was. Who hung up is read until recvmsg says so.
        readable_ =
            hung_up_ || received == static_cast<ssize_t>(page_rest + free.size()) || (received < 0 && errno == EINTR);
        if (received >= 0) ++receive_count_;
        if (received >= 0) co_return static_cast<size_t>(received);
        if (errno != EAGAIN && errno != EINTR) co_return fail(Errc::io, errno, "fabric.receive");
    }
}

// Takes every whole message off the front of the buffer, and of the last one what there is.
Task<Result<>> RecordReader::take_buffered() {
    Front front(*this, {buffer_.data(), filled_});
    for (Next next = Next::turn; next != Next::bytes;) {
        std::array<PageId, messages_at_once_max> pages;
        receiver_.on_batch({pages.data(), look_ahead(front.rest, pages)}, front);
        CO_TRY(next, front.taken);
        // What they asked for leaves, and what they woke goes on, while the rest is worked on.
        if (next == Next::turn) co_await Yield(loop_);
        if (next == Next::page && !ended_) {
            waits_for_room_ = true;
            co_await room_.wait();
            waits_for_room_ = false;
        }
        if (ended_) co_return fail(Errc::closed);
    }
    std::memmove(buffer_.data(), front.rest.data(), front.rest.size());
    filled_ = front.rest.size();
    co_return Result<>{};
}

// The pages that the messages at the front are about, as far as that can be told.
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

// Without a wait: some messages, or all there are.
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
    TRY_VOID(owner_.on_control(ControlRecord::of(header, std::string(body, body_size))));
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
    owner_.count_message(message_.kind);
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
    owner_.count_message(message_.kind);
    return receiver_.on_message(message_, std::exchange(page_, nullptr));
}

}  // namespace tarn
