// Ring: a run of memory in which one process leaves bytes for another, in order, and learns what was taken.
//
// The memory lies twice in a row in both address spaces, so what wraps around its end is one piece all the same. Each
// side keeps its own position for itself and believes the other's only after a check: the other process may write
// anything into the shared words, at any time. No wake-up is lost: who is about to sleep says so before it looks once
// more, and who has changed something looks for that afterwards. The rings are those of L5 (Fent et al., "Low-Latency
// Communication for Fast DBMS Using RDMA and Shared Memory", ICDE 2020), with room that is checked before it is used.
//
// One writer and one reader, each on one thread. For ShmChannel.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "utils/atomic.hpp"

namespace tarn {

// What both sides see, beside the bytes. Zeros at first. Each word has a cache line of its own.
struct RingWords {
    alignas(64) Atomic<uint64_t> written;  // in bytes since the beginning; the writer's
    alignas(64) Atomic<uint64_t> taken;    // the reader's
    // Who waits, and may sleep, until somebody wakes it.
    alignas(64) Atomic<uint32_t> reader_waits;
    alignas(64) Atomic<uint32_t> writer_waits;
};

// What both sides share. twice: of a ring's size, and the same memory once more; the size is a power of two.
struct RingMemory {
    RingWords* words = nullptr;
    std::span<std::byte> twice;

    uint64_t size() const { return twice.size() / 2; }
};

class RingWriter {
  public:
    explicit RingWriter(RingMemory memory) : memory_(memory) {}

    // Takes as many of the bytes as there is room for.
    size_t write(std::span<const std::byte> bytes) {
        const size_t count = std::min<uint64_t>(bytes.size(), room(bytes.size()));
        if (count == 0) return 0;
        std::memcpy(memory_.twice.data() + (written_ & (memory_.size() - 1)), bytes.data(), count);
        written_ += count;
        memory_.words->written.store(written_, std::memory_order_release);
        return count;
    }
    // In bytes. Looks at what was taken only if there seems to be less than this.
    uint64_t room(uint64_t wanted) {
        const uint64_t seems = memory_.size() - (written_ - taken_);
        if (seems >= wanted) return seems;
        const uint64_t taken = memory_.words->taken.load(std::memory_order_acquire);
        is_broken_ = is_broken_ || taken - taken_ > written_ - taken_;
        if (!is_broken_) taken_ = taken;
        return is_broken_ ? 0 : memory_.size() - (written_ - taken_);
    }
    // The reader has written nonsense; there is no room any more.
    bool is_broken() const { return is_broken_; }

    // After a write: whether the reader may sleep. It is told so once.
    [[nodiscard]] bool must_wake_reader() const {
        thread_fence(std::memory_order_seq_cst);
        return memory_.words->reader_waits.load(std::memory_order_relaxed) != 0 &&
               memory_.words->reader_waits.exchange(0, std::memory_order_relaxed) != 0;
    }
    // True: there is still no room, and the reader will wake this side once there is some.
    [[nodiscard]] bool begin_wait() {
        memory_.words->writer_waits.store(1, std::memory_order_relaxed);
        thread_fence(std::memory_order_seq_cst);
        return room(1) == 0 && !is_broken_;
    }
    void end_wait() const { memory_.words->writer_waits.store(0, std::memory_order_relaxed); }

  private:
    const RingMemory memory_;
    uint64_t written_ = 0;
    uint64_t taken_ = 0;  // as last seen
    bool is_broken_ = false;
};

class RingReader {
  public:
    explicit RingReader(RingMemory memory) : memory_(memory) {}

    // What was written and not taken yet. The writer may change it meanwhile: copy it before it is checked.
    std::span<const std::byte> bytes() {
        const uint64_t written = memory_.words->written.load(std::memory_order_acquire);
        is_broken_ = is_broken_ || written - taken_ > memory_.size() || written - taken_ < seen_;
        if (is_broken_) return {};
        seen_ = written - taken_;
        return memory_.twice.subspan(taken_ & (memory_.size() - 1), seen_);
    }
    // So many at the front, which bytes() has told of.
    void take(size_t count) {
        taken_ += count;
        seen_ -= count;
        memory_.words->taken.store(taken_, std::memory_order_release);
    }
    // The writer has written nonsense; there are no bytes any more.
    bool is_broken() const { return is_broken_; }
    uint64_t size() const { return memory_.size(); }

    // After take(): whether the writer may sleep. It is told so once.
    [[nodiscard]] bool must_wake_writer() const {
        thread_fence(std::memory_order_seq_cst);
        return memory_.words->writer_waits.load(std::memory_order_relaxed) != 0 &&
               memory_.words->writer_waits.exchange(0, std::memory_order_relaxed) != 0;
    }
    // True: there is still nothing beyond `known` bytes, and the writer will wake this side once there is something.
    [[nodiscard]] bool begin_wait(uint64_t known) {
        memory_.words->reader_waits.store(1, std::memory_order_relaxed);
        thread_fence(std::memory_order_seq_cst);
        return bytes().size() == known && !is_broken_;
    }
    void end_wait() const { memory_.words->reader_waits.store(0, std::memory_order_relaxed); }

  private:
    const RingMemory memory_;
    uint64_t taken_ = 0;
    uint64_t seen_ = 0;  // bytes beyond that, as last seen
    bool is_broken_ = false;
};

}  // namespace tarn
