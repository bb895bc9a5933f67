// What a connection cannot serve at once: each such request is a task, answered when it is done.
#include <algorithm>

#include "frontends/nbd/connection.hpp"

namespace tarn::nbd {

void Connection::start(const Request& request, Task<> task) {
    unpinned();
    ++tasks_;
    const size_t pages = std::min<uint64_t>(request.size_bytes, payload_size_max) / page_size + 1;
    gate_.spawn(carry_out(std::move(task), task_size_bytes + pages * task_bytes_per_page));
}

Task<> Connection::carry_out(Task<> task, size_t task_bytes) {
    const Held held(budget_, task_bytes);
    co_await CarryInterrupt(client_left_);
    co_await std::move(task);
    TARN_ASSERT(Loop::current() == &workspace_->loop);  // a request ends on the shard on which it began
    ++tasks_ended_;
}

// Brings the pages in and answers with pins on them, as if they had been here; copies only what is large, or does not
// stay that long.
Task<> Connection::read_later(Request request) {
    const Result<> fetched = co_await volume_->fetch(request.offset_bytes, request.size_bytes);
    if (!fetched) co_return finish(request, to_errno(fetched.error()));
    fetched_.push_back(request);
    post_send();
}

Task<> Connection::read_copied(Request request, Buffer data) {
    const Result<> read = co_await volume_->read(request.offset_bytes, data.bytes());
    if (!read) co_return finish(request, to_errno(read.error()));
    finish(encode_read(request, export_.structured), std::move(data));
}

// The most that is held at once of a request in pieces; they end where pages do.
uint32_t Connection::piece_size(const Request& request, uint32_t done_bytes) {
    const auto whole = piece_size_max - static_cast<uint32_t>((request.offset_bytes + done_bytes) % page_size);
    return std::min(whole, request.data_bytes() - done_bytes);
}

// For a large request when there is no room. A client that has got a part of the answer cannot be told of an error any
// more: it is disconnected.
Task<> Connection::read_pieces(Request request) {
    for (uint32_t done = 0; done < request.size_bytes && !broken_;) {
        Buffer data(budget_, piece_size(request, done));
        const Result<> read = co_await volume_->read(request.offset_bytes + done, data.bytes());
        if (!read && done == 0) {
            in_pieces_ = false;
            co_return finish(request, to_errno(read.error()));
        }
        if (!read) {
            break_off();
            break;
        }
        const bool is_first = done == 0;
        done += static_cast<uint32_t>(data.size());
        queue_.push(is_first ? encode_read(request, export_.structured) : ReplyHeader{}, std::move(data));
        post_send();
        while (!queue_.empty() && !broken_) co_await progress_.wait();
    }
    in_pieces_ = false;
    finish_queued();
}

void Connection::start_piece(Incoming piece) {
    in_pieces_ = true;
    const Request request = piece.request;
    start(request, write_piece(std::move(piece)));
}

// Of a large write for which there is no room: each piece is written when it has come, and only then the next received.
Task<> Connection::write_piece(Incoming piece) {
    const Request request = piece.request;
    const Result<> written = co_await volume_->write(request.offset_bytes + piece.done_bytes, piece.payload());
    const uint32_t rest_bytes = piece.rest_bytes();
    piece.copied = {};
    Errno error = to_errno(written);
    if (written && rest_bytes == 0 && request.has(request_fua)) error = to_errno(co_await flush_range(request));
    in_pieces_ = false;
    if (rest_bytes == 0) co_return finish(request, error);
    if (error != Errno::none) {
        refused_ = Refused{request, error, rest_bytes};
    } else if (!leaving_) {
        const uint32_t done_bytes = request.data_bytes() - rest_bytes;
        incoming_.emplace(Incoming{
            .request = request, .copied = Buffer(budget_, piece_size(request, done_bytes)), .done_bytes = done_bytes});
    }
    settle_carry();
    finish_queued();
}

Task<> Connection::write_later(Request request, Buffer payload) {
    Result<> written = co_await volume_->write(request.offset_bytes, payload.bytes());
    if (written && request.has(request_fua)) written = co_await flush_range(request);
    finish(request, to_errno(written));
}

Task<> Connection::zero_later(Request request) {
    // A trim's contents are undefined by the text; here they read as zeros (docs/contract.md).
    const bool keep_space = request.has(request_no_hole);
    Result<> zeroed = co_await volume_->zero(request.offset_bytes, request.size_bytes, keep_space);
    if (zeroed && request.has(request_fua)) zeroed = co_await volume_->flush();
    finish(request, to_errno(zeroed));
}

Task<> Connection::block_status_later(Request request) {
    const uint64_t useful_bytes = export_.base_allocation ? request.size_bytes : tiers_at_once;
    const Result<std::vector<Extent>> extents =
        co_await volume_->extents(request.offset_bytes, std::min(request.size_bytes, useful_bytes));
    if (!extents) co_return finish(request, to_errno(extents.error()));
    std::vector<std::vector<std::byte>> chunks;
    if (export_.base_allocation) chunks.push_back(encode_extents(request, *extents));
    if (export_.tier) chunks.push_back(encode_tiers(request, volume_->tiers(*extents)));
    for (const std::vector<std::byte>& chunk : chunks) {
        Buffer payload(budget_, chunk.size());
        std::ranges::copy(chunk, payload.bytes().begin());
        const bool is_last = &chunk == &chunks.back();
        queue_.push(encode_block_status(request, chunk.size(), is_last), std::move(payload));
    }
    finish_queued();
}

// Called at the end of a task: what several tasks finish in one turn goes out in one send. Nothing else happens here,
// because a task may end in the middle of another connection's work with the workspace.
void Connection::finish(const ReplyHeader& header, Buffer payload) {
    queue_.push(header, std::move(payload));
    finish_queued();
}

void Connection::finish_queued() {
    --tasks_;
    post_send();
}

void Connection::post_send() {
    if (send_posted_) return;
    send_posted_ = true;
    workspace_->loop.post(*this);
}

// What is not here any more is copied: as far as there is room, else one after the other, and the rest next time.
void Connection::reply_fetched() {
    ReplyBatch& batch = workspace_->batch;
    for (const Request& request : std::exchange(fetched_, {})) {
        if (batch.full() || !batch.has_room_for(request.size_bytes / page_size + 2)) send();
        const size_t pins_before = batch.pins().size();
        if (volume_->try_pin(request.offset_bytes, request.data_bytes(), batch.pins())) {
            batch.add_read(request, pins_before, export_.structured);
            --tasks_;
            continue;
        }
        unpinned();
        Held held = Held::within(budget_, request.size_bytes);
        if (held.bytes() == 0 && copying_ == 0 && queue_.empty()) held = Held(budget_, request.size_bytes);
        if (held.bytes() == 0) {
            fetched_.push_back(request);
        } else {
            ++copying_;
            gate_.spawn(carry_out(copy_fetched(request, Buffer(std::move(held))), task_size_bytes));
        }
    }
}

// Still one of tasks_.
Task<> Connection::copy_fetched(Request request, Buffer data) {
    co_await read_copied(request, std::move(data));
    --copying_;
}

void Connection::run() {
    send_posted_ = false;
    reply_fetched();
    send();
    if (!fetched_.empty() && copying_ == 0 && queue_.empty()) post_send();
    progress_.notify_all();
}

}  // namespace tarn::nbd
