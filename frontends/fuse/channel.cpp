#include "frontends/fuse/channel.hpp"

#include <linux/fuse.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "utils/alarm.hpp"

namespace tarn::fuse {

// The library allocates the memory when it first reads into it.
class Channel::Buffer {
  public:
    Buffer() = default;
    Buffer(const Buffer&) = delete;
    ~Buffer() { std::free(buffer.mem); }

    fuse_buf buffer{};
};

Task<> Channel::serve() {
    const int device = fuse_session_fd(session_);
    bool crowded = false;  // the last wake-up that looked found more than one request
    unsigned wake_ups = 0;
    while (!stopping_ && !fuse_session_exited(session_)) {
        // One shard of several wakes up for a request.
        const Result<size_t> readable = co_await loop_.poll(device, EPOLLIN | EPOLLEXCLUSIVE);
        if (!readable) break;
        const bool looks_for_more = crowded || ++wake_ups % wake_ups_per_look == 0;
        unsigned requests = 0;
        while (requests < (looks_for_more ? requests_per_turn_max : 1) && !stopping_) {
            while (!acquire_buffer()) co_await loop_.sleep(buffer_pause);
            if (!read_one()) break;
            ++requests;
            if (std::exchange(agreeing_, false)) co_await agreed_();
        }
        crowded = requests > 1;
        if (ring_) current_.reset();  // see keep_bytes
    }
    current_.reset();
    if (ring_) ring_->refuse();
    co_await end_requests();
}

Task<> Channel::run(fuse_req_t request, Task<Answer> task) {
    Interrupts::Operation operation(interrupts_, request);
    co_await CarryInterrupt(operation);
    const Answer answer = co_await std::move(task);
    if (answer.error_number) fuse_reply_err(request, *answer.error_number);
}

Task<> Channel::end_requests() {
    Alarm alarm(loop_, farewell_max, [this] { interrupts_.raise_all(); });
    co_await gate_.close();
    co_await alarm.end();
}

Task<> Channel::stop() {
    stopping_ = true;
    loop_.cancel_fd(fuse_session_fd(session_));
    co_return;
}

Task<> Channel::open_ring() {
    if (!stopping_) ring_->open();
    co_return;
}

bool Channel::read_one() {
    const int size = fuse_session_receive_buf(session_, &current_->buffer);
    if (size <= 0) return false;  // none there, or the mount ended, which the session then knows
    loop_.count_requests(1);
    if (ring_) note_offer();
    fuse_session_process_buf(session_, &current_->buffer);
    offers_rings_ = false;
    return true;
}

void Channel::note_offer() {
    struct {
        fuse_in_header header;
        fuse_init_in arguments;
    } request{};
    const fuse_buf& buffer = current_->buffer;
    std::memcpy(&request, buffer.mem, std::min(buffer.size, sizeof request));
    if (request.header.opcode == FUSE_INIT && (request.arguments.flags & FUSE_INIT_EXT) != 0 &&
        (request.arguments.flags2 & init_flag2_rings) != 0)
        offers_rings_ = true;
}

ssize_t Channel::reply(int device, std::span<const iovec> message) {
    if (ring_ && ring_->reply(message)) return static_cast<const fuse_out_header*>(message.front().iov_base)->len;
    if (offers_rings_ && message.size() == 2 && message.back().iov_len == sizeof(fuse_init_out))
        return agree(device, message);
    return ::writev(device, message.data(), static_cast<int>(message.size()));
}

// Says of the library's answer to the kernel's first request what this library cannot say.
ssize_t Channel::agree(int device, std::span<const iovec> message) {
    fuse_init_out answer{};
    std::memcpy(&answer, message.back().iov_base, sizeof answer);
    answer.flags |= FUSE_INIT_EXT;
    answer.flags2 |= init_flag2_rings;
    const std::array<iovec, 2> changed{message.front(), {&answer, sizeof answer}};
    agreeing_ = true;
    return ::writev(device, changed.data(), changed.size());
}

// Makes current_ a buffer that no task uses.
bool Channel::acquire_buffer() {
    if (current_ && current_.use_count() <= 2) return true;  // buffers_ and current_
    const auto found = std::ranges::find_if(buffers_, [](const auto& buffer) { return buffer.use_count() == 1; });
    if (found == buffers_.end() && buffers_.size() == buffers_max) return false;
    current_ = found != buffers_.end() ? *found : buffers_.emplace_back(std::make_shared<Buffer>());
    return true;
}

}  // namespace tarn::fuse
