#include "coherence/fabric/transport/shm/shm_channel.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "utils/assert.hpp"

namespace tarn {

namespace {

constexpr unsigned drains_max = 16;  // then everything else goes first

}  // namespace

ShmChannel::ShmChannel(Loop& loop, UniqueFd socket, std::unique_ptr<Segment> segment)
    : loop_(loop),
      socket_(std::move(socket)),
      segment_(std::move(segment)),
      writer_(segment_->outgoing()),
      reader_(segment_->incoming()),
      readiness_(loop, socket_.get(), POLLIN | POLLRDHUP) {
    TARN_ASSERT(Loop::current() == &loop);
    loop_.watch(*this);
    watching_.spawn(watch_socket());
}

size_t ShmChannel::try_send(std::span<const std::byte> bytes) {
    const size_t count = is_over_ ? 0 : writer_.write(bytes);
    if (count > 0 && writer_.must_wake_reader()) wake_peer();
    return count;
}

Task<Result<size_t>> ShmChannel::send(std::span<const std::byte> bytes) {
    while (!has_room()) co_await sends_;
    if (writer_.is_broken()) co_return fail(Errc::protocol, 0, "fabric.shm: the peer took more than was sent");
    co_return try_send(bytes);
}

void ShmChannel::take(size_t count) {
    reader_.take(count);
    if (count > 0 && reader_.must_wake_writer()) wake_peer();
}

// Makes room for the rest of a record that fills the ring.
void ShmChannel::spill() {
    const std::span<const std::byte> bytes = reader_.bytes();
    spilled_.insert(spilled_.end(), bytes.begin(), bytes.end());
    take(bytes.size());
    known_ = 0;
}

Task<Result<Channel::Received>> ShmChannel::receive(std::span<std::byte> page, size_t taken) {
    if (const bool has_spilled = !spilled_.empty(); has_spilled) {
        spilled_.erase(spilled_.begin(), spilled_.begin() + static_cast<ptrdiff_t>(taken));
    } else {
        take(taken);
        known_ -= taken;
        if (known_ == reader_.size()) spill();
    }
    while (!has_more()) co_await receives_;
    const std::span<const std::byte> bytes = reader_.bytes();
    if (reader_.is_broken())
        co_return fail(Errc::protocol, 0, "fabric.shm: the peer wrote more than there is room for");
    if (bytes.size() == known_) co_return fail(Errc::closed);
    if (!spilled_.empty()) {
        spill();
        co_return Received{.page_bytes = 0, .bytes = spilled_};
    }
    const size_t page_bytes = std::min(page.size(), bytes.size());
    if (page_bytes > 0) std::memcpy(page.data(), bytes.data(), page_bytes);
    take(page_bytes);
    known_ = bytes.size() - page_bytes;
    co_return Received{.page_bytes = page_bytes, .bytes = bytes.subspan(page_bytes)};
}

// Last it resumes somebody, who may end the channel.
bool ShmChannel::look() {
    if (receives_.waiter && has_more()) {
        std::exchange(receives_.waiter, {}).resume();
        return true;
    }
    if (!sends_.waiter || !has_room()) return false;
    std::exchange(sends_.waiter, {}).resume();
    return true;
}

bool ShmChannel::begin_sleep() {
    sleeps_ = true;
    const bool has_nothing = !receives_.waiter || (reader_.begin_wait(known_) && !is_over_);
    const bool has_no_room = !sends_.waiter || (writer_.begin_wait() && !is_over_);
    return has_nothing && has_no_room;
}

void ShmChannel::end_sleep() {
    if (!std::exchange(sleeps_, false)) return;
    reader_.end_wait();
    writer_.end_wait();
}

void ShmChannel::wake_peer() {
    const std::byte wake{};
    ::send(socket_.get(), &wake, 1, MSG_DONTWAIT | MSG_NOSIGNAL);  // if it takes none, there are some already
}

void ShmChannel::shut_down() {
    is_over_ = true;
    ::shutdown(socket_.get(), SHUT_RDWR);
}

// What comes over it has no meaning but that it comes.
Task<> ShmChannel::watch_socket() {
    while (!is_over_) {
        const Result<unsigned> events = co_await readiness_.wait();
        std::array<std::byte, 64> wakes;
        ssize_t received = 0;
        unsigned drains = 0;
        do {
            if (drains++ == drains_max) {
                drains = 0;
                co_await Yield(loop_);
            }
            received = ::recv(socket_.get(), wakes.data(), wakes.size(), MSG_DONTWAIT);
        } while (received > 0 && !is_over_);
        if (!events || received == 0 || (received < 0 && errno != EAGAIN && errno != EINTR)) is_over_ = true;
    }
}

Task<> ShmChannel::close() {
    shut_down();
    co_await watching_.close();
    co_await readiness_.close();
    loop_.unwatch(*this);
}

}  // namespace tarn
