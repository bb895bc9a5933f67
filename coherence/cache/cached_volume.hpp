// CachedVolume: a Volume whose pages are those of the Cache. One for each handle: its read-ahead follows one reader.
#pragma once

#include "coherence/cache/cache.hpp"
#include "coherence/cache/flusher.hpp"
#include "coherence/cache/read_ahead.hpp"
#include "coherence/cache/session.hpp"
#include "coherence/volume.hpp"

namespace tarn {

class PageRequest;
struct PageUpdate;

class CachedVolume : public Volume {
  public:
    // For a session that begins now, or for one that goes on.
    CachedVolume(Cache& cache, VolumeId id, OnLoss on_loss = OnLoss::fail)
        : CachedVolume(cache, std::make_shared<Session>(cache, id, on_loss)) {}
    CachedVolume(Cache& cache, std::shared_ptr<Session> session);

    // Until the volume's attributes are read, and say how long.
    void wait_at_most(std::chrono::milliseconds limit) { session_->fail_after.store(limit, std::memory_order_relaxed); }
    VolumeId id() const override { return note_.volume; }
    std::shared_ptr<VolumeSession> session() const override { return session_; }
    // As if the session began now (OnLoss::revert).
    void begin_anew() { cache_.flusher().renew_note(note_); }

    bool try_pin(uint64_t offset_bytes, uint32_t size_bytes, std::vector<Pin>& pins) override;
    void unpin(std::span<const Pin> pins) override;
    bool try_read(uint64_t offset_bytes, std::span<std::byte> into) override;
    bool try_write(uint64_t offset_bytes, std::span<const std::byte> from) override;
    std::optional<Attributes> try_attributes() override;

    Task<Result<>> read(uint64_t offset_bytes, std::span<std::byte> into) override;
    Task<Result<>> fetch(uint64_t offset_bytes, uint64_t size_bytes) override;
    Task<Result<>> write(uint64_t offset_bytes, std::span<const std::byte> from) override;
    Task<Result<>> zero(uint64_t offset_bytes, uint64_t size_bytes, bool keep_space) override;
    Task<Result<>> flush() override;
    Task<Result<>> flush_range(uint64_t offset_bytes, uint64_t size_bytes, bool attributes) override;
    // D1 for these pages, all of them homed here; a power cut before it is done leaves all of them as they were, or all
    // as they are. Of the catalog only: its pages do not get into the store one by one, by their eviction.
    Task<Result<>> flush_group(std::vector<uint64_t> numbers);
    // D1 for the attributes alone: asks only their home.
    Task<Result<>> flush_attributes();
    // D1 for the first size_bytes: asks only their homes.
    Task<Result<>> flush_up_to(uint64_t size_bytes);
    Task<Result<>> prefetch(uint64_t offset_bytes, uint64_t size_bytes) override;
    Task<Result<std::vector<Extent>>> extents(uint64_t offset_bytes, uint64_t size_bytes) override;

    Task<Result<Attributes>> attributes() override;
    Task<Result<Attributes>> change_attributes(AttributeChange change) override;
    Task<Result<>> write_growing(uint64_t offset_bytes, std::span<const std::byte> from) override;
    Task<Result<uint64_t>> append(std::span<const std::byte> from) override;

  private:
    Attributes heed(const Attributes& attributes);
    // To its end, or as far as the volume's fail-after and the interrupt of the task allow.
    Task<Result<>> perform(PageRequest& request);
    std::chrono::milliseconds fail_after() const { return session_->fail_after.load(std::memory_order_relaxed); }
    // A change of the attribute page.
    Task<Result<>> update(PageUpdate& update);
    // Before the reply of a write to these pages. began(home): the home's verifier of before it; 0: no page of it
    // changed.
    template <class Began>
    void note_written(uint64_t offset_bytes, uint64_t size_bytes, Began&& began);
    void read_ahead(uint64_t offset_bytes, uint64_t size_bytes);
    static Task<> bring_in(Cache& cache, VolumeId volume, ReadAhead::Range range);
    Task<Result<>> zero_pages(uint64_t offset_bytes, uint64_t size_bytes);
    Task<Result<>> flush_volume();
    Task<Result<>> flush_pages(uint64_t offset_bytes, uint64_t size_bytes, bool attributes);

    Cache& cache_;
    const std::shared_ptr<Session> session_;
    WriteNote& note_;  // of the session
    ReadAhead read_ahead_;
};

}  // namespace tarn
