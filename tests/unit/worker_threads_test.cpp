#include "utils/worker_threads.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <set>

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

TEST(WorkerThreadsTest, without_a_call_there_is_no_thread_to_wait_for) {
    const WorkerThreads workers(2);
}

}  // namespace
}  // namespace tarn
