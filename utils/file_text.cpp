#include "utils/file_text.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <sstream>

#include "utils/unique_fd.hpp"

namespace tarn {

namespace {

// mountinfo has blanks and such as \040.
std::string unescaped(const std::string& text) {
    std::string plain;
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\\' && i + 3 < text.size()) {
            plain += static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8));
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

std::string value_of(const std::filesystem::path& path, std::string_view key) {
    std::ifstream stream(path);
    for (std::string line; std::getline(stream, line);) {
        if (!line.starts_with(key)) continue;
        const size_t at = line.find_first_not_of(" \t", key.size());
        return at == std::string::npos ? "" : line.substr(at);
    }
    return "";
}

std::vector<MountSeen> mounts_seen() {
    std::vector<MountSeen> mounts;
    std::ifstream lines("/proc/self/mountinfo");
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string id, point, type, word;
        words >> id >> word >> word >> word >> point;
        while (words >> word && word != "-") {
        }
        if (words >> type) mounts.push_back({.id = id, .point = unescaped(point), .type = type});
    }
    return mounts;
}

}  // namespace tarn
