// Following: whether a connection is to go where its client runs. Pure: samples in, a wish out.
//
// A wake-up across CPUs costs more than all the rest of a small request. But the scheduler may move a client at any
// wake-up, and a move costs as much as some requests. So the client has to be seen twice on the same other CPU, and
// moves are rationed: after a few at once, so many a second. A client that changes its CPU all the time is then served
// wherever its connection happens to be.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace tarn::nbd {

class Following {
  public:
    using Clock = std::chrono::steady_clock;
    // Wake-ups from one look at the client to the next: while it is here, and while it may be elsewhere. A look may
    // read a file of /proc.
    static constexpr unsigned wake_ups_here = 64;
    static constexpr unsigned wake_ups_elsewhere = 4;
    static constexpr unsigned sightings_min = 2;
    static constexpr unsigned moves_at_once_max = 8;
    static constexpr std::chrono::milliseconds time_per_move{10};

    // A wake-up brings requests. True: it is time to look for the client, and saw() comes next.
    bool wakes_up() { return --until_look_ == 0; }
    // cpu: where it runs, if that is known. here: this is a CPU of the shard that serves it.
    void saw(std::optional<unsigned> cpu, bool here, Clock::time_point now) {
        until_look_ = !cpu || here ? wake_ups_here : wake_ups_elsewhere;
        here_ = cpu && here;
        if (!cpu || here) {
            sightings_ = 0;
            wanted_.reset();
            return;
        }
        sightings_ = cpu == seen_ ? sightings_ + 1 : 1;
        seen_ = cpu;
        if (sightings_ >= sightings_min && may_move(now)) wanted_ = cpu;
    }
    // Whether it was here when last looked for.
    bool is_here() const { return here_; }
    // Where the connection is to be served; none: it stays.
    std::optional<unsigned> wanted_cpu() const { return wanted_; }
    // It went there, or could not.
    void moved() {
        wanted_.reset();
        sightings_ = 0;
        until_look_ = wake_ups_elsewhere;
        moves_left_ -= 1;
    }

  private:
    bool may_move(Clock::time_point now) {
        if (counted_at_) {
            const auto earned = std::chrono::duration<double>(now - *counted_at_) / time_per_move;
            moves_left_ = std::min<double>(moves_at_once_max, moves_left_ + earned);
        }
        counted_at_ = now;
        return moves_left_ >= 1;
    }

    unsigned until_look_ = wake_ups_elsewhere;
    unsigned sightings_ = 0;
    bool here_ = false;
    std::optional<unsigned> seen_;
    std::optional<unsigned> wanted_;
    double moves_left_ = moves_at_once_max;
    std::optional<Clock::time_point> counted_at_;
};

}  // namespace tarn::nbd
