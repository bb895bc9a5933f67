// Recovery: when a home that has started may serve. The one rule, of tarnd and of the simulators. Pure; the caller
// locks.
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
        look_again,  // more was heard since the moment
        record,      // if lacks_losses(), what may be lost; mark what is held; then recorded()
        serve,       // from now on; said once
    };
    // Another one whenever something is heard that changes who holds what.
    using Moment = uint64_t;

    // memory_was_lost: what the process before had in memory alone is gone and not on record.
    Recovery(HostId self, HostSet hosts, bool memory_was_lost = false);

    bool recovering() const { return recovering_; }
    HostSet reported() const { return reported_; }
    Moment moment() const { return moment_; }

    // It reports anew over each link.
    void on_link_up(HostId host);
    void on_reported(HostId host) { reported_ |= set_of(host); }
    // Declared dead: it will not report. Or it is back as another process, and will.
    void on_dead(HostId host) { dead_ |= set_of(host); }
    void on_returned(HostId host) { dead_ &= ~set_of(host); }

    // Writes are lost, and that is not on record yet. Each begin has its end; false: some are still unrecorded.
    void begin_unrecorded_losses();
    bool end_unrecorded_losses();
    bool has_unrecorded_losses() const { return unrecorded_losses_ > 0; }

    // Whether what may be lost is yet to be recorded before this home serves.
    bool lacks_losses() const;
    // moment: at which all_marked was found out.
    Next next(Moment moment, bool all_marked);
    // What Next::record asked for is durable as of this moment. False: more was heard since; record again.
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
