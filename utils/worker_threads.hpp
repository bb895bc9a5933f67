// WorkerThreads: a few threads that last, for calls that take a while and come often. Each call is awaited by a
// coroutine of a loop, as on_thread()'s is. A new thread for each would cost a shard's time, and some libraries keep
// memory for every thread that ever was.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "utils/loop.hpp"
#include "utils/start_thread.hpp"

namespace tarn {

class WorkerThreads {
  public:
    // They are started with the first calls; where none can be, a call waits until one can. count: at least 1.
    explicit WorkerThreads(size_t count) : count_(count) {}
    WorkerThreads(const WorkerThreads&) = delete;
    // No call is under way.
    ~WorkerThreads() {
        {
            const std::lock_guard lock(mutex_);
            TARN_ASSERT(waiting_.empty());
            stopping_ = true;
        }
        changed_.notify_all();
        for (std::thread& thread : threads_) thread.join();
    }

    // From a loop that runs. More calls than threads wait for their turn. The function may refer to the caller's
    // locals.
    template <class Function>
    Task<std::invoke_result_t<Function&>> run(Function function) {
        for (int tries = 1; !has_thread(); ++tries) {
            warn_of_no_thread(tries);
            co_await Loop::current()->sleep(thread_retry);
        }
        Call<Function> call(*this, *Loop::current(), std::move(function));
        co_return co_await call;
    }

  private:
    struct Work {
        virtual void work() = 0;

      protected:
        ~Work() = default;
    };

    template <class Function>
    class Call final : public Work, public Loop::Posted {
      public:
        using Value = std::invoke_result_t<Function&>;

        Call(WorkerThreads& threads, Loop& loop, Function function)
            : threads_(threads), loop_(loop), function_(std::move(function)) {}
        bool await_ready() noexcept { return false; }
        void await_suspend(std::coroutine_handle<> handle) {
            waiter_ = handle;
            threads_.add(*this);
        }
        Value await_resume() { return std::move(*value_); }
        void work() override {
            value_ = function_();
            loop_.post(*this);
        }
        void run() override { waiter_.resume(); }

      private:
        WorkerThreads& threads_;
        Loop& loop_;
        Function function_;
        std::optional<Value> value_;
        std::coroutine_handle<> waiter_;
    };

    // One more, as long as there are fewer than there may be; any one will do.
    bool has_thread() {
        const std::lock_guard lock(mutex_);
        if (threads_.size() < count_)
            if (auto thread = start_thread([this] { serve(); })) threads_.push_back(*std::move(thread));
        return !threads_.empty();
    }
    void add(Work& work) {
        {
            const std::lock_guard lock(mutex_);
            waiting_.push_back(&work);
        }
        changed_.notify_one();
    }
    void serve() {
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
            if (waiting_.empty()) return;
            Work& work = *waiting_.front();
            waiting_.pop_front();
            lock.unlock();
            work.work();
            lock.lock();
        }
    }

    const size_t count_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Work*> waiting_;
    bool stopping_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace tarn
