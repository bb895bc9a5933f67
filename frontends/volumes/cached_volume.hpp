// CachedVolume: a Volume whose pages are those of the Cache. One for each handle: its read-ahead follows one reader.
//
//   cached_volume.cpp  bytes where they lie, flushes, attributes
//   growth.cpp         the writes of a file: bytes and size together
//   truncation.cpp     the size, and what lies past it
#pragma once

#include <functional>

#include "frontends/volumes/client_session.hpp"
#include "frontends/volumes/read_ahead.hpp"
#include "frontends/volumes/tiers.hpp"
#include "frontends/volumes/volume.hpp"
#include "frontends/volumes/volume_context.hpp"

namespace tarn {

class Growth;
class PageRequest;
struct AttributePage;

class CachedVolume : public Volume {
  public:
    // For a session that begins now, or for one that goes on.
    CachedVolume(VolumeContext& context, VolumeId id, OnLoss on_loss = OnLoss::fail)
        : CachedVolume(context, std::make_shared<ClientSession>(context.cache, id, on_loss)) {}
    CachedVolume(VolumeContext& context, std::shared_ptr<ClientSession> client);

    // Until the volume's attributes are read, and say how long.
    void wait_at_most(std::chrono::milliseconds limit) { client_->fail_after.store(limit, std::memory_order_relaxed); }
    VolumeId id() const override { return session_.volume; }
    std::shared_ptr<VolumeSession> session() const override { return client_; }
    // As if the session began now (OnLoss::revert).
    void begin_anew() { cache_.flusher().renew_session(session_); }

    void expect(std::span<const Range> ranges) override;
    bool try_pin(uint64_t offset_bytes, uint32_t size_bytes, std::vector<Pin>& pins) override;
    void unpin(std::span<const Pin> pins) override;
    bool try_read(uint64_t offset_bytes, std::span<std::byte> into) override;
    bool try_write(uint64_t offset_bytes, std::span<const std::byte> from, WriteReceipts* receipts = nullptr) override {
        return try_write_checked(offset_bytes, from, nullptr, receipts);
    }
    std::optional<Attributes> try_attributes() override;
    std::optional<uint64_t> try_size() override;

    Task<Result<>> read(uint64_t offset_bytes, std::span<std::byte> into) override;
    Task<Result<>> fetch(uint64_t offset_bytes, uint64_t size_bytes) override;
    Task<Result<>> write(uint64_t offset_bytes, std::span<const std::byte> from,
                         WriteReceipts* receipts = nullptr) override;
    Task<Result<>> zero(uint64_t offset_bytes, uint64_t size_bytes, bool keep_space,
                        WriteReceipts* receipts = nullptr) override;
    Task<Result<>> flush() override { co_return client_->flushed(co_await flush_volume()); }
    Task<Result<>> flush_range(uint64_t offset_bytes, uint64_t size_bytes, bool attributes) override;
    // D1 for these pages, all of them homed here; a power cut before it is done leaves all of them as they were, or all
    // as they are. Of the catalog only: its pages do not get into the store one by one, by their eviction.
    Task<Result<>> flush_group(std::vector<uint64_t> numbers);
    // D1 for what has its home there: asks only these hosts.
    Task<Result<>> flush_homes(HostSet homes) { return cache_.flusher().flush(session_, homes, fail_after()); }
    Task<Result<>> flush_attributes() { return flush_homes(set_of(cache_.home_of(attribute_page_of(id())))); }
    Task<Result<>> flush_up_to(uint64_t size_bytes);
    Task<Result<>> prefetch(uint64_t offset_bytes, uint64_t size_bytes) override;
    Task<Result<>> fetch_pages(uint64_t offset_bytes, uint64_t size_bytes);
    uint64_t fetched_at_once_max() const;
    Task<Result<std::vector<Extent>>> extents(uint64_t offset_bytes, uint64_t size_bytes) override;
    std::vector<TierExtent> tiers(std::span<const Extent> extents) override { return tiers_of(cache_, id(), extents); }

    Task<Result<Attributes>> attributes() override;
    Task<Result<uint64_t>> size() override;
    Task<Result<Attributes>> change_attributes(AttributeChange change) override;
    Task<Result<>> write_growing(uint64_t offset_bytes, std::span<const std::byte> from) override;
    Task<Result<uint64_t>> append(std::span<const std::byte> from) override;

  private:
    AttributePage apply_fail_after(const AttributePage& page);
    // Without what only truncations need (AttributePage::front_size).
    std::optional<AttributePage> try_attribute_page();
    std::optional<AttributePage> try_attribute_page(LossView& losses);
    Task<Result<AttributePage>> attribute_page();
    Task<Result<AttributePage>> attribute_page(LossView& losses);
    bool try_write_checked(uint64_t offset_bytes, std::span<const std::byte> from, WriteCheck* check,
                           WriteReceipts* receipts = nullptr);
    // To its end, or as far as the volume's fail-after and the interrupt of the task allow.
    Task<Result<>> perform(PageRequest& request);
    // The same, and what it wrote of this range is noted.
    Task<Result<>> perform_write(PageRequest& request, uint64_t offset_bytes, uint64_t size_bytes);
    std::chrono::milliseconds fail_after() const { return client_->fail_after.load(std::memory_order_relaxed); }
    // Changes the attributes in place. change: whether it changed any. Returns them as they are then.
    Task<Result<AttributePage>> update_attributes(std::function<bool(AttributePage&)> change);
    // Before the reply of a write to these pages. began(home): the home's verifier of before it; 0: no page of it
    // changed.
    template <class Began>
    void note_written(uint64_t offset_bytes, uint64_t size_bytes, Began&& began);
    void read_ahead(uint64_t offset_bytes, uint64_t size_bytes);
    static Task<> bring_in(VolumeContext& context, VolumeId volume, ReadAhead::Range range);
    Task<Result<>> zero_pages(uint64_t first_page, uint64_t offset_bytes, uint64_t size_bytes, bool keep_space,
                              WriteReceipts* receipts);
    // growth.cpp
    Task<Result<>> write_file(uint64_t offset_bytes, std::span<const std::byte> from);
    Task<Result<>> write_inside(uint64_t offset_bytes, std::span<const std::byte> from, uint64_t truncations);
    Task<Result<>> settle_cut(uint64_t offset_bytes, std::span<const std::byte> from, uint64_t truncations,
                              PageRequest& request);
    // False: pages are missing.
    bool try_grow(Growth& growth);
    Task<Result<>> grow(Growth& growth);
    Task<Result<>> place(Growth& growth);
    Task<Result<>> bring_here(Growth& growth);
    Task<Result<>> grow_holding(Growth& growth);
    Task<Result<>> touch(int64_t now_ns);

    // truncation.cpp
    Task<Result<Attributes>> change_size(AttributeChange change);
    Task<Result<>> zero_cut(AttributePage marked);
    Task<Result<uint64_t>> zero_past_end(uint64_t until);
    Task<Result<>> zeroing_over();
    Task<Result<AttributePage>> whole_attribute_page();

    Task<Result<>> flush_volume();
    Task<Result<>> flush_pages(uint64_t offset_bytes, uint64_t size_bytes, bool attributes);

    VolumeContext& context_;
    Cache& cache_;
    const std::shared_ptr<ClientSession> client_;
    Session& session_;       // of the client
    LossView all_are_past_;  // of a session that began after every loss
    ReadAhead read_ahead_;
};

constexpr uint64_t page_after(uint64_t end_bytes) {
    return (end_bytes + page_size - 1) / page_size;
}

template <class Began>
void CachedVolume::note_written(uint64_t offset_bytes, uint64_t size_bytes, Began&& began) {
    const uint64_t end = page_after(offset_bytes + size_bytes);
    if (std::atomic<uint64_t>& pages_end = client_->pages_end;
        offset_bytes < volume_size_max && end > pages_end.load(std::memory_order_relaxed)) {
        uint64_t seen = pages_end.load(std::memory_order_relaxed);
        while (seen < end && !pages_end.compare_exchange_weak(seen, end, std::memory_order_relaxed)) {
        }
    }
    const uint64_t step = cache_.membership().ranges().pages_per_range();
    for (uint64_t page = offset_bytes / page_size; page < end; page = (page / step + 1) * step) {
        const HostId home = cache_.home_of(PageId::of(id(), page));
        const protocol::Verifier verifier = began(home);
        if (verifier == 0) continue;  // none of its pages changed
        cache_.flusher().wrote(session_, home, PageId::of(id(), page),
                               PageId::of(id(), std::min(end, (page / step + 1) * step) - 1), verifier);
    }
}

}  // namespace tarn
