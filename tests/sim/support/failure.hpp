// Failure: a check of the simulator did not hold. Thrown out of the run; the seed replays it.
#pragma once

#include <stdexcept>
#include <string>

namespace tarn::sim {

struct Failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

inline void require(bool holds, const char* what) {
    if (!holds) throw Failure(what);
}

}  // namespace tarn::sim
