#include "frontends/fuse/interrupts.hpp"

#include <fmt/format.h>

#include <charconv>
#include <csignal>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "frontends/fuse/mount.hpp"

namespace tarn::fuse {

namespace {

// Whether a thread is about to end: whatever ends its process, the kernel then gives each thread a SIGKILL.
bool is_being_killed(pid_t thread) {
    constexpr std::string_view key = "SigPnd:\t";
    std::ifstream status(fmt::format("/proc/{}/status", thread));
    for (std::string line; std::getline(status, line);) {
        if (!line.starts_with(key)) continue;
        uint64_t pending = 0;
        std::from_chars(line.data() + key.size(), line.data() + line.size(), pending, 16);
        return (pending >> (SIGKILL - 1) & 1) != 0;
    }
    return !status.is_open();  // it has left no trace
}

void on_interrupt(fuse_req_t request, void* id) {
    static_cast<Mount*>(fuse_req_userdata(request))->interrupted(reinterpret_cast<uint64_t>(id));
}

}  // namespace

void Interrupts::add(Operation& operation) {
    last_ += uint64_t{1} << index_bits;
    operation.id_ = last_;
    waiting_.emplace(operation.id_, &operation);
    // Calls at once if the request is interrupted already.
    fuse_req_interrupt_func(operation.request_, on_interrupt, reinterpret_cast<void*>(operation.id_));
    if (all_) interrupted(operation.id_);
}

void Interrupts::interrupted(uint64_t id) {
    const std::lock_guard guard(mutex_);
    interrupted_.push_back(id);
    if (!std::exchange(posted_, true)) loop_.post(*this);
}

void Interrupts::run() {
    std::vector<uint64_t> interrupted;
    {
        const std::lock_guard guard(mutex_);
        interrupted.swap(interrupted_);
        posted_ = false;
    }
    for (const uint64_t id : interrupted) {
        const auto found = waiting_.find(id);
        if (found == waiting_.end()) continue;
        if (all_ || gate_.closed() || is_being_killed(fuse_req_ctx(found->second->request_)->pid))
            found->second->raise();
        else
            gate_.spawn(raise_later(id));
    }
}

void Interrupts::raise(uint64_t id) {
    if (const auto found = waiting_.find(id); found != waiting_.end()) found->second->raise();
}

Task<> Interrupts::raise_later(uint64_t id) {
    co_await loop_.sleep(moment);
    raise(id);
}

void Interrupts::raise_all() {
    all_ = true;
    std::vector<uint64_t> ids;
    for (const auto& [id, operation] : waiting_) ids.push_back(id);
    for (const uint64_t id : ids) raise(id);  // it may end others
}

Task<> Interrupts::close() {
    co_await gate_.close();
    for (;;) {
        {
            const std::lock_guard guard(mutex_);
            if (!posted_) co_return;
        }
        co_await Yield(loop_);
    }
}

}  // namespace tarn::fuse
