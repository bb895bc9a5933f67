#include "utils/file_text.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>

#include "utils/unique_fd.hpp"

namespace tarn {

namespace {

// mountinfo has blanks and such as \040.
std::string unescaped(const std::string& text) {
    std::string plain;
    for (size_t i = 0; i < text.size(); ++i) {
        unsigned code = 0;
        const char* const digits = text.data() + i + 1;
        if (text[i] == '\\' && i + 3 < text.size() && std::from_chars(digits, digits + 3, code, 8).ptr == digits + 3) {
            plain += static_cast<char>(code);
            i += 3;
        } else {
            plain += text[i];
        }
    }
    return plain;
}

}  // namespace

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

bool proc_is_ours() {
    std::error_code error;
    return std::filesystem::read_symlink("/proc/self", error) == std::to_string(::getpid());
}

std::optional<uint64_t> field_of_stat(std::string_view stat, unsigned field) {
    // The second field is the program's name in parentheses, and may contain anything.
    const size_t name_end = stat.rfind(')');
    if (name_end == std::string_view::npos) return std::nullopt;
    size_t begin = name_end;
    for (unsigned at = 2; at < field && begin != std::string_view::npos; ++at) begin = stat.find(' ', begin + 1);
    uint64_t number = 0;
    if (begin == std::string_view::npos) return std::nullopt;
    const auto [end, error] = std::from_chars(stat.data() + begin + 1, stat.data() + stat.size(), number);
    return error == std::errc() ? std::optional(number) : std::nullopt;
}

std::vector<pid_t> threads_in(int tasks, size_t count_max) {
    std::vector<pid_t> threads;
    const int directory = ::openat(tasks, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const std::unique_ptr<DIR, decltype(&::closedir)> entries(directory < 0 ? nullptr : ::fdopendir(directory),
                                                              ::closedir);
    while (const dirent* const entry = entries ? ::readdir(entries.get()) : nullptr) {
        if (threads.size() == count_max) break;
        if (const pid_t thread = static_cast<pid_t>(std::atol(entry->d_name)); thread != 0) threads.push_back(thread);
    }
    return threads;
}

uint64_t started_ticks(const std::filesystem::path& process) {
    constexpr unsigned field = 22;
    return field_of_stat(text_of(process / "stat"), field).value_or(0);
}

std::string value_of(const std::filesystem::path& path, std::string_view key) {
    std::ifstream stream(path);
    for (std::string line; std::getline(stream, line);) {
        if (!line.starts_with(key)) continue;
        const size_t at = line.find_first_not_of(" \t", key.size());
        return at == std::string::npos ? "" : line.substr(at);
    }
    return "";
}

std::vector<MountSeen> mounts_seen(const std::filesystem::path& file) {
    std::vector<MountSeen> mounts;
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string id, device, point, type, source, word;
        words >> id >> word >> device >> word >> point;
        while (words >> word && word != "-") {
        }
        if (words >> type >> source)
            mounts.push_back(
                {.id = id, .device = device, .point = unescaped(point), .type = type, .source = unescaped(source)});
    }
    return mounts;
}

}  // namespace tarn
