// Stripe: one partition of a host's protocol state: a Home and a Holder that are stepped together.
//
// The executor calls reserve() and on() under the stripe's latch and performs the actions as action.hpp says. Messages
// between this host's own Holder and Home never leave the step; only what needs bytes from the store does
// (send_home_bytes to this host).
//
// Links. The executor discards messages to a host without a link; those in flight when a link broke are lost: nothing
// is replayed. When a link comes up, every stripe gets `peer_up` before anything else of that link, and the messages it
// sends then (hello, requests) go first. A peer takes the hello messages of all our stripes before any other message of
// the link, and then its stripes get `peer_greeted`; every host does this towards every other. One side of a link may
// be up before the other: until then that one's messages are discarded. When the hello messages of every peer of the
// static list have been delivered to this incarnation, each stripe gets `recovered`; a host alone gets it at once. A
// peer whose link comes up again before that counts as not having reported until it has done so over the new link.

#pragma once

#include "coherence/protocol/action.hpp"
#include "coherence/protocol/event.hpp"
#include "coherence/protocol/holder.hpp"
#include "coherence/protocol/home.hpp"

namespace tarn::protocol {

class Stripe {
  public:
    // See Home and Holder.
    Stripe(HostId self, uint32_t epoch, const Home::Past& past, const RangeMap& ranges)
        : self_(self), home_(self, epoch, past), holder_(self, ranges) {}
    // See Holder.
    void use(const RangeMap& ranges) { holder_.use(ranges); }

    // Call it before the first step: about how many pages this host holds at a time, or is home of.
    void expect(size_t page_count) {
        home_.expect(page_count);
        holder_.expect(page_count);
    }
    void set_marks(const Marks& marks) { home_.set_marks(marks); }
    void reserve();
    void on(const Event& event, Actions& actions);
    // Prefetches, for events about this page that come soon: first the slots of its records, then the records.
    void prefetch(PageId page) const {
        holder_.prefetch(page);
        home_.prefetch(page);
    }
    void prefetch_records(PageId page) const {
        holder_.prefetch_record(page);
        home_.prefetch_record(page);
    }

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
