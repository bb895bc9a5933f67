// explained: an error on its way to whoever started something goes into the log.
#pragma once

#include <string>

#include "utils/log.hpp"
#include "utils/result.hpp"

namespace tarn {

template <class T>
Result<T> explained(const std::string& what, Result<T> result) {
    if (!result) log::error("{}: {}", what, log::explain(result.error()));
    return result;
}

}  // namespace tarn
