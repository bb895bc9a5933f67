#include "frontends/nbd/device_connection.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "frontends/nbd/device_replies.hpp"
#include "utils/assert.hpp"
#include "utils/log.hpp"

namespace tarn::nbd {

namespace {

constexpr uint32_t header_size = DeviceLog::reply_header_size;
constexpr std::chrono::milliseconds retry_after{250};

// Does not fit into one send.
bool is_large(const Request& request) {
    return request.size_bytes > DeviceReplies::size_max - header_size;
}

}  // namespace

DeviceConnection::DeviceConnection(Workspace& workspace, std::shared_ptr<Volume> volume, const Export& exported,
                                   UniqueFd socket, DeviceLog::Memory& memory, uint32_t first_receipt, Client client,
                                   std::function<void()> resized)
    : workspace_(workspace),
      volume_(std::move(volume)),
      export_(exported),
      socket_(std::move(socket)),
      log_(memory, first_receipt),
      client_(std::move(client)),
      resized_(std::move(resized)),
      budget_{.share = workspace.share, .held_bytes_max = workspace.share.size_bytes() / 2},
      fetched_(DeviceLog::slot_count) {}

Task<DeviceConnection::End> DeviceConnection::serve() {
    gate_.spawn(watch_kernel());
    if (co_await learn_size()) go_on();
    Readiness readiness(workspace_.loop, socket_.get(), POLLIN | POLLRDHUP);
    while (!ended_) {
        if (congested()) {
            if (kernel_left_.raised())
                leave(End::lost);
            else
                co_await progress_.wait();
        } else if (!unserved_ && !readable_) {
            readable_ = (co_await readiness.wait()).has_value();
            if (!readable_) leave(End::lost);
        } else {
            if (!unserved_) receive();
            if (!try_learn_size() && !co_await learn_size()) break;
            serve_received();
            send();
            // One receive for each turn, so that no client keeps the others waiting.
            if (readable_) co_await Yield(workspace_.loop);
        }
    }
    if (has_left()) kernel_left_.raise();  // nobody waits for what is under way
    while (tasks_ > 0 || send_posted_) co_await progress_.wait();
    workspace_.loop.cancel_fd(socket_.get());
    co_await gate_.close();
    co_await readiness.close();
    co_return ended_.value_or(End::stopped);
}

// Also while nothing is received, because the log is full or the size is not known: then what is under way, and waits
// for another host, is what keeps it so.
Task<> DeviceConnection::watch_kernel() {
    const Result<size_t> hung_up = co_await workspace_.loop.poll(socket_.get(), POLLRDHUP);
    if (!hung_up) co_return;
    kernel_left_.raise();
    progress_.notify_all();
}

void DeviceConnection::stop() {
    leave(End::stopped);
    workspace_.loop.cancel_fd(socket_.get());
}

// The first reason counts.
void DeviceConnection::leave(End how) {
    if (!ended_) ended_ = how;
    progress_.notify_all();
}

// What the process before has left.
void DeviceConnection::go_on() {
    for (const uint16_t slot : log_.used()) {
        const DeviceLog::Slot& each = log_.slot(slot);
        if (each.sent_bytes.load(std::memory_order_relaxed) > 0)
            partial_ = slot;
        else if (each.state.load(std::memory_order_relaxed) == DeviceLog::State::done)
            ready_.push_back(slot);
        else
            perform(slot, true);
    }
    serve_received();
    send();
}

bool DeviceConnection::congested() const {
    return send_blocked_ || log_.is_full();
}

void DeviceConnection::receive() {
    const size_t room_bytes = log_.receivable_bytes();
    const ssize_t count = log_.receive(socket_.get());
    readable_ = count == static_cast<ssize_t>(room_bytes) || (count < 0 && errno == EINTR);
    if (count > 0) return;
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count < 0)
        log::warning("nbd: {}: its socket fails: {}", client_.text, log::describe(Error{Errc::io, errno, ""}));
    leave(End::lost);
}

void DeviceConnection::note_size(uint64_t size_bytes) {
    size_error_ = Errno::none;
    if (size_bytes != std::exchange(export_.size_bytes, size_bytes)) resized_();
}

// The volume's size, as of now: who shrinks it, on whatever host, and then hears of it, sees no later write past the
// end. False: it takes a while.
bool DeviceConnection::try_learn_size() {
    const std::optional<uint64_t> size_bytes = volume_->try_size();
    if (!size_bytes) return false;
    note_size(*size_bytes);
    return true;
}

// False: the daemon stops, or the kernel has hung up.
Task<bool> DeviceConnection::learn_size() {
    co_await CarryInterrupt(kernel_left_);
    const Result<uint64_t> size_bytes = co_await volume_->size();
    if (size_bytes)
        note_size(*size_bytes);
    else
        size_error_ = to_errno(size_bytes.error());
    const bool goes_on = size_bytes || size_bytes.error().code != Errc::cancelled;
    if (!goes_on && kernel_left_.raised()) leave(End::lost);
    co_return goes_on;
}

void DeviceConnection::serve_received() {
    refuse_large_write();
    uint64_t requests = 0;
    while (!has_left()) {
        const std::span<const std::byte> bytes = log_.unparsed();
        if (bytes.size() < request_size) break;
        const Result<Request> request = decode_request(bytes.first<request_size>());
        if (!request) {
            break_off("it sends what is no request");
            break;
        }
        if (request->command == Command::disconnect) {
            leave(End::disconnected);
            break;
        }
        const size_t payload_bytes = request->command == Command::write ? request->size_bytes : 0;
        if (payload_bytes <= DeviceLog::payload_size_max && bytes.size() < request_size + payload_bytes) break;
        const std::optional<uint16_t> slot = log_.add(*request, payload_bytes);
        unserved_ = !slot;
        if (!slot) break;
        ++requests;
        perform(*slot, false);
    }
    workspace_.loop.count_requests(requests);
}

Errno DeviceConnection::judge(const Request& request) const {
    if (export_ended_) return Errno::shutdown;
    const Errno error = check(request, export_);
    return error == Errno::none && request.command != Command::flush ? size_error_ : error;
}

// Once its payload has come, and was thrown away.
void DeviceConnection::refuse_large_write() {
    if (!too_large_ || !log_.has_come(*too_large_)) return;
    log::warning("nbd: {}: a write of {} bytes is refused; max_sectors_kb of its queue may be {} at most", client_.text,
                 log_.slot(*too_large_).request.size_bytes, DeviceLog::payload_size_max / 1024);
    finish(*std::exchange(too_large_, std::nullopt), Errno::invalid);
}

void DeviceConnection::perform(uint16_t slot, bool again) {
    const Request& request = log_.slot(slot).request;
    if (request.command == Command::write && request.size_bytes > DeviceLog::payload_size_max) {
        too_large_ = slot;
        return refuse_large_write();
    }
    if (const Errno error = judge(request); error != Errno::none) return finish(slot, error);
    switch (request.command) {
        case Command::read: fetched_[slot] = false; return ready_.push_back(slot);
        case Command::write: return perform_write(slot, again);
        case Command::flush: return start(finish_after(slot, volume_->flush()));
        case Command::trim:
        case Command::write_zeroes: return start(zero_later(slot));
        case Command::cache:
            return start(finish_after(slot, volume_->prefetch(request.offset_bytes, request.size_bytes)));
        case Command::disconnect:
        case Command::block_status: break;
    }
    TARN_ASSERT(false);
}

void DeviceConnection::perform_write(uint16_t slot, bool again) {
    const Request& request = log_.slot(slot).request;
    // Only write() leaves pages as they are that were written already.
    const bool is_simple = !again && !request.has(request_fua);
    if (is_simple && volume_->try_write(request.offset_bytes, log_.payload(slot), &log_.receipts(slot)))
        return finish(slot, Errno::none);
    log_.park(slot);
    start(write_later(slot));
}

Task<> DeviceConnection::write_later(uint16_t slot) {
    const Request request = log_.slot(slot).request;
    Result<> written = co_await volume_->write(request.offset_bytes, log_.payload(slot), &log_.receipts(slot));
    if (written && request.has(request_fua))
        written = co_await volume_->flush_range(request.offset_bytes, request.size_bytes, false);
    end(slot, written);
}

Task<> DeviceConnection::zero_later(uint16_t slot) {
    const Request request = log_.slot(slot).request;
    Result<> zeroed = co_await volume_->zero(request.offset_bytes, request.size_bytes, request.has(request_no_hole),
                                             &log_.receipts(slot));
    if (zeroed && request.has(request_fua)) zeroed = co_await volume_->flush();
    end(slot, zeroed);
}

void DeviceConnection::start(Task<> task) {
    ++tasks_;
    gate_.spawn(carry_out(std::move(task)));
}

Task<> DeviceConnection::carry_out(Task<> task) {
    co_await CarryInterrupt(kernel_left_);
    co_await std::move(task);
    TARN_ASSERT(Loop::current() == &workspace_.loop);  // a request ends on the shard on which it began
    --tasks_;
    post_send();
}

// What is cancelled because the daemon stops is left to the next process.
void DeviceConnection::end(uint16_t slot, const Result<>& result) {
    if (!result && result.error().code == Errc::cancelled) return;
    finish(slot, to_errno(result));
}

void DeviceConnection::finish(uint16_t slot, Errno error) {
    log_.finish(slot, error);
    ready_.push_back(slot);
}

// What several tasks finish in one turn goes out in one send.
void DeviceConnection::post_send() {
    if (std::exchange(send_posted_, true)) return;
    workspace_.loop.post(*this);
}

void DeviceConnection::run() {
    send_posted_ = false;
    send();
    progress_.notify_all();
}

// Answers what is ready, as far as the socket takes it.
void DeviceConnection::send() {
    DeviceReplies& replies = workspace_.device_replies;
    std::vector<uint16_t> slots;
    while (!send_blocked_ && !has_left()) {
        slots.clear();
        fill(slots);
        if (replies.empty()) break;
        const DeviceLog::Sent sent = log_.send(socket_.get(), replies.parts());
        if (sent == DeviceLog::Sent::full) keep_rest();
        volume_->unpin(replies.pins());
        replies.clear();
        settle(slots);
        if (sent == DeviceLog::Sent::yes) continue;
        if (sent == DeviceLog::Sent::broken) leave(End::lost);
        if (!ended_) {
            send_blocked_ = true;
            gate_.spawn(drain());
        }
        break;
    }
}

// Gathers replies, whose slots it appends.
void DeviceConnection::fill(std::vector<uint16_t>& slots) {
    const auto take = [&](uint16_t slot) {
        const Added added = add(slot);
        if (added == Added::whole || added == Added::in_part) slots.push_back(slot);
        return added;
    };
    if (brings_partial_) return;
    if (partial_) {
        const uint16_t slot = *partial_;
        const Added added = take(slot);
        if (added == Added::missing) bring(slot);
        if (added != Added::whole) return;
    }
    for (size_t left = ready_.size(); left > 0 && workspace_.device_replies.has_room(); --left) {
        const uint16_t slot = ready_.front();
        ready_.pop_front();
        const Added added = take(slot);
        if (added == Added::missing) bring(slot);
        if (added == Added::no_room) ready_.push_front(slot);
        if (added == Added::no_room || added == Added::in_part) return;
    }
}

// The rest of its reply, or as much of it as there is room for.
DeviceConnection::Added DeviceConnection::add(uint16_t slot) {
    const DeviceLog::Slot& each = log_.slot(slot);
    const uint32_t sent_bytes = each.sent_bytes.load(std::memory_order_relaxed);
    DeviceReplies& replies = workspace_.device_replies;
    if (each.state.load(std::memory_order_relaxed) == DeviceLog::State::done) {
        replies.add_header(slot, encode_status(each.request, each.error, false), sent_bytes);
        return Added::whole;
    }
    TARN_ASSERT(each.request.command == Command::read);
    if (sent_bytes >= header_size) return add_data(slot, sent_bytes - header_size);
    // It goes out only with its first bytes, and those only if the others can follow.
    if (!copies_.contains(slot)) {
        if (is_large(each.request)) return Added::missing;
        if (each.request.size_bytes + header_size > replies.room_bytes()) return Added::no_room;
    }
    replies.add_header(slot, encode_read(each.request, false), sent_bytes);
    const Added added = add_data(slot, 0);
    if (added == Added::missing) replies.drop_header();
    return added;
}

DeviceConnection::Added DeviceConnection::add_data(uint16_t slot, uint32_t at) {
    const Request& request = log_.slot(slot).request;
    DeviceReplies& replies = workspace_.device_replies;
    const uint64_t offset_bytes = request.offset_bytes + at;
    const uint32_t rest_bytes = static_cast<uint32_t>(request.size_bytes) - at;
    uint32_t size = std::min(rest_bytes, replies.room_bytes());
    const auto found = copies_.find(slot);
    if (found != copies_.end() && found->second.has(at)) {
        const std::span<const std::byte> bytes = found->second.bytes.bytes().subspan(at - found->second.begin);
        size = std::min(size, static_cast<uint32_t>(bytes.size()));
        replies.add_bytes(slot, header_size + at, offset_bytes % page_size, bytes.first(size));
    } else {
        const size_t pins_before = replies.pins().size();
        if (!volume_->try_pin(offset_bytes, size, replies.pins())) return Added::missing;
        replies.add_pins(slot, header_size + at, pins_before);
    }
    return size == rest_bytes ? Added::whole : Added::in_part;
}

// What the socket did not take of a read, while it is pinned.
void DeviceConnection::keep_rest() {
    const std::span<const DeviceLog::Part> parts = workspace_.device_replies.parts();
    const auto begun = std::ranges::find_if(parts, [this](const DeviceLog::Part& part) {
        const DeviceLog::Slot& slot = log_.slot(part.slot);
        return slot.state.load(std::memory_order_relaxed) == DeviceLog::State::received &&
               slot.sent_bytes.load(std::memory_order_relaxed) > 0;
    });
    if (begun == parts.end() || copies_.contains(begun->slot)) return;
    const uint16_t slot = begun->slot;
    const uint32_t begin = std::max(log_.slot(slot).sent_bytes.load(std::memory_order_relaxed), header_size);
    size_t end = begin;
    for (const DeviceLog::Part& part : parts)
        if (part.slot == slot) end = std::max(end, part.begin + part.bytes.size());
    if (end == begin) return;  // all that was gathered of it is out
    Buffer bytes(budget_, end - begin);
    for (const DeviceLog::Part& part : parts) {
        if (part.slot != slot || part.begin + part.bytes.size() <= begin) continue;
        const uint32_t from = std::max(begin, part.begin);
        std::ranges::copy(part.bytes.subspan(from - part.begin), bytes.bytes().subspan(from - begin).begin());
    }
    copies_.insert_or_assign(slot, Copy{.begin = begin - header_size, .bytes = std::move(bytes)});
}

// Brings in what is missing of a read: at first into frames, many reads at a time. One that is too large for these to
// be sent at once, or that does not stay there, is copied.
void DeviceConnection::bring(uint16_t slot) {
    if (partial_ == slot) {
        brings_partial_ = true;
        return start(copy_rest(slot));
    }
    const bool has_turn = !copied_;
    if (fetched_[slot] && has_turn) {
        copied_ = slot;
        return start(copy(slot));
    }
    if (fetched_[slot] && is_large(log_.slot(slot).request)) return ready_.push_back(slot);
    fetched_[slot] = true;
    start(fetch(slot));
}

Task<> DeviceConnection::fetch(uint16_t slot) {
    const Request request = log_.slot(slot).request;
    const Result<> fetched = co_await volume_->fetch(request.offset_bytes, request.size_bytes);
    if (!fetched) co_return end(slot, fetched);
    ready_.push_back(slot);
}

Task<> DeviceConnection::copy(uint16_t slot) {
    const Request request = log_.slot(slot).request;
    Buffer bytes(budget_, request.size_bytes);
    const Result<> read = co_await volume_->read(request.offset_bytes, bytes.bytes());
    if (!read) co_return end(slot, read);
    copies_.insert_or_assign(slot, Copy{.begin = 0, .bytes = std::move(bytes)});
    ready_.push_front(slot);
}

// Of an answer that a process before has begun: it cannot become an error any more. To end the connection would be
// worse: for all that is under way there the kernel asks again only after its timeout, a day.
Task<> DeviceConnection::copy_rest(uint16_t slot) {
    const Request request = log_.slot(slot).request;
    const uint32_t sent_bytes = log_.slot(slot).sent_bytes.load(std::memory_order_relaxed);
    const uint32_t at = sent_bytes > header_size ? sent_bytes - header_size : 0;
    Buffer bytes(budget_, request.size_bytes - at);
    for (bool has_said = false; !ended_; co_await workspace_.loop.sleep(retry_after)) {
        const Result<> read = co_await volume_->read(request.offset_bytes + at, bytes.bytes());
        if (read) {
            copies_.insert_or_assign(slot, Copy{.begin = at, .bytes = std::move(bytes)});
            brings_partial_ = false;
            co_return;
        }
        if (read.error().code == Errc::cancelled) co_return;
        if (!std::exchange(has_said, true))
            log::error("nbd: {}: the rest of a read that was answered in part cannot be read, and is tried again: {}",
                       client_.text, log::describe(read.error()));
    }
}

// After a send: what was not answered whole is still to be.
void DeviceConnection::settle(const std::vector<uint16_t>& slots) {
    partial_.reset();
    for (auto each = slots.rbegin(); each != slots.rend(); ++each) {
        if (log_.is_free(*each)) {
            copies_.erase(*each);
            if (copied_ == *each) copied_.reset();
        } else if (log_.slot(*each).sent_bytes.load(std::memory_order_relaxed) > 0) {
            partial_ = *each;
        } else {
            ready_.push_front(*each);
        }
    }
}

// Runs while the socket is full; meanwhile no request is read.
Task<> DeviceConnection::drain() {
    const Result<> writable = co_await workspace_.loop.writable(socket_.get());
    send_blocked_ = false;
    if (!writable)
        leave(End::lost);
    else if (!ended_)
        send();
    progress_.notify_all();
}

void DeviceConnection::break_off(const char* why) {
    log::error("nbd: {}: {}; its connection is ended", client_.text, why);
    leave(End::lost);
    ::shutdown(socket_.get(), SHUT_RDWR);
}

}  // namespace tarn::nbd
