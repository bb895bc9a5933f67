// What a step of the protocol does to its host: the few narrow things that stand behind the Executor.
//
// A real host has frames in memory, a store on a device and links; simulators and fuzzers have models of these. What is
// called in the midst of a step is called under the latch of the page's stripe, in the order of the protocol's actions
// (action.hpp). What follows a step is called once that latch is released.
#pragma once

#include <span>
#include <vector>

#include "coherence/protocol/action.hpp"
#include "coherence/protocol/event.hpp"
#include "coherence/protocol/flush.hpp"
#include "tiers/page.hpp"

namespace tarn {

// The frames in which this host holds pages.
class Frames {
  public:
    virtual ~Frames() = default;

    enum class Quiet : uint8_t {
        now,     // nobody is inside, and nobody gets in
        later,   // who is inside says when that is over: by the event `quiesced`
        leased,  // local writes go on for a while: keep_lease() sees to it that they end
    };
    virtual Quiet quiesce(PageId page, FrameId frame, bool recalled) = 0;
    // Dirty or being written home: what the event `quiesced` tells.
    virtual DirtyMask unwritten_of(FrameId frame) = 0;
    virtual void set_access(PageId page, FrameId frame, protocol::Ownership ownership, uint32_t lost) = 0;
    virtual void begin_writing(FrameId frame) = 0;
    virtual void clear_writing(FrameId frame) = 0;
    virtual void clear_dirty(FrameId frame) = 0;
    virtual void mark_dirty(FrameId frame) = 0;
    // Whether it is free now: nothing else uses it.
    virtual bool release(FrameId frame) = 0;
    // How long ago it was used, for the home that decides whether to keep its bytes.
    virtual uint32_t age_of(FrameId frame) = 0;

    // After a step.
    virtual void keep_lease(PageId page, FrameId frame) = 0;
    virtual void freed() = 0;
};

// One request for home's bytes that the store has to answer.
struct HomeRead {
    HostId to = no_host;
    FrameId frame = no_frame;  // to this host itself: a frame of their own, if there was one
    uint32_t link = 0;         // to another: the link it was asked over, and no later one
    protocol::Message message;
};

// Home's bytes of pages homed here, in memory and in the store.
class HomeStore {
  public:
    virtual ~HomeStore() = default;

    // Action::apply_copy and keep_copy. Both say whether a frame came free.
    virtual bool apply_copy(const protocol::Action& action) = 0;
    virtual bool keep_copy(const protocol::Action& action) = 0;

    // Where home's bytes are. A frame: theirs, or that of a reader here, which holds the same.
    struct Found {
        enum class Where : uint8_t { frame, zeros, store } where;
        FrameId frame = no_frame;
    };
    virtual Found find(PageId page) = 0;
    // For this host's own Holder: the found frame becomes the Holder's as well. False: somebody else uses it.
    virtual bool share(FrameId found) = 0;
    // Or these bytes, copied into a frame that nobody reads yet.
    virtual void copy(Found found, FrameId into) = 0;
    // A frame of their own for home's bytes; no_frame: none is free.
    virtual FrameId take_free_frame() = 0;

    // After a step.
    virtual void read(std::vector<HomeRead> reads) = 0;
    virtual void record_losses(std::vector<PageId> pages, HostId lost_host) = 0;
    virtual void mark(std::vector<PageId> pages) = 0;
};

// Messages to other hosts.
class Outbox {
  public:
    virtual ~Outbox() = default;

    // frame: whose bytes go with it, as they are now, or no_frame. They are taken, or pinned, before this returns (I9).
    virtual void send(HostId to, const protocol::Message& message, FrameId frame) = 0;
};

// What an action of the books says.
void book(protocol::FlushHome& home, const protocol::Action& action, protocol::FlushActions& actions);

// The books of FlushHome and FlushHolder, which span stripes.
class FlushBooks {
  public:
    virtual ~FlushBooks() = default;

    virtual void book(const protocol::Action& action, protocol::FlushActions& actions) = 0;
    virtual void on_written(protocol::WaiterToken waiter, protocol::FlushActions& actions) = 0;
    // After a step.
    virtual void run(protocol::FlushActions actions) = 0;
};

// Local operations that wait.
class Accesses {
  public:
    virtual ~Accesses() = default;

    // It has its frame. True: it goes on by resume() after the step; false: somewhere else.
    virtual bool wake(const protocol::Action& action, bool may_resume) = 0;
    virtual void refuse(const protocol::Action& action) = 0;
    // After a step.
    virtual void resume(protocol::WaiterToken waiter) = 0;
};

// Sees each event of a step, and what the protocol makes of it.
class StepObserver {
  public:
    virtual ~StepObserver() = default;

    virtual void on_event(const protocol::Event&) {}
    // Before anybody is told of it: what must outlive the process is recorded here.
    virtual void on_decided(const protocol::Event&, const protocol::Actions&) {}
    virtual void on_performed(const protocol::Event&) {}
};

}  // namespace tarn
