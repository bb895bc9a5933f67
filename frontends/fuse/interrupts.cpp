#include "frontends/fuse/interrupts.hpp"

#include <fmt/format.h>

#include <csignal>
#include <string>
#include <utility>

#include "frontends/fuse/mount.hpp"
#include "utils/file_text.hpp"

namespace tarn::fuse {

namespace {

// Whether a thread is about to end: whatever ends its process, the kernel then gives each thread a SIGKILL.
bool is_being_killed(pid_t thread) {
    const std::string pending = value_of(fmt::format("/proc/{}/status", thread), "SigPnd:");
    return pending.empty() || (std::stoull(pending, nullptr, 16) >> (SIGKILL - 1) & 1) != 0;  // empty: it left no trace
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
