// Executor: one step of a stripe: an event, the actions that the protocol answers with, and their effects on this host.
//
// tarnd, the simulators and the fuzzer all step through it; they differ in the implementation of the effects. It keeps
// no state, so any number of stripes may be stepped at once, each under its latch.
#pragma once

#include <array>
#include <vector>

#include "coherence/executor/effects.hpp"
#include "coherence/protocol/action.hpp"
#include "coherence/protocol/coalescing.hpp"
#include "coherence/protocol/stripe.hpp"

namespace tarn {

// The links as a stripe knows them: each stripe hears of a link under its own latch.
struct StripeLinks {
    HostSet up = 0;                            // hosts whose peer_up on the present link the stripe has had
    std::array<uint32_t, hosts_max> counts{};  // how many links each host has had
};

// What a step uses while it lasts: memory that is allocated once.
struct StepScratch {
    std::vector<protocol::Event> events;
    protocol::Actions actions;
    protocol::PendingGrant pending_grant;
};

// What a step leaves to do once the latch is released.
struct StepResult {
    struct Leased {
        PageId page;
        FrameId frame = no_frame;
    };
    std::vector<HomeRead> home_reads;
    protocol::FlushActions flush_actions;
    std::vector<PageId> losses;
    std::vector<PageId> marks;
    HostId lost_host = no_host;  // whose memory they were lost with
    std::vector<protocol::WaiterToken> resumed;
    std::vector<Leased> leased;
    bool of_message = false;  // this thread does nothing else meanwhile
    bool frames_freed = false;
    StaticText refused = "";  // why the link that brought the message ends
};

class Executor {
  public:
    Executor(HostId self, const Effects& effects) : self_(self), effects_(effects) {}

    // Performs the event and all that follows from it here. Under the stripe's latch; not from within a step of it.
    void step(protocol::Stripe& stripe, const StripeLinks& links, StepScratch& scratch, const protocol::Event& event,
              StepResult& result, StepObserver& observer) const;
    // Under no latch.
    void finish(StepResult& result) const;

  private:
    struct Step;
    void perform(Step& step, const protocol::Action& action) const;
    void quiesce(Step& step, const protocol::Action& action) const;
    void send_home_bytes(Step& step, const protocol::Action& action) const;
    void send(Step& step, HostId to, protocol::Message message, FrameId frame) const;
    void send_pending_grant(Step& step) const;

    HostId self_;
    const Effects effects_;
};

}  // namespace tarn
