// Stripe: one partition of a host's protocol state, a Home and a Holder that are stepped together.
//
// The executor calls reserve() and on() under the stripe's latch and performs the actions as action.hpp says. Messages
// between this host's own Holder and Home never leave the step; only what needs bytes from the store does
// (send_home_bytes to this host).
//
// Links. Messages to a host without a link are discarded by the executor, and so is what was in flight when a link
// broke: nothing is replayed. When a link comes up, every stripe gets `peer_up` before anything else of that link, and
// what it sends then (hello, requests, resolve) goes first. A peer takes the hello messages of all our stripes before
// any other message of the link, and every host does this towards every other. When the hello messages of every
// peer of the static list have been delivered to this incarnation, each stripe gets `recovered`; a host alone gets it
// at once. A peer whose link comes up anew before that counts as not having reported until it has done so over this
// link.

#pragma once

#include "coherence/protocol/action.hpp"
#include "coherence/protocol/event.hpp"
#include "coherence/protocol/holder.hpp"
#include "coherence/protocol/home.hpp"

namespace tarn::protocol {

class Stripe {
  public:
    Stripe(HostId self, uint32_t epoch, const RangeMap& ranges)
        : self_(self), home_(self, epoch), holder_(self, ranges) {}
    // See Holder.
    void use(const RangeMap& ranges) { holder_.use(ranges); }

    // Before the first step: how many pages this host holds at a time, or is home of, about.
    void expect(size_t page_count) {
        home_.expect(page_count);
        holder_.expect(page_count);
    }
    void set_marks(const Marks& marks) { home_.set_marks(marks); }
    void reserve();
    void on(const Event& event, Actions& actions);
    // Events about this page come soon: first where to find what is known of it, then that itself.
    void prefetch(PageId page) const {
        holder_.prefetch(page);
        home_.prefetch(page);
    }
    void prefetch_records(PageId page) const {
        holder_.prefetch_record(page);
        home_.prefetch_record(page);
    }

    // Where the payload of this message may be copied now, in the step that delivers it; no_frame: use another frame. A
    // frame is lent for one request only: bytes of an earlier one that come late must not overwrite what has come
    // since.
    FrameId lent_frame(const Message& message) const;
    // Where home's bytes may be copied in the step in which this host's own home sends them: they are the present ones,
    // whatever came before. no_frame: this host waits for something else by now.
    FrameId landing_of(const Message& message) const;

    const Home& home() const { return home_; }
    const Holder& holder() const { return holder_; }
    void adopt_request_ids(RequestId last) { holder_.adopt_request_ids(last); }

  private:
    void dispatch(const Event& event, Actions& actions);

    HostId self_;
    Home home_;
    Holder holder_;
};

}  // namespace tarn::protocol
