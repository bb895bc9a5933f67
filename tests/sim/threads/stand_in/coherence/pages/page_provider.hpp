// PageProvider as the model of threads has it: it never frees a frame, and keeps no reserve.
#pragma once

#include <cstddef>

namespace tarn {

class PageProvider {
  public:
    static size_t reserve_count() { return 0; }
    static size_t low_mark() { return 0; }
    static void kick() {}
    static void relieve() {}
};

}  // namespace tarn
