// Interrupts: the requests of one shard of a mount that wait for something, and how they stop waiting: the kernel says
// that their process has a signal, or the mount is taken down by force. Each is then answered with EINTR.
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

    // What the task of one request carries. Known here from when it first waits; it waits for nothing once it replied.
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

    // The shard that an id is of. What the library keeps with a request says which one is meant; any thread.
    static unsigned index_of(uint64_t id) { return id & ((1U << index_bits) - 1); }
    void interrupted(uint64_t id);
    // The rest on the shard. All that wait, and all that will.
    void raise_all();
    // When no request can come any more: returns once none of those that came is still to be looked at.
    Task<> close();

  private:
    void add(Operation& operation);
    void run() override;
    void raise(uint64_t id);
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
