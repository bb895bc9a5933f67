// WaitingFlushes: flushes under way, to be told that their bytes cannot be made durable.
#pragma once

namespace tarn {

class WaitingFlushes {
  public:
    // If this host's store has failed, fails the flushes that wait for other hosts' bytes.
    virtual void check_store_failure() = 0;
    // Fails them now.
    virtual void on_store_failed() = 0;

  protected:
    ~WaitingFlushes() = default;
};

}  // namespace tarn
