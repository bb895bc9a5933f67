// Memory for requests in work: the daemon's share of it, and buffers that count against the share while they live.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

namespace tarn::nbd {

// The bytes that all connections of the daemon may hold together; any thread. Exceeded only by the little that each
// connection needs to make progress at all (connection.hpp).
class Share {
  public:
    explicit Share(size_t size_bytes) : size_bytes_(size_bytes) {}
    Share(const Share&) = delete;

    size_t size_bytes() const { return size_bytes_; }
    size_t held_bytes() const { return held_bytes_.load(std::memory_order_relaxed); }
    bool has_room_for(size_t bytes) const { return held_bytes() + bytes <= size_bytes_; }
    void add(size_t bytes) { held_bytes_.fetch_add(bytes, std::memory_order_relaxed); }
    void remove(size_t bytes) { held_bytes_.fetch_sub(bytes, std::memory_order_relaxed); }
    bool try_add(size_t bytes) {
        if (held_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes <= size_bytes_) return true;
        remove(bytes);
        return false;
    }

  private:
    const size_t size_bytes_;
    alignas(64) std::atomic<size_t> held_bytes_{0};
};

// The bytes of the share that one connection holds for its client, up to a limit of its own; exceeded in the same way.
struct Budget {
    Share& share;
    size_t held_bytes_max;
    size_t held_bytes = 0;

    bool has_room_for(size_t bytes) const { return held_bytes + bytes <= held_bytes_max && share.has_room_for(bytes); }
};

// Bytes counted in a budget.
class Held {
  public:
    Held() = default;
    Held(Budget& budget, size_t bytes) : budget_(&budget), bytes_(bytes) {
        budget.share.add(bytes);
        budget.held_bytes += bytes;
    }
    // Nothing, if there is no room.
    static Held within(Budget& budget, size_t bytes) {
        Held held;
        if (budget.held_bytes + bytes > budget.held_bytes_max || !budget.share.try_add(bytes)) return held;
        budget.held_bytes += bytes;
        held.budget_ = &budget;
        held.bytes_ = bytes;
        return held;
    }
    Held(Held&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Held& operator=(Held other) noexcept {
        std::swap(budget_, other.budget_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~Held() {
        if (!budget_) return;
        budget_->share.remove(bytes_);
        budget_->held_bytes -= bytes_;
    }

    size_t bytes() const { return bytes_; }

  private:
    Budget* budget_ = nullptr;
    size_t bytes_ = 0;
};

// Bytes of one request on the heap.
class Buffer {
  public:
    Buffer() = default;
    Buffer(Budget& budget, size_t size_bytes) : Buffer(Held(budget, size_bytes)) {}
    explicit Buffer(Held held)
        : held_(std::move(held)), bytes_(std::make_unique_for_overwrite<std::byte[]>(held_.bytes())) {}

    size_t size() const { return held_.bytes(); }
    bool empty() const { return size() == 0; }
    std::span<std::byte> bytes() const { return {bytes_.get(), size()}; }

  private:
    Held held_;
    std::unique_ptr<std::byte[]> bytes_;
};

}  // namespace tarn::nbd
