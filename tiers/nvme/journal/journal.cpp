#include "tiers/nvme/journal/journal.hpp"

#include <algorithm>
#include <cstring>

#include "utils/assert.hpp"

namespace tarn {

namespace {

constexpr uint64_t staging_size_max = uint64_t{8} << 20;

}  // namespace

uint64_t Journal::staging_size(uint64_t journal_size) {
    return std::min(staging_size_max, journal_size / 2 / page_size * page_size);
}

Journal::Journal(const Uuid& store, const StoreGeometry& geometry)
    : store_(store),
      size_(geometry.journal_size),
      window_(staging_size(geometry.journal_size)),
      batch_max_(batch_size_max(geometry.journal_size)) {
    TARN_ASSERT(window_ >= 2 * batch_max_ && batch_max_ >= 2 * page_size);
}

Result<> Journal::allocate() {
    TRY(staging_, Mapping::create(window_));
    return {};
}

void Journal::start(const Boundary& tail, uint64_t home_epoch) {
    tail_boundary_ = tail;
    const Boundary& last = boundaries_.empty() ? tail : boundaries_.back();
    tail_ = tail.position;
    durable_ = head_ = window_start_ = last.position;
    last_checksum_ = last.checksum;
    home_epoch_ = static_cast<uint32_t>(home_epoch);
}

uint64_t Journal::end_after(uint64_t size_bytes) const {
    if (open_ && head_ + size_bytes <= batch_.position + batch_max_) return round_up(head_ + size_bytes, page_size);
    return round_up(round_up(head_, page_size) + sizeof(BatchHeader) + size_bytes, page_size);
}

bool Journal::ring_has_room(uint64_t size_bytes) const {
    return end_after(size_bytes) + page_size <= tail_ + size_;
}

bool Journal::staging_has_room(uint64_t size_bytes) const {
    return end_after(size_bytes) <= durable_ + window_;
}

std::span<std::byte> Journal::window_at(uint64_t position, uint64_t size) const {
    const uint64_t at = position % window_;
    return staging_.bytes().subspan(at, std::min(size, window_ - at));
}

void Journal::copy_in(uint64_t position, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const std::span<std::byte> into = window_at(position, bytes.size());
        std::memcpy(into.data(), bytes.data(), into.size());
        position += into.size();
        bytes = bytes.subspan(into.size());
    }
}

void Journal::copy_out(uint64_t position, std::span<std::byte> into) const {
    while (!into.empty()) {
        const std::span<std::byte> from = window_at(position, into.size());
        std::memcpy(into.data(), from.data(), from.size());
        position += from.size();
        into = into.subspan(from.size());
    }
}

void Journal::open_batch() {
    TARN_ASSERT(!open_ && head_ % page_size == 0);
    open_ = true;
    batch_ = {.position = head_, .size_bytes = 0, .record_count = 0};
    head_ += sizeof(BatchHeader);
}

void Journal::close_batch() {
    const uint64_t end = round_up(head_, page_size);
    constexpr std::array<std::byte, page_size> zeros{};
    copy_in(head_, std::span(zeros).first(end - head_));
    head_ = end;
    batch_.size_bytes = head_ - batch_.position;
    closed_.push_back(batch_);
    open_ = false;
}

void Journal::keep_together(uint64_t size_bytes) {
    TARN_ASSERT(size_bytes <= group_size_max());
    if (open_ && head_ + size_bytes > batch_.position + batch_max_) close_batch();
}

uint64_t Journal::append(const JournalRecord& record, std::span<const std::span<const std::byte>> payload) {
    const uint64_t payload_size = record.payload_size();
    TARN_ASSERT(ring_has_room(sizeof record + payload_size) && staging_has_room(sizeof record + payload_size));
    keep_together(sizeof record + payload_size);
    if (!open_) open_batch();
    ++batch_.record_count;
    copy_in(head_, std::as_bytes(std::span(&record, 1)));
    head_ += sizeof record;
    const uint64_t position = head_;
    for (const std::span<const std::byte> piece : payload) {
        copy_in(head_, piece);
        head_ += piece.size();
    }
    TARN_ASSERT(head_ == position + payload_size);
    return position;
}

void Journal::append_nothing() {
    if (open_) return;
    TARN_ASSERT(end_after(0) <= tail_ + size_);
    open_batch();
}

Journal::Round Journal::close() {
    if (open_) close_batch();
    Round round{.batches = std::exchange(closed_, {}), .start = durable_, .end = head_};
    TARN_ASSERT(round.batches.empty() == (round.start == round.end));
    return round;
}

void Journal::complete(const Round& round) {
    for (const Round::Batch& batch : round.batches) {
        BatchHeader header{.position = batch.position,
                           .durable = round.start,
                           .size_bytes = static_cast<uint32_t>(batch.size_bytes),
                           .record_count = batch.record_count,
                           .home_epoch = home_epoch_,
                           .view_epoch = 1,
                           .previous_checksum = last_checksum_};
        copy_in(batch.position, std::as_bytes(std::span(&header, 1)));
        const std::span<std::byte> first = window_at(batch.position, batch.size_bytes);
        const std::span<std::byte> rest =
            first.size() < batch.size_bytes ? window_at(batch.position + first.size(), batch.size_bytes - first.size())
                                            : std::span<std::byte>();
        header.checksum = batch_checksum(store_, first, rest);
        copy_in(batch.position, std::as_bytes(std::span(&header, 1)));
        last_checksum_ = header.checksum;
    }
}

void Journal::add_to(Transfer& transfer, const Round& round) const {
    for (uint64_t position = round.start; position < round.end;) {
        const std::span<std::byte> bytes = window_at(position, std::min(round.end - position, until_wrap(position)));
        transfer.add(device_offset(position), bytes.data(), bytes.size());
        position += bytes.size();
    }
}

void Journal::round_is_durable(const Round& round) {
    TARN_ASSERT(round.start == durable_);
    durable_ = round.end;
    proven_ = round.start;
    for (const Round::Batch& batch : round.batches) {
        BatchHeader header;
        copy_out(batch.position, std::as_writable_bytes(std::span(&header, 1)));
        boundaries_.push_back({.position = batch.position + batch.size_bytes, .checksum = header.checksum});
    }
}

Journal::Boundary Journal::boundary_within(uint64_t most) const {
    if (boundaries_.empty()) return tail_boundary_;
    const auto beyond = std::ranges::upper_bound(boundaries_, tail_ + most, {}, &Boundary::position);
    return beyond == boundaries_.begin() ? boundaries_.front() : *(beyond - 1);
}

void Journal::free_up_to(const Boundary& boundary) {
    TARN_ASSERT(boundary.position >= tail_ && boundary.position <= durable_);
    tail_ = boundary.position;
    tail_boundary_ = boundary;
    while (!boundaries_.empty() && boundaries_.front().position <= tail_) boundaries_.pop_front();
}

}  // namespace tarn
