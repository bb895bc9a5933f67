#include "coherence/cache/page_access.hpp"

#include <algorithm>
#include <cstring>

#include "coherence/cache/home_read_batch.hpp"

namespace tarn {

protocol::Want PageAccess::want() const {
    switch (kind_) {
        case Kind::read:
        case Kind::fetch: return protocol::Want::shared;
        case Kind::write:
        case Kind::zero: return size_ == page_size ? protocol::Want::exclusive_no_read : protocol::Want::exclusive;
        case Kind::update: return protocol::Want::exclusive;
    }
    return protocol::Want::exclusive;
}

bool PageAccess::try_hot() {
    Cache& cache = request_.cache();
    switch (kind_) {
        case Kind::read: return cache.try_read(page_, offset_, {into_, size_});
        case Kind::write: return cache.try_write(page_, offset_, {from_, size_});
        case Kind::update: return cache.try_update(page_, *update_);
        case Kind::fetch: return cache.holds(page_);
        case Kind::zero: return false;
    }
    return false;
}

void PageAccess::start() {
    Cache& cache = request_.cache();
    if (try_hot()) return request_.ended({});
    const FrameId spare = cache.take_frame();
    if (spare != no_frame) return ask(spare);
    state_ = State::needs_frame;
    cache.wait_for_frame(*this);
}

void PageAccess::ask(FrameId spare) {
    state_ = State::waiting;
    request_.cache().acquire(page_, want(), *this, spare);
}

void PageAccess::run() {
    switch (state_) {
        case State::needs_frame:
            if (gave_up) return request_.ended(fail(Errc::cancelled, 0, "cache.frame"));
            return ask(frame);
        case State::woken: return work();
        case State::failed: return request_.ended(fail(code_, 0, "cache.access"));
        case State::idle:
        case State::waiting: TARN_ASSERT(false);
    }
}

void PageAccess::post_woken(FrameId granted) {
    TARN_ASSERT(state_ == State::waiting);
    state_ = State::woken;
    frame = granted;
    shard->post(*this);
}

void PageAccess::post_failed(Errc code) {
    TARN_ASSERT(state_ == State::waiting);
    state_ = State::failed;
    code_ = code;
    shard->post(*this);
}

void PageAccess::work() {
    Cache& cache = request_.cache();
    bool broken = false;
    cache.with_frame(frame, want() != protocol::Want::shared, [&](Frame& granted, std::byte* bytes) {
        if (want() == protocol::Want::exclusive_no_read) granted.broken.store(false, std::memory_order_relaxed);
        broken = granted.broken.load(std::memory_order_relaxed);
        if (broken) return;
        switch (kind_) {
            case Kind::read: std::memcpy(into_, bytes + offset_, size_); break;
            case Kind::write:
                std::memcpy(bytes + offset_, from_, size_);
                cache.mark_written(granted, offset_, size_);
                break;
            case Kind::zero:
                std::memset(bytes + offset_, 0, size_);
                cache.mark_written(granted, offset_, size_);
                granted.zeroed.store(size_ == page_size, std::memory_order_relaxed);
                break;
            case Kind::update:
                if (update_->apply(bytes)) cache.mark_written(granted, update_->offset, update_->size);
                break;
            case Kind::fetch: break;
        }
    });
    cache.served(page_);
    request_.ended(broken ? Result<>(fail(Errc::io, EIO, "cache.access: the page could not be read")) : Result<>());
}

void PageRequest::add(PageAccess::Kind kind, VolumeId volume, uint64_t offset_bytes, uint64_t size_bytes,
                      std::byte* into, const std::byte* from) {
    accesses_.reserve(accesses_.size() + size_bytes / page_size + 2);
    for (uint64_t done = 0; done < size_bytes;) {
        const uint64_t at = offset_bytes + done;
        const size_t offset = at % page_size;
        const size_t size = std::min<uint64_t>(page_size - offset, size_bytes - done);
        accesses_.emplace_back(*this, loop_, kind, PageId::of(volume, at / page_size), offset, size,
                               into ? into + done : nullptr, from ? from + done : nullptr);
        done += size;
    }
}

void PageRequest::add_update(PageId page, PageUpdate& update) {
    accesses_.emplace_back(*this, loop_, PageAccess::Kind::update, page, 0, 0, nullptr, nullptr, &update);
}

// True: everything ended at once.
bool PageRequest::start() {
    missing_ = accesses_.size() + 1;  // one for this call, so that nobody resumes a coroutine that is not suspended
    {
        const HomeReadBatch batch(cache_);
        for (PageAccess& access : accesses_) access.start();
    }
    return --missing_ == 0;
}

void PageRequest::ended(const Result<>& result) {
    if (!result && result_) result_ = result;
    if (--missing_ == 0) waiter_.resume();
}

}  // namespace tarn
