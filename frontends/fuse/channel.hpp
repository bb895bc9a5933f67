// Channel: reads the requests of a mount on one shard and runs their tasks. Requests come from the device or, where the
// kernel agreed to it, over io_uring (ring.hpp).
//
// A request from the device stays in the buffer that it was read into for as long as its task needs the bytes (a write
// that waits), and the next request gets another buffer. When all buffers are taken, the shard reads no more until one
// is free again.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "frontends/fuse/file_system.hpp"
#include "frontends/fuse/interrupts.hpp"
#include "frontends/fuse/library.hpp"
#include "frontends/fuse/ring.hpp"
#include "utils/loop.hpp"
#include "utils/sync.hpp"

namespace tarn::fuse {

class Channel {
  public:
    static constexpr size_t buffers_max = 256;
    static constexpr std::chrono::milliseconds buffer_pause{1};
    // How long requests may go on when the mount ends. Those that then still wait, for a host that is away, are
    // interrupted.
    static constexpr std::chrono::milliseconds farewell_max{1000};
    static constexpr unsigned requests_per_turn_max = 64;
    // A read that finds no request costs as much as one that does. So while requests come one by one, only one wake-up
    // in this many looks for a second request.
    static constexpr unsigned wake_ups_per_look = 8;

    // index: among the shards of the mount. agreed: called when the kernel and we agreed on rings, and to return when
    // every shard's is open.
    Channel(Loop& loop, unsigned index, fuse_session* session, std::function<Task<>()> agreed)
        : loop_(loop), session_(session), interrupts_(loop, index), agreed_(std::move(agreed)) {}

    // Before serve(): with a ring, we agree to rings if the kernel offers them.
    void set_ring(std::unique_ptr<Ring> ring) { ring_ = std::move(ring); }

    // The rest on the shard. Serves requests until stop() or the end of the mount, then waits for what they started.
    Task<> serve();
    Task<> stop();
    Task<> open_ring();
    // After serve() of all channels: nothing more is to come.
    Task<> close_interrupts() { return interrupts_.close(); }
    // The same, and when the connection ended.
    Task<> close_ring() {
        if (ring_) co_await ring_->closed();
    }
    // Sends the library's answer the way its request came; as writev().
    ssize_t reply(int device, std::span<const iovec> message);

    Loop& loop() { return loop_; }
    Interrupts& interrupts() { return interrupts_; }
    // Between a request's reading and its task's start: the request that is being dispatched.
    void start(fuse_req_t request, Task<Answer> task) { gate_.spawn(run(request, std::move(task))); }
    // Null for a request of the ring: its bytes stay until its reply anyway.
    RequestBytes keep_bytes() const { return current_; }

  private:
    class Buffer;
    Task<> run(fuse_req_t request, Task<Answer> task);
    Task<> end_requests();
    bool read_one();
    bool acquire_buffer();
    void note_offer();
    ssize_t agree(int device, std::span<const iovec> message);

    Loop& loop_;
    fuse_session* const session_;
    Interrupts interrupts_;
    std::vector<std::shared_ptr<Buffer>> buffers_;
    std::shared_ptr<Buffer> current_;
    std::unique_ptr<Ring> ring_;
    std::function<Task<>()> agreed_;
    bool offers_rings_ = false;  // the request that is being dispatched, the kernel's first
    bool agreeing_ = false;
    bool stopping_ = false;
    Gate gate_;
};

}  // namespace tarn::fuse
