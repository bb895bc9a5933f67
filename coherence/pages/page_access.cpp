#include "coherence/pages/page_access.hpp"

#include <algorithm>
#include <cstring>

#include "utils/interrupt.hpp"

namespace tarn {

namespace {
constexpr Error interrupted{Errc::cancelled, EINTR, "cache.access: interrupted"};
}

protocol::Want PageAccess::want() const {
    switch (kind_) {
        case Kind::read:
        case Kind::fetch: return protocol::Want::shared;
        case Kind::write:
        case Kind::zero: return size_ == page_size ? protocol::Want::exclusive_no_read : protocol::Want::exclusive;
        case Kind::update:
        case Kind::hold: return protocol::Want::exclusive;
    }
    return protocol::Want::exclusive;
}

bool PageAccess::try_hot() {
    const PageAccesses::Parts& parts = request_->parts();
    switch (kind_) {
        case Kind::read: return parts.pages.try_read(page_, offset_, {into_, size_}, request_->view());
        case Kind::write:
            return parts.pages.try_write(page_, offset_, {from_, size_}, request_->view(), request_->check(),
                                         request_->receipt_of(page_));
        case Kind::update: return parts.pages.try_update(page_, *update_, request_->view());
        case Kind::fetch: return parts.pages.holds(page_);
        case Kind::zero:
        case Kind::hold: return false;
    }
    return false;
}

void PageAccess::start() {
    const PageAccesses::Parts& parts = request_->parts();
    // Only a change needs the verifier; a read that hits looks up nothing else.
    const protocol::Verifier began = changes() ? parts.verifiers.present(parts.membership.home_of(page_)) : 0;
    if (changes()) request_->note_began(page_, began);
    if (try_hot()) {
        if (changes()) request_->changed(page_, began);
        return end({});
    }
    if (!needs_room()) return take_spare();
    const HostId home = parts.membership.home_of(page_);
    WritableShare& share = parts.writable_share;
    has_room_ = !share.anyone_waits_for(home) && share.try_enter(home);
    if (has_room_) return take_spare();
    if (is_refused()) return;
    state_ = State::needs_room;
    const PageId page = page_;
    share.wait(*this, home);
    // This access may have ended by now.
    if (parts.membership.refuses_writes_of(page)) share.let_in_all(home);
    parts.provider.relieve();
}

bool PageAccess::needs_room() const {
    const PageAccesses::Parts& parts = request_->parts();
    return want() != protocol::Want::shared && parts.membership.home_of(page_) != parts.membership.self() &&
           !parts.pages.is_writable(page_);
}

void PageAccess::take_spare() {
    const PageAccesses::Parts& parts = request_->parts();
    const FrameId spare = parts.supply.take();
    if (spare != no_frame) return ask(spare);
    if (is_refused()) return;
    state_ = State::needs_frame;
    parts.supply.wait(*this);
}

// True: the access would wait only to be refused, maybe for ever.
bool PageAccess::is_refused() {
    if (want() == protocol::Want::shared || !request_->parts().membership.refuses_writes_of(page_)) return false;
    end(fail(Errc::io, EIO, "cache.access: the store of the page's home failed"));
    return true;
}

void PageAccess::ask(FrameId spare) {
    state_ = State::waiting;
    asked_ = true;
    request_->host().acquire(page_, want(), *this, spare);
}

bool PageAccess::give_up() {
    if (ended_) return true;
    const PageAccesses::Parts& parts = request_->parts();
    if (asked_) {
        const Stripes::Cancelled cancelled = request_->host().cancel(*this);
        if (cancelled != Stripes::Cancelled::yes) return cancelled == Stripes::Cancelled::too_late;
    } else if (state_ == State::needs_room ? !parts.writable_share.cancel(*this, parts.membership.home_of(page_))
                                           : !parts.supply.cancel(*this)) {
        return true;
    }
    end({});
    return true;
}

void PageAccess::move_to(PageRequest& request) {
    request_ = &request;
    if (ended_ || !from_) return;
    copy_ = make_page_buffer(1);
    std::memcpy(copy_.get(), from_, size_);
    from_ = copy_.get();
}

void PageAccess::end(const Result<>& result) {
    ended_ = true;
    if (std::exchange(has_room_, false))
        request_->parts().writable_share.leave(request_->parts().membership.home_of(page_));
    request_->ended(result);
}

void PageAccess::run() {
    switch (state_) {
        case State::needs_room:
            if (gave_up) return end(fail(Errc::cancelled, 0, "cache.room"));
            has_room_ = true;
            if (request_->gave_up()) return end({});
            if (is_refused()) return;
            return take_spare();
        case State::needs_frame:
            if (gave_up) return end(fail(Errc::cancelled, 0, "cache.frame"));
            if (!request_->gave_up()) return ask(frame);
            request_->parts().supply.give(frame);
            return end({});
        case State::woken: return work();
        case State::failed: return end(fail(code_, 0, "cache.access"));
        case State::idle:
        case State::waiting: TARN_ASSERT(false);
    }
}

void PageAccess::wake(FrameId granted, uint32_t lost) {
    TARN_ASSERT(state_ == State::waiting);
    state_ = State::woken;
    frame = granted;
    lost_ = lost;
}

void PageAccess::post_failed(Errc code) {
    TARN_ASSERT(state_ == State::waiting);
    state_ = State::failed;
    code_ = code;
    shard->post(*this);
}

// Whether the session may see the page's bytes.
bool PageAccess::may_tell() const {
    return kind_ != Kind::read || lost_ == 0 ||
           request_->view().may_read(page_, request_->parts().membership.home_of(page_), lost_);
}

void PageAccess::release() {
    if (std::exchange(holds_, false)) request_->host().served(page_);
}

void PageAccess::write(Frame& granted, PageReceipt& receipt) {
    WriteCheck* const check = request_->check();
    if (check && !check->holds()) {
        const PageRequest::Run run{.offset_bytes = page_.number() * page_size + offset_, .size_bytes = size_};
        if (want() != protocol::Want::exclusive_no_read) return request_->refused().push_back(run);
        request_->in_doubt().push_back(run);
    }
    request_->parts().pages.write_frame(granted, offset_, {from_, size_}, &receipt);
}

void PageAccess::work() {
    const PageAccesses::Parts& parts = request_->parts();
    parts.pages.count_losses(page_, request_->view());
    if (kind_ == Kind::hold) {
        holds_ = true;
        if (!parts.pool.frame(frame).broken.load(std::memory_order_relaxed)) return end({});
        release();
        return end(fail(Errc::io, EIO, "cache.access: the page could not be read"));
    }
    if (!may_tell()) {
        request_->host().served(page_);
        return end(fail(Errc::io, EIO, "cache.access: writes of the page were lost"));
    }
    if (changes()) {
        const protocol::Verifier began = parts.verifiers.present(parts.membership.home_of(page_));
        request_->note_began(page_, began);
        request_->changed(page_, began);
    }
    bool broken = false;
    PageReceipt receipt = changes() ? request_->receipt_of(page_) : PageReceipt();
    parts.pages.with_frame(frame, want() != protocol::Want::shared, [&](Frame& granted, std::byte* bytes) {
        if (want() == protocol::Want::exclusive_no_read) granted.broken.store(false, std::memory_order_relaxed);
        broken = granted.broken.load(std::memory_order_relaxed);
        if (broken) return;
        switch (kind_) {
            case Kind::read: std::memcpy(into_, bytes + offset_, size_); break;
            case Kind::write: write(granted, receipt); break;
            case Kind::zero: parts.pages.zero_frame(granted, offset_, size_, &receipt); break;
            case Kind::update: parts.pages.update_frame(granted, *update_); break;
            case Kind::fetch:
            case Kind::hold: break;
        }
    });
    if (lost_ != 0 && want() == protocol::Want::exclusive_no_read) request_->view().wrote_whole(page_, lost_);
    if (!request_->host().served(page_, receipt)) return end(fail(Errc::cancelled, 0, "cache.access"));
    end(broken ? Result<>(fail(Errc::io, EIO, "cache.access: the page could not be read")) : Result<>());
}

void PageRequest::add(PageAccess::Kind kind, VolumeId volume, uint64_t offset_bytes, uint64_t size_bytes,
                      std::byte* into, const std::byte* from) {
    accesses_.reserve(accesses_.size() + size_bytes / page_size + 2);
    for (uint64_t done = 0; done < size_bytes;) {
        const uint64_t at = offset_bytes + done;
        const size_t offset = at % page_size;
        const size_t size = std::min<uint64_t>(page_size - offset, size_bytes - done);
        const bool is_done = receipts_ && receipts_->has(at / page_size - first_page_);
        if (!is_done)
            accesses_.emplace_back(*this, loop_, kind, PageId::of(volume, at / page_size), offset, size,
                                   into ? into + done : nullptr, from ? from + done : nullptr);
        done += size;
    }
}

void PageRequest::add_update(PageId page, PageUpdate& update) {
    accesses_.emplace_back(*this, loop_, PageAccess::Kind::update, page, 0, 0, nullptr, nullptr, &update);
}

void PageRequest::add_hold(PageId page) {
    accesses_.emplace_back(*this, loop_, PageAccess::Kind::hold, page, 0, 0, nullptr, nullptr);
}

void PageRequest::release_held() {
    for (PageAccess& access : accesses_) access.release();
}

// A home that was never heard of has given nobody a page.
void PageRequest::note_began(PageId page, protocol::Verifier began) {
    if (receipts_ && began != 0) receipts_->note_began(host_.parts().membership.home_of(page), began);
}

void PageRequest::changed(PageId page, protocol::Verifier began) {
    const HostId home = host_.parts().membership.home_of(page);
    if (std::ranges::find(began_, home, &Began::home) == began_.end()) began_.push_back({home, began});
}

protocol::Verifier PageRequest::began(HostId home) const {
    if (const protocol::Verifier noted = receipts_ ? receipts_->began(home) : 0; noted != 0) return noted;
    const auto found = std::ranges::find(began_, home, &Began::home);
    return found == began_.end() ? 0 : found->verifier;
}

void PageRequest::prefetch_from(size_t first) {
    std::array<PageId, pages_at_once> pages;
    size_t count = 0;
    while (count < pages.size() && first + count < accesses_.size()) {
        pages[count] = accesses_[first + count].page();
        ++count;
    }
    host_.prefetch({pages.data(), count});
}

// Returns whether everything ended at once.
bool PageRequest::start() {
    missing_ = accesses_.size() + 1;  // one more for this call: nobody may resume a coroutine that is not suspended
    {
        const Stripes::ReadBatch batch(host_.parts().stripes);
        const Fabric::Cork cork(accesses_.size() > 1 ? host_.parts().peers.fabric() : nullptr);
        for (size_t next = 0; next < accesses_.size(); ++next) {
            if (next % pages_at_once == 0 && accesses_.size() > 1) prefetch_from(next);
            accesses_[next].start();
        }
    }
    return --missing_ == 0;
}

void PageRequest::ended(const Result<>& result) {
    if (!result && result_) result_ = result;
    if (--missing_ != orphan_count_) return;
    if (view_of_orphans_)
        delete this;
    else
        waiter_.resume();
}

Task<Result<>> PageRequest::with_timeout(std::chrono::milliseconds limit) {
    Interrupt* const interrupt = co_await this_interrupt;
    if (interrupt && interrupt->raised()) co_return std::unexpected(interrupted);
    Timer timer(loop_);
    Gate watching;
    const Interrupt::Listener listener(interrupt, [this] { give_up(interrupted); });
    if (limit.count() != 0) watching.spawn(watch(*this, timer, limit));
    Result<> result = co_await *this;
    timer.cancel();
    co_await watching.close();
    if (orphan_count_ > 0) leave_orphans();
    co_return result;
}

Task<> PageRequest::watch(PageRequest& self, Timer& timer, std::chrono::milliseconds limit) {
    if (co_await timer.sleep(limit))
        self.give_up({Errc::unavailable, EIO, "cache.access: a host did not answer within fail-after"});
}

// Only the first call counts.
void PageRequest::give_up(Error why) {
    if (missing_ == orphan_count_) return;  // it ended in this very turn
    if (std::exchange(gave_up_, true)) return;
    ++missing_;  // so that nothing ends before all accesses were asked
    result_ = std::unexpected(why);
    for (PageAccess& access : accesses_)
        if (!access.give_up()) ++orphan_count_;
    ended({});
}

// The accesses stay where they are: the protocol knows them by their addresses.
void PageRequest::leave_orphans() {
    orphan_count_ = 0;
    if (missing_ == 0) return;  // they have ended meanwhile
    auto view = std::make_unique<LossView>();
    auto* const own = new PageRequest(host_, loop_, *view);
    own->view_of_orphans_ = std::move(view);
    own->missing_ = std::exchange(missing_, 0);
    own->use_of_orphans_ = VolumeUses::Use(host_.parts().uses, accesses_.front().page().volume());
    own->accesses_ = std::move(accesses_);
    for (PageAccess& access : own->accesses_) access.move_to(*own);
}

}  // namespace tarn
