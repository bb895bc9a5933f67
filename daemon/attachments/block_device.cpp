#include "daemon/attachments/block_device.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <set>
#include <thread>

#include "utils/file_text.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {

namespace {

constexpr std::string_view prefix = "tarn/by-name/";

std::string trimmed(std::string text) {
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
}

template <class Number>
std::optional<Number> number_of(std::string_view text) {
    Number number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() ? std::optional(number) : std::nullopt;
}

}  // namespace

std::string backend_of(std::string_view volume) {
    return fmt::format("{}{}", prefix, volume);
}

std::string link_of(std::string_view volume) {
    constexpr std::string_view kept = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789#+-.:=@_/";
    const size_t begin = std::min(volume.find_first_not_of(' '), volume.size());
    volume = volume.substr(begin, volume.find_last_not_of(' ') + 1 - begin);
    std::string link = fmt::format("/dev/{}", prefix);
    for (size_t at = 0; at < volume.size(); ++at) {
        const char c = volume[at];
        if (c == ' ' && volume[at - 1] == ' ') continue;
        const bool is_ascii = static_cast<unsigned char>(c) < 0x80;
        const bool begins_hexadecimal = volume.substr(at).starts_with("\\x");  // udev takes it for its own spelling
        link += !is_ascii || begins_hexadecimal || kept.contains(c) ? c : '_';
    }
    return link;
}

std::optional<unsigned> index_of(std::string_view device) {
    const auto index = device.starts_with("nbd") ? number_of<unsigned>(device.substr(3)) : std::nullopt;
    return index && device == fmt::format("nbd{}", *index) ? index : std::nullopt;
}

std::string BlockDevices::text_of(std::string_view path) const {
    return tarn::text_of(fmt::format("{}{}", root_, path));
}

// Empty: it has none. None: it cannot be read now.
std::optional<std::string> BlockDevices::attribute_of(std::string_view device, std::string_view attribute) const {
    const std::string path = fmt::format("{}/sys/block/{}/{}", root_, device, attribute);
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd && errno != ENOENT) return std::nullopt;
    return fd ? trimmed(tarn::text_of(fd.get())) : std::string();
}

std::string BlockDevices::backend_at(std::string_view device) const {
    return attribute_of(device, "backend").value_or("");
}

bool BlockDevices::is_connected(const std::string& device) const {
    std::error_code error;
    return std::filesystem::exists(fmt::format("{}/sys/block/{}/pid", root_, device), error);
}

std::optional<unsigned> BlockDevices::connected_by(const std::string& device) const {
    return number_of<unsigned>(attribute_of(device, "pid").value_or(""));
}

bool BlockDevices::is_device_of(const std::string& device, std::string_view volume) const {
    return is_connected(device) && backend_at(device) == backend_of(volume);
}

bool BlockDevices::is_gone(const std::string& device, std::string_view volume, unsigned thread) const {
    const std::optional<std::string> process = attribute_of(device, "pid");
    const std::optional<std::string> backend = attribute_of(device, "backend");
    if (!process || !backend) return false;
    return process->empty() || *backend != backend_of(volume) ||
           (thread != 0 && number_of<unsigned>(*process) != thread);
}

bool BlockDevices::is_of_tarn(const std::string& device) const {
    return is_connected(device) && backend_at(device).starts_with(prefix);
}

std::vector<std::pair<std::string, std::string>> BlockDevices::all_of_tarn() const {
    std::vector<std::pair<std::string, std::string>> all;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(root_ + "/sys/block", error)) {
        const std::string device = entry.path().filename();
        if (!device.starts_with("nbd") || !is_connected(device)) continue;
        const std::string backend = backend_at(device);  // once: it may end meanwhile
        if (backend.starts_with(prefix)) all.emplace_back(device, backend.substr(prefix.size()));
    }
    return all;
}

std::optional<std::string> BlockDevices::volume_at(const std::string& path) const {
    std::error_code problem;
    const std::filesystem::path file = std::filesystem::canonical(root_ + path, problem);
    if (problem || file.parent_path() != std::filesystem::canonical(root_ + "/dev", problem)) return std::nullopt;
    const std::string name = file.filename();
    for (auto& [device, volume] : all_of_tarn()) {
        const bool is_part =
            name.starts_with(device + "p") && number_of<unsigned>(std::string_view(name).substr(device.size() + 1));
        if (name == device || is_part) return std::move(volume);
    }
    return std::nullopt;
}

std::optional<std::string> BlockDevices::device_of_volume(std::string_view volume) const {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(root_ + "/sys/block", error)) {
        std::string device = entry.path().filename();
        if (device.starts_with("nbd") && is_device_of(device, volume)) return device;
    }
    return std::nullopt;
}

// A volume may be called as a device is.
std::optional<std::string> BlockDevices::device_of(std::string_view volume_or_device) const {
    if (auto device = device_of_volume(volume_or_device)) return device;
    std::string device(volume_or_device);
    return index_of(device) && is_of_tarn(device) ? std::optional(std::move(device)) : std::nullopt;
}

// Of every mount namespace of which this process may know: a container's mounts are in none but its own.
std::string BlockDevices::mounts_everywhere() const {
    std::set<std::string> seen;
    std::string mounts = text_of("/proc/self/mountinfo");
    std::error_code error;
    for (const auto& process : std::filesystem::directory_iterator(root_ + "/proc", error)) {
        std::error_code is_gone;
        const std::filesystem::path space = std::filesystem::read_symlink(process.path() / "ns/mnt", is_gone);
        if (!is_gone && seen.insert(space.string()).second) mounts += tarn::text_of(process.path() / "mountinfo");
    }
    return mounts;
}

// The device itself first, then its partitions: their directories.
std::vector<std::filesystem::path> BlockDevices::parts_of(const std::string& device) const {
    std::vector<std::filesystem::path> parts{root_ + "/sys/block/" + device};
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(parts.front(), error))
        if (entry.path().filename().string().starts_with(device)) parts.push_back(entry.path());
    return parts;
}

std::string BlockDevices::mount_point_of(const std::string& device) const {
    const std::vector<std::filesystem::path> parts = parts_of(device);
    std::string point;
    for (const MountSeen& mount : mounts_seen(root_ + "/proc/self/mountinfo")) {
        const bool is_of_it = std::ranges::any_of(parts, [&](const std::filesystem::path& part) {
            return mount.source == "/dev/" + part.filename().string() ||
                   mount.device == trimmed(tarn::text_of(part / "dev"));
        });
        if (is_of_it) point = mount.point;
    }
    return point;
}

bool BlockDevices::is_used(const std::string& device) const {
    const std::string mounts = mounts_everywhere();
    const std::string swaps = text_of("/proc/swaps");
    const auto uses = [&](const std::filesystem::path& part) {
        std::error_code error;
        const std::string number = trimmed(tarn::text_of(part / "dev"));
        const std::string path = fmt::format("/dev/{} ", part.filename().string());
        // Some file systems, as btrfs, have a number of their own there; the device is the source.
        return mounts.find(fmt::format(" {} ", number)) != std::string::npos ||
               mounts.find(" " + path) != std::string::npos || swaps.find(path) != std::string::npos ||
               std::filesystem::directory_iterator(part / "holders", error) != std::filesystem::directory_iterator();
    };
    return std::ranges::any_of(parts_of(device), uses);
}

std::string BlockDevices::opened_by(const std::string& device) const {
    const std::string whole = "/dev/" + device;
    const auto is_it = [&](std::string_view path) {
        const bool is_part = path.starts_with(whole + "p") && number_of<unsigned>(path.substr(whole.size() + 1));
        return path == whole || is_part;
    };
    std::error_code error;
    for (const auto& process : std::filesystem::directory_iterator(root_ + "/proc", error)) {
        const std::string id = process.path().filename();
        const auto number = number_of<pid_t>(id);
        if (!number || *number == ::getpid()) continue;
        std::error_code is_gone;
        for (std::filesystem::directory_iterator each(process.path() / "fd", is_gone), end; each != end && !is_gone;
             each.increment(is_gone)) {
            std::error_code is_closed;
            if (!is_it(std::filesystem::read_symlink(each->path(), is_closed).string())) continue;
            const std::string program = trimmed(tarn::text_of(process.path() / "comm"));
            if (program != "(udev-worker)" && program != "systemd-udevd")
                return fmt::format("{} (process {})", program, id);
            break;
        }
    }
    return "";
}

bool BlockDevices::is_busy(const std::string& device) const {
    return attribute_of(device, "inflight").value_or("").find_first_not_of(" 0") != std::string::npos;
}

bool BlockDevices::reads_one_connection_only(const std::string& device) const {
    // The workqueue's rescuer is called by about 10 ms after it was given work; Linux 6.9 has another name for it.
    constexpr int looks = 10;
    constexpr std::chrono::milliseconds between_looks{10};
    const std::string name = device + "-recv";
    std::error_code error;
    std::filesystem::path rescuer;
    for (const auto& process : std::filesystem::directory_iterator(root_ + "/proc", error)) {
        const std::string text = tarn::text_of(process.path() / "comm");
        if (text.starts_with(name) || text.starts_with("kworker/R-" + name)) rescuer = process.path();
    }
    for (int i = 0; i < looks && !rescuer.empty(); ++i, std::this_thread::sleep_for(between_looks)) {
        const std::string stat = tarn::text_of(rescuer / "stat");
        const size_t state = stat.rfind(") ");
        if (state != std::string::npos && stat.compare(state + 2, 1, "I") != 0) return true;
    }
    return false;
}

std::optional<uint64_t> BlockDevices::size_bytes_of(const std::string& device) const {
    constexpr uint64_t sector_bytes = 512;  // whatever the device's are
    const auto sectors = number_of<uint64_t>(attribute_of(device, "size").value_or(""));
    return sectors ? std::optional(*sectors * sector_bytes) : std::nullopt;
}

bool BlockDevices::is_read_only(const std::string& device) const {
    return attribute_of(device, "ro") == "1";
}

std::optional<unsigned> BlockDevices::logical_block_size_of(const std::string& device) const {
    return number_of<unsigned>(attribute_of(device, "queue/logical_block_size").value_or(""));
}

std::optional<unsigned> BlockDevices::cpu_of_queue(const std::string& device, size_t queue) const {
    return number_of<unsigned>(attribute_of(device, fmt::format("mq/{}/cpu_list", queue)).value_or(""));
}

}  // namespace tarn
