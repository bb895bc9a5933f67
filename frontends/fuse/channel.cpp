#include "frontends/fuse/channel.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <cstdlib>

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
        }
        crowded = requests > 1;
    }
    current_.reset();
    co_await gate_.close();
}

void Channel::stop() {
    stopping_ = true;
    loop_.cancel_fd(fuse_session_fd(session_));
}

bool Channel::read_one() {
    const int size = fuse_session_receive_buf(session_, &current_->buffer);
    if (size <= 0) return false;  // none there, or the mount ended, which the session then knows
    fuse_session_process_buf(session_, &current_->buffer);
    return true;
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
