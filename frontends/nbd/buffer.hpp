// Buffer: bytes of one request on the heap, counted in its connection's and its shard's budget while they live.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

namespace tarn::nbd {

// What a connection holds for its client, and all connections of its shard together.
struct Budget {
    size_t held_bytes = 0;
    Budget* parent = nullptr;

    void add(size_t bytes) {
        for (Budget* budget = this; budget; budget = budget->parent) budget->held_bytes += bytes;
    }
    void remove(size_t bytes) {
        for (Budget* budget = this; budget; budget = budget->parent) budget->held_bytes -= bytes;
    }
};

class Buffer {
  public:
    Buffer() = default;
    Buffer(Budget& budget, size_t size_bytes)
        : budget_(&budget), bytes_(std::make_unique_for_overwrite<std::byte[]>(size_bytes)), size_bytes_(size_bytes) {
        budget.add(size_bytes);
    }
    Buffer(Buffer&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)),
          bytes_(std::move(other.bytes_)),
          size_bytes_(std::exchange(other.size_bytes_, 0)) {}
    Buffer& operator=(Buffer&& other) noexcept {
        std::swap(budget_, other.budget_);
        std::swap(bytes_, other.bytes_);
        std::swap(size_bytes_, other.size_bytes_);
        return *this;
    }
    ~Buffer() {
        if (budget_) budget_->remove(size_bytes_);
    }

    size_t size() const { return size_bytes_; }
    bool empty() const { return size_bytes_ == 0; }
    std::span<std::byte> bytes() const { return {bytes_.get(), size_bytes_}; }

  private:
    Budget* budget_ = nullptr;
    std::unique_ptr<std::byte[]> bytes_;
    size_t size_bytes_ = 0;
};

}  // namespace tarn::nbd
