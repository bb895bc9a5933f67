#include "utils/loop.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

namespace tarn {

namespace {
thread_local Loop* current_loop = nullptr;
constexpr size_t registered_buffer_size = size_t{1} << 30;  // the kernel's limit for one
// Fewer would cost more system calls; with more, a device runs dry while a turn works through its completions.
constexpr unsigned submissions_gathered_max = 2;
constexpr unsigned reap_rounds_max = 4;
}  // namespace

Loop* Loop::current() noexcept {
    return current_loop;
}

Result<std::unique_ptr<Loop>> Loop::create(unsigned entries) {
    std::unique_ptr<Loop> loop(new Loop);
    io_uring_params params{};
    // The loop's thread runs completions only when it asks for them: no interrupts of the service of a request.
    params.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_R_DISABLED |
                   IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP | IORING_SETUP_SQE128;
    params.cq_entries = entries * 8;
    if (const int made = io_uring_queue_init_params(entries, &loop->ring_, &params); made < 0)
        return fail(Errc::io, -made, "loop.create: io_uring_setup");
    loop->ring_made_ = true;
    loop->wakeup_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
    if (!loop->wakeup_) return fail(Errc::io, errno, "loop.create: eventfd");
    return loop;
}

Loop::~Loop() {
    if (attached_) detach();
    if (ring_made_) io_uring_queue_exit(&ring_);
}

Result<> Loop::register_memory(std::span<std::byte> memory) {
    TARN_ASSERT(current() == this && registered_.empty());
    std::vector<iovec> buffers;
    for (std::span<std::byte> rest = memory; !rest.empty();) {
        const size_t size = std::min(rest.size(), registered_buffer_size);
        buffers.push_back({.iov_base = rest.data(), .iov_len = size});
        rest = rest.subspan(size);
    }
    const int done = io_uring_register_buffers(&ring_, buffers.data(), static_cast<unsigned>(buffers.size()));
    if (done < 0) return fail(Errc::io, -done, "loop.register_memory");
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
    // Debian 12's liburing declares io_uring_enable_rings and does not export it.
    TARN_ASSERT(::syscall(__NR_io_uring_register, ring_.ring_fd, IORING_REGISTER_ENABLE_RINGS, nullptr, 0) == 0);
    // Spares each turn the look at the table of descriptors; refused, it costs no more than that.
    io_uring_register_ring_fd(&ring_);
    own_gate_.spawn(watch_wakeups());
}

void Loop::detach() {
    detaching_ = true;
    wake();
    drain(own_gate_);
    run_posted();
    io_uring_unregister_ring_fd(&ring_);  // belongs to this thread, and the loop may be destroyed on another
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

io_uring_sqe& Loop::submission() {
    if (io_uring_sq_ready(&ring_) >= submissions_gathered_max) io_uring_submit(&ring_);
    for (;;) {
        if (io_uring_sqe* const sqe = io_uring_get_sqe(&ring_)) return *sqe;
        io_uring_submit(&ring_);
    }
}

void Sleep::await_suspend(std::coroutine_handle<> handle) {
    handle_ = handle;
    io_uring_sqe& sqe = loop_.submission();
    io_uring_prep_timeout(&sqe, &duration_, 0, 0);
    io_uring_sqe_set_data(&sqe, static_cast<Loop::Completion*>(this));
}

void Readiness::arm() {
    if (armed_) return;
    armed_ = true;
    io_uring_sqe& sqe = loop_.submission();
    io_uring_prep_poll_multishot(&sqe, fd_, events_);
    io_uring_sqe_set_data(&sqe, static_cast<Loop::Completion*>(this));
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
    Posted* head = inbox_.load(std::memory_order_relaxed);
    do {
        call.next = head;
    } while (!inbox_.compare_exchange_weak(head, &call, std::memory_order_seq_cst));
    if (current_loop != this && sleeping_.load(std::memory_order_seq_cst)) wake();
}

void Loop::stop() {
    stopping_.store(true, std::memory_order_seq_cst);
    wake();  // whether it sleeps or not: once in a loop's life
}

void Loop::wake() {
    ::eventfd_write(wakeup_.get(), 1);
}

void Loop::run_posted() {
    Posted* stack = inbox_.exchange(nullptr, std::memory_order_acquire);
    Posted* queue = nullptr;  // the inbox is a stack; calls run in the order they came
    while (stack) queue = std::exchange(stack, std::exchange(stack->next, queue));
    while (queue) std::exchange(queue, queue->next)->run();
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
    ++turns_;
    // Announce first, then look once more: either a post sees the announcement, or we see the post.
    sleeping_.store(true, std::memory_order_seq_cst);
    if (!busy_ && !inbox_.load(std::memory_order_seq_cst))
        io_uring_submit_and_wait(&ring_, 1);
    else
        io_uring_submit_and_get_events(&ring_);
    sleeping_.store(false, std::memory_order_relaxed);
    reap();
    run_posted();
    busy_ = idle_hook_ && idle_hook_(idle_argument_);
}

// Bounded: what completes at once whenever it is submitted must not keep everything else waiting.
void Loop::reap() {
    std::array<io_uring_cqe*, 64> entries;
    struct Done {
        Completion* completion;
        int32_t result;
        bool more;
    };
    std::array<Done, entries.size()> done;
    for (unsigned round = 0; round < reap_rounds_max; ++round) {
        const unsigned count = io_uring_peek_batch_cqe(&ring_, entries.data(), entries.size());
        if (count == 0) return;
        // Copied out first: a completion may submit, and what it reaps the ring then reuses.
        for (unsigned i = 0; i < count; ++i)
            done[i] = {.completion = static_cast<Completion*>(io_uring_cqe_get_data(entries[i])),
                       .result = entries[i]->res,
                       .more = (entries[i]->flags & IORING_CQE_F_MORE) != 0};
        io_uring_cq_advance(&ring_, count);
        for (unsigned i = 0; i < count; ++i)
            if (done[i].completion) done[i].completion->complete(done[i].result, done[i].more);
    }
}

}  // namespace tarn
