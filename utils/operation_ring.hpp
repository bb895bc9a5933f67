// OperationRing: what a Loop asks of the kernel: operations are submitted, and complete.
//
// IoUring is an io_uring. The simulator of whole hosts has one of its own, so that everything above it runs as it is
// shipped, in virtual time.
#pragma once

#include <liburing.h>

#include <cstdint>
#include <memory>
#include <span>

#include "utils/result.hpp"

namespace tarn {

class OperationRing {
  public:
    virtual ~OperationRing() = default;

    // Whole pages that the kernel pins once; an operation names them by their place in the list. Errors: io.
    virtual Result<> register_buffers(std::span<const iovec> buffers) = 0;
    // Everything from here on is on this thread, until detach().
    virtual void attach() = 0;
    virtual void detach() = 0;

    // The next operation, to be filled in at once: 128 bytes. Operations are handed over a few at a time.
    virtual io_uring_sqe& next_submission() = 0;
    // The rest is handed over. wait: until an operation is complete.
    virtual void submit(bool wait) = 0;

    struct Completed {
        void* user_data;
        int32_t result;
        bool more;  // of the same operation
    };
    // Some that are complete; how many.
    virtual size_t reap(std::span<Completed> into) = 0;
};

// entries bounds what is handed over at once, not what may be under way. Errors: io (io_uring is disabled or too old).
Result<std::unique_ptr<OperationRing>> make_io_uring(unsigned entries);
// One for reads and writes past the page cache, of whose end no interrupt tells: each submit() asks the device
// (IORING_SETUP_IOPOLL). The same errors.
Result<std::unique_ptr<OperationRing>> make_polled_io_uring(unsigned entries);

}  // namespace tarn
