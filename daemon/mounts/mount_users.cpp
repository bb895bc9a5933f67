#include "daemon/mounts/mount_users.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>

#include "utils/log.hpp"
#include "utils/on_thread.hpp"

namespace tarn {

namespace {

namespace fs = std::filesystem;

std::optional<pid_t> number(std::string_view text) {
    pid_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// What follows the key in a file of /proc, without the white space before it.
std::string value_of(const fs::path& file, std::string_view key) {
    std::ifstream stream(file);
    for (std::string line; std::getline(stream, line);) {
        if (!line.starts_with(key)) continue;
        const size_t at = line.find_first_not_of(" \t", key.size());
        return at == std::string::npos ? "" : line.substr(at);
    }
    return "";
}

// As /proc writes it: white space and backslashes are octal.
std::string escaped(std::string_view path) {
    std::string text;
    for (const char byte : path) {
        if (byte == ' ' || byte == '\t' || byte == '\n' || byte == '\\')
            text += fmt::format("\\{:03o}", static_cast<unsigned char>(byte));
        else
            text += byte;
    }
    return text;
}

// The number that the kernel gave to the mount at the path; the last one is on top.
std::string mount_id_of(const std::string& path) {
    std::ifstream mounts("/proc/self/mountinfo");
    std::string found;
    for (std::string line; std::getline(mounts, line);) {
        std::istringstream fields(line);
        std::string id, parent, device, root, point;
        if (fields >> id >> parent >> device >> root >> point && point == escaped(path)) found = id;
    }
    return found;
}

bool is_below(const fs::path& link, const std::string& path) {
    std::error_code error;  // it is gone, or not ours to look at
    const std::string target = fs::read_symlink(link, error).string();
    return !error && target.starts_with(path) && (target.size() == path.size() || target[path.size()] == '/');
}

// Never by the files themselves: a question to the mount may wait for a host that is away.
bool uses(const fs::path& process, const std::string& path, const std::string& mount_id) {
    if (is_below(process / "cwd", path) || is_below(process / "root", path)) return true;
    std::error_code error;
    for (fs::directory_iterator files(process / "fdinfo", error), end; !error && files != end; files.increment(error))
        if (value_of(files->path(), "mnt_id:") == mount_id) return true;
    return false;
}

std::vector<std::string> look(const std::string& path, std::span<const pid_t> openers) {
    const std::string mount_id = mount_id_of(path);
    std::set<pid_t> users;
    for (const pid_t thread : openers)
        if (const auto process = number(value_of(fmt::format("/proc/{}/status", thread), "Tgid:")))
            users.insert(*process);
    std::error_code error;
    for (fs::directory_iterator all("/proc", error), end; !error && all != end; all.increment(error)) {
        const auto process = number(all->path().filename().string());
        if (process && uses(all->path(), path, mount_id)) users.insert(*process);
    }
    std::vector<std::string> names;
    for (const pid_t process : users)
        names.push_back(fmt::format(
            "{} (process {})", log::printable(value_of(fmt::format("/proc/{}/status", process), "Name:")), process));
    return names;
}

}  // namespace

Task<std::vector<std::string>> find_mount_users(std::string path, std::vector<pid_t> openers) {
    co_return co_await on_thread([&] { return look(path, openers); });
}

}  // namespace tarn
