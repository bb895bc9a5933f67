// Small regular files, read as a whole: configuration, keys and certificates. A FIFO or a device would make us wait, or
// never end, and is refused.
#pragma once

#include <string>

#include "utils/result.hpp"

namespace tarn {

// Errors, whose texts say what is wrong with the file: not_found, refused (not readable), invalid (not a regular file,
// or larger than size_max), io.
Result<std::string> read_small_file(const std::string& path, size_t size_max);
// One that holds a secret. Errors: also refused (others may read it).
Result<std::string> read_secret_file(const std::string& path, size_t size_max);

}  // namespace tarn
