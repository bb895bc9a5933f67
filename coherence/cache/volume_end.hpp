// VolumeEnd: the end of a volume. Nobody uses it any more on any host, and its id is not used twice.
//
// First the holders let go: an ordinary eviction of each page, but that what is dirty goes with it (Event::discard). As
// long as a page's home has not answered, a record of it stays; when none is left, no message about the volume is on
// its way from here any more. Only when that is so on all hosts do the homes forget their bytes and give back the
// space.
#pragma once

#include <vector>

#include "coherence/adoption/home_start.hpp"
#include "coherence/home_store/home_writer.hpp"
#include "coherence/home_store/piece_marker.hpp"
#include "coherence/home_store/volume_turns.hpp"

namespace tarn {

class VolumeEnd {
  public:
    struct Parts {
        Store& store;
        Stripes& stripes;
        const Peers& peers;
        HomeFrames& home;
        HomeWriter& writer;
        PieceMarker& marker;
        HomeStart& home_start;
    };
    explicit VolumeEnd(const Parts& parts) : parts_(parts) {}

    // First each host lets go of the volume's pages, dirty ones as well, until their homes have heard of it; waits for
    // homes that are away. Errors: cancelled (it stops).
    Task<Result<>> discard(VolumeId volume);
    // Then each host, once it has recovered, forgets what it has as their home, in memory and in the store. Errors:
    // cancelled, those of the store.
    Task<Result<>> erase(VolumeId volume);

  private:
    uint64_t discard_pages(std::vector<PageId>& pages);

    const Parts parts_;
    VolumeTurns turns_;  // one discard at a time: Stripes counts the steps of one volume
};

}  // namespace tarn
