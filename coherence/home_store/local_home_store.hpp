// LocalHomeStore: home's pages as a step of the protocol sees them, in this host's memory or in its store.
#pragma once

#include "coherence/executor/host_parts.hpp"
#include "coherence/home_store/home_reader.hpp"
#include "coherence/home_store/home_writer.hpp"
#include "coherence/home_store/loss_recorder.hpp"
#include "coherence/home_store/older_copies.hpp"
#include "coherence/home_store/piece_marker.hpp"

namespace tarn {

class LocalHomeStore final : public HomeStore {
  public:
    struct Parts : HostParts {
        HeldFrames& held_frames;
        FrameSupply& supply;
        const PageProvider& provider;
        WaitingFlushes& flushes;
    };
    explicit LocalHomeStore(const Parts& parts)
        : supply_(parts.supply),
          frames_({parts, parts.held_frames, parts.provider}),
          reader_(parts),
          older_copies_(parts),
          writer_({parts, parts.supply, frames_, older_copies_, parts.flushes}),
          losses_({parts, parts.flushes}),
          marker_({parts, frames_, parts.flushes}) {}

    HomeFrames& frames() { return frames_; }
    HomeReader& reader() { return reader_; }
    OlderCopies& older_copies() { return older_copies_; }
    HomeWriter& writer() { return writer_; }
    LossRecorder& losses() { return losses_; }
    PieceMarker& marker() { return marker_; }

    bool apply_copy(const protocol::Action& action) override { return frames_.apply_copy(action); }
    bool keep_copy(const protocol::Action& action) override { return frames_.keep_copy(action); }
    Found find(PageId page) override { return frames_.find(page); }
    bool share(FrameId found) override { return frames_.share(found); }
    void copy(Found found, FrameId into) override { frames_.copy(found, into); }
    FrameId take_free_frame() override { return supply_.take_at_once(); }
    void read(std::vector<HomeRead> reads) override { reader_.read(std::move(reads)); }
    void record_losses(std::vector<PageId> pages, HostId lost_host) override {
        losses_.add(std::move(pages), lost_host);
    }
    void mark(std::vector<PageId> pages) override { marker_.add(std::move(pages)); }

  private:
    FrameSupply& supply_;
    HomeFrames frames_;
    HomeReader reader_;
    OlderCopies older_copies_;
    HomeWriter writer_;
    LossRecorder losses_;
    PieceMarker marker_;
};

}  // namespace tarn
