// Interrupts: ends the waiting of a mount's requests, for one shard: when the kernel says that their process has a
// signal, or when the mount is taken down by force. An interrupted request is answered with EINTR.
//
// A process that is being killed goes at once. One that has a handler for its signal is interrupted only if what it
// waits for takes longer than a moment, which means that a host is away: programs do not expect EINTR of a file, and a
// page that comes from another host is no reason to give it to them.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "frontends/fuse/library.hpp"
#include "utils/interrupt.hpp"
#include "utils/loop.hpp"
#include "utils/sync.hpp"

namespace tarn::fuse {

class Interrupts final : Loop::Posted {
  public:
    static constexpr std::chrono::milliseconds moment{1000};
    static constexpr unsigned index_bits = 8;

    // index: of the shard among those of the mount.
    Interrupts(Loop& loop, unsigned index) : loop_(loop), last_(index) {}
    Interrupts(const Interrupts&) = delete;

    // The interrupt of one request's task. Registered here from the task's first wait until its reply.
    class Operation final : public Interrupt {
      public:
        Operation(Interrupts& interrupts, fuse_req_t request) : interrupts_(interrupts), request_(request) {}
        ~Operation() {
            if (id_ != 0) interrupts_.waiting_.erase(id_);
        }

      private:
        friend class Interrupts;
        void on_awaited() override { interrupts_.add(*this); }
        Interrupts& interrupts_;
        const fuse_req_t request_;
        uint64_t id_ = 0;
    };

    // The shard that an id belongs to; the library keeps the id with the request. Any thread.
    static unsigned index_of(uint64_t id) { return id & ((1U << index_bits) - 1); }
    void interrupted(uint64_t id);
    // The rest is called on the shard. Interrupts all requests that wait, and all that will.
    void raise_all();
    // Called when no interrupt can come any more; returns once all that came were handled.
    Task<> close();

  private:
    void add(Operation& operation);
    void run() override;
    void raise(uint64_t id) {
        if (const auto found = waiting_.find(id); found != waiting_.end()) found->second->raise();
    }
    Task<> raise_later(uint64_t id);

    Loop& loop_;
    std::map<uint64_t, Operation*> waiting_;
    uint64_t last_;
    bool all_ = false;
    Gate gate_;

    std::mutex mutex_;  // of these two
    std::vector<uint64_t> interrupted_;
    bool posted_ = false;
};

}  // namespace tarn::fuse
