// Reads a file of /proc as a whole. Its process may end between open and read, and the file with it; a stream's
// iterators would throw then.
#pragma once

#include <filesystem>
#include <string>

namespace tarn {

// Empty if there is none, or it cannot be read any more.
std::string text_of(const std::filesystem::path& path);
// From the descriptor's offset on.
std::string text_of(int fd);

}  // namespace tarn
