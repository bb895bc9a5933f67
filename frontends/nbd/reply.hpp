// Replies of the transmission phase: their headers, and the batch that one gathered send takes.
//
// A batch points into frames and owns only headers. It is filled, sent and cleared without a wait in between; the
// caller unpins what pins() names right after the send. Not thread-safe: each shard has one.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "frontends/nbd/request.hpp"
#include "frontends/nbd/wire.hpp"
#include "frontends/volumes/volume.hpp"

namespace tarn::nbd {

inline constexpr size_t reply_header_size_max = extended_reply_size + 8;

struct ReplyHeader {
    std::array<std::byte, reply_header_size_max> bytes;
    uint32_t size_bytes = 0;
};

// All of them: extended if the request is.
// The header of a reply that says only whether the request worked.
ReplyHeader encode_status(const Request& request, Errno error, bool structured);
// The header in front of the size_bytes that a read returns.
ReplyHeader encode_read(const Request& request, bool structured);
// The header in front of encode_extents(); is_last: of the chunks, one for each metadata context.
ReplyHeader encode_block_status(const Request& request, uint64_t payload_size_bytes, bool is_last);
// The descriptors for the request's range, at most extents_max; cut or extended to the range. In base:allocation, or in
// tarn:tier.
std::vector<std::byte> encode_extents(const Request& request, std::span<const Extent> extents);
std::vector<std::byte> encode_tiers(const Request& request, std::span<const TierExtent> tiers);

class ReplyBatch {
  public:
    static constexpr size_t vectors_max = 1024;  // IOV_MAX
    static constexpr size_t replies_max = 256;
    // What a send leaves over is copied; this bounds the copy.
    static constexpr size_t gather_size_max = 256 * 1024;
    // Reads up to here point into frames.
    static constexpr size_t read_size_max = 256 * 1024;

    ReplyBatch();

    bool empty() const { return reply_count_ == 0; }
    bool full() const { return reply_count_ == replies_max || size_bytes_ >= gather_size_max; }
    size_t size_bytes() const { return size_bytes_; }
    std::span<const iovec> vectors() const { return vectors_; }

    // Where Volume::try_pin appends; add_read then takes what came after pins_before.
    std::vector<Pin>& pins() { return pins_; }
    // False when the vectors do not suffice; the caller then sends the batch and comes again.
    bool has_room_for(size_t pin_count) const { return vectors_.size() + pin_count + 1 <= vectors_max; }

    void add_status(const Request& request, Errno error, bool structured);
    void add_read(const Request& request, size_t pins_before, bool structured);
    void clear();

  private:
    template <class Encode>
    void add_header(Encode encode);

    std::vector<ReplyHeader> headers_;  // never grows: the vectors point into it
    std::vector<iovec> vectors_;
    std::vector<Pin> pins_;
    size_t reply_count_ = 0;
    size_t size_bytes_ = 0;
};

static_assert(ReplyBatch::read_size_max / page_size + 2 < ReplyBatch::vectors_max,
              "an empty batch takes every read that may point into frames, aligned or not");

}  // namespace tarn::nbd
