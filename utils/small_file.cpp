#include "utils/small_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "utils/unique_fd.hpp"

namespace tarn {

namespace {

Result<std::string> read_file(const std::string& path, size_t size_max, bool is_secret) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd) {
        if (errno == ENOENT) return fail(Errc::not_found, errno, "no such file");
        if (errno == EACCES) return fail(Errc::refused, errno, "not readable");
        return fail(Errc::io, errno, "cannot be opened");
    }
    struct stat status{};
    if (::fstat(fd.get(), &status) != 0) return fail(Errc::io, errno, "cannot be read");
    if (!S_ISREG(status.st_mode)) return fail(Errc::invalid, 0, "not a regular file");
    if (is_secret && (status.st_mode & S_IRWXO) != 0) return fail(Errc::refused, 0, "others may read it; chmod 0600");
    std::string text(size_max + 1, '\0');
    size_t size = 0;
    while (size < text.size()) {
        const ssize_t count = ::read(fd.get(), text.data() + size, text.size() - size);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return fail(Errc::io, errno, "cannot be read");
        if (count == 0) break;
        size += static_cast<size_t>(count);
    }
    if (size > size_max) return fail(Errc::invalid, 0, "too large");
    text.resize(size);
    return text;
}

}  // namespace

Result<std::string> read_small_file(const std::string& path, size_t size_max) {
    return read_file(path, size_max, false);
}

Result<std::string> read_secret_file(const std::string& path, size_t size_max) {
    return read_file(path, size_max, true);
}

}  // namespace tarn
