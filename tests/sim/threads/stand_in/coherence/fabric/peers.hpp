// Peers as the model of threads has them: links that are told to go on.
#pragma once

#include "coherence/membership/membership.hpp"

namespace tarn {

class Fabric {
  public:
    virtual void resume(HostId host) = 0;

  protected:
    ~Fabric() = default;
};

class Peers {
  public:
    void set_fabric(Fabric& fabric) { fabric_ = &fabric; }
    Fabric* fabric() const { return fabric_; }

  private:
    Fabric* fabric_ = nullptr;
};

}  // namespace tarn
