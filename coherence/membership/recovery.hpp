// Recovery: the rule when a home that has started may serve, for tarnd and the simulators. Pure; the caller locks.
//
// A home that starts knows no claims. It serves once every other host has reported, over its present link, what it
// holds here, or was declared dead; once the writes that may have been lost are on record; and once every page that
// somebody may write is marked (marks.hpp).
#pragma once

#include "coherence/membership/host_set.hpp"

namespace tarn {

class Recovery {
  public:
    enum class Next : uint8_t {
        wait,        // for a report, or for the recording under way
        look_again,  // more was heard since that moment
        record,      // if lacks_losses(), what may be lost; mark what is held; then recorded()
        serve,       // from now on; returned once
    };
    // Changes whenever something is heard that changes who holds what.
    using Moment = uint64_t;

    // memory_was_lost: bytes that only the previous process's memory had are gone, and not on record.
    Recovery(HostId self, HostSet hosts, bool memory_was_lost = false);

    bool recovering() const { return recovering_; }
    HostSet reported() const { return reported_; }
    Moment moment() const { return moment_; }

    // The host reports again over each link.
    void on_link_up(HostId host);
    void on_reported(HostId host);
    // on_dead: declared dead, the host will not report. on_returned: it is back as another process, and will.
    void on_dead(HostId host) { dead_ |= set_of(host); }
    void on_returned(HostId host) { dead_ &= ~set_of(host); }

    // From begin to end writes are lost, and not on record yet. begin returns the moment that its end is told; what
    // began before recorded() has ended by that. end: false while others are still unrecorded.
    Moment begin_unrecorded_losses();
    bool end_unrecorded_losses(Moment begun);
    bool has_unrecorded_losses() const { return unrecorded_losses_ > 0; }

    // Whether possible losses must still be recorded before this home serves.
    bool lacks_losses() const;
    // moment: when all_marked was determined.
    Next next(Moment moment, bool all_marked);
    // The records that Next::record asked for are durable, for this moment. False: more was heard since; record again.
    bool recorded(Moment moment, bool losses);
    bool has_recorded_losses() const { return has_recorded_losses_; }

  private:
    HostSet hosts_;  // that must report
    HostSet reported_;
    HostSet dead_ = 0;
    Moment moment_ = 0;
    Moment losses_recorded_at_ = 0;
    unsigned unrecorded_losses_ = 0;
    bool memory_was_lost_;
    bool recovering_ = true;
    bool recording_ = false;
    bool has_recorded_losses_ = false;
};

}  // namespace tarn
