// A connection's writes: their payloads while they come, and what becomes of them then.
#include <algorithm>
#include <utility>

#include "frontends/nbd/connection.hpp"

namespace tarn::nbd {

// Returns how many bytes of the payload were there and are taken. held: for all of it, or nothing: it then comes in
// pieces.
size_t Connection::begin_write(const Request& request, std::span<const std::byte> bytes, Held held) {
    if (bytes.size() >= request.size_bytes) {
        on_write(request, bytes.first(request.size_bytes), {});
        return request.size_bytes;
    }
    if (held.bytes() == 0) {
        incoming_.emplace(Incoming{.request = request, .copied = Buffer(budget_, piece_size(request, 0))});
    } else if (auto landed = workspace_->landing.keep(bytes, request.size_bytes)) {
        incoming_.emplace(Incoming{.request = request,
                                   .copied = {},
                                   .landed = std::move(landed),
                                   .held = std::move(held),
                                   .received_bytes = bytes.size()});
        return bytes.size();
    } else {
        incoming_.emplace(Incoming{.request = request, .copied = Buffer(std::move(held))});
    }
    return fill(bytes);
}

void Connection::Incoming::leave_shard() {
    if (!landed) return;
    copied = Buffer(std::move(held));
    std::ranges::copy(landed.payload().first(received_bytes), copied.bytes().begin());
    landed = {};
}

// Takes what came of a write's payload, and serves the write, or this piece of it, if that was all. Returns its size.
size_t Connection::fill(std::span<const std::byte> bytes) {
    if (!incoming_) return 0;
    const std::span<std::byte> missing = incoming_->payload().subspan(incoming_->received_bytes);
    const size_t count = std::min(missing.size(), bytes.size());
    std::copy_n(bytes.begin(), count, missing.begin());
    incoming_->received_bytes += count;
    if (incoming_->is_complete()) serve_incoming();
    return count;
}

void Connection::serve_incoming() {
    Incoming complete = std::move(*incoming_);
    incoming_.reset();
    // The volume may have shrunk since the request's header came.
    const Errno error = judge(complete.request);
    if (error != Errno::none) return refuse_write(complete.request, error, complete.rest_bytes());
    if (complete.payload().size() < complete.request.size_bytes) return start_piece(std::move(complete));
    complete.held = {};  // if it has to be copied after all, that is held
    const std::span<const std::byte> payload = complete.payload();
    on_write(complete.request, payload, std::move(complete.copied));
}

// owned is empty, or holds the payload.
void Connection::on_write(const Request& request, std::span<const std::byte> payload, Buffer owned) {
    bool written = volume_->try_write(request.offset_bytes, payload);
    if (!written && unpinned()) written = volume_->try_write(request.offset_bytes, payload);
    if (written) {
        if (request.has(request_fua)) return start(request, finish_after(request, flush_range(request)));
        return status(request, Errno::none);
    }
    if (owned.empty()) {
        owned = Buffer(budget_, payload.size());
        std::copy(payload.begin(), payload.end(), owned.bytes().begin());
    }
    start(request, write_later(request, std::move(owned)));
}

// rest_bytes: of its payload, that are still to come.
void Connection::refuse_write(const Request& request, Errno error, uint64_t rest_bytes) {
    refused_ = Refused{request, error, rest_bytes};
    skip({});
}

// Throws away what came of a refused write's payload, and answers the write once that was all. Returns its size.
size_t Connection::skip(std::span<const std::byte> bytes) {
    if (!refused_) return 0;
    const size_t skipped = static_cast<size_t>(std::min<uint64_t>(refused_->skip_bytes, bytes.size()));
    refused_->skip_bytes -= skipped;
    if (refused_->skip_bytes > 0) return skipped;
    const Refused complete = *std::exchange(refused_, std::nullopt);
    status(complete.request, complete.error);
    return skipped;
}

}  // namespace tarn::nbd
