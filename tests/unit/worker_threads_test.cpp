#include "utils/worker_threads.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <semaphore>
#include <set>

#include "utils/on_thread.hpp"
#include "utils/sync.hpp"

namespace tarn {
namespace {

TEST(WorkerThreadsTest, calls_run_on_a_few_threads_and_end_where_they_began) {
    const auto loop = std::move(*Loop::create());
    WorkerThreads workers(2);
    std::set<std::thread::id> threads;
    unsigned sum = 0;
    const auto call = [&](unsigned number) -> Task<> {
        std::thread::id worker;
        const unsigned result = co_await workers.run([&] {
            worker = std::this_thread::get_id();
            return number * 2;
        });
        EXPECT_EQ(Loop::current(), loop.get());
        threads.insert(worker);
        sum += result;
    };
    const auto calls = [&]() -> Task<> {
        Gate gate;
        for (unsigned i = 0; i < 100; ++i) gate.spawn(call(i));
        co_await gate.close();
    };
    loop->run_until_done(calls());
    EXPECT_EQ(sum, 9900u);
    EXPECT_LE(threads.size(), 2u);
    EXPECT_FALSE(threads.contains(std::this_thread::get_id()));
}

// In a process of a user that has no other: what it returns, where a limit of processes counts.
int as_user_with_limit(const std::function<int()>& act) {
    constexpr uid_t nobody_else = 64'123;
    const pid_t child = ::fork();
    if (child == 0) {
        const bool is_user = ::setresuid(nobody_else, nobody_else, nobody_else) == 0;
        const rlimit limit{.rlim_cur = 1, .rlim_max = 100};
        ::_exit(is_user && ::setrlimit(RLIMIT_NPROC, &limit) == 0 ? act() : 77);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

// A client that has proved nothing must not be able to end the process at such a limit.
TEST(WorkerThreadsTest, who_needs_a_thread_while_there_is_none_waits_for_one) {
    if (::geteuid() != 0) GTEST_SKIP() << "root sets limits";
    const auto wait_for_one = [] {
        if (start_thread([] {})) return 1;  // it would not be joined
        const auto loop = std::move(*Loop::create());
        auto workers = std::make_unique<WorkerThreads>(2);
        int done = 0;
        const auto by_worker = [&]() -> Task<> { done += co_await workers->run([] { return 1; }); };
        const auto on_own = [&]() -> Task<> { done += co_await on_thread([] { return 1; }); };
        const auto all = [&]() -> Task<> {
            Gate gate;
            gate.spawn(by_worker());
            gate.spawn(on_own());
            for (int i = 0; i < 3; ++i) co_await loop->sleep(thread_retry);
            const bool waited = done == 0;
            const rlimit more{.rlim_cur = 100, .rlim_max = 100};
            ::setrlimit(RLIMIT_NPROC, &more);
            co_await gate.close();
            if (!waited) done = 0;
        };
        loop->run_until_done(all());
        workers.reset();
        return done == 2 ? 0 : 2;
    };
    EXPECT_EQ(as_user_with_limit(wait_for_one), 0);
}

TEST(WorkerThreadsTest, without_a_call_there_is_no_thread_to_wait_for) {
    const WorkerThreads workers(2);
}

// Else one that takes long, as a handshake does, would keep all others waiting.
TEST(WorkerThreadsTest, as_many_calls_run_at_once_as_there_may_be_threads) {
    const auto loop = std::move(*Loop::create());
    WorkerThreads workers(3);
    std::counting_semaphore<3> came{0};
    std::counting_semaphore<3> may_end{0};
    bool all_came = true;
    const auto meet = [&]() -> Task<> {
        co_await workers.run([&] {
            came.release();
            may_end.acquire();
            return true;
        });
    };
    const auto all = [&]() -> Task<> {
        Gate gate;
        for (int i = 0; i < 3; ++i) gate.spawn(meet());
        co_await on_thread([&] {
            for (int i = 0; i < 3; ++i) all_came = all_came && came.try_acquire_for(std::chrono::seconds(10));
            may_end.release(3);
            return true;
        });
        co_await gate.close();
    };
    loop->run_until_done(all());
    EXPECT_TRUE(all_came);
}

}  // namespace
}  // namespace tarn
