// Ring: the requests of a mount that come to one shard over io_uring (Linux 6.14 and newer, where the administrator
// enabled it) instead of by read() and writev() on the device. A request comes with a completion, and its reply leaves
// with the submission that asks for the next one.
//
// The kernel has a queue for each CPU and takes the one of the CPU where the request is made. A queue is served by the
// shard that is joined to its CPU. A queue's entry holds one request, from its coming to its reply, and the bytes of
// both. The device still brings what needs no reply in turn: forgets and interrupts. Used by Channel, on its shard.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "frontends/fuse/library.hpp"
#include "frontends/fuse/ring_abi.hpp"
#include "utils/loop.hpp"
#include "utils/mapping.hpp"
#include "utils/sync.hpp"

namespace tarn::fuse {

// A queue of the kernel, and how many of its requests may be here at once. The queue of every CPU that the machine may
// ever have needs an entry; otherwise the kernel sends no request over rings.
struct RingQueue {
    uint16_t number = 0;
    unsigned depth = 0;
};
// The queues that each shard serves. Those of CPUs that no shard is joined to are shared out. Errors: io (the CPUs
// cannot be learned).
Result<std::vector<std::vector<RingQueue>>> ring_queues(std::span<Loop* const> shards);

class Ring {
  public:
    // Errors: io, no memory.
    static Result<std::unique_ptr<Ring>> create(Loop& loop, fuse_session* session, std::span<const RingQueue> queues);
    Ring(const Ring&) = delete;
    ~Ring();

    // Asks for requests; from now on they reach the session's operations. A refusal is logged: the kernel then goes on
    // with the device.
    void open();
    // Replies to the request that the message's header names, unless it came another way: false.
    bool reply(std::span<const iovec> message);
    // Requests that come from now on are left to the kernel, which fails them when the mount ends.
    void refuse() { refusing_ = true; }
    // Returns when the kernel let go of every entry, which it does when the connection ended.
    Task<> closed();

  private:
    class Entry;
    Ring(Loop& loop, fuse_session* session);
    void submit(Entry& entry, RingCommand command);
    void completed(Entry& entry, int32_t result);
    void serve(Entry& entry);

    // There are few at a time, so they are searched one by one, from the end.
    struct InHand {
        uint64_t unique;
        Entry* entry;
    };

    Loop& loop_;
    fuse_session* const session_;
    Mapping memory_;
    std::vector<std::unique_ptr<Entry>> entries_;
    std::vector<InHand> in_hand_;
    size_t submitted_ = 0;  // entries that the kernel has
    bool refusing_ = false;
    bool warned_ = false;
    Event closed_;
};

}  // namespace tarn::fuse
