// PageUpdate: a change of a page's bytes in place, under its exclusive latch.
#pragma once

#include <cstddef>

namespace tarn {

struct PageUpdate {
    // Returns whether it changed `size` bytes from `offset` on.
    virtual bool apply(std::byte* bytes) = 0;
    size_t offset = 0;
    size_t size = 0;

  protected:
    ~PageUpdate() = default;
};

}  // namespace tarn
