// WriteCheck: what must still be so at the moment at which bytes of a page change. It is asked under the page's latch,
// before the first byte changes: who would make it untrue and then changes the page, too, comes after that.
#pragma once

namespace tarn {

class WriteCheck {
  public:
    // Waits for nothing.
    virtual bool holds() = 0;

  protected:
    ~WriteCheck() = default;
};

}  // namespace tarn
