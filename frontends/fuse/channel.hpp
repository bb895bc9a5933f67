// Channel: how one shard reads the requests of a mount, and the tasks they become.
//
// A request's bytes stay in the buffer they were read into as long as its task needs them (a write that waits); the
// next request then gets another buffer. When all are taken the shard reads no more until one is free again.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "frontends/fuse/file_system.hpp"
#include "frontends/fuse/library.hpp"
#include "utils/loop.hpp"
#include "utils/sync.hpp"

namespace tarn::fuse {

class Channel {
  public:
    static constexpr size_t buffers_max = 256;
    static constexpr std::chrono::milliseconds buffer_pause{1};
    static constexpr unsigned requests_per_turn_max = 64;
    // A read that finds no request costs as much as one that does: while requests come one by one, only every so many
    // wake-ups look for a second one.
    static constexpr unsigned wake_ups_per_look = 8;

    Channel(Loop& loop, fuse_session* session) : loop_(loop), session_(session) {}

    // On the shard: reads requests until stop() or the end of the mount, then waits for what they started.
    Task<> serve();
    // On the shard.
    void stop();

    Loop& loop() { return loop_; }
    // Between a request's reading and its task's start: the request that is being dispatched.
    void start(Task<> task) { gate_.spawn(std::move(task)); }
    RequestBytes keep_bytes() const { return current_; }

  private:
    class Buffer;
    bool read_one();
    bool acquire_buffer();

    Loop& loop_;
    fuse_session* const session_;
    std::vector<std::shared_ptr<Buffer>> buffers_;
    std::shared_ptr<Buffer> current_;
    bool stopping_ = false;
    Gate gate_;
};

}  // namespace tarn::fuse
