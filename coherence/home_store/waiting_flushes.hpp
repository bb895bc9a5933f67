// WaitingFlushes: who hears, of flushes under way, that what they wait for cannot be made durable.
#pragma once

namespace tarn {

class WaitingFlushes {
  public:
    // If this host's store has failed: flushes that wait for other hosts' bytes fail.
    virtual void heed_store_failure() = 0;
    // They fail now.
    virtual void on_store_failed() = 0;

  protected:
    ~WaitingFlushes() = default;
};

}  // namespace tarn
