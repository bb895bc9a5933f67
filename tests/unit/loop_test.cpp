#include "utils/loop.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <semaphore>
#include <string_view>
#include <thread>

#include "utils/on_thread.hpp"
#include "utils/run_on.hpp"

namespace tarn {
namespace {

using namespace std::chrono_literals;

std::unique_ptr<Loop> make_loop() {
    Result<std::unique_ptr<Loop>> loop = Loop::create();
    EXPECT_TRUE(loop) << loop.error().sys_errno;
    return std::move(*loop);
}

Task<int> add_later(Loop& loop, int a, int b) {
    co_await loop.sleep(1ms);
    co_return a + b;
}

TEST(Loop, runs_a_task_to_its_value) {
    const auto loop = make_loop();
    EXPECT_EQ(loop->run_until_done(add_later(*loop, 2, 3)), 5);
}

Task<int> immediate(int value) {
    co_return value;
}

Task<int64_t> sum_immediate(int count) {
    int64_t sum = 0;
    for (int i = 0; i < count; ++i) sum += co_await immediate(i);
    co_return sum;
}

TEST(Loop, a_million_finished_children_do_not_grow_the_stack) {
    const auto loop = make_loop();
    EXPECT_EQ(loop->run_until_done(sum_immediate(1'000'000)), 499999500000);
}

Task<Result<size_t>> write_and_read_back(Loop& loop, int fd, std::span<std::byte> from, std::span<std::byte> into) {
    CO_TRY(const size_t written, co_await loop.write(fd, from, 0));
    EXPECT_EQ(written, from.size());
    co_return co_await loop.read(fd, into, 0);
}

TEST(Loop, reads_and_writes_files_through_registered_memory_and_beside_it) {
    const auto loop = make_loop();
    loop->run_until_done(add_later(*loop, 0, 0));
    const UniqueFd file(::memfd_create("loop-test", MFD_CLOEXEC));
    alignas(4096) static std::byte memory[3 * 4096];
    ASSERT_TRUE(loop->register_memory(std::span(memory).first(2 * 4096)));
    const std::span inside = std::span(memory).first(4096);
    const std::span across = std::span(memory).subspan(4096 + 512, 4096);
    std::fill(inside.begin(), inside.end(), std::byte{7});
    EXPECT_EQ(loop->run_until_done(write_and_read_back(*loop, file.get(), inside, across)).value_or(0), 4096);
    EXPECT_TRUE(std::ranges::equal(inside, across));
    std::fill(inside.begin(), inside.end(), std::byte{9});
    EXPECT_EQ(loop->run_until_done(write_and_read_back(*loop, file.get(), across, inside)).value_or(0), 4096);
    EXPECT_TRUE(std::ranges::equal(inside, across));
    EXPECT_EQ(inside[0], std::byte{7});
}

Task<Result<size_t>> send_and_receive(Loop& loop, int from, int to, std::span<std::byte> into) {
    static constexpr std::string_view text = "tarn";
    CO_TRY(const size_t sent, co_await loop.send(from, std::as_bytes(std::span(text))));
    EXPECT_EQ(sent, text.size());
    CO_TRY(const size_t received, co_await loop.receive(to, into));
    co_return received;
}

TEST(Loop, sends_and_receives) {
    const auto loop = make_loop();
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    const UniqueFd a(pair[0]);
    const UniqueFd b(pair[1]);
    std::byte bytes[16];
    const Result<size_t> received = loop->run_until_done(send_and_receive(*loop, a.get(), b.get(), bytes));
    ASSERT_TRUE(received);
    EXPECT_EQ(*received, 4u);
}

Task<> receive_until_cancelled(Loop& loop, int fd, Errc& code, Event& ended) {
    std::byte byte[1];
    const Result<size_t> received = co_await loop.receive(fd, byte);
    if (!received) code = received.error().code;
    ended.notify_all();
}

Task<> cancel_a_receive(Loop& loop, int fd, Errc& code) {
    Event ended;
    loop.spawn(receive_until_cancelled(loop, fd, code, ended));
    loop.cancel_fd(fd);
    co_await ended.wait();
}

TEST(Loop, cancel_fd_ends_what_waits_on_it) {
    const auto loop = make_loop();
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    const UniqueFd a(pair[0]);
    const UniqueFd b(pair[1]);
    Errc code = Errc::invalid;
    loop->run_until_done(cancel_a_receive(*loop, a.get(), code));
    EXPECT_EQ(code, Errc::cancelled);
}

Task<> cancel_soon(Timer& timer) {
    timer.cancel();
    co_return;
}

Task<bool> sleep_an_hour(Loop& loop) {
    Timer timer(loop);
    loop.spawn([](Loop& on, Timer& which) -> Task<> {
        co_await Yield(on);
        co_await cancel_soon(which);
    }(loop, timer));
    co_return co_await timer.sleep(1h);
}

TEST(Loop, a_cancelled_timer_says_so) {
    const auto loop = make_loop();
    EXPECT_FALSE(loop->run_until_done(sleep_an_hour(*loop)));
}

Task<unsigned> sleep_thrice(Timer& timer) {
    unsigned slept = 0;
    while (slept < 3 && co_await timer.sleep(1us)) ++slept;
    co_return slept;
}

Task<> sleep_thrice_into(Timer& timer, unsigned& slept) {
    slept = co_await sleep_thrice(timer);
}

// The time of the first sleep is over when it is cancelled, and nobody has been told.
Task<unsigned> cancel_too_late(Loop& loop) {
    Timer timer(loop);
    Gate gate;
    unsigned slept = 0;
    gate.spawn(sleep_thrice_into(timer, slept));
    co_await Yield(loop);
    std::this_thread::sleep_for(1ms);
    timer.cancel();
    co_await gate.close();
    EXPECT_FALSE(co_await timer.sleep(1h)) << "it was cancelled before";
    co_return slept;
}

TEST(Loop, who_sleeps_time_and_again_hears_of_a_cancel_that_came_as_the_time_was_over) {
    const auto loop = make_loop();
    EXPECT_LT(loop->run_until_done(cancel_too_late(*loop)), 3u);
}

Task<bool> is_current(Loop& loop) {
    co_return Loop::current() == &loop;
}

Task<int> count_calls(Loop& here, Loop& there, int calls) {
    int count = 0;
    for (int i = 0; i < calls; ++i) {
        if (co_await run_on(here, there, is_current(there))) ++count;
        EXPECT_EQ(Loop::current(), &here);
    }
    co_return count;
}

TEST(Loop, calls_between_loops_lose_no_wakeup) {
    const auto here = make_loop();
    const auto there = make_loop();
    std::thread thread([&] { there->run(); });
    EXPECT_EQ(here->run_until_done(count_calls(*here, *there, 2000)), 2000);
    there->stop();
    thread.join();
}

Task<> finish_later(Loop& loop, bool& finished) {
    co_await loop.sleep(5ms);
    finished = true;
}

TEST(Loop, run_waits_for_spawned_tasks_after_stop) {
    const auto loop = make_loop();
    bool finished = false;
    loop->spawn(finish_later(*loop, finished));
    loop->stop();
    loop->run();
    EXPECT_TRUE(finished);
}

Task<> finish_in_another(Loop& loop, bool& finished) {
    co_await loop.sleep(5ms);
    EXPECT_TRUE(loop.ending());
    loop.spawn(finish_later(loop, finished));
}

// As a link does that still takes what a peer sent.
TEST(Loop, run_waits_for_what_spawned_tasks_spawn_after_stop) {
    const auto loop = make_loop();
    bool finished = false;
    loop->spawn(finish_in_another(*loop, finished));
    loop->stop();
    loop->run();
    EXPECT_TRUE(finished);
}

// Posts a call from the loop's last task, which spawns another when no task is left.
struct LateCall final : Loop::Posted {
    LateCall(Loop& loop, std::shared_ptr<int> held) : loop(loop), held(std::move(held)) {}
    void run() override {
        ran = true;
        loop.spawn(keep(std::move(held), began));
    }
    static Task<> keep(std::shared_ptr<int>, bool& began) {
        began = true;
        co_return;
    }
    static Task<> post(Loop& loop, LateCall& call) {
        co_await Yield(loop);
        loop.post(call);
    }
    Loop& loop;
    std::shared_ptr<int> held;
    bool ran = false;
    bool began = false;
};

TEST(Loop, what_is_spawned_after_the_last_task_has_ended_is_dropped) {
    const auto loop = make_loop();
    const auto held = std::make_shared<int>(0);
    LateCall call(*loop, held);
    loop->spawn(LateCall::post(*loop, call));
    loop->stop();
    loop->run();
    EXPECT_TRUE(call.ran);
    EXPECT_FALSE(call.began);
    EXPECT_EQ(held.use_count(), 1) << "what the task was given is freed";
}

Task<> take_turns(Loop& loop, Semaphore& semaphore, int& inside, int& most) {
    co_await semaphore.acquire();
    most = std::max(most, ++inside);
    co_await loop.sleep(1ms);
    --inside;
    semaphore.release();
}

Task<int> crowd(Loop& loop) {
    Semaphore semaphore(3);
    Gate gate;
    int inside = 0;
    int most = 0;
    for (int i = 0; i < 20; ++i) gate.spawn(take_turns(loop, semaphore, inside, most));
    co_await gate.close();
    co_return most;
}

TEST(Sync, a_semaphore_lets_only_so_many_in) {
    const auto loop = make_loop();
    EXPECT_EQ(loop->run_until_done(crowd(*loop)), 3);
}

// Reads what there is between the waits, as users of an edge must.
Task<> watch(Loop& loop, int fd, std::vector<unsigned>& seen, std::string& bytes) {
    Readiness readiness(loop, fd, POLLIN | POLLRDHUP);
    for (;;) {
        const Result<unsigned> events = co_await readiness.wait();
        if (!events) break;
        seen.push_back(*events);
        char into[100];
        const ssize_t count = ::recv(fd, into, sizeof into, MSG_DONTWAIT);
        if (count == 0) break;
        if (count > 0) bytes.append(into, static_cast<size_t>(count));
    }
    co_await readiness.close();
}

TEST(Loop, readiness_tells_of_bytes_again_and_again_and_of_the_end) {
    const auto loop = make_loop();
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    const UniqueFd near(pair[0]);
    UniqueFd far(pair[1]);
    std::vector<unsigned> seen;
    std::string bytes;
    struct Talk {
        static Task<> run(Loop& loop, int near, UniqueFd& far, std::vector<unsigned>& seen, std::string& bytes) {
            Gate gate;
            gate.spawn(watch(loop, near, seen, bytes));
            for (const char* const word : {"one ", "two ", "three"}) {
                const size_t size_before = bytes.size();
                EXPECT_GT(::send(far.get(), word, std::strlen(word), 0), 0);
                while (bytes.size() == size_before) co_await loop.sleep(1ms);
            }
            far.reset();
            co_await gate.close();
        }
    };
    loop->run_until_done(Talk::run(*loop, near.get(), far, seen, bytes));
    EXPECT_EQ(bytes, "one two three");
    ASSERT_GE(seen.size(), 4u);
    EXPECT_EQ(seen.front() & POLLRDHUP, 0u);
    EXPECT_NE(seen.back() & POLLRDHUP, 0u);
}

// Fills the socket's buffers; returns how much that took.
size_t fill(int fd) {
    const std::vector<std::byte> bytes(1 << 16);
    for (size_t filled = 0;;) {
        const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent <= 0) return filled;
        filled += static_cast<size_t>(sent);
    }
}

Task<uint64_t> turns_until_writable(Loop& loop, int fd, int peer) {
    struct Taker {
        static Task<> take(Loop& loop, int peer, size_t size) {
            co_await loop.sleep(20ms);
            std::vector<std::byte> bytes(1 << 16);
            for (size_t taken = 0; taken < size;) {
                const ssize_t count = ::recv(peer, bytes.data(), bytes.size(), 0);
                if (count <= 0) co_return;
                taken += static_cast<size_t>(count);
            }
        }
    };
    Gate gate;
    gate.spawn(Taker::take(loop, peer, fill(fd)));
    const uint64_t before = loop.turns();
    const Result<> writable = co_await loop.writable(fd);
    EXPECT_TRUE(writable);
    const uint64_t turns = loop.turns() - before;
    EXPECT_GT(::send(fd, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL), 0);
    co_await gate.close();
    co_return turns;
}

TEST(Loop, a_socket_whose_peer_sends_no_more_is_not_taken_for_writable) {
    const auto loop = make_loop();
    for (const bool by_peer : {true, false}) {
        int ends[2];
        ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
        const UniqueFd ours(ends[0]);
        const UniqueFd theirs(ends[1]);
        if (by_peer)
            ::shutdown(theirs.get(), SHUT_WR);
        else
            ::shutdown(ours.get(), SHUT_RD);
        EXPECT_LT(loop->run_until_done(turns_until_writable(*loop, ours.get(), theirs.get())), 10u);
    }
}

Task<> poll_for_ever(Loop& loop, int fd, const bool& done) {
    while (!done) (void)co_await loop.poll(fd, POLLOUT);
}

Task<> outlast(Loop& loop, int fd) {
    bool done = false;
    Gate gate;
    for (int i = 0; i < 200; ++i) gate.spawn(poll_for_ever(loop, fd, done));
    for (int i = 0; i < 10; ++i) co_await Yield(loop);
    done = true;
    co_await gate.close();
}

TEST(Loop, what_is_always_ready_keeps_nobody_else_waiting) {
    const auto loop = make_loop();
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const UniqueFd ours(ends[0]);
    const UniqueFd theirs(ends[1]);
    loop->run_until_done(outlast(*loop, ours.get()));
}

TEST(Loop, goes_on_while_a_function_blocks_on_a_thread_of_its_own) {
    struct Part {
        static Task<> wait(std::binary_semaphore& released, std::thread::id& waited, std::thread::id& resumed) {
            waited = co_await on_thread([&] {
                released.acquire();
                return std::this_thread::get_id();
            });
            resumed = std::this_thread::get_id();
        }
        static Task<> both(Loop& loop, std::thread::id& waited, std::thread::id& resumed) {
            std::binary_semaphore released(0);
            Gate gate;
            gate.spawn(wait(released, waited, resumed));
            co_await Yield(loop);
            released.release();
            co_await gate.close();
        }
    };
    const auto loop = make_loop();
    std::thread::id waited;
    std::thread::id resumed;
    loop->run_until_done(Part::both(*loop, waited, resumed));
    EXPECT_NE(waited, std::this_thread::get_id());
    EXPECT_NE(waited, std::thread::id());
    EXPECT_EQ(resumed, std::this_thread::get_id());
}

}  // namespace
}  // namespace tarn
