#include "utils/file_text.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

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

}  // namespace tarn
