// Where an NBD client runs, and when its connection goes there.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <ctime>
#include <thread>

#include "frontends/nbd/client_cpu.hpp"
#include "frontends/nbd/following.hpp"
#include "tests/support/tcp_listener.hpp"
#include "utils/cpu_set.hpp"
#include "utils/file_text.hpp"

namespace tarn::nbd {
namespace {

using namespace std::chrono_literals;

class FollowingTest : public testing::Test {
  protected:
    // The client is looked for when its connection says so. Returns the wake-ups until then.
    unsigned look(std::optional<unsigned> cpu, bool here = false) {
        unsigned wake_ups = 1;
        while (!following_.wakes_up()) ++wake_ups;
        following_.saw(cpu, here, now_);
        return wake_ups;
    }

    Following following_;
    Following::Clock::time_point now_ = Following::Clock::time_point{} + 1h;
};

TEST_F(FollowingTest, a_client_that_is_seen_twice_elsewhere_is_followed) {
    look(3);
    EXPECT_FALSE(following_.wanted_cpu());
    look(3);
    EXPECT_EQ(following_.wanted_cpu(), 3u);
    following_.moved();
    EXPECT_FALSE(following_.wanted_cpu());
    look(3, true);
    EXPECT_TRUE(following_.is_here());
    EXPECT_FALSE(following_.wanted_cpu());
}

TEST_F(FollowingTest, a_client_that_is_here_is_looked_for_seldom) {
    EXPECT_EQ(look(0, true), Following::wake_ups_elsewhere);
    EXPECT_EQ(look(0, true), Following::wake_ups_here);
    EXPECT_EQ(look(1), Following::wake_ups_here);
    EXPECT_EQ(look(1), Following::wake_ups_elsewhere);
}

TEST_F(FollowingTest, one_of_which_nothing_is_known_stays) {
    for (int i = 0; i < 10; ++i) look(std::nullopt);
    EXPECT_FALSE(following_.wanted_cpu());
    EXPECT_FALSE(following_.is_here());
    EXPECT_EQ(look(std::nullopt), Following::wake_ups_here);
}

TEST_F(FollowingTest, one_that_comes_back_at_once_is_not_followed) {
    look(1);
    look(0, true);
    look(1);
    EXPECT_FALSE(following_.wanted_cpu());
    look(2);
    EXPECT_FALSE(following_.wanted_cpu()) << "seen once there";
    look(2);
    EXPECT_EQ(following_.wanted_cpu(), 2u);
    look(0, true);
    EXPECT_FALSE(following_.wanted_cpu()) << "it is here again";
}

TEST_F(FollowingTest, a_client_that_never_stays_is_followed_so_many_times_a_second) {
    unsigned moves = 0;
    for (unsigned i = 0; i < 100'000; ++i) {  // ten seconds
        now_ += 100us;
        look(i / 2 % 7);
        if (!following_.wanted_cpu()) continue;
        following_.moved();
        ++moves;
    }
    EXPECT_GE(moves, 990u);
    EXPECT_LE(moves, 1'010u);
}

TEST_F(FollowingTest, one_that_stayed_for_long_may_move_some_times_at_once) {
    unsigned moves = 0;
    const auto move_about = [&] {
        for (unsigned i = 0; i < 100; ++i) {
            look(1 + i % 2);
            look(1 + i % 2);
            if (!following_.wanted_cpu()) continue;
            following_.moved();
            ++moves;
        }
    };
    move_about();
    EXPECT_EQ(moves, Following::moves_at_once_max);
    now_ += 1h;
    move_about();
    EXPECT_EQ(moves, 2 * Following::moves_at_once_max);
}

Client process(pid_t id) {
    return {.address = {}, .process = id, .started = started_ticks("/proc/" + std::to_string(id)), .text = ""};
}

// A process that runs on one CPU until its end, and its threads.
class Runner {
  public:
    // Each thread on one of the CPUs.
    explicit Runner(std::vector<unsigned> cpus, std::chrono::milliseconds work = std::chrono::milliseconds(20)) {
        int ready[2];
        EXPECT_EQ(::pipe(ready), 0);
        id_ = ::fork();
        if (id_ == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that finds a mutant ends its process on the spot
            for (size_t i = 1; i < cpus.size(); ++i) std::thread([&, i] { run(cpus[i], work, ready[1]); }).detach();
            run(cpus[0], work, ready[1]);
        }
        char byte = 0;
        for (size_t i = 0; i < cpus.size(); ++i) EXPECT_EQ(::read(ready[0], &byte, 1), 1);
        ::close(ready[0]);
        ::close(ready[1]);
    }
    ~Runner() { end(); }
    void end() {
        if (id_ == 0) return;
        ::kill(id_, SIGKILL);
        ::waitpid(id_, nullptr, 0);
        id_ = 0;
    }
    pid_t id() const { return id_; }

  private:
    [[noreturn]] static void run(unsigned cpu, std::chrono::milliseconds work, int ready) {
        if (!CpuSet{cpu}.bind()) ::_exit(1);
        const long work_ns = std::chrono::nanoseconds(work).count();
        timespec worked{};
        while (worked.tv_sec == 0 && worked.tv_nsec < work_ns) ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &worked);
        if (::write(ready, "x", 1) != 1) ::_exit(1);
        for (;;) work_ns > 0 ? ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &worked) : ::pause();
    }
    pid_t id_ = 0;
};

std::vector<unsigned> usable_cpus() {
    const CpuSet cpus = *CpuSet::of_thread();
    return {cpus.list().begin(), cpus.list().end()};
}

TEST(ClientCpuTest, of_a_process_is_where_it_ran_last) {
    for (const unsigned cpu : usable_cpus()) {
        const Runner runner({cpu});
        const Client client = process(runner.id());
        EXPECT_EQ(ClientCpu(-1, client, 0).now(), cpu);
    }
}

TEST(ClientCpuTest, the_threads_that_work_are_shared_out_among_connections) {
    const std::vector<unsigned> cpus = usable_cpus();
    if (cpus.size() < 2) GTEST_SKIP() << "needs two CPUs";
    const Runner runner({cpus[0], cpus[1]});
    const Client client = process(runner.id());
    std::optional<unsigned> first;
    std::optional<unsigned> second;
    // On a busy machine one of them may have got less than its share for a while.
    for (int looks = 0; looks < 10'000 && first == second; ++looks) {
        first = ClientCpu(-1, client, 4).now();
        second = ClientCpu(-1, client, 5).now();
        ASSERT_TRUE(first && second);
    }
    EXPECT_NE(*first, *second);
}

TEST(ClientCpuTest, of_a_process_with_very_many_threads_nothing_is_known) {
    std::vector<unsigned> cpus(ClientCpu::threads_max + 1, usable_cpus().front());
    const Runner crowd(cpus, std::chrono::milliseconds(0));
    const Client client = process(crowd.id());
    EXPECT_FALSE(ClientCpu(-1, client, 0).now());
}

TEST(ClientCpuTest, a_process_that_has_ended_or_cannot_be_seen_is_unknown) {
    Runner runner({usable_cpus().front()});
    const Client client = process(runner.id());
    ClientCpu seen(-1, client, 0);
    EXPECT_TRUE(seen.now());
    runner.end();
    EXPECT_FALSE(seen.now());
    EXPECT_FALSE(seen.now());
    EXPECT_FALSE(ClientCpu(-1, client, 0).now());
    const Client hidden{.text = ""};  // in another PID namespace
    EXPECT_FALSE(ClientCpu(-1, hidden, 0).now());
}

TEST(ClientCpuTest, a_process_that_got_the_id_later_is_not_taken_for_the_client) {
    Client client = process(::getpid());
    ASSERT_TRUE(ClientCpu(-1, client, 0).now());
    client.started += 1;
    ClientCpu reused(-1, client, 0);
    EXPECT_FALSE(reused.now());
    EXPECT_FALSE(reused.now());
}

TEST(ClientCpuTest, over_tcp_it_is_where_the_last_packet_came_in) {
    const TcpListener listener;
    for (const unsigned cpu : usable_cpus()) {
        UniqueFd accepted;
        std::thread client([&] {
            EXPECT_TRUE(CpuSet{cpu}.bind());
            const UniqueFd socket = listener.connected();
            accepted = listener.accepted();
            char byte = 'x';
            EXPECT_EQ(::send(socket.get(), &byte, 1, 0), 1);
            EXPECT_EQ(::recv(accepted.get(), &byte, 1, 0), 1);
        });
        client.join();
        const Client over_tcp{.address = "127.0.0.1", .text = ""};
        EXPECT_EQ(ClientCpu(accepted.get(), over_tcp, 0).now(), cpu);
    }
}

}  // namespace
}  // namespace tarn::nbd
