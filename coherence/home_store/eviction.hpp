// Eviction: how a page leaves its frame: dropped, sent home by a step of the protocol, or into the store. Called by the
// PageProvider.
#pragma once

#include "coherence/executor/host_parts.hpp"
#include "coherence/home_store/home_writer.hpp"
#include "coherence/pages/page_provider.hpp"

namespace tarn {

class Eviction final : public PageProvider::Evictor {
  public:
    struct Parts : HostParts {
        HomeFrames& home;
        HomeWriter& writer;
        WaitingFlushes& flushes;
    };
    explicit Eviction(const Parts& parts) : parts_(parts) {}

    bool try_evict(FrameId id, std::vector<FrameId>& to_store) override;
    bool drop_clean(FrameId id, bool any) override;
    Task<Result<>> evict_home_bytes(std::vector<FrameId> ids) override {
        return parts_.writer.store_and_free(std::move(ids));
    }
    void check_store_failure() override { parts_.flushes.check_store_failure(); }
    bool abandoned() const override { return parts_.stripes.abandoned(); }

  private:
    const Parts parts_;
};

}  // namespace tarn
