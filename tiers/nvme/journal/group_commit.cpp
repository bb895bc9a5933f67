#include "tiers/nvme/journal/group_commit.hpp"

#include <utility>

#include "utils/assert.hpp"

namespace tarn {

GroupCommit::~GroupCommit() {
    TARN_ASSERT(!running_ && !gathering_.first);
}

void GroupCommit::push(Queue& queue, Member& member) {
    member.next = nullptr;
    if (queue.last)
        queue.last->next = &member;
    else
        queue.first = &member;
    queue.last = &member;
}

bool GroupCommit::Join::await_suspend(std::coroutine_handle<> caller) {
    handle = caller;
    const std::lock_guard lock(commit_.mutex_);
    if (!std::exchange(commit_.running_, true)) {
        leads = true;
        return false;
    }
    push(commit_.gathering_, *this);
    return true;
}

void GroupCommit::begin() {
    const std::lock_guard lock(mutex_);
    TARN_ASSERT(running_ && !served_.first);
    served_ = std::exchange(gathering_, {});
}

void GroupCommit::finish(const Result<>& result) {
    Queue served;
    Member* leader = nullptr;
    {
        const std::lock_guard lock(mutex_);
        TARN_ASSERT(running_);
        served = std::exchange(served_, {});
        crowded_ = served.first != nullptr;
        leader = gathering_.first;
        if (leader) {
            gathering_.first = static_cast<Member*>(leader->next);
            if (!gathering_.first) gathering_.last = nullptr;
        } else {
            running_ = false;
        }
    }
    // A member may be gone as soon as it was posted.
    while (served.first) {
        Member& member = *served.first;
        served.first = static_cast<Member*>(member.next);
        member.result = result;
        member.loop.post(member);
    }
    if (leader) {
        leader->leads = true;
        leader->loop.post(*leader);
    }
}

}  // namespace tarn
