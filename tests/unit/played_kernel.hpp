// PlayedKernel: the kernel's nbd driver, and the /sys and /proc that show its devices, played by a test. Its devices
// are as large as they are told, and the test has the kernel's ends of their sockets.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "daemon/attachments/attached_device.hpp"
#include "tests/support/scratch_directory.hpp"

namespace tarn {

class PlayedKernel final : public NbdDriver {
  public:
    PlayedKernel() { std::filesystem::create_directories(root_.path() / "proc/self"); }

    NbdKernel kernel() { return {.driver = *this, .devices = devices()}; }
    BlockDevices devices() const { return BlockDevices(root_.path()); }
    // What a file below /sys or /proc says.
    void set(const std::string& path, const std::string& text) const {
        const std::filesystem::path file = root_.path() / path;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file) << text << "\n";
    }
    void remove(const std::string& path) const { std::filesystem::remove_all(root_.path() / path); }

    // Called before each call of the driver, with its name; an error is the call's, which then has done nothing.
    std::function<Result<>(const std::string& call)> before = [](const std::string&) { return Result<>{}; };
    // What it says after it has done it; also where it has not.
    std::function<Result<>(const std::string& call)> after = [](const std::string&) { return Result<>{}; };
    bool shows_backend = true;
    std::atomic<bool> takes_sizes{true};
    std::atomic<int> late{0};  // how often it has not seen yet that a socket is dead

    Result<> is_there() override { return before("is_there"); }
    Result<> connect(unsigned index, const Device& device, std::span<const int> sockets) override {
        TRY_VOID(before("connect"));
        const std::lock_guard lock(mutex_);
        if (sockets_.contains(index)) return fail(Errc::busy, EBUSY, "played");
        std::vector<UniqueFd>& own = sockets_[index];
        for (const int socket : sockets) own.push_back(duplicate(socket));
        const std::string name = fmt::format("sys/block/nbd{}", index);
        set(name + "/pid", std::to_string(++last_thread_));
        if (shows_backend) set(name + "/backend", device.backend);
        set(name + "/size", std::to_string(device.size_bytes / 512));
        set(name + "/queue/logical_block_size", std::to_string(device.block_size_bytes));
        for (size_t i = 0; i < sockets.size(); ++i)
            set(fmt::format("{}/mq/{}/cpu_list", name, i), fmt::format("{}, 9", i));
        device_ = device;
        changed_.notify_all();
        return after("connect");
    }
    Result<> reconfigure(unsigned index, const Device& device, std::span<const int> sockets) override {
        TRY_VOID(before("reconfigure"));
        const std::lock_guard lock(mutex_);
        if (!sockets_.contains(index)) return fail(Errc::not_found, ENODEV, "played");
        if (sockets.empty() && takes_sizes)
            set(fmt::format("sys/block/nbd{}/size", index), std::to_string(device.size_bytes / 512));
        for (const int socket : sockets) {
            const auto dead = std::ranges::find_if(sockets_[index], [](const UniqueFd& each) { return is_dead(each); });
            if (dead == sockets_[index].end() || late-- > 0) continue;  // as the real one: it says that all is well
            *dead = duplicate(socket);
            ++replaced_;
        }
        if (sockets.empty()) device_.size_bytes = device.size_bytes;
        changed_.notify_all();
        return after("reconfigure");
    }
    Result<> disconnect(unsigned index) override {
        TRY_VOID(before("disconnect"));
        const std::lock_guard lock(mutex_);
        const auto found = sockets_.find(index);
        if (found == sockets_.end()) return fail(Errc::not_found, ENODEV, "played");
        for (const UniqueFd& socket : found->second) ::shutdown(socket.get(), SHUT_RDWR);
        sockets_.erase(found);
        remove(fmt::format("sys/block/nbd{}", index));
        changed_.notify_all();
        return after("disconnect");
    }
    // By another program, before what comes over the sockets says so.
    void disconnect_in_silence(unsigned index) {
        const std::lock_guard lock(mutex_);
        silent_ = std::move(sockets_.extract(index).mapped());
        remove(fmt::format("sys/block/nbd{}", index));
    }

    int socket(unsigned index, size_t connection) {
        const std::lock_guard lock(mutex_);
        return sockets_.at(index).at(connection).get();
    }
    bool has(unsigned index) {
        const std::lock_guard lock(mutex_);
        return sockets_.contains(index);
    }
    size_t device_count() {
        const std::lock_guard lock(mutex_);
        return sockets_.size();
    }
    size_t socket_count(unsigned index) {
        const std::lock_guard lock(mutex_);
        return sockets_.at(index).size();
    }
    // Each blocks until it is so: on a thread.
    bool wait_for_replaced(unsigned count) {
        return wait([&] { return replaced_ == count; });
    }
    bool wait_for_size(uint64_t size_bytes) {
        return wait([&] { return device_.size_bytes == size_bytes; });
    }
    bool wait_for_end_of(unsigned index) {
        return wait([&] { return !sockets_.contains(index); });
    }
    // What it was told: the size last, all else as the device was made.
    Device told() {
        const std::lock_guard lock(mutex_);
        return device_;
    }

  private:
    template <class Condition>
    bool wait(Condition condition) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, condition);
        return true;
    }
    static UniqueFd duplicate(int socket) { return UniqueFd(::fcntl(socket, F_DUPFD_CLOEXEC, 0)); }
    static bool is_dead(const UniqueFd& socket) {
        std::byte byte;
        return ::recv(socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
    }

    const ScratchDirectory root_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<unsigned, std::vector<UniqueFd>> sockets_;
    std::vector<UniqueFd> silent_;
    Device device_;
    unsigned last_thread_ = 100;
    unsigned replaced_ = 0;
};

}  // namespace tarn
