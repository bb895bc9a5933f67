// PageAccess: one operation on one page, from its first attempt to its end. PageRequest: those of one client request.
//
// An access tries the hot path, takes a spare frame, asks the protocol, and when it is woken does its work under the
// frame's latch. Accesses of a request proceed on their own, none holds a page while it waits for another, so that
// requests larger than the pool, or hosts full of each other's pages, end all the same. No coroutine per page.
#pragma once

#include <coroutine>
#include <vector>

#include "coherence/cache/cache.hpp"

namespace tarn {

// Who waits for a free frame: posted to its shard when `frame` is one.
class FrameWaiter : public Loop::Posted {
  public:
    explicit FrameWaiter(Loop& loop) : shard(&loop) {}
    Loop* shard;
    FrameId frame = no_frame;
    FrameWaiter* next_waiter = nullptr;
    bool gave_up = false;  // posted without a frame, because of shutdown

  protected:
    ~FrameWaiter() = default;
};

// A change of a page's bytes in place, under its exclusive latch. True: it changed `size` bytes from `offset` on.
struct PageUpdate {
    virtual bool apply(std::byte* bytes) = 0;
    size_t offset = 0;
    size_t size = 0;

  protected:
    ~PageUpdate() = default;
};

class PageRequest;

class PageAccess final : public FrameWaiter {
  public:
    enum class Kind : uint8_t { read, write, zero, fetch, update };

    PageAccess(PageRequest& request, Loop& loop, Kind kind, PageId page, size_t offset, size_t size, std::byte* into,
               const std::byte* from, PageUpdate* update = nullptr)
        : FrameWaiter(loop),
          request_(request),
          page_(page),
          into_(into),
          from_(from),
          update_(update),
          kind_(kind),
          offset_(static_cast<uint16_t>(offset)),
          size_(static_cast<uint16_t>(size)) {}

    void start();
    void run() override;

    // Under the latch of the page's stripe: the access leaves the list of those that wait, and goes on on its shard.
    void post_woken(FrameId granted);
    void post_failed(Errc code);

    PageId page() const { return page_; }

    PageAccess* next = nullptr;  // list of the stripe
    PageAccess** link = nullptr;

  private:
    enum class State : uint8_t { idle, needs_frame, waiting, woken, failed };

    bool try_hot();
    void ask(FrameId spare);
    void work();
    protocol::Want want() const;

    PageRequest& request_;
    PageId page_;
    std::byte* into_;
    const std::byte* from_;
    PageUpdate* update_;
    Kind kind_;
    State state_ = State::idle;
    Errc code_ = Errc::io;
    uint16_t offset_;
    uint16_t size_;
};

class PageRequest {
  public:
    PageRequest(Cache& cache, Loop& loop) : cache_(cache), loop_(loop) {}
    PageRequest(const PageRequest&) = delete;

    // Splits a range of a volume into its pages. into or from, or neither (zero, fetch), as kind needs.
    void add(PageAccess::Kind kind, VolumeId volume, uint64_t offset_bytes, uint64_t size_bytes, std::byte* into,
             const std::byte* from);
    void add_update(PageId page, PageUpdate& update);

    // Awaits to the first error, once all accesses have ended.
    auto operator co_await();

    Cache& cache() { return cache_; }
    void ended(const Result<>& result);

  private:
    friend class PageRequestAwaiter;
    bool start();

    Cache& cache_;
    Loop& loop_;
    std::vector<PageAccess> accesses_;
    size_t missing_ = 0;
    Result<> result_;
    std::coroutine_handle<> waiter_;
};

class PageRequestAwaiter {
  public:
    explicit PageRequestAwaiter(PageRequest& request) : request_(request) {}
    bool await_ready() noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> handle) {
        if (request_.start()) return false;
        request_.waiter_ = handle;
        return true;
    }
    Result<> await_resume() { return request_.result_; }

  private:
    PageRequest& request_;
};

inline auto PageRequest::operator co_await() {
    return PageRequestAwaiter(*this);
}

}  // namespace tarn
