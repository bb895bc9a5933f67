// Effects: what a step of the protocol does to its host, as a few narrow interfaces behind the Executor.
//
// A real host has frames in memory, a store on a device and links; simulators and fuzzers have models of these.
// Functions are called within a step, under the latch of the page's stripe and in the order of the protocol's actions
// (action.hpp). Those marked "after a step" are called once that latch is released.
#pragma once

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
        later,   // the last latch holder reports it, by the event `quiesced`
        leased,  // local writes go on for a while: keep_lease() sees to it that they end
    };
    virtual Quiet quiesce(PageId page, FrameId frame, bool recalled) = 0;
    // Sectors dirty or being written home, for the event `quiesced`.
    virtual DirtyMask unwritten_of(FrameId frame) = 0;
    virtual void set_access(PageId page, FrameId frame, protocol::Ownership ownership, uint32_t lost) = 0;
    virtual void begin_writing(FrameId frame) = 0;
    virtual void clear_writing(FrameId frame) = 0;
    virtual void clear_dirty(FrameId frame) = 0;
    virtual void mark_dirty(FrameId frame) = 0;
    // True: the frame is free now; nothing else uses it.
    virtual bool release(FrameId frame) = 0;
    // How long ago the frame was used: its home decides by that whether to keep the bytes.
    virtual uint32_t age_of(FrameId frame) = 0;

    // After a step.
    virtual void keep_lease(PageId page, FrameId frame) = 0;
    virtual void freed() = 0;
};

// A request for home's bytes that the store has to answer.
struct HomeRead {
    HostId to = no_host;
    FrameId frame = no_frame;  // to this host itself: a separate frame, if one was free
    uint32_t link = 0;         // to another host: the link it asked over, and no later one
    protocol::Message message;
};

// Home's bytes of pages homed here, in memory and in the store.
class HomeStore {
  public:
    virtual ~HomeStore() = default;

    // Action::apply_copy and keep_copy. Both return whether a frame came free.
    virtual bool apply_copy(const protocol::Action& action) = 0;
    virtual bool keep_copy(const protocol::Action& action) = 0;

    // Where home's bytes are. A frame: home's own, or that of a reader here, which holds the same bytes.
    struct Found {
        enum class Where : uint8_t { frame, zeros, store } where;
        FrameId frame = no_frame;
    };
    virtual Found find(PageId page) = 0;
    // For this host's own Holder: makes the found frame the Holder's as well. False: somebody else uses it.
    virtual bool share(FrameId found) = 0;
    // Or copies the bytes into a frame that nobody reads yet.
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

    // frame: its present bytes go with the message; or no_frame. They are copied, or pinned, before this returns (I9).
    virtual void send(HostId to, const protocol::Message& message, FrameId frame) = 0;
};

// Applies an action about the flush books.
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

    // The operation has its frame. True: it goes on by resume() after the step; false: elsewhere.
    virtual bool wake(const protocol::Action& action, bool may_resume) = 0;
    virtual void refuse(const protocol::Action& action) = 0;
    // After a step.
    virtual void resume(protocol::WaiterToken waiter) = 0;
};

// All of them.
struct Effects {
    Frames& frames;
    HomeStore& home_store;
    Outbox& outbox;
    FlushBooks& books;
    Accesses& accesses;
};

// Sees each event of a step, and the protocol's actions.
class StepObserver {
  public:
    virtual ~StepObserver() = default;

    virtual void on_event(const protocol::Event&) {}
    // Called before anybody is told of them: records what must outlive the process.
    virtual void on_decided(const protocol::Event&, const protocol::Actions&) {}
    virtual void on_performed(const protocol::Event&) {}
};

}  // namespace tarn
