// GroupCommit: many callers, on any threads, who each want "everything before my call is done", share rounds of it.
//
// At most one round runs and one gathers those who came after it began. Whoever leads a round runs it on its own
// loop; the others sleep on theirs until the round they joined is over. The first who waits leads the next round.
#pragma once

#include <coroutine>
#include <mutex>
#include <vector>

#include "utils/loop.hpp"
#include "utils/result.hpp"

namespace tarn {

class GroupCommit {
    struct Member : Loop::Posted {
        explicit Member(Loop& home) : loop(home) {}
        void run() override { handle.resume(); }

        Loop& loop;
        std::coroutine_handle<> handle;
        Result<> result;
        bool leads = false;

      protected:
        ~Member() = default;
    };

  public:
    GroupCommit() = default;
    GroupCommit(const GroupCommit&) = delete;
    ~GroupCommit();

    class [[nodiscard]] Join final : Member {
      public:
        Join(GroupCommit& commit, Loop& loop) : Member(loop), commit_(commit) {}
        bool await_ready() noexcept { return false; }
        bool await_suspend(std::coroutine_handle<> caller);
        // True: the caller leads; it begins, works and finishes. False: result() is the round's.
        bool await_resume() const { return leads; }
        Result<> result() const { return Member::result; }

      private:
        GroupCommit& commit_;
    };

    // Whether the last round served several. They come again together: a leader who lets them go first has them all.
    bool crowded() const { return crowded_; }
    // Those who gathered until now belong to the leader's round.
    void begin();
    // Hands them the result, and the lead to the first who came since.
    void finish(const Result<>& result);

  private:
    std::mutex mutex_;
    bool running_ = false;
    bool crowded_ = false;  // the leader's
    std::vector<Member*> gathering_;
    std::vector<Member*> served_;  // by the round that runs
};

}  // namespace tarn
