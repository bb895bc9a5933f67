// What a connection receives, serves where it lies, and sends. Writes are in writes.cpp, and what has to wait in
// tasks.cpp.
#include "frontends/nbd/connection.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "utils/alarm.hpp"
#include "utils/assert.hpp"
#include "utils/log.hpp"

namespace tarn::nbd {

Connection::Connection(Workspace& workspace, Volumes& volumes, Sessions& sessions, UniqueFd socket, Client client,
                       ShardOf shard_of, unsigned place, std::shared_ptr<const Admission> admission)
    : workspace_(&workspace),
      volumes_(volumes),
      sessions_(sessions),
      stream_(std::move(socket)),
      admission_(std::move(admission)),
      client_(std::move(client)),
      shard_of_(std::move(shard_of)),
      client_cpu_(stream_.socket(), client_, place),
      budget_{.share = workspace.share, .held_bytes_max = std::min(held_bytes_max, workspace.share.size_bytes() / 2)} {}

Task<Workspace*> Connection::serve() {
    if (!negotiated_) {
        const Result<> negotiated = co_await negotiate();
        if (!negotiated && !has_left(negotiated.error()) && !was_refused_)
            log_refusal("refused", log::describe(negotiated.error()));
        negotiated_ = negotiated.has_value();
        broken_ = !negotiated_;
        if (negotiated_ && !co_await sessions_.wait_for_broken_ones(client_, volume_->id(), stream_.socket()))
            log::warning("nbd: {}: an earlier connection of it does not end; it is served all the same", client_.text);
    }
    if (negotiated_) {
        if (Workspace* const next = co_await transmit()) {
            workspace_ = next;
            co_return next;
        }
    }
    co_await say_farewell();
    leave();  // a client that comes again once it has seen the end must not find itself there still
    if (stream_.is_tls()) co_await say_end(said_disconnect_ || !negotiated_);
    visit_.reset();  // one that was not let in counts as a newcomer to its end
    stream_.close();
    co_return nullptr;
}

void Connection::leave() {
    if (volume_) sessions_.left(client_, volume_->id(), stream_.socket(), said_disconnect_, Sessions::Clock::now());
    volume_.reset();
}

// Answers what is in flight. A client that does not take its answers has farewell_time_max for them.
Task<> Connection::say_farewell() {
    leaving_ = true;
    incoming_.reset();  // half a write has no effect
    co_await end_tasks();
    Alarm alarm(workspace_->loop, farewell_time_max, [this] { break_off(); });
    while (send_posted_ || send_blocked_ || (!queue_.empty() && !broken_)) co_await progress_.wait();
    co_await alarm.end();
    co_await gate_.close();
}

Task<> Connection::say_end(bool waits) {
    Alarm alarm(workspace_->loop, end_time_max, [this] { break_off(); });
    co_await stream_.say_end(workspace_->loop, waits);
    co_await alarm.end();
}

// A client that has left waits for nothing: what it holds, an exclusive volume say, must not wait for a host that is
// away.
Task<> Connection::end_tasks() {
    if (tasks_ == 0) co_return;
    Alarm alarm(workspace_->loop, farewell_time_max, [this] {
        if (send_blocked_) break_off();  // it does not take what has been read for it
        if (!stopped_) client_left_.raise();
    });
    while (tasks_ > 0) co_await progress_.wait();
    co_await alarm.end();
}

void Connection::stop() {
    leaving_ = true;
    stopped_ = true;
    if (!negotiated_) return break_off();   // nothing is owed to it, and it may take its time
    ::shutdown(stream_.socket(), SHUT_RD);  // wakes who waits for bytes
    progress_.notify_all();
}

void Connection::end_export() {
    export_ended_ = true;
    ::shutdown(stream_.socket(), SHUT_RD);  // it ends with what has come by now
    progress_.notify_all();
}

// The client is gone, or does not take its replies: nothing more goes out.
void Connection::break_off() {
    leaving_ = true;
    broken_ = true;
    if (!negotiated_) client_left_.raise();  // what it asked for may wait for a host that is away
    ::shutdown(stream_.socket(), SHUT_RDWR);
    progress_.notify_all();
}

void Connection::log_refusal(const char* what, std::string_view why) {
    if (const std::optional<std::string> left_out = workspace_->refusals.admit())
        log::warning("nbd: {} {}: {}{}", client_.text, what, why, *left_out);
}

// Only while something of our own is under way, whose end then wakes us: a connection that waited for others to let go
// of their bytes could wait for ever.
bool Connection::congested() const {
    return busy() && (send_blocked_ || in_pieces_ || tasks_ >= tasks_max || !budget_.has_room_for(wanted_bytes_));
}

// Null: the client has left, or is to.
Task<Workspace*> Connection::transmit() {
    readable_ = true;
    Workspace* next = nullptr;
    Readiness readiness(workspace_->loop, stream_.socket(), POLLIN | POLLRDHUP);
    Timer timeout(workspace_->loop);
    Timer pause(workspace_->loop);
    Gate watching;
    Gate taking;
    while (!leaving_ && !broken_) {
        if (following_.wanted_cpu() && settled()) {
            next = shard_of_(*following_.wanted_cpu());
            following_.moved();
            if (next && incoming_) incoming_->leave_shard();
            if (next) break;
        }
        if (congested()) {
            if (watching.count() == 0) watching.spawn(watch_client(timeout));
            co_await progress_.wait();
        } else if (carry_may_serve_) {
            if (!learn_size()) {
                awaits_size_ = true;
                if (watching.count() == 0) watching.spawn(watch_client(timeout));
                co_await await_size();
                awaits_size_ = false;
            }
            serve_carried();
            if (carry_may_serve_) co_await Yield(workspace_->loop);
        } else if (!readable_) {
            const Result<unsigned> events = co_await readiness.wait();
            if (!events) break;
            readable_ = true;
            hung_up_ = (*events & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
            if (shard_of_) note_wake_up();
        } else {
            receive_and_serve();
            if (stream_.looked_at_bytes() > 0 && taking.count() == 0) taking.spawn(take_later(pause));
            // One receive for each turn, so that no client keeps the others waiting.
            if (readable_ || carry_may_serve_) co_await Yield(workspace_->loop);
        }
    }
    timeout.cancel();
    pause.cancel();  // it takes what is left
    co_await watching.close();
    co_await taking.close();
    co_await readiness.close();
    co_return next;
}

// What the client has sent and was only looked at: it may wait for room to send more.
Task<> Connection::take_later(Timer& timer) {
    co_await timer.sleep(take_after);
    stream_.take(workspace_->landing.current());
}

void Connection::note_wake_up() {
    if (following_.is_here()) workspace_->loop.count_near_wake_up();
    if (!following_.wakes_up()) return;
    const std::optional<unsigned> cpu = client_cpu_.now();
    following_.saw(cpu, cpu && workspace_->loop.cpus().contains(*cpu), Following::Clock::now());
}

// Nothing of its client is known to this shard alone.
bool Connection::settled() const {
    return !busy() && !send_posted_ && gate_.count() == 0;
}

// Ends what waits too long for a client that has hung up meanwhile, which is not noticed while nothing is read.
Task<> Connection::watch_client(Timer& timer) {
    for (size_t ended_before = tasks_ended_; co_await timer.sleep(farewell_time_max); ended_before = tasks_ended_) {
        if (!congested() && !awaits_size_) co_return;
        pollfd hang_up{.fd = stream_.socket(), .events = POLLRDHUP, .revents = 0};
        if (tasks_ended_ == ended_before && !send_blocked_ && ::poll(&hang_up, 1, 0) > 0) client_left_.raise();
    }
}

// The volume's size, as of now. False: it takes a while.
bool Connection::learn_size() {
    const std::optional<uint64_t> size_bytes = volume_->try_size();
    if (!size_bytes) return false;
    export_.size_bytes = *size_bytes;
    size_error_ = Errno::none;
    return true;
}

Task<> Connection::await_size() {
    co_await CarryInterrupt(client_left_);
    const Result<uint64_t> size_bytes = co_await volume_->size();
    size_error_ = size_bytes ? Errno::none : to_errno(size_bytes.error());
    if (size_bytes) export_.size_bytes = *size_bytes;
}

void Connection::receive_and_serve() {
    const std::span<std::byte> received = workspace_->landing.current();
    TARN_ASSERT(carry_.size() < header_size());

    std::array<iovec, 2> vectors;
    msghdr message{};
    message.msg_iov = vectors.data();
    const auto add = [&](std::span<std::byte> into) { vectors[message.msg_iovlen++] = {into.data(), into.size()}; };
    std::span<std::byte> payload;
    if (incoming_) add(payload = incoming_->payload().subspan(incoming_->received_bytes));
    // What cannot be served at once is kept.
    constexpr size_t most = Workspace::receive_size_bytes;
    const size_t received_size = workspace_->share.has_room_for(most) ? most : piece_size_max;
    if (!incoming_ || incoming_->is_last_piece()) add(received.first(received_size).subspan(carry_.size()));
    size_t room_bytes = 0;
    for (const iovec& vector : std::span(vectors).first(message.msg_iovlen)) room_bytes += vector.iov_len;
    const bool waits_here = shard_of_ && following_.is_here();
    const bool late = waits_here && !incoming_ && came_together_ <= looked_at_together_max;
    const ssize_t count = stream_.receive(message, late, received, workspace_->tls);
    if (count < 0 && errno == EINTR) return;
    // Less than there was room for was all there was, mostly. Who hung up is read until recvmsg says so.
    readable_ = hung_up_ || stream_.has_ended() || stream_.may_have_more() || count == static_cast<ssize_t>(room_bytes);
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
        if (count < 0 && errno == EPROTO) log_refusal("closed", stream_.trouble());
        leaving_ = true;
        if (count < 0) broken_ = true;
        return;
    }
    const size_t payload_bytes = std::min(static_cast<size_t>(count), payload.size());
    std::copy(carry_.begin(), carry_.end(), received.begin());
    const std::span<std::byte> bytes = received.first(carry_.size() + static_cast<size_t>(count) - payload_bytes);
    if (incoming_) incoming_->received_bytes += payload_bytes;
    const bool size_known = learn_size();
    const size_t taken = size_known ? serve(bytes) : 0;
    carry_.assign(bytes.begin() + static_cast<ptrdiff_t>(taken), bytes.end());
    settle_carry();
    if (!size_known) carry_may_serve_ = true;
    // The client may need room for the rest of what it sends, or for more: the kernel counts some hundred bytes for
    // each of its requests, however short it is.
    if (incoming_ || refused_ || !carry_.empty() || came_together_ > looked_at_together_max)
        stream_.take(workspace_->landing.current());
}

void Connection::serve_carried() {
    const size_t taken = serve(carry_);
    carry_.erase(carry_.begin(), carry_.begin() + static_cast<ptrdiff_t>(taken));
    settle_carry();
}

// Serves what bytes complete, and says how many of them that were.
size_t Connection::serve(std::span<const std::byte> bytes) {
    if (incoming_ && incoming_->is_complete()) serve_incoming();
    const size_t taken = serve_received(bytes);
    send();
    return taken;
}

void Connection::settle_carry() {
    carry_may_serve_ = carry_.size() >= header_size() || ((refused_ || incoming_) && !carry_.empty());
    if (carry_.empty()) carry_.shrink_to_fit();
    carry_held_ = carry_.size() < page_size ? Held() : Held(budget_, carry_.size());
}

Result<Request> Connection::decode(std::span<const std::byte> bytes) const {
    if (export_.extended) return decode_extended_request(bytes.first<extended_request_size>());
    return decode_request(bytes.first<request_size>());
}

Errno Connection::judge(const Request& request) const {
    if (export_ended_ && request.command != Command::disconnect) return Errno::shutdown;
    const Errno error = check(request, export_);
    const bool has_range = request.command != Command::flush && request.command != Command::disconnect;
    return error == Errno::none && has_range ? size_error_ : error;
}

// Tells the volume what the requests at the front of bytes are going to read and write. Returns the size of these
// requests.
size_t Connection::announce(std::span<const std::byte> bytes) {
    constexpr size_t at_once_max = 32;
    std::vector<Volume::Range>& expected = workspace_->expected;
    expected.clear();
    size_t at = 0;
    while (expected.size() < at_once_max && at + header_size() <= bytes.size()) {
        const Result<Request> request = decode(bytes.subspan(at));
        if (!request) break;
        if (request->command == Command::read || request->command == Command::write)
            expected.push_back({.offset_bytes = request->offset_bytes, .size_bytes = request->size_bytes});
        at += header_size();
        at += std::min<uint64_t>(request->payload_bytes(), bytes.size() - at);
    }
    if (expected.size() > 1) volume_->expect(expected);
    return at;
}

// Serves the whole requests at the front of bytes and returns their size. Stops early when congested, and when others
// should have their turn: short requests can ask for very much.
size_t Connection::serve_received(std::span<const std::byte> bytes) {
    size_t taken = 0;
    size_t announced = 0;
    size_t served_bytes = 0;
    uint64_t requests = 0;
    while (!leaving_ && !congested() && served_bytes < turn_size_max) {
        taken += skip(bytes.subspan(taken));
        taken += fill(bytes.subspan(taken));
        std::span<const std::byte> rest = bytes.subspan(taken);
        if (refused_ || incoming_ || congested() || rest.size() < header_size()) break;
        if (taken >= announced) announced = taken + announce(rest);
        const Result<Request> request = decode(rest);
        if (!request) {
            log_refusal("closed", log::describe(request.error()));
            leaving_ = true;
            break;
        }
        rest = rest.subspan(header_size());
        const Errno error = judge(*request);
        Held held;
        if (const size_t wanted_bytes = error == Errno::none ? bytes_to_hold(*request, rest.size()) : 0) {
            held = Held::within(budget_, wanted_bytes);
            if (held.bytes() == 0 && busy()) {
                wanted_bytes_ = wanted_bytes;
                break;
            }
        }
        wanted_bytes_ = 1;
        taken += header_size();
        ++requests;
        served_bytes += page_size + (request->command == Command::read ? request->data_bytes() : 0);
        if (error != Errno::none && request->payload_bytes() > 0) {
            refuse_write(*request, error, request->payload_bytes());
        } else if (error != Errno::none) {
            status(*request, error);
        } else if (request->command == Command::read) {
            on_read(*request, std::move(held));
        } else if (request->command == Command::write) {
            taken += begin_write(*request, rest, std::move(held));
        } else {
            on_other(*request);
        }
        if (workspace_->batch.full()) send();
    }
    workspace_->loop.count_requests(requests);
    came_together_ = requests;
    return taken;
}

// What a request needs that is not served from what has been received, or out of frames.
size_t Connection::bytes_to_hold(const Request& request, size_t received_bytes) {
    if (request.command == Command::write) return received_bytes < request.size_bytes ? request.size_bytes : 0;
    return request.command == Command::read && request.size_bytes > ReplyBatch::read_size_max ? request.size_bytes : 0;
}

// held: for all of it, if it has to be copied and there is room.
void Connection::on_read(const Request& request, Held held) {
    ReplyBatch& batch = workspace_->batch;
    if (request.size_bytes == 0) return status(request, Errno::none);
    if (request.size_bytes <= ReplyBatch::read_size_max) {
        if (!batch.has_room_for(request.size_bytes / page_size + 2)) send();
        const size_t pins_before = batch.pins().size();
        if (volume_->try_pin(request.offset_bytes, request.data_bytes(), batch.pins()))
            return batch.add_read(request, pins_before, export_.structured);
        return start(request, read_later(request));
    }
    if (held.bytes() > 0) return start(request, read_copied(request, Buffer(std::move(held))));
    in_pieces_ = true;
    send();  // nothing comes between the pieces
    start(request, read_pieces(request));
}

// Sends the batch now if it pins anything. Who writes a page, or moves it to another host, must wait for its pins.
bool Connection::unpinned() {
    if (workspace_->batch.pins().empty()) return false;
    send();
    return true;
}

void Connection::on_other(const Request& request) {
    switch (request.command) {
        case Command::disconnect: leaving_ = said_disconnect_ = true; return;
        case Command::flush: return start(request, finish_after(request, volume_->flush()));
        case Command::trim:
        case Command::write_zeroes: return start(request, zero_later(request));
        case Command::cache:
            return start(request, finish_after(request, volume_->prefetch(request.offset_bytes, request.size_bytes)));
        case Command::block_status: return start(request, block_status_later(request));
        case Command::read:
        case Command::write: break;
    }
    TARN_ASSERT(false);
}

void Connection::status(const Request& request, Errno error) {
    ReplyBatch& batch = workspace_->batch;
    if (!batch.has_room_for(0)) send();
    batch.add_status(request, error, export_.structured);
}

// Sends what is queued and the batch. Afterwards the batch is empty and nothing is pinned.
void Connection::send() {
    ReplyBatch& batch = workspace_->batch;
    bool blocked = send_blocked_ || !send_queue();
    size_t sent_bytes = 0;
    if (!blocked && !batch.empty()) blocked = !send_gathered(batch.vectors(), sent_bytes);
    if (!broken_) queue_.push_copy(budget_, batch.vectors(), sent_bytes);
    if (!batch.pins().empty()) volume_->unpin(batch.pins());
    batch.clear();
    if (broken_) queue_.clear();
    if (blocked && !send_blocked_ && !broken_) {
        send_blocked_ = true;
        gate_.spawn(drain());
    }
}

// True when the socket took it all.
bool Connection::send_queue() {
    if (!stream_.flush()) {
        if (errno != EAGAIN) broken_ = true;
        return false;
    }
    std::vector<iovec>& vectors = workspace_->vectors;
    while (!queue_.empty()) {
        vectors.clear();
        queue_.gather(vectors, ReplyBatch::vectors_max);
        size_t sent_bytes = 0;
        const bool all = send_gathered(vectors, sent_bytes);
        queue_.consume(sent_bytes);
        if (!all) return false;
    }
    return true;
}

bool Connection::send_gathered(std::span<const iovec> vectors, size_t& sent_bytes) {
    if (broken_) return false;
    size_t size_bytes = 0;
    for (const iovec& vector : vectors) size_bytes += vector.iov_len;
    const ssize_t count = stream_.send(vectors, workspace_->tls);
    if (count < 0 && errno != EAGAIN && errno != EINTR) {
        broken_ = true;
        return false;
    }
    sent_bytes = count > 0 ? static_cast<size_t>(count) : 0;
    return sent_bytes == size_bytes && stream_.is_flushed();
}

// Runs while the socket is full; meanwhile no request is read.
Task<> Connection::drain() {
    while (!broken_ && !send_queue()) {
        const Result<> writable = co_await workspace_->loop.writable(stream_.socket());
        if (!writable) broken_ = true;
    }
    send_blocked_ = false;
    if (broken_) queue_.clear();
    if (!fetched_.empty()) post_send();
    progress_.notify_all();
}

}  // namespace tarn::nbd
