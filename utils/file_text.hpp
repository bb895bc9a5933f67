// Reads files of /proc, each as a whole. Its process may end between open and read, and the file with it; a stream's
// iterators would throw then.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tarn {

// Whether /proc numbers processes as the kernel does for us. Not if it is that of another PID namespace.
bool proc_is_ours();

// A field of a state file, /proc/PID/stat or that of a thread, by its number in proc(5), from 3 on; none: there is no
// such number.
std::optional<uint64_t> field_of_stat(std::string_view stat, unsigned field);

// When a process was started, in the kernel's ticks since the boot; 0: there is none. process: its directory in /proc.
uint64_t started_ticks(const std::filesystem::path& process);

// The threads of a process, at most so many. tasks: a descriptor of its directory /proc/PID/task.
std::vector<pid_t> threads_in(int tasks, size_t count_max);

// Empty if there is none, or it cannot be read any more.
std::string text_of(const std::filesystem::path& path);
// From the descriptor's offset on.
std::string text_of(int fd);

// What follows the key in its line, without the white space before it; empty if there is no such line.
std::string value_of(const std::filesystem::path& path, std::string_view key);

struct MountSeen {
    std::string id;
    std::string device;  // "43:0"; some file systems, as btrfs, have a number of their own there
    std::string point;
    std::string type;    // "fuse.tarn"
    std::string source;  // "/dev/nbd0"
};
// By this process; what lies on top of something comes after it. file: of /proc, or one like it.
std::vector<MountSeen> mounts_seen(const std::filesystem::path& file = "/proc/self/mountinfo");

}  // namespace tarn
