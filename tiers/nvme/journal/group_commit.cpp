#include "tiers/nvme/journal/group_commit.hpp"

#include <utility>

#include "utils/assert.hpp"

namespace tarn {

GroupCommit::~GroupCommit() {
    TARN_ASSERT(!running_ && gathering_.empty());
}

bool GroupCommit::Join::await_suspend(std::coroutine_handle<> caller) {
    handle = caller;
    const std::lock_guard lock(commit_.mutex_);
    if (!std::exchange(commit_.running_, true)) {
        leads = true;
        return false;
    }
    commit_.gathering_.push_back(this);
    return true;
}

void GroupCommit::begin() {
    const std::lock_guard lock(mutex_);
    TARN_ASSERT(running_ && served_.empty());
    served_.swap(gathering_);
}

void GroupCommit::finish(const Result<>& result) {
    std::vector<Member*> served;
    Member* leader = nullptr;
    {
        const std::lock_guard lock(mutex_);
        TARN_ASSERT(running_);
        served.swap(served_);
        crowded_ = !served.empty();
        running_ = !gathering_.empty();
        if (running_) {
            leader = gathering_.front();
            gathering_.erase(gathering_.begin());
        }
    }
    // A member may be gone as soon as it was posted.
    for (Member* const member : served) {
        member->result = result;
        member->loop.post(*member);
    }
    if (leader) {
        leader->leads = true;
        leader->loop.post(*leader);
    }
}

}  // namespace tarn
