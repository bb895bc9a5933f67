// VolumeEnd: the end of a volume that nobody uses any more on any host. Its id is never reused.
//
// First each holder evicts the volume's pages as usual, except that dirty bytes are discarded (Event::discard). The
// record of a page stays until its home has answered; when none is left, no message about the volume is on its way from
// here any more. Only when this holds on all hosts do the homes drop their bytes and free the space.
#pragma once

#include <vector>

#include "coherence/adoption/home_start.hpp"
#include "coherence/executor/host_parts.hpp"
#include "coherence/home_store/home_writer.hpp"
#include "coherence/home_store/piece_marker.hpp"
#include "coherence/home_store/volume_turns.hpp"

namespace tarn {

class VolumeEnd {
  public:
    struct Parts : HostParts {
        HomeFrames& home;
        HomeWriter& writer;
        PieceMarker& marker;
        HomeStart& home_start;
    };
    explicit VolumeEnd(const Parts& parts) : parts_(parts) {}

    // First, on each host: drops the volume's pages, dirty ones as well, and waits until their homes have heard of it,
    // for unreachable homes too. Errors: cancelled (it stops).
    Task<Result<>> discard(VolumeId volume);
    // Then, on each host, once it has recovered: drops its bytes as their home, in memory and in the store. Errors:
    // cancelled, those of the store.
    Task<Result<>> erase(VolumeId volume);

  private:
    uint64_t discard_pages(std::vector<PageId>& pages);

    const Parts parts_;
    VolumeTurns turns_;  // one discard at a time: Stripes counts the steps of one volume
};

}  // namespace tarn
