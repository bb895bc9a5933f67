#include "coherence/fabric/tcp_link.hpp"

#include <cstring>
#include <mutex>

#include "utils/log.hpp"

namespace tarn {

using protocol::Incarnation;
using protocol::Message;

namespace {

constexpr size_t receive_buffer_size = 256 << 10;
constexpr uint32_t body_size_max = 1 << 20;

// The link's own frames use the layout of a message: request_id is the call's, sequence the size of the body.
enum FrameKind : uint8_t { frame_call = 200, frame_answer = 201, frame_greeted = 202 };
bool is_frame(uint8_t kind) {
    return kind >= frame_call;
}

std::span<const std::byte> bytes_of(const Message& message) {
    return std::as_bytes(std::span(&message, 1));
}

}  // namespace

// One call that waits for its answer, on the shard that asked.
struct TcpLink::Call final : Loop::Posted {
    explicit Call(Loop& loop) : shard(loop) {}
    void run() override { waiter.resume(); }
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) {
        waiter = handle;
        if (sent.exchange(true)) shard.post(*this);  // the answer was faster
    }
    void await_resume() const noexcept {}
    void finish(Result<std::string> with) {
        result = std::move(with);
        if (sent.exchange(true)) shard.post(*this);
    }

    Loop& shard;
    std::coroutine_handle<> waiter;
    std::atomic<bool> sent{false};  // the first of "suspended" and "answered" sets it, the second resumes
    Result<std::string> result;
};

void TcpLink::WakeWriter::run() {
    {
        const std::lock_guard guard(link.lock_);
        link.wake_posted_ = false;
    }
    link.writable_.notify_all();
}

void TcpLink::append(std::span<const std::byte> header, std::span<const std::byte> payload) {
    std::vector<std::byte>& buffer = greeting_ && Loop::current() != &loop_ ? later_ : outgoing_;
    buffer.insert(buffer.end(), header.begin(), header.end());
    buffer.insert(buffer.end(), payload.begin(), payload.end());
    schedule_writer();
}

void TcpLink::schedule_writer() {
    if (writer_busy_ || std::exchange(wake_posted_, true)) return;
    loop_.post(wake_writer_);
}

void TcpLink::send(const Message& message, std::span<const std::byte> payload) {
    const std::lock_guard guard(lock_);
    if (up()) append(bytes_of(message), payload);
}

void TcpLink::send_frame(uint8_t kind, uint32_t id, Errc code, std::string_view body) {
    Message header;
    header.kind = static_cast<protocol::MessageKind>(kind);
    header.flags = static_cast<uint8_t>(code);
    header.request_id = id;
    header.sequence = static_cast<uint32_t>(body.size());
    const std::lock_guard guard(lock_);
    if (up()) append(bytes_of(header), std::as_bytes(std::span(body)));
}

Task<Result<std::string>> TcpLink::call(std::string request) {
    TARN_ASSERT(request.size() <= body_size_max);
    Call call(*Loop::current());
    uint32_t id = 0;
    {
        const std::lock_guard guard(lock_);
        if (!up()) co_return fail(Errc::unavailable, 0, "fabric.call: no link");
        id = ++last_call_;
        calls_[id] = &call;
    }
    send_frame(frame_call, id, Errc{}, request);
    co_await call;
    co_return std::move(call.result);
}

void TcpLink::fail_calls() {
    std::map<uint32_t, Call*> calls;
    {
        const std::lock_guard guard(lock_);
        calls.swap(calls_);
    }
    for (const auto& [id, call] : calls) call->finish(fail(Errc::unavailable, 0, "fabric.call: the link broke"));
}

void TcpLink::close() {
    connection_ends_ = true;
    if (fd_ >= 0) ::shutdown(fd_, SHUT_RDWR);
    writable_.notify_all();
}

Task<> TcpLink::serve(UniqueFd fd, Incarnation incarnation) {
    while (fd_ >= 0) {
        close();
        co_await closed_.wait();
    }
    fd_ = fd.get();
    connection_ends_ = false;
    {
        const std::lock_guard guard(lock_);
        outgoing_.clear();
        later_.clear();
        writer_busy_ = false;
        greeting_ = true;
        up_.store(true, std::memory_order_relaxed);
    }
    receiver_.on_link_up(peer_, incarnation);
    send_frame(frame_greeted, 0, Errc{}, {});
    {
        const std::lock_guard guard(lock_);
        greeting_ = false;
        outgoing_.insert(outgoing_.end(), later_.begin(), later_.end());
        later_.clear();
        schedule_writer();
    }
    log::info("fabric: linked with host {} (incarnation {})", peer_, incarnation);

    Gate writer;
    writer.spawn(write_all(fd_));
    const Result<> ended = co_await read_all(fd_, incarnation);
    close();
    {
        const std::lock_guard guard(lock_);
        up_.store(false, std::memory_order_relaxed);
    }
    co_await writer.close();
    receiver_.on_link_down(peer_);
    fail_calls();
    if (ended || ended.error().code == Errc::closed || ended.error().code == Errc::io)
        log::warning("fabric: lost the link with host {}", peer_);
    else
        log::error("fabric: closed the link with host {}: {}", peer_, log::describe(ended.error()));
    fd_ = -1;
    connection_count_.fetch_sub(1, std::memory_order_relaxed);
    closed_.notify_all();
}

Task<> TcpLink::write_all(int fd) {
    std::vector<std::byte> sending;
    while (!connection_ends_) {
        {
            const std::lock_guard guard(lock_);
            sending.clear();
            sending.swap(outgoing_);
            writer_busy_ = !sending.empty();
        }
        if (sending.empty()) {
            co_await writable_.wait();
            continue;
        }
        for (std::span<const std::byte> rest = sending; !rest.empty();) {
            const Result<size_t> sent = co_await loop_.send(fd, rest);
            if (!sent || *sent == 0) {
                ::shutdown(fd, SHUT_RDWR);
                co_return;
            }
            rest = rest.subspan(*sent);
        }
        if (sending.capacity() > receive_buffer_size) sending = {};
    }
}

Task<Result<>> TcpLink::read_all(int fd, Incarnation incarnation) {
    std::vector<std::byte> buffer(receive_buffer_size);
    size_t filled = 0;
    while (!connection_ends_) {
        if (filled == buffer.size()) buffer.resize(buffer.size() * 2);  // a body longer than the buffer
        const Result<size_t> received = co_await loop_.receive(fd, std::span(buffer).subspan(filled));
        if (!received) co_return fail(received.error());
        if (*received == 0) co_return fail(Errc::closed);
        filled += *received;
        std::span<const std::byte> rest(buffer.data(), filled);
        CO_TRY_VOID(co_await take(rest, incarnation));
        std::memmove(buffer.data(), rest.data(), rest.size());
        filled = rest.size();
    }
    co_return Result<>{};
}

// Takes every whole message off the front of bytes.
Task<Result<>> TcpLink::take(std::span<const std::byte>& bytes, Incarnation incarnation) {
    while (bytes.size() >= sizeof(Message)) {
        Message header;
        std::memcpy(&header, bytes.data(), sizeof header);
        if (header.version != protocol::message_version)
            co_return fail(Errc::protocol, 0, "fabric.receive: another version");
        if (is_frame(static_cast<uint8_t>(header.kind))) {
            if (header.sequence > body_size_max) co_return fail(Errc::protocol, 0, "fabric.receive: too long");
            if (bytes.size() < sizeof(Message) + header.sequence) break;
            const auto* const body = reinterpret_cast<const char*>(bytes.data() + sizeof(Message));
            CO_TRY_VOID(take_frame(header, std::string(body, header.sequence)));
            bytes = bytes.subspan(sizeof(Message) + header.sequence);
            continue;
        }
        CO_TRY(const Message message, protocol::decode(bytes.first<sizeof(Message)>()));
        if (message.from != peer_) co_return fail(Errc::protocol, 0, "fabric.receive: speaks for another host");
        if (message.incarnation != incarnation)
            co_return fail(Errc::protocol, 0, "fabric.receive: another incarnation");
        const size_t payload_size = message.has(protocol::flag_payload) ? page_size : 0;
        if (bytes.size() < sizeof(Message) + payload_size) break;
        while (message.has_bytes() && !receiver_.has_room() && !connection_ends_)
            co_await loop_.sleep(std::chrono::microseconds(200));
        CO_TRY_VOID(receiver_.on_message(message, bytes.subspan(sizeof(Message), payload_size)));
        bytes = bytes.subspan(sizeof(Message) + payload_size);
    }
    co_return Result<>{};
}

Result<> TcpLink::take_frame(const Message& header, std::string body) {
    switch (static_cast<uint8_t>(header.kind)) {
        case frame_call: loop_.spawn(answer(header.request_id, std::move(body))); return {};
        case frame_greeted: receiver_.on_greeted(peer_); return {};
        case frame_answer: {
            Call* call = nullptr;
            {
                const std::lock_guard guard(lock_);
                const auto found = calls_.find(header.request_id);
                if (found == calls_.end()) return {};
                call = found->second;
                calls_.erase(found);
            }
            if (header.flags == 0)
                call->finish(std::move(body));
            else
                call->finish(fail(static_cast<Errc>(header.flags - 1), 0, "another host"));
            return {};
        }
        default: return fail(Errc::protocol, 0, "fabric.receive: an unknown frame");
    }
}

Task<> TcpLink::answer(uint32_t id, std::string request) {
    const Result<std::string> answer = co_await receiver_.on_call(peer_, std::move(request));
    if (answer)
        send_frame(frame_answer, id, Errc{}, *answer);
    else
        send_frame(frame_answer, id, static_cast<Errc>(static_cast<uint8_t>(answer.error().code) + 1), {});
}

}  // namespace tarn
