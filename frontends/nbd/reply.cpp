#include "frontends/nbd/reply.hpp"

#include <algorithm>

#include "utils/assert.hpp"

namespace tarn::nbd {

namespace {

std::byte* store_cookie(std::byte* to, uint64_t cookie) {
    std::memcpy(to, &cookie, sizeof cookie);
    return to + sizeof cookie;
}

std::byte* store_chunk(std::byte* to, const Request& request, Chunk type, uint32_t payload_size_bytes) {
    to = store_big(to, structured_reply_magic);
    to = store_big(to, chunk_done);
    to = store_big(to, static_cast<uint16_t>(type));
    to = store_cookie(to, request.cookie);
    return store_big(to, payload_size_bytes);
}

std::byte* store_simple(std::byte* to, const Request& request, Errno error) {
    to = store_big(to, simple_reply_magic);
    to = store_big(to, static_cast<uint32_t>(error));
    return store_cookie(to, request.cookie);
}

template <class Store>
ReplyHeader make_header(Store store) {
    ReplyHeader header;
    std::byte* const start = header.bytes.data();
    header.size_bytes = static_cast<uint32_t>(store(start) - start);
    TARN_ASSERT(header.size_bytes <= header.bytes.size());
    return header;
}

}  // namespace

ReplyHeader encode_status(const Request& request, Errno error, bool structured) {
    return make_header([&](std::byte* to) {
        // Only reads and block status must be answered by chunks; the short form is right for all others.
        const bool needs_chunk = request.command == Command::read || request.command == Command::block_status;
        if (!structured || !needs_chunk) return store_simple(to, request, error);
        if (error == Errno::none) return store_chunk(to, request, Chunk::none, 0);
        to = store_chunk(to, request, Chunk::error, sizeof(uint32_t) + sizeof(uint16_t));
        to = store_big(to, static_cast<uint32_t>(error));
        return store_big(to, uint16_t{0});  // no text: the number says it
    });
}

ReplyHeader encode_read(const Request& request, bool structured) {
    return make_header([&](std::byte* to) {
        if (!structured) return store_simple(to, request, Errno::none);
        const uint32_t payload_size_bytes = request.size_bytes + uint32_t{sizeof(uint64_t)};
        to = store_chunk(to, request, Chunk::offset_data, payload_size_bytes);
        return store_big(to, request.offset_bytes);
    });
}

ReplyHeader encode_block_status(const Request& request, uint32_t payload_size_bytes) {
    return make_header(
        [&](std::byte* to) { return store_chunk(to, request, Chunk::block_status, payload_size_bytes); });
}

std::vector<std::byte> encode_extents(const Request& request, std::span<const Extent> extents) {
    std::vector<std::byte> bytes(sizeof(uint32_t) + std::max<size_t>(extents.size(), 1) * 2 * sizeof(uint32_t));
    std::byte* to = store_big(bytes.data(), context_id);
    uint64_t at = request.offset_bytes;
    const uint64_t end = request.offset_bytes + request.size_bytes;
    const size_t count_max = request.has(request_one_extent) ? 1 : extents_max;
    size_t count = 0;
    for (const Extent& extent : extents) {
        const uint64_t extent_end = std::min(extent.offset_bytes + extent.size_bytes, end);
        if (count == count_max || extent_end <= at) continue;
        to = store_big(to, static_cast<uint32_t>(extent_end - at));
        to = store_big(to, extent.hole ? extent_hole | extent_zero : 0u);
        at = extent_end;
        ++count;
    }
    if (count == 0) {  // a reply must make progress; stored is always a true answer
        to = store_big(to, request.size_bytes);
        to = store_big(to, 0u);
    }
    bytes.resize(static_cast<size_t>(to - bytes.data()));
    return bytes;
}

ReplyBatch::ReplyBatch() : headers_(replies_max) {
    vectors_.reserve(vectors_max);
    pins_.reserve(vectors_max);
}

void ReplyBatch::add_header(const ReplyHeader& header) {
    TARN_ASSERT(reply_count_ < replies_max && vectors_.size() < vectors_max);
    ReplyHeader& kept = headers_[reply_count_++] = header;
    vectors_.push_back({kept.bytes.data(), kept.size_bytes});
    size_bytes_ += kept.size_bytes;
}

void ReplyBatch::add_read(const Request& request, size_t pins_before, bool structured) {
    add_header(encode_read(request, structured));
    size_t pinned_bytes = 0;
    for (const Pin& pin : std::span(pins_).subspan(pins_before)) {
        vectors_.push_back({const_cast<std::byte*>(pin.bytes), pin.size_bytes});
        pinned_bytes += pin.size_bytes;
    }
    TARN_ASSERT(pinned_bytes == request.size_bytes && vectors_.size() <= vectors_max);
    size_bytes_ += pinned_bytes;
}

void ReplyBatch::clear() {
    vectors_.clear();
    pins_.clear();
    reply_count_ = 0;
    size_bytes_ = 0;
}

}  // namespace tarn::nbd
