// PageAccess: one operation on one page, from first attempt to end. PageRequest: the accesses of one client request.
//
// An access tries the hot path, takes a spare frame, asks the protocol, and once woken does its work under the frame's
// latch. The accesses of a request proceed independently, and none holds a page while it waits for another: so requests
// larger than the pool end, even between hosts full of each other's pages. No coroutine per page.
#pragma once

#include <chrono>
#include <coroutine>
#include <memory>
#include <vector>

#include "coherence/pages/page_accesses.hpp"
#include "coherence/protocol/flush.hpp"
#include "tiers/nvme/device/page_buffer.hpp"

namespace tarn {

class PageRequest;

class PageAccess final : public FrameWaiter, public StripeWaiter {
  public:
    // hold: the page is this host's to write from the end of the access on until release().
    enum class Kind : uint8_t { read, write, zero, fetch, update, hold };

    PageAccess(PageRequest& request, Loop& loop, Kind kind, PageId page, size_t offset, size_t size, std::byte* into,
               const std::byte* from, PageUpdate* update = nullptr)
        : FrameWaiter(loop),
          request_(&request),
          page_(page),
          into_(into),
          from_(from),
          update_(update),
          kind_(kind),
          offset_(static_cast<uint16_t>(offset)),
          size_(static_cast<uint16_t>(size)) {}

    void start();
    void run() override;

    // Called under the latch of the page's stripe, once the access has left the stripe's waiters. It then goes on by
    // run(), on its shard.
    void wake(FrameId granted, uint32_t lost);
    void post_failed(Errc code) override;

    PageId page() const { return page_; }
    protocol::Want want() const;

    // On its shard, when its request has stopped waiting. True: it has ended, or will in a moment; false: it writes a
    // whole page, and does so when it can.
    bool give_up();
    // Goes on for this request, with its own copy of the bytes.
    void move_to(PageRequest& request);
    // For the kind hold, after the access has ended.
    void release();

  private:
    enum class State : uint8_t { idle, needs_room, needs_frame, waiting, woken, failed };

    bool try_hot();
    bool changes() const { return kind_ == Kind::write || kind_ == Kind::zero || kind_ == Kind::update; }
    bool needs_room() const;
    void take_spare();
    bool is_refused();
    void ask(FrameId spare);
    void work();
    void write(Frame& frame, PageReceipt& receipt);
    void end(const Result<>& result);
    bool may_tell() const;

    PageRequest* request_;
    PageId page_;
    std::byte* into_;
    const std::byte* from_;
    PageUpdate* update_;
    Kind kind_;
    State state_ = State::idle;
    bool asked_ = false;  // the protocol; until then it may wait for room or a frame
    bool ended_ = false;
    bool holds_ = false;
    bool has_room_ = false;  // in the WritableShare
    Errc code_ = Errc::io;
    PageBuffer copy_;    // of the bytes to write, once their request is over
    uint32_t lost_ = 0;  // the loss generation in which the page last lost writes
    uint16_t offset_;
    uint16_t size_;
};

class PageRequest {
  public:
    // view: of the request's session, which outlives it.
    PageRequest(PageAccesses& accesses, Loop& loop, LossView& view) : host_(accesses), loop_(loop), view_(view) {}
    PageRequest(const PageRequest&) = delete;

    // Splits a range of a volume into its pages. The kind needs `into`, `from`, or neither (zero, fetch).
    void add(PageAccess::Kind kind, VolumeId volume, uint64_t offset_bytes, uint64_t size_bytes, std::byte* into,
             const std::byte* from);
    void add_update(PageId page, PageUpdate& update);
    void add_hold(PageId page);
    // Releases the held pages; call it before the request ends.
    void release_held();
    // Of the pages that are added from here on; first: the first of the request's. Pages that have one are left out.
    void receipt_with(WriteReceipts* receipts, uint64_t first) {
        receipts_ = receipts;
        first_page_ = first;
    }
    PageReceipt receipt_of(PageId page) const { return {receipts_, page.number() - first_page_}; }
    // The check is made for each page that is written. If it fails nothing is written, and the access is refused; but a
    // page that came without its bytes must be written: then the outcome is in doubt.
    void check_with(WriteCheck& check) { check_ = &check; }
    struct Run {
        uint64_t offset_bytes;
        uint64_t size_bytes;
    };
    std::vector<Run>& refused() { return refused_; }
    std::vector<Run>& in_doubt() { return in_doubt_; }

    // co_await returns the first error, once all accesses have ended.
    bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> handle) {
        if (start()) return false;
        waiter_ = handle;
        return true;
    }
    Result<> await_resume() const { return result_; }

    PageAccesses& host() { return host_; }
    const PageAccesses::Parts& parts() const { return host_.parts(); }
    LossView& view() { return view_; }
    WriteCheck* check() { return check_; }
    bool gave_up() const { return gave_up_; }
    void ended(const Result<>& result);
    // A page of the request is about to change. began: the verifier of the page's home, as it is known now.
    void note_began(PageId page, protocol::Verifier began);
    // It was changed.
    void changed(PageId page, protocol::Verifier began);
    // The verifier of this home before the first of its pages changed; 0: none changed.
    protocol::Verifier began(HostId home) const;

    // As co_await, with a time limit (0: none). Also fails when the waiting task is interrupted. Accesses that cannot
    // be undone then run to their end by themselves.
    Task<Result<>> with_timeout(std::chrono::milliseconds limit);

  private:
    bool start();
    static constexpr size_t pages_at_once = 32;
    void prefetch_from(size_t first);
    static Task<> watch(PageRequest& self, Timer& timer, std::chrono::milliseconds limit);
    void give_up(Error why);
    void leave_orphans();

    PageAccesses& host_;
    Loop& loop_;
    LossView& view_;
    WriteCheck* check_ = nullptr;
    WriteReceipts* receipts_ = nullptr;
    uint64_t first_page_ = 0;
    std::vector<Run> refused_;
    std::vector<Run> in_doubt_;
    std::vector<PageAccess> accesses_;
    struct Began {
        HostId home;
        protocol::Verifier verifier;
    };
    std::vector<Began> began_;  // one for each home whose pages it has changed
    size_t missing_ = 0;
    bool gave_up_ = false;
    size_t orphan_count_ = 0;                    // accesses that will go on alone
    std::unique_ptr<LossView> view_of_orphans_;  // of the orphans' request, which deletes itself
    VolumeUses::Use use_of_orphans_;
    Result<> result_;
    std::coroutine_handle<> waiter_;
};

}  // namespace tarn
