// ArenaRecorder: writes into the arena what the next process needs to know of a step, before anybody is told of it
// (D2).
#pragma once

#include "coherence/executor/stripes.hpp"
#include "tiers/dram/frame_pool.hpp"

namespace tarn {

class ArenaRecorder final : public Stripes::Recorder {
  public:
    explicit ArenaRecorder(FramePool& pool) : pool_(pool) {}
    void record(const protocol::Holder& holder, const protocol::Event& event,
                const protocol::Actions& actions) override;

  private:
    void record_holding(PageId page, const protocol::Holding& holding);

    FramePool& pool_;
};

}  // namespace tarn
