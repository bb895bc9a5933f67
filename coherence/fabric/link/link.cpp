#include "coherence/fabric/link/link.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "utils/clock.hpp"
#include "utils/log.hpp"

namespace tarn {

using protocol::Message;

namespace {

constexpr auto waiting_max = std::chrono::milliseconds(1);
// A peer that is heard is asked this often all the same: how long it takes to answer is shown.
constexpr unsigned periods_per_question = 8;

std::span<const std::byte> bytes_of(const Message& message) {
    return std::as_bytes(std::span(&message, 1));
}

}  // namespace

// One call that waits for its answer, on the shard that asked.
struct Link::Call final : Loop::Posted {
    explicit Call(Loop& loop) : shard(loop) {}
    void run() override { waiter.resume(); }
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) {
        waiter = handle;
        if (sent.exchange(true)) shard.post(*this);  // the answer came first
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

void Link::wake_writer() {
    {
        const std::lock_guard guard(lock_);
        wake_posted_ = false;
    }
    writable_.notify_all();
}

void Link::wake_reader() {
    reader_posted_.store(false, std::memory_order_seq_cst);
    if (reader_) reader_->resume();
}

void Link::begin_later() {
    if (!loop().ending()) return loop().spawn(write_later());
    const std::lock_guard guard(lock_);
    later_posted_ = false;  // nobody waits for the rest
}

void Link::resume() {
    const std::lock_guard guard(lock_);
    if (up() && !reader_posted_.exchange(true, std::memory_order_seq_cst)) loop().post(wake_reader_);
}

void Link::append(std::span<const std::byte> header, std::span<const std::byte> payload, bool may_wait) {
    std::vector<std::byte>& buffer = greeting_ && Loop::current() != &loop() ? later_ : outgoing_;
    batch_.end();
    // The first page reserves the full size: growing would copy, and touch new memory each time.
    if (!payload.empty() && buffer.capacity() < buffer_bytes_) buffer.reserve(buffer_bytes_);
    buffer.insert(buffer.end(), header.begin(), header.end());
    buffer.insert(buffer.end(), payload.begin(), payload.end());
    note_waiting(sending_bytes_);
    if (may_wait)
        schedule_later();
    else
        schedule_writer();
}

// Under the lock.
void Link::note_waiting(size_t sending_bytes) {
    const bool was_congested = congested();
    sending_bytes_ = sending_bytes;
    waiting_bytes_.store(sending_bytes + outgoing_.size() + later_.size(), std::memory_order_relaxed);
    if (was_congested && !congested()) drained_.announce();
}

void Link::uncork() {
    const std::lock_guard guard(lock_);
    if (--cork_count_ == 0 && up() && !outgoing_.empty()) schedule_writer();
}

// Under the lock.
void Link::cork_if_shard_has() {
    Corked* const corked = corked_.here();
    if (!corked || corked->depth == 0 || std::ranges::find(corked->links, this) != corked->links.end()) return;
    corked->links.push_back(this);
    ++cork_count_;
}

void Link::schedule_writer() {
    if (cork_count_ > 0 || writer_busy_ || std::exchange(wake_posted_, true)) return;
    loop().post(wake_writer_);
}

void Link::schedule_later() {
    if (writer_busy_ || wake_posted_ || std::exchange(later_posted_, true)) return;
    loop().post(wake_later_);
}

Task<> Link::write_later() {
    co_await loop().sleep(waiting_max);
    const std::lock_guard guard(lock_);
    later_posted_ = false;
    if (up() && !outgoing_.empty()) schedule_writer();
}

void Link::send(const Message& message, std::span<const std::byte> payload) {
    const std::lock_guard guard(lock_);
    if (!up()) return;
    add(messages_sent_, 1);
    if (join_last(message)) return;
    cork_if_shard_has();
    append(bytes_of(message), payload, protocol::may_wait(message.kind));
    if (greeting_ || !payload.empty()) return;
    batch_.begin(message);
    batch_at_ = outgoing_.size() - sizeof message;
}

// Joins the message to the last one appended, if that has not left.
bool Link::join_last(const Message& message) {
    const auto joined = batch_.join(message);
    if (joined == protocol::Batch::Joined::no) return false;
    std::memcpy(outgoing_.data() + batch_at_, &batch_.message(), sizeof message);
    if (batch_.message().parts == 0) return true;
    if (joined == protocol::Batch::Joined::part) outgoing_.resize(outgoing_.size() + sizeof(protocol::Part));
    const size_t last_part = outgoing_.size() - sizeof(protocol::Part);
    std::memcpy(outgoing_.data() + last_part, &batch_.last_part(), sizeof(protocol::Part));
    return true;
}

void Link::send_control(ControlRecord::Kind kind, uint32_t id, uint8_t detail, std::string_view body) {
    const std::lock_guard guard(lock_);
    append_control(kind, id, detail, body);
}

// Under the lock.
void Link::append_control(ControlRecord::Kind kind, uint32_t id, uint8_t detail, std::string_view body) {
    const Message header = ControlRecord::header_of(kind, id, detail, body.size());
    if (up()) append(bytes_of(header), std::as_bytes(std::span(body)));
}

Task<Result<std::string>> Link::call(CallKind kind, std::string request) {
    TARN_ASSERT(request.size() <= ControlRecord::body_size_max);
    Call call(*Loop::current());
    uint32_t id = 0;
    {
        const std::lock_guard guard(lock_);
        if (!up()) co_return fail(Errc::unavailable, 0, "fabric.call: no link");
        id = ++last_call_;
        calls_[id] = &call;
    }
    send_control(ControlRecord::Kind::call, id, static_cast<uint8_t>(kind), request);
    co_await call;
    co_return std::move(call.result);
}

void Link::fail_calls() {
    std::map<uint32_t, Call*> calls;
    {
        const std::lock_guard guard(lock_);
        calls.swap(calls_);
    }
    for (const auto& [id, call] : calls) call->finish(fail(Errc::unavailable, 0, "fabric.call: the link broke"));
}

void Link::close() {
    connection_ends_ = true;
    if (channel_) channel_->shut_down();
    if (reader_) reader_->end();
    writable_.notify_all();
}

void Link::end() {
    ended_ = true;
    close();
}

void Link::take_over(std::unique_ptr<Connection> connection, Process process, Loop& shard) {
    connection_count_.fetch_add(1, std::memory_order_relaxed);
    const std::lock_guard guard(lock_);
    arrivals_.push_back({.connection = std::move(connection), .process = process, .shard = &shard});
    if (!std::exchange(welcoming_, true)) loop().post(wake_welcome_);
}

// A loop that is ending takes no tasks.
void Link::begin_welcome() {
    if (!loop().ending()) return loop().spawn(welcome());
    std::vector<Arrival> left;
    {
        const std::lock_guard guard(lock_);
        left.swap(arrivals_);
        welcoming_ = false;
    }
    for (size_t i = 0; i < left.size(); ++i) connection_ended();
}

// On the link's shard. If that changes, it ends, and begins anew over there.
Task<> Link::welcome() {
    for (;;) {
        Loop* shard = nullptr;
        {
            const std::lock_guard guard(lock_);
            if (arrivals_.empty()) {
                welcoming_ = false;
                co_return;
            }
            shard = arrivals_.front().shard;
        }
        for (uint64_t seen = closed_.count(); channel_; seen = closed_.count()) {
            close();
            if (channel_) co_await closed_.next(seen);  // the channel may have ended at once
        }
        if (shard != &loop() && !ended_) {
            while (!try_move_to(*shard)) co_await loop().sleep(waiting_max);
            co_return;
        }
        Arrival next;
        {
            const std::lock_guard guard(lock_);
            next = std::move(arrivals_.front());
            arrivals_.erase(arrivals_.begin());
        }
        if (ended_ || loop().ending())
            connection_ended();
        else
            loop().spawn(serve(std::move(next.connection), next.process));
    }
}

// Once nothing of the last channel is left on this shard. Nobody posts calls for the link while it has no channel.
bool Link::try_move_to(Loop& shard) {
    const std::lock_guard guard(lock_);
    if (wake_posted_ || later_posted_ || reader_posted_.load(std::memory_order_relaxed)) return false;
    loop_.store(&shard, std::memory_order_release);
    shard.post(wake_welcome_);
    return true;
}

void Link::connection_ended() {
    connection_count_.fetch_sub(1, std::memory_order_relaxed);
    closed_.announce();
}

Task<> Link::idle() {
    for (uint64_t seen = closed_.count(); connection_count_.load(std::memory_order_relaxed) > 0; seen = closed_.count())
        co_await closed_.next(seen);
}

Task<> Link::serve(std::unique_ptr<Connection> connection, Process process) {
    const TransportKind transport = connection->kind();
    const std::unique_ptr<Channel> channel = connection->become_channel(loop());
    channel_ = channel.get();
    connection_ends_ = false;
    asked_at_ns_ = 0;
    {
        const std::lock_guard guard(lock_);
        add(link_count_, 1);
        outgoing_ = {};
        later_.clear();
        batch_.end();
        note_waiting(0);
        writer_busy_ = false;
        greeting_ = true;
        answers_.store(true, std::memory_order_relaxed);
        transport_.store(transport, std::memory_order_relaxed);
        up_.store(true, std::memory_order_relaxed);
    }
    receiver_.on_link_up(peer_, process);
    send_control(ControlRecord::Kind::greeted);
    {
        const std::lock_guard guard(lock_);
        greeting_ = false;
        outgoing_.insert(outgoing_.end(), later_.begin(), later_.end());
        later_.clear();
        schedule_writer();
    }
    log::info("fabric: linked with host {} (incarnation {}) over {}", name_, process.incarnation,
              tarn::name_of(transport));

    Gate writer;
    writer.spawn(write_all(*channel));
    Result<> ended;
    {
        RecordReader reader(loop(), *channel, peer_, process.incarnation, receiver_, *this);
        reader_ = &reader;
        Timer timer(loop());
        Gate listening;
        if (listen_for_.count() != 0) listening.spawn(listen_to_peer(timer));
        ended = co_await reader.read_all();
        close();
        timer.cancel();
        co_await listening.close();
        reader_ = nullptr;
    }
    close();
    {
        const std::lock_guard guard(lock_);
        up_.store(false, std::memory_order_relaxed);
        outgoing_ = {};
        batch_.end();
        note_waiting(0);
    }
    co_await writer.close();
    co_await channel->close();
    receiver_.on_link_down(peer_);
    fail_calls();
    if (ended.error().code == Errc::closed || ended.error().code == Errc::io)
        log::warning("fabric: lost the link with host {}", name_);
    else
        log::error("fabric: closed the link with host {}: {}", name_, log::describe(ended.error()));
    channel_ = nullptr;
    connection_ended();
}

// Any bytes are a sign of life. While we do not read, for lack of pages to receive into, silence means nothing; and
// after our own process was stopped, bytes that came meanwhile have not been read yet.
Task<> Link::listen_to_peer(Timer& timer) {
    const auto listen_for_ns = static_cast<uint64_t>(std::chrono::nanoseconds(listen_for_).count());
    uint64_t heard = reader_->receive_count();
    unsigned silent_times = 0;
    unsigned periods = 0;
    const auto ask = [&] {
        asked_at_ns_ = monotonic_ns();
        send_control(ControlRecord::Kind::ask);
    };
    for (uint64_t began_ns = monotonic_ns(); !connection_ends_ && co_await timer.sleep(listen_for_);) {
        const uint64_t now_ns = monotonic_ns();
        const bool we_were_late = now_ns - began_ns > listen_for_ns * 3 / 2;
        began_ns = now_ns;
        if (const uint64_t count = reader_->receive_count(); count != heard) {
            heard = count;
            silent_times = 0;
            set_answers(true);
            if (periods++ % periods_per_question == 0) ask();
            continue;
        }
        if (reader_->waits_for_room() || we_were_late) continue;
        if (silent_times++ == 0) ask();
        if (silent_times > 2) set_answers(false);
    }
}

LinkStatus Link::status() const {
    LinkStatus status{.transport = transport_.load(std::memory_order_relaxed),
                      .links = link_count_.load(std::memory_order_relaxed),
                      .messages_sent = messages_sent_.load(std::memory_order_relaxed),
                      .bytes_sent = bytes_sent_.load(std::memory_order_relaxed),
                      .bytes_received = bytes_received_.load(std::memory_order_relaxed),
                      .round_trip = std::chrono::nanoseconds(round_trip_ns_.load(std::memory_order_relaxed))};
    for (const auto& count : received_) status.messages_received += count.load(std::memory_order_relaxed);
    return status;
}

void Link::set_answers(bool answers) {
    if (answers_.exchange(answers, std::memory_order_relaxed) == answers) return;
    const std::optional<std::string> left_out = silences_.admit();
    if (left_out && answers) log::info("fabric: host {} answers again{}", name_, *left_out);
    if (left_out && !answers)
        log::warning("fabric: host {} does not answer, though its connection is up; what needs it waits{}", name_,
                     *left_out);
}

Task<> Link::write_all(Channel& channel) {
    std::vector<std::byte> sending;
    while (!connection_ends_) {
        {
            const std::lock_guard guard(lock_);
            sending.clear();
            if (cork_count_ == 0) {
                sending.swap(outgoing_);
                batch_.end();
            }
            note_waiting(sending.size());
            writer_busy_ = !sending.empty();
        }
        if (sending.empty()) {
            co_await writable_.wait();
            continue;
        }
        // The channel takes most of what is sent at once; only the rest is worth a wait.
        for (std::span<const std::byte> rest = std::span(sending).subspan(channel.try_send(sending)); !rest.empty();) {
            const Result<size_t> sent = co_await channel.send(rest);
            if (!sent || *sent == 0) {
                channel.shut_down();
                co_return;
            }
            rest = rest.subspan(*sent);
            const std::lock_guard guard(lock_);
            note_waiting(rest.size());
        }
        add(bytes_sent_, sending.size());
        if (sending.capacity() > buffer_bytes_) sending = {};
    }
}

Result<> Link::on_control(ControlRecord record) {
    switch (record.kind) {
        case ControlRecord::Kind::call:
            if (!loop().ending())  // otherwise the link breaks soon
                loop().spawn(
                    answer(record.id, static_cast<CallKind>(record.detail), std::move(record.body), link_count_));
            return {};
        case ControlRecord::Kind::greeted: receiver_.on_greeted(peer_); return {};
        case ControlRecord::Kind::ask: send_control(ControlRecord::Kind::here); return {};
        case ControlRecord::Kind::here:
            if (const uint64_t asked_at_ns = std::exchange(asked_at_ns_, 0); asked_at_ns != 0)
                round_trip_ns_.store(monotonic_ns() - asked_at_ns, std::memory_order_relaxed);
            return {};
        case ControlRecord::Kind::answer: {
            decltype(calls_)::node_type found;
            {
                const std::lock_guard guard(lock_);
                found = calls_.extract(record.id);
            }
            if (!found) return {};
            Call* const call = found.mapped();
            if (record.detail == 0)
                call->finish(std::move(record.body));
            else if (record.detail <= static_cast<uint8_t>(Errc::unsupported) + 1)
                call->finish(fail(static_cast<Errc>(record.detail - 1), 0, Fabric::answer_of_host));
            else
                call->finish(fail(Errc::protocol, 0, "fabric.answer: an unknown error"));
            return {};
        }
    }
    return fail(Errc::protocol, 0, "fabric.receive: an unknown control record");
}

// Over no later link: the peer may be another process by then, and the number another call's.
Task<> Link::answer(uint32_t id, CallKind kind, std::string request, uint64_t link) {
    const Result<std::string> answer = co_await handlers_.answer(kind, peer_, std::move(request));
    const uint8_t detail = answer ? uint8_t{0} : static_cast<uint8_t>(static_cast<uint8_t>(answer.error().code) + 1);
    const std::lock_guard guard(lock_);
    if (link == link_count_) append_control(ControlRecord::Kind::answer, id, detail, answer.value_or(""));
}

}  // namespace tarn
