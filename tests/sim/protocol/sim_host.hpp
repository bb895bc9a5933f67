// SimHost: one simulated host: the state that survives a crash, and the state that does not.
//
// The memory part corresponds to a real executor's: frames with masks and latches, home's bytes, the stripes and the
// flush parts. SimCluster performs the actions on it.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "coherence/membership/recovery.hpp"
#include "coherence/pages/loss_view.hpp"
#include "coherence/protocol/flush.hpp"
#include "coherence/protocol/marks.hpp"
#include "coherence/protocol/stripe.hpp"
#include "tests/sim/protocol/truth.hpp"
#include "tests/sim/support/failure.hpp"
#include "tests/sim/support/small_map.hpp"

namespace tarn::sim {

using protocol::Event;
using protocol::Ownership;
using protocol::Want;

struct Frame {
    bool used = false;
    PageId page{};
    Content content;
    DirtyMask dirty = 0;
    DirtyMask writing = 0;
    Ownership access = Ownership::none;
    bool busy = false;          // quiesce was asked: no new latch
    bool recalled = false;      // quiesce was asked, but local operations may still go first
    unsigned lease_writes = 0;  // how many writes, as long as it is recalled
    unsigned writes_since_recall = 0;
    uint64_t recalled_at = 0;
    unsigned latches = 0;   // operations that are inside
    uint32_t lost = 0;      // the frame's loss generation
    unsigned sends = 0;     // sends whose bytes have not left: nobody may write
    bool released = false;  // as soon as it has
};

// An operation's access to one of its pages.
struct Access {
    PageId page{};
    DirtyMask mask = 0;    // to be written; 0: it reads
    bool zero = false;     // all of the page, with zeros
    uint64_t number = 0;   // tells a waiter of an earlier operation from this one's
    bool waits = false;    // as a waiter of the Holder, not woken yet
    uint64_t version = 0;  // the version that it wrote

    Want want() const {
        if (mask == 0) return Want::shared;
        return mask == all_sectors ? Want::exclusive_no_read : Want::exclusive;
    }
};

// One request of a client. Its pages are asked for at once, in their order, and none is held while it waits for
// another; it ends when all have ended, and its writes are noted then.
struct Operation {
    enum class Kind : uint8_t { none, read, write, flush };
    Kind kind = Kind::none;
    PageId page{};         // the first
    uint64_t invoked = 0;  // number of the event
    uint64_t number = 0;   // tells a task of an earlier operation from this one's
    std::vector<Access> accesses;
    size_t missing = 0;                          // accesses that have not ended, plus one while they are being begun
    bool failed = false;                         // one access failed: the client does not know the others' outcome
    SmallMap<HostId, protocol::Verifier> began;  // of each home, before the first of its pages changed
    Truth::Cover cover;

    Access& access_to(PageId of) {
        for (Access& access : accesses)
            if (access.page == of) return access;
        throw Failure("an operation is about another page");
    }
};

// Of one client and volume. It must never see a page older than it has seen it.
struct Session {
    protocol::SessionId id = 0;
    std::shared_ptr<LossView> losses = std::make_shared<LossView>();
    SmallMap<PageId, uint64_t> seen;  // the newest version
};

struct Client {
    std::map<VolumeId, Session> sessions;
    unsigned remaining = 0;
    Operation operation;
};

struct Bytes {
    Content content;
    protocol::PageVersion page_version;
};

inline constexpr size_t sim_hosts_max = 8;

struct HostMemory {
    std::vector<protocol::Stripe> stripes;
    protocol::FlushHome flush_home;
    protocol::FlushHolder flush_holder;
    protocol::FlushRequester flush_requester;
    std::vector<Frame> frames;
    unsigned used_frames = 0;
    SmallMap<PageId, FrameId> bound;              // frames that local threads find
    SmallMap<PageId, Bytes> home_bytes;           // newer than the store
    std::array<Process, sim_hosts_max> met{};     // the process of each peer that was last met
    std::array<uint32_t, sim_hosts_max> heard{};  // the last loss generation heard of each home
    Recovery recovery{0, 0};                      // set when the process starts
    HostSet failed_stores = 0;                    // other hosts', as they reported
    protocol::LossRanges losses_before;           // on record when the home began to serve

    explicit HostMemory(HostId id) : flush_home(id), flush_holder(id), flush_requester(id) {}

    FrameId allocate() {
        FrameId frame = 0;
        while (frame < frames.size() && frames[frame].used) ++frame;
        if (frame == frames.size()) frames.emplace_back();
        frames[frame] = {};
        frames[frame].used = true;
        frames[frame].content.version = ~uint64_t{0};  // whoever reads this reads garbage
        ++used_frames;
        return frame;
    }
    void release(FrameId frame) {
        require(frame < frames.size() && frames[frame].used, "a frame is released twice");
        require(frames[frame].latches == 0, "a latched frame is released");
        frames[frame].released = frames[frame].sends != 0;
        frames[frame].dirty = frames[frame].writing = 0;
        if (frames[frame].released) return;
        frames[frame].used = false;
        --used_frames;
    }
};

inline constexpr unsigned stripes_per_host = 2;

struct MarkedPages final : protocol::Marks {
    std::set<PageId> pages;
    bool has(PageId page) const override { return pages.contains(page); }
};

struct SimHost {
    HostId id = no_host;
    Incarnation incarnation = 0;  // of the present memory, or the last
    uint32_t epoch = 0;           // of the present or last process
    bool is_up = false;
    bool is_forgotten = false;  // until it is back
    uint64_t resumed_at = 0;    // when it last was
    bool is_paused = false;     // its process is stopped, and its links are up
    // On the device:
    SmallMap<PageId, Bytes> store;
    uint32_t loss_generation = 0;
    std::vector<protocol::LossRange> losses;
    MarkedPages marks;
    // Outside:
    std::vector<Client> clients;
    std::map<VolumeId, Session> shared_sessions;  // of the host's clients, if they share one (Scenario)
    // Lost in a crash, unless only the process crashes:
    HostMemory memory{0};
    bool keeps_memory = false;       // the process is gone, and the next one adopts its memory
    bool losses_unrecorded = false;  // others lost theirs while it was away
    bool memory_was_lost = false;    // its own was lost, which is not on record yet
    protocol::Home::Past past;       // what the processes with this memory have left open
    unsigned losses_pending = 0;     // losses not on record yet
    // The present process does not trust the store any more; the next one tries again.
    bool store_failed = false;
    bool store_failure_told = false;  // to the flushes under way
    // Pages that an earlier process evicted bare, unknown to this one: home may count on them, until it asks.
    std::set<PageId> left_bare;

    protocol::Stripe& stripe_of(PageId page) { return memory.stripes[mix64(page.value >> 4) % stripes_per_host]; }
    const protocol::Stripe& stripe_of(PageId page) const { return const_cast<SimHost*>(this)->stripe_of(page); }
    void begin_unrecorded_losses() {
        memory.recovery.begin_unrecorded_losses();
        losses_unrecorded = true;
    }
    Process process() const { return {.incarnation = incarnation, .epoch = epoch}; }
    protocol::Verifier verifier() const { return protocol::verifier_of(incarnation, loss_generation); }
};

}  // namespace tarn::sim
