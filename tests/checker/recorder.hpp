// Recorder: what all clients did to each register, and when, within one round; and when sessions began.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <vector>

#include "tests/checker/register_history.hpp"

namespace tarn::checker {

// Where a register lies in the volume.
struct Register {
    uint64_t offset_bytes = 0;
    uint32_t size_bytes = 0;
    auto operator<=>(const Register&) const = default;
};

class Recorder {
  public:
    static Nanoseconds now() {
        return static_cast<Nanoseconds>(std::chrono::steady_clock::now().time_since_epoch().count());
    }

    void add(const Register& where, const Operation& operation) {
        const std::lock_guard guard(mutex_);
        histories_[where].push_back(operation);
        ++count_;
    }
    void add_flush(const Flush& flush) {
        const std::lock_guard guard(mutex_);
        flushes_.push_back(flush);
    }
    void add_loss(const Loss& loss) {
        const std::lock_guard guard(mutex_);
        losses_.push_back(loss);
    }

    // A session begins.
    unsigned add_session() {
        const Nanoseconds opened = now();
        const std::lock_guard guard(mutex_);
        sessions_[++last_session_] = opened;
        return last_session_;
    }
    // What was refused rather than answered wrongly.
    void add_refused_read() { ++refused_reads_; }
    void add_refused_flush() { ++refused_flushes_; }
    size_t refused_reads() const { return refused_reads_; }
    size_t refused_flushes() const { return refused_flushes_; }

    // Between rounds: nobody adds.
    const std::map<Register, std::vector<Operation>>& histories() const { return histories_; }
    const std::vector<Flush>& flushes() const { return flushes_; }
    const std::vector<Loss>& losses() const { return losses_; }
    const std::map<unsigned, Nanoseconds>& sessions() const { return sessions_; }
    size_t count() const { return count_; }
    void clear() {
        histories_.clear();
        flushes_.clear();
        losses_.clear();
        count_ = 0;
    }

  private:
    std::mutex mutex_;
    std::map<Register, std::vector<Operation>> histories_;
    std::vector<Flush> flushes_;
    std::vector<Loss> losses_;
    std::map<unsigned, Nanoseconds> sessions_;  // by when they began; kept over all rounds
    unsigned last_session_ = 0;
    std::atomic<size_t> refused_reads_{0};
    std::atomic<size_t> refused_flushes_{0};
    size_t count_ = 0;
};

}  // namespace tarn::checker
