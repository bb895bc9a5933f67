// DeviceReplies: the parts of replies that one send of a device's connection takes. Parts of reads point into frames,
// so it is filled, sent and cleared without a wait in between. Each shard has one.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "frontends/nbd/device_log.hpp"
#include "frontends/nbd/reply.hpp"
#include "frontends/volumes/volume.hpp"

namespace tarn::nbd {

class DeviceReplies {
  public:
    static constexpr size_t size_max = 256 * 1024;
    static constexpr size_t pages_max = 128;
    static constexpr size_t replies_max = DeviceLog::slot_count;
    static_assert(replies_max + pages_max <= DeviceLog::parts_max);

    DeviceReplies() : headers_(replies_max) {
        parts_.reserve(DeviceLog::parts_max);
        pins_.reserve(pages_max);
    }

    bool empty() const { return parts_.empty(); }
    std::span<const DeviceLog::Part> parts() const { return parts_; }
    bool has_room() const { return header_count_ < replies_max && room_bytes() > 0; }
    // How much of a read, which may begin anywhere in a page, there is room for.
    uint32_t room_bytes() const {
        const size_t pages = pages_max - page_count_;
        if (pages < 2 || size_bytes_ >= size_max) return 0;
        return static_cast<uint32_t>(std::min((pages - 1) * page_size, size_max - size_bytes_));
    }

    // All of it but its first bytes.
    void add_header(uint16_t slot, const ReplyHeader& header, uint32_t begin) {
        const ReplyHeader& kept = headers_[header_count_++] = header;
        add(slot, begin, std::span(kept.bytes).first(kept.size_bytes).subspan(begin));
    }
    // The header that was added last.
    void drop_header() {
        size_bytes_ -= parts_.back().bytes.size();
        parts_.pop_back();
        --header_count_;
    }
    // Where Volume::try_pin appends; add_pins() then takes what came after pins_before. begin: in the reply.
    std::vector<Pin>& pins() { return pins_; }
    void add_pins(uint16_t slot, uint32_t begin, size_t pins_before) {
        for (const Pin& pin : std::span(pins_).subspan(pins_before)) {
            add(slot, begin, {pin.bytes, pin.size_bytes});
            begin += pin.size_bytes;
            ++page_count_;
        }
    }
    // These bytes of the volume, whose first lies at this offset in its page.
    void add_bytes(uint16_t slot, uint32_t begin, size_t offset, std::span<const std::byte> bytes) {
        for (; !bytes.empty(); offset = 0, ++page_count_) {
            const size_t size = std::min(page_size - offset, bytes.size());
            add(slot, begin, bytes.first(size));
            begin += static_cast<uint32_t>(size);
            bytes = bytes.subspan(size);
        }
    }
    void clear() {
        parts_.clear();
        pins_.clear();
        header_count_ = page_count_ = size_bytes_ = 0;
    }

  private:
    void add(uint16_t slot, uint32_t begin, std::span<const std::byte> bytes) {
        parts_.push_back({.slot = slot, .begin = begin, .bytes = bytes});
        size_bytes_ += bytes.size();
    }

    std::vector<ReplyHeader> headers_;  // never grows: parts point into it
    std::vector<DeviceLog::Part> parts_;
    std::vector<Pin> pins_;
    size_t header_count_ = 0;
    size_t page_count_ = 0;
    size_t size_bytes_ = 0;
};

}  // namespace tarn::nbd
