#include "frontends/nbd/reply.hpp"

#include <algorithm>
#include <new>

#include "utils/assert.hpp"

namespace tarn::nbd {

namespace {

std::byte* store_cookie(std::byte* to, uint64_t cookie) {
    std::memcpy(to, &cookie, sizeof cookie);
    return to + sizeof cookie;
}

std::byte* store_chunk(std::byte* to, const Request& request, Chunk type, uint64_t payload_size_bytes,
                       uint16_t flags = chunk_done) {
    to = store_big(to, request.extended ? extended_reply_magic : structured_reply_magic);
    to = store_big(to, flags);
    to = store_big(to, static_cast<uint16_t>(type));
    to = store_cookie(to, request.cookie);
    if (!request.extended) return store_big(to, static_cast<uint32_t>(payload_size_bytes));
    to = store_big(to, request.offset_bytes);
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

uint32_t status_of(const Extent& extent) {
    return extent.hole ? extent_hole | extent_zero : 0;
}

uint32_t status_of(const TierExtent& extent) {
    switch (extent.tier) {
        case Tier::dram: return tier_dram;
        case Tier::remote: return tier_remote;
        case Tier::nvme: return tier_nvme;
        case Tier::hole: return tier_hole;
    }
    TARN_ASSERT(false);
}

// The payload of a block status chunk: the context, and one descriptor after the other.
class Descriptors {
  public:
    Descriptors(const Request& request, uint32_t context, size_t count_max)
        : extended_(request.extended), bytes_(front_size() + count_max * descriptor_size()) {
        store_big(bytes_.data(), context);
        to_ = bytes_.data() + front_size();
    }
    void add(uint64_t size_bytes, uint32_t status) {
        ++count_;
        if (extended_) {
            to_ = store_big(to_, size_bytes);
            to_ = store_big(to_, uint64_t{status});
        } else {
            to_ = store_big(to_, static_cast<uint32_t>(size_bytes));
            to_ = store_big(to_, status);
        }
    }
    uint32_t count() const { return count_; }
    std::vector<std::byte> take() {
        if (extended_) store_big(bytes_.data() + sizeof(uint32_t), count_);
        bytes_.resize(static_cast<size_t>(to_ - bytes_.data()));
        return std::move(bytes_);
    }

  private:
    size_t front_size() const { return (extended_ ? 2 : 1) * sizeof(uint32_t); }
    size_t descriptor_size() const { return 2 * (extended_ ? sizeof(uint64_t) : sizeof(uint32_t)); }

    const bool extended_;
    std::vector<std::byte> bytes_;
    std::byte* to_;
    uint32_t count_ = 0;
};

template <class Described>
std::vector<std::byte> encode_described(const Request& request, uint32_t context, std::span<const Described> extents) {
    const size_t count_max = request.has(request_one_extent) ? 1 : extents_max;
    Descriptors descriptors(request, context, std::clamp<size_t>(extents.size(), 1, count_max));
    uint64_t at = request.offset_bytes;
    const uint64_t end = request.offset_bytes + request.size_bytes;
    for (const Described& extent : extents) {
        const uint64_t extent_end = std::min(extent.offset_bytes + extent.size_bytes, end);
        if (descriptors.count() == count_max || extent_end <= at) continue;
        descriptors.add(extent_end - at, status_of(extent));
        at = extent_end;
    }
    // A reply must make progress, and nothing is claimed of what nothing is known of.
    if (descriptors.count() == 0) descriptors.add(request.size_bytes, 0);
    return descriptors.take();
}

}  // namespace

ReplyHeader encode_status(const Request& request, Errno error, bool structured) {
    return make_header([&](std::byte* to) {
        // Of the structured replies only those to reads and block status must be chunks; the short form is right for
        // all others.
        const bool needs_chunk =
            request.extended || request.command == Command::read || request.command == Command::block_status;
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
        to = store_chunk(to, request, Chunk::offset_data, request.size_bytes + sizeof(uint64_t));
        return store_big(to, request.offset_bytes);
    });
}

ReplyHeader encode_block_status(const Request& request, uint64_t payload_size_bytes, bool is_last) {
    return make_header([&](std::byte* to) {
        const Chunk type = request.extended ? Chunk::block_status_extended : Chunk::block_status;
        return store_chunk(to, request, type, payload_size_bytes, is_last ? chunk_done : 0);
    });
}

std::vector<std::byte> encode_extents(const Request& request, std::span<const Extent> extents) {
    return encode_described(request, allocation_id, extents);
}

std::vector<std::byte> encode_tiers(const Request& request, std::span<const TierExtent> tiers) {
    return encode_described(request, tier_id, tiers);
}

ReplyBatch::ReplyBatch() : headers_(replies_max) {
    vectors_.reserve(vectors_max);
    pins_.reserve(vectors_max);
}

// What encode returns is made where it stays: a copy would read at once, in large pieces, what it wrote in small ones.
template <class Encode>
void ReplyBatch::add_header(Encode encode) {
    TARN_ASSERT(reply_count_ < replies_max && vectors_.size() < vectors_max);
    ReplyHeader& header = *new (&headers_[reply_count_++]) ReplyHeader(encode());
    vectors_.push_back({header.bytes.data(), header.size_bytes});
    size_bytes_ += header.size_bytes;
}

void ReplyBatch::add_status(const Request& request, Errno error, bool structured) {
    add_header([&] { return encode_status(request, error, structured); });
}

void ReplyBatch::add_read(const Request& request, size_t pins_before, bool structured) {
    add_header([&] { return encode_read(request, structured); });
    size_t pinned_bytes = 0;
    for (const Pin& pin : std::span(pins_).subspan(pins_before)) {
        iovec& last = vectors_.back();
        // The kernel copies long pieces at less cost, and frames of a run often lie side by side.
        if (pinned_bytes > 0 && static_cast<std::byte*>(last.iov_base) + last.iov_len == pin.bytes)
            last.iov_len += pin.size_bytes;
        else
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
