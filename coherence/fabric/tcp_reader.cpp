#include "coherence/fabric/tcp_reader.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace tarn {

using protocol::Message;

TcpReader::~TcpReader() {
    if (page_) receiver_.return_page(page_);
}

Task<Result<>> TcpReader::read_all() {
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

// The rest of the page first, if one is on its way; then the buffer.
Task<Result<size_t>> TcpReader::receive() {
    if (filled_ == buffer_.size()) buffer_.resize(buffer_.size() * 2);  // a frame longer than the buffer
    const std::span free = std::span(buffer_).subspan(filled_);
    if (!page_) co_return co_await loop_.receive(fd_, free);
    std::array<iovec, 2> pieces{iovec{.iov_base = page_ + page_filled_, .iov_len = page_size - page_filled_},
                                iovec{.iov_base = free.data(), .iov_len = free.size()}};
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    co_return co_await loop_.receive_message(fd_, &message);
}

// Takes every whole message off the front of the buffer, and of the last one what there is.
Task<Result<>> TcpReader::take_buffered() {
    std::span<const std::byte> rest(buffer_.data(), filled_);
    while (rest.size() >= sizeof(Message)) {
        Message header;
        std::memcpy(&header, rest.data(), sizeof header);
        if (header.version != protocol::message_version)
            co_return fail(Errc::protocol, 0, "fabric.receive: another version");
        if (static_cast<uint8_t>(header.kind) >= frame_kind_min) {
            CO_TRY(const bool whole, take_frame(header, rest));
            if (!whole) break;
            continue;
        }
        CO_TRY(message_, checked(rest.first<sizeof(Message)>()));
        rest = rest.subspan(sizeof(Message));
        if (message_.has_bytes()) CO_TRY_VOID(co_await borrow_page());
        if (message_.has(protocol::flag_payload)) {
            page_filled_ = std::min(page_size, rest.size());
            std::memcpy(page_, rest.data(), page_filled_);
            rest = rest.subspan(page_filled_);
            if (page_filled_ < page_size) break;
        }
        CO_TRY_VOID(deliver());
    }
    std::memmove(buffer_.data(), rest.data(), rest.size());
    filled_ = rest.size();
    co_return Result<>{};
}

Result<bool> TcpReader::take_frame(const Message& header, std::span<const std::byte>& bytes) {
    if (header.sequence > body_size_max) return fail(Errc::protocol, 0, "fabric.receive: too long");
    if (bytes.size() < sizeof(Message) + header.sequence) return false;
    const auto* const body = reinterpret_cast<const char*>(bytes.data() + sizeof(Message));
    TRY_VOID(frames_.take_frame(header, std::string(body, header.sequence)));
    bytes = bytes.subspan(sizeof(Message) + header.sequence);
    return true;
}

Result<Message> TcpReader::checked(std::span<const std::byte> bytes) const {
    TRY(const Message message, protocol::decode(bytes.first<sizeof(Message)>()));
    if (message.from != peer_) return fail(Errc::protocol, 0, "fabric.receive: speaks for another host");
    if (message.incarnation != incarnation_) return fail(Errc::protocol, 0, "fabric.receive: another incarnation");
    return message;
}

Task<Result<>> TcpReader::borrow_page() {
    while (!(page_ = receiver_.lend_page(peer_))) {
        if (ended_) co_return fail(Errc::closed);
        co_await room_.wait();
    }
    co_return Result<>{};
}

Result<> TcpReader::deliver() {
    return receiver_.on_message(message_, std::exchange(page_, nullptr));
}

}  // namespace tarn
