// Recorder: what all clients did to each register, and when, within one round.
#pragma once

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

    // Between rounds: nobody adds.
    const std::map<Register, std::vector<Operation>>& histories() const { return histories_; }
    const std::vector<Flush>& flushes() const { return flushes_; }
    const std::vector<Loss>& losses() const { return losses_; }
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
    size_t count_ = 0;
};

}  // namespace tarn::checker
