#include "utils/operation_ring.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "utils/assert.hpp"

namespace tarn {

namespace {

// Fewer would cost more system calls; with more, a device runs dry while a turn works through its completions.
constexpr unsigned submissions_gathered_max = 2;

class IoUring final : public OperationRing {
  public:
    IoUring() = default;
    IoUring(const IoUring&) = delete;
    ~IoUring() override {
        if (made_) io_uring_queue_exit(&ring_);
    }
    Result<> make(unsigned entries, unsigned flags) {
        io_uring_params params{};
        // The loop's thread runs completions only when it asks for them: no interrupts of the service of a request.
        params.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_R_DISABLED |
                       IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP | IORING_SETUP_SQE128 | flags;
        params.cq_entries = entries * 8;
        if (const int made = io_uring_queue_init_params(entries, &ring_, &params); made < 0)
            return fail(Errc::io, -made, "loop.create: io_uring_setup");
        made_ = true;
        return {};
    }

    Result<> register_buffers(std::span<const iovec> buffers) override {
        const int done = io_uring_register_buffers(&ring_, buffers.data(), static_cast<unsigned>(buffers.size()));
        if (done < 0) return fail(Errc::io, -done, "loop.register_memory");
        return {};
    }
    void attach() override {
        // Debian 12's liburing declares io_uring_enable_rings and does not export it.
        TARN_ASSERT(::syscall(__NR_io_uring_register, ring_.ring_fd, IORING_REGISTER_ENABLE_RINGS, nullptr, 0) == 0);
        // Spares each turn the look at the table of descriptors; refused, it costs no more than that.
        io_uring_register_ring_fd(&ring_);
    }
    void detach() override {
        io_uring_unregister_ring_fd(&ring_);  // belongs to this thread, and the loop may be destroyed on another
    }

    io_uring_sqe& next_submission() override {
        if (io_uring_sq_ready(&ring_) >= submissions_gathered_max) io_uring_submit(&ring_);
        for (;;) {
            if (io_uring_sqe* const sqe = io_uring_get_sqe(&ring_)) return *sqe;
            io_uring_submit(&ring_);
        }
    }
    void submit(bool wait) override {
        if (wait)
            io_uring_submit_and_wait(&ring_, 1);
        else
            io_uring_submit_and_get_events(&ring_);
    }
    size_t reap(std::span<Completed> into) override {
        std::array<io_uring_cqe*, 64> entries;
        const auto count_max = static_cast<unsigned>(std::min(into.size(), entries.size()));
        const unsigned count = io_uring_peek_batch_cqe(&ring_, entries.data(), count_max);
        for (unsigned i = 0; i < count; ++i)
            into[i] = {.user_data = io_uring_cqe_get_data(entries[i]),
                       .result = entries[i]->res,
                       .more = (entries[i]->flags & IORING_CQE_F_MORE) != 0};
        io_uring_cq_advance(&ring_, count);
        return count;
    }

  private:
    io_uring ring_{};
    bool made_ = false;
};

Result<std::unique_ptr<OperationRing>> make_with(unsigned entries, unsigned flags) {
    auto ring = std::make_unique<IoUring>();
    TRY_VOID(ring->make(entries, flags));
    return ring;
}

}  // namespace

Result<std::unique_ptr<OperationRing>> make_io_uring(unsigned entries) {
    return make_with(entries, 0);
}

Result<std::unique_ptr<OperationRing>> make_polled_io_uring(unsigned entries) {
    return make_with(entries, IORING_SETUP_IOPOLL);
}

}  // namespace tarn
