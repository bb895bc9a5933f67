#include "daemon/mounts/mount_users.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <set>
#include <string_view>

#include "utils/file_text.hpp"
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

// The number that the kernel gave to the mount at the path; the last one is on top.
std::string mount_id_of(const std::string& path) {
    std::string found;
    for (const MountSeen& mount : mounts_seen())
        if (mount.point == path) found = mount.id;
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
