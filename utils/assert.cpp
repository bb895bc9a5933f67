#include "utils/assert.hpp"

#include <cstdio>
#include <cstdlib>

namespace tarn {

void assertion_failed(const char* expression, const char* file, int line) noexcept {
    std::fprintf(stderr, "tarn: assertion failed: %s at %s:%d; this is a bug in tarn\n", expression, file, line);
    std::abort();
}

}  // namespace tarn
