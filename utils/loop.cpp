#include "utils/loop.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "utils/clock.hpp"

namespace tarn {

namespace {
thread_local Loop* current_loop = nullptr;
constexpr size_t registered_buffer_size = size_t{1} << 30;  // the kernel's limit for one
constexpr unsigned reap_rounds_max = 4;
constexpr unsigned polled_entries = 64;
constexpr uint64_t look_turn_ns_max = 20'000;
constexpr unsigned vain_looks_max = 16;
}  // namespace

Loop* Loop::current() noexcept {
    return current_loop;
}

void Loop::set_current(Loop* loop) noexcept {
    current_loop = loop;
}

Result<std::unique_ptr<Loop>> Loop::create(unsigned entries) {
    TRY(std::unique_ptr<OperationRing> ring, make_io_uring(entries));
    return create(std::move(ring));
}

Result<std::unique_ptr<Loop>> Loop::create(std::unique_ptr<OperationRing> ring, MakeRing make_polled) {
    std::unique_ptr<Loop> loop(new Loop(std::move(ring), std::move(make_polled)));
    loop->wakeup_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
    if (!loop->wakeup_) return fail(Errc::io, errno, "loop.create: eventfd");
    return loop;
}

Loop::~Loop() {
    if (attached_) detach();
}

Result<> Loop::register_memory(std::span<std::byte> memory) {
    TARN_ASSERT(current() == this && registered_.empty());
    std::vector<iovec> buffers;
    for (std::span<std::byte> rest = memory; !rest.empty();) {
        const size_t size = std::min(rest.size(), registered_buffer_size);
        buffers.push_back({.iov_base = rest.data(), .iov_len = size});
        rest = rest.subspan(size);
    }
    TRY_VOID(ring_->register_buffers(buffers));
    registered_ = memory;
    return {};
}

int Loop::registered_buffer(std::span<const std::byte> bytes) const {
    if (registered_.empty() || bytes.empty()) return -1;
    const auto start = static_cast<size_t>(bytes.data() - registered_.data());  // wraps when it lies before
    const size_t last = start + bytes.size() - 1;
    if (start >= registered_.size() || last >= registered_.size()) return -1;
    const size_t buffer = start / registered_buffer_size;
    return last / registered_buffer_size == buffer ? static_cast<int>(buffer) : -1;
}

// The ring belongs to one thread from here on.
void Loop::attach() {
    if (attached_) return;
    attached_ = true;
    current_loop = this;
    ring_->attach();
    own_gate_.spawn(watch_wakeups());
}

void Loop::detach() {
    detaching_ = true;
    wake();
    drain(own_gate_);
    posted_.run_all();
    if (polled_ring_) polled_ring_->detach();
    ring_->detach();
    attached_ = false;
    current_loop = nullptr;
}

void Loop::drain(Gate& gate) {
    struct Close {
        bool done = false;
        static Task<> close(Gate& gate, Close& self) {
            co_await gate.close();
            self.done = true;
        }
    } close;
    Gate closing;
    closing.spawn(Close::close(gate, close));
    while (!close.done) turn();
}

void Loop::run() {
    attach();
    while (!stopping_.load(std::memory_order_relaxed)) turn();
    drain(gate_);
    detach();
}

void Readiness::arm() {
    if (armed_) return;
    armed_ = true;
    loop_.start(*this, [this](io_uring_sqe& sqe) { io_uring_prep_poll_multishot(&sqe, fd_, events_); });
}

void Readiness::complete(int32_t result, bool more) {
    armed_ = more;  // the kernel ends it when completions pile up; the next wait begins anew
    if (result < 0)
        error_ = -result;
    else
        seen_ |= static_cast<unsigned>(result);
    if (waiter_) std::exchange(waiter_, {}).resume();
}

Task<> Readiness::close() {
    if (armed_) loop_.cancel(*this);
    while (armed_) static_cast<void>(co_await wait());
}

bool Loop::polls() {
    TARN_ASSERT(current() == this);
    if (polled_ring_ || polled_ring_refused_) return polled_ring_ != nullptr;
    Result<std::unique_ptr<OperationRing>> ring = make_polled_ring_(polled_entries);
    polled_ring_refused_ = !ring;
    if (!ring) return false;
    polled_ring_ = std::move(*ring);
    polled_ring_->attach();
    return true;
}

void Loop::cancel_fd(int fd) {
    io_uring_sqe& sqe = submission();
    io_uring_prep_cancel_fd(&sqe, fd, IORING_ASYNC_CANCEL_ALL);
    io_uring_sqe_set_data(&sqe, nullptr);
}

void Loop::cancel(Completion& operation) {
    io_uring_sqe& sqe = submission();
    io_uring_prep_cancel(&sqe, &operation, 0);
    io_uring_sqe_set_data(&sqe, nullptr);
}

void Loop::post(Posted& call) {
    if (current_loop == this) return void(posted_.add(call));
    calls_from_others_.fetch_add(1, std::memory_order_relaxed);
    if (posted_.add(call)) wake();
}

void Loop::stop() {
    stopping_.store(true, std::memory_order_seq_cst);
    wake();  // whether it sleeps or not: once in a loop's life
}

void Loop::wake() {
    ::eventfd_write(wakeup_.get(), 1);
}

Task<> Loop::watch_wakeups() {
    for (;;) {
        const Result<size_t> woken =
            co_await read(wakeup_.get(), std::as_writable_bytes(std::span(&wakeup_count_, 1)), 0);
        if (!woken || detaching_) co_return;
    }
}

Task<Result<>> Loop::writable(int fd) {
    CO_TRY(const size_t events, co_await poll(fd, POLLOUT));
    if ((events & ~static_cast<size_t>(POLLRDHUP)) != 0) co_return Result<>{};
    // The peer sends no more, and may still receive. epoll does not tell of the one when asked for the other.
    const UniqueFd watch(::epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{.events = EPOLLOUT, .data = {}};
    if (!watch || ::epoll_ctl(watch.get(), EPOLL_CTL_ADD, fd, &event) != 0)
        co_return fail(Errc::io, errno, "loop.writable");
    CO_TRY_VOID(co_await poll(watch.get(), POLLIN));
    co_return Result<>{};
}

// Waits first and works last: the caller then looks at what the work changed before it waits again.
void Loop::turn() {
    turns_.store(turns() + 1, std::memory_order_relaxed);
    const bool polls = polled_under_way_ != 0;
    const bool has_work = busy_ || polls || (looks_before_sleep() && look_for_work());
    const bool waits = !has_work && begin_sleep();
    if (waits) waits_.store(this->waits() + 1, std::memory_order_relaxed);
    ring_->submit(waits);
    if (!has_work) end_sleep();
    const bool reaped = reap();
    const bool came = look_at_watched() || reaped || posted_.any();
    if (polls && !came) ::sched_yield();  // others share this CPU
    posted_.run_all();
    busy_ = idle_hook_ && idle_hook_(idle_argument_);
}

// True: nothing is here, and whoever brings something wakes the loop.
bool Loop::begin_sleep() {
    bool sleeps = posted_.begin_sleep();
    for (Watched* const each : watched_) sleeps = (!each || each->begin_sleep()) && sleeps;
    return sleeps;
}

void Loop::end_sleep() {
    posted_.end_sleep();
    for (Watched* const each : watched_)
        if (each) each->end_sleep();
}

bool Loop::look_at_watched() {
    bool came = false;
    for (size_t i = 0; i < watched_.size(); ++i)  // which may grow meanwhile
        if (watched_[i]) came = watched_[i]->look() || came;
    std::erase(watched_, nullptr);
    return came;
}

// True: something came. Each turn of the look lets other threads have the CPU. One that took longer than that, and in
// which this thread was put aside, shows that some wanted it.
bool Loop::look_for_work() {
    const auto times_put_aside = [] {
        rusage usage{};
        ::getrusage(RUSAGE_THREAD, &usage);
        return usage.ru_nivcsw;
    };
    auto aside = times_put_aside();
    uint64_t now_ns = monotonic_ns();
    for (const uint64_t end_ns = now_ns + look_ns_.load(std::memory_order_relaxed); now_ns < end_ns;) {
        ring_->submit(false);
        if (reap() || posted_.any() || look_at_watched()) {
            vain_looks_ = 0;
            return true;
        }
        ::sched_yield();
        const uint64_t before_ns = std::exchange(now_ns, monotonic_ns());
        if (now_ns - before_ns < look_turn_ns_max) continue;
        const auto aside_before = std::exchange(aside, times_put_aside());
        if (aside == aside_before) continue;
        is_contended_ = true;
        break;
    }
    if (is_contended_ || ++vain_looks_ == vain_looks_max) look_ns_.store(0, std::memory_order_relaxed);
    return false;
}

// True: something was complete. Bounded: what completes at once whenever it is submitted must not keep everything else
// waiting.
bool Loop::reap() {
    const bool came = reap(*ring_);
    if (polled_under_way_ == 0) return came;
    polled_ring_->submit(false);
    return reap(*polled_ring_) || came;
}

bool Loop::reap(OperationRing& ring) {
    // Copied out first: a completion may submit, and what it reaps the ring then reuses.
    std::array<OperationRing::Completed, 64> done;
    for (unsigned round = 0; round < reap_rounds_max; ++round) {
        const size_t count = ring.reap(done);
        if (count == 0) return round > 0;
        if (&ring == polled_ring_.get()) polled_under_way_ -= count;
        for (const auto& [operation, result, more] : std::span(done).first(count))
            if (operation) static_cast<Completion*>(operation)->complete(result, more);
    }
    return true;
}

}  // namespace tarn
