#include "utils/file_text.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <sstream>

#include "utils/unique_fd.hpp"

namespace tarn {

std::string text_of(const std::filesystem::path& path) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    return fd ? text_of(fd.get()) : "";
}

std::string text_of(int fd) {
    std::string text;
    std::array<char, 4096> buffer;
    for (;;) {
        const ssize_t size = ::read(fd, buffer.data(), buffer.size());
        if (size < 0 && errno == EINTR) continue;
        if (size < 0) return "";
        if (size == 0) return text;
        text.append(buffer.data(), static_cast<size_t>(size));
    }
}

uint64_t started_ticks(const std::filesystem::path& process) {
    const std::string text = text_of(process / "stat");
    // The second field is the program's name in parentheses, and may contain anything.
    const size_t name_end = text.rfind(')');
    if (name_end == std::string::npos) return 0;
    std::istringstream fields(text.substr(name_end + 1));
    constexpr int fields_before = 19;  // from the third to the 21st
    std::string skipped;
    for (int i = 0; i < fields_before; ++i) fields >> skipped;
    uint64_t started = 0;
    fields >> started;
    return started;
}

}  // namespace tarn
