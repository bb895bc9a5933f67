// WriteCheck: a condition that must still hold when bytes of a page change. It is checked under the page's latch,
// before the first byte changes. Whoever makes it false and then changes the page waits for that latch, so the write
// comes first.
#pragma once

namespace tarn {

class WriteCheck {
  public:
    // Must not wait.
    virtual bool holds() = 0;

  protected:
    ~WriteCheck() = default;
};

}  // namespace tarn
