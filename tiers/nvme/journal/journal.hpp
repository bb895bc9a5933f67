// Journal: the ring on the device as its one writer sees it: where it begins and ends, and what was appended and is
// not yet written.
//
// Appending copies the bytes into a staging buffer, a window on the newest positions; the leader of a flush round
// closes what gathered, writes it as one piece, and flushes the device once. The window keeps what it can, so that
// young records are read from memory.
//
// Positions only; no I/O and no lock: Store guards it. Invariant: tail ≤ durable ≤ head ≤ tail + size of the ring, and
// head ≤ durable + size of the window.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "tiers/nvme/device/transfer.hpp"
#include "tiers/nvme/journal/format.hpp"
#include "utils/mapping.hpp"

namespace tarn {

class Journal {
  public:
    // The end of a batch, and the checksum of that batch: where a journal can begin.
    struct Boundary {
        uint64_t position = 0;
        uint32_t checksum = 0;
    };
    // Batches that were closed together.
    struct Round {
        struct Batch {
            uint64_t position;
            uint64_t size_bytes;
            uint32_t record_count;
        };
        std::vector<Batch> batches;
        uint64_t start = 0;
        uint64_t end = 0;
    };

    Journal(const Uuid& store, const StoreGeometry& geometry);
    static uint64_t staging_size(uint64_t journal_size);
    // Errors: io (no memory).
    Result<> allocate();

    // The batches found at open, in order; then where it goes on, by whom.
    void found(const Boundary& boundary) { boundaries_.push_back(boundary); }
    void start(const Boundary& tail, uint64_t home_epoch);

    uint64_t tail() const { return tail_; }
    uint64_t durable() const { return durable_; }
    // A durable batch says that all before this position were: rot there is found out, never taken for the end.
    uint64_t proven() const { return proven_; }
    uint64_t head() const { return head_; }  // where the record that was appended last ends
    uint64_t used_bytes() const { return head_ - tail_; }
    uint64_t size_bytes() const { return size_; }

    // Whether records of that size together, payloads included, fit on the ring, but for the page of append_nothing();
    // and in the staging buffer.
    bool ring_has_room(uint64_t size_bytes) const;
    bool staging_has_room(uint64_t size_bytes) const;
    uint64_t group_size_max() const { return batch_max_ - sizeof(BatchHeader); }
    // What is appended next, up to that size, goes into one batch.
    void keep_together(uint64_t size_bytes);
    // Returns the position of its payload; there must be room. The pieces are journal_unit each, or sectors.
    uint64_t append(const JournalRecord& record, std::span<const std::span<const std::byte>> payload);
    // The next round has a batch, if only an empty one: a successor that proves the batches before it. There is room
    // for one, before the tail moves on again.
    void append_nothing();

    // Closes what was appended and gives it to the leader, who completes the headers without the lock, writes the round
    // and reports it durable.
    Round close();
    void complete(const Round& round);
    void add_to(Transfer& transfer, const Round& round) const;
    void round_is_durable(const Round& round);

    // Bytes that are still in memory.
    bool in_memory(uint64_t position) const { return position >= window_start_ && position + window_ >= head_; }
    void copy_out(uint64_t position, std::span<std::byte> into) const;
    // Where on the device a position lies, and how many bytes follow it there before the ring's end.
    uint64_t device_offset(uint64_t position) const { return StoreLayout::journal_offset + position % size_; }
    uint64_t until_wrap(uint64_t position) const { return size_ - position % size_; }

    // The last durable boundary, at most `most` bytes beyond the tail if there is one there; the tail if there is none.
    Boundary boundary_within(uint64_t most) const;
    // What lies before it is no longer needed.
    void free_up_to(const Boundary& boundary);

  private:
    std::span<std::byte> window_at(uint64_t position, uint64_t size) const;
    void copy_in(uint64_t position, std::span<const std::byte> bytes);
    // The head, were it to end a batch now, after so many bytes more.
    uint64_t end_after(uint64_t size_bytes) const;
    void open_batch();
    void close_batch();

    Uuid store_;
    uint64_t size_;
    uint64_t window_;
    uint64_t batch_max_;
    uint32_t home_epoch_ = 0;
    Mapping staging_;

    uint64_t tail_ = 0;
    uint64_t durable_ = 0;
    uint64_t proven_ = 0;
    uint64_t head_ = 0;
    uint64_t window_start_ = 0;  // nothing before it was ever in the window
    bool open_ = false;          // a batch that records are appended to
    Round::Batch batch_{};
    std::vector<Round::Batch> closed_;
    std::deque<Boundary> boundaries_;  // between tail and durable
    Boundary tail_boundary_;
    uint32_t last_checksum_ = 0;  // of the newest completed batch; the leader's
};

}  // namespace tarn
