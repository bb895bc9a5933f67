#include "coherence/membership/recovery.hpp"

#include <utility>

namespace tarn {

Recovery::Recovery(HostId self, HostSet hosts, bool memory_was_lost)
    : hosts_(hosts), reported_(set_of(self)), memory_was_lost_(memory_was_lost) {}

void Recovery::on_link_up(HostId host) {
    if (recovering_) reported_ &= ~set_of(host);
    ++moment_;
}

// Who looked before that has not seen what the host holds.
void Recovery::on_reported(HostId host) {
    reported_ |= set_of(host);
    ++moment_;
}

Recovery::Moment Recovery::begin_unrecorded_losses() {
    ++unrecorded_losses_;
    return ++moment_;
}

bool Recovery::end_unrecorded_losses(Moment begun) {
    if (begun > losses_recorded_at_) --unrecorded_losses_;
    return unrecorded_losses_ == 0;
}

bool Recovery::lacks_losses() const {
    return unrecorded_losses_ > 0 || memory_was_lost_ || (has_recorded_losses_ && losses_recorded_at_ != moment_);
}

Recovery::Next Recovery::next(Moment moment, bool all_marked) {
    if (!recovering_ || (hosts_ & ~(reported_ | dead_)) != 0) return Next::wait;
    if (moment != moment_) return Next::look_again;
    if (lacks_losses() || !all_marked) return std::exchange(recording_, true) ? Next::wait : Next::record;
    recovering_ = false;
    return Next::serve;
}

bool Recovery::recorded(Moment moment, bool losses) {
    if (moment != moment_) return false;
    recording_ = false;
    if (losses) {
        unrecorded_losses_ = 0;
        memory_was_lost_ = false;
        has_recorded_losses_ = true;
        losses_recorded_at_ = moment;
    }
    return true;
}

}  // namespace tarn
