// LandingBuffers: the memory of one shard that its clients' bytes come into. A write whose payload has come in part may
// keep its buffer until the rest has followed; from there it goes into frames without a copy on its way.
//
// Belongs to the shard's thread. The buffers outlive what has landed in them.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "tiers/page.hpp"

namespace tarn::nbd {

class LandingBuffers {
  public:
    // A buffer has room for what is received at once (256 KiB), and for a write of 128 KiB that begins at its end.
    static constexpr size_t buffer_size_bytes = 384 * 1024;
    static constexpr size_t buffers = 3;
    static constexpr size_t size_bytes = buffers * buffer_size_bytes;
    // Of a shorter write the copy costs less than another buffer's place in the CPU's caches.
    static constexpr size_t payload_min = 8 * page_size;

    // size_bytes of memory.
    explicit LandingBuffers(std::span<std::byte> memory) {
        for (size_t i = 0; i < buffers; ++i) free_.push_back(memory.subspan(i * buffer_size_bytes, buffer_size_bytes));
        current_ = take_free();
    }

    // Where what comes next is received.
    std::span<std::byte> current() const { return current_; }

    // The payload of a write, in a buffer that is the write's until its end.
    class Landed {
      public:
        Landed() = default;
        Landed(Landed&& other) noexcept
            : owner_(std::exchange(other.owner_, nullptr)), buffer_(other.buffer_), payload_(other.payload_) {}
        Landed& operator=(Landed&& other) noexcept {
            std::swap(owner_, other.owner_);
            std::swap(buffer_, other.buffer_);
            std::swap(payload_, other.payload_);
            return *this;
        }
        ~Landed() {
            if (owner_) owner_->free_.push_back(buffer_);
        }
        explicit operator bool() const { return owner_ != nullptr; }
        std::span<std::byte> payload() const { return payload_; }

      private:
        friend class LandingBuffers;
        Landed(LandingBuffers& owner, std::span<std::byte> buffer, std::span<std::byte> payload)
            : owner_(&owner), buffer_(buffer), payload_(payload) {}
        LandingBuffers* owner_ = nullptr;
        std::span<std::byte> buffer_;
        std::span<std::byte> payload_;
    };

    // begun: the bytes at the front of a payload of this size that have come. The current buffer becomes the write's,
    // and another one the current. Nothing, if they lie elsewhere, there is no room behind them, or no other buffer.
    Landed keep(std::span<const std::byte> begun, size_t payload_size) {
        if (payload_size < payload_min || free_.empty() || begun.data() < current_.data()) return {};
        const auto at = static_cast<size_t>(begun.data() - current_.data());
        if (at + begun.size() > current_.size() || payload_size > current_.size() - at) return {};
        Landed landed(*this, current_, current_.subspan(at, payload_size));
        current_ = take_free();
        return landed;
    }

  private:
    std::span<std::byte> take_free() {
        const std::span<std::byte> buffer = free_.back();
        free_.pop_back();
        return buffer;
    }

    std::span<std::byte> current_;
    std::vector<std::span<std::byte>> free_;
};

}  // namespace tarn::nbd
