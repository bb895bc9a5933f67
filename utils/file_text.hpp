// What a file of /proc says, which may come to an end at any moment: its process may be gone between open and read.
// (A stream's iterators throw then.)
#pragma once

#include <filesystem>
#include <string>

namespace tarn {

// Empty if there is none, or it cannot be read any more.
std::string text_of(const std::filesystem::path& path);
// From where the descriptor is.
std::string text_of(int fd);

}  // namespace tarn
