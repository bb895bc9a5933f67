// What the kernel says of its nbd devices without a request to them. For the daemon, and for tarn where no daemon
// runs.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tarn {

// For how long a request may take, and a device may be without a connection, until the kernel fails its requests. How
// long a request waits is for the volume's policy to say, and a daemon may be away for as long as it takes.
inline constexpr std::chrono::seconds request_timeout{std::chrono::hours(24)};
inline constexpr std::chrono::seconds reconnect_timeout{std::chrono::minutes(10)};

// By which a device of this volume is known in the driver.
std::string backend_of(std::string_view volume);
// The link that udev makes by our rules of that: /dev/tarn/by-name/VOLUME, with one _ for blanks side by side, and one
// for each other character that udev keeps out of /dev.
std::string link_of(std::string_view volume);

std::optional<unsigned> index_of(std::string_view device);

// device: nbd0, which is /dev/nbd0.
class BlockDevices {
  public:
    // root: the directory in which sys and proc are; tests have one of their own.
    explicit BlockDevices(std::string root = "") : root_(std::move(root)) {}

    bool is_connected(const std::string& device) const;
    // The thread that has connected it, by the number that the machine knows it by. None: it is not connected.
    std::optional<unsigned> connected_by(const std::string& device) const;
    // Whether it is connected, and is a volume.
    bool is_of_tarn(const std::string& device) const;
    // All that are connected as volumes, each with the volume's name.
    std::vector<std::pair<std::string, std::string>> all_of_tarn() const;
    // The volume whose device, or whose partition, this path or link is. None: it is no such thing.
    std::optional<std::string> volume_at(const std::string& path) const;
    // Whether it is connected, and is this volume.
    bool is_device_of(const std::string& device, std::string_view volume) const;
    // Whether it is not connected any more, or is another volume, or was connected by another thread than this one (0:
    // that is not known). What cannot be read now, as by a process that has no descriptor left, is no sign of that.
    bool is_gone(const std::string& device, std::string_view volume, unsigned thread) const;
    // The device that is connected as this volume, by the name of the volume or the device. None: there is none.
    std::optional<std::string> device_of(std::string_view volume_or_device) const;
    std::optional<std::string> device_of_volume(std::string_view volume) const;
    // Whether somebody has it mounted or uses it as a part of something, as far as this process can see; who only has
    // it open does not show. Never waits for a request of the device. Reads what the kernel says of every process.
    bool is_used(const std::string& device) const;
    // Where this process sees it, or a partition of it, mounted last. Empty: nowhere.
    std::string mount_point_of(const std::string& device) const;
    // Another process that has it, or a partition of it, open: "fio (process 12)". Of processes that this one may look
    // at, and not udev's, which look at every device. Empty: there is none.
    std::string opened_by(const std::string& device) const;
    // Whether requests of it are under way.
    bool is_busy(const std::string& device) const;
    // Whether one thread reads all connections of the device, one after the other, and so none but the first: each is
    // read for as long as it lives. The kernel's workqueue does that when a thread for each takes too long to make. May
    // take a moment; what it cannot see is not so.
    bool reads_one_connection_only(const std::string& device) const;
    std::optional<uint64_t> size_bytes_of(const std::string& device) const;
    bool is_read_only(const std::string& device) const;
    std::optional<unsigned> logical_block_size_of(const std::string& device) const;
    // The first CPU of a hardware queue.
    std::optional<unsigned> cpu_of_queue(const std::string& device, size_t queue) const;

  private:
    std::string text_of(std::string_view path) const;
    std::optional<std::string> attribute_of(std::string_view device, std::string_view attribute) const;
    std::string backend_at(std::string_view device) const;
    std::string mounts_everywhere() const;
    std::vector<std::filesystem::path> parts_of(const std::string& device) const;

    std::string root_;
};

}  // namespace tarn
