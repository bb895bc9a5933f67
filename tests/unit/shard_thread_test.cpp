// The threads of shards under the real scheduler: where they may run, and as what.
#include <gtest/gtest.h>
#include <linux/ioprio.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "daemon/process/shards.hpp"
#include "utils/run_on.hpp"

namespace tarn {
namespace {

using namespace std::chrono_literals;
using Mode = Scheduling::Mode;

struct Seen {
    CpuSet cpus;
    int sched_class = -1;
    pid_t thread = 0;
};

Task<Seen> look() {
    co_return Seen{*CpuSet::of_thread(), ::sched_getscheduler(0), ::gettid()};
}

// Runs a task on the first of the shards, and then ends them.
void run(Shards& shards, Task<> task) {
    const auto end_after = [](Shards& shards, Task<> task) -> Task<> {
        co_await std::move(task);
        shards.first().stop();
    };
    ASSERT_TRUE(shards.start());
    shards.first().spawn(end_after(shards, std::move(task)));
    shards.first().run();
    shards.stop();
}

// Whether it holds at some time; a busy machine keeps shards from being courteous for seconds. Looks now and then: the
// kernel tells nobody what it does with a thread, and who looked all the time would take the shard's CPU.
template <class Condition>
bool eventually(Condition condition) {
    for (const auto until = std::chrono::steady_clock::now() + 60s; !condition();) {
        if (std::chrono::steady_clock::now() > until) return false;
        std::this_thread::sleep_for(1ms);
    }
    return true;
}

// On a thread of its own, since the first shard joins the thread of its caller to a CPU.
template <class Function>
void on_own_thread(Function function) {
    std::thread(function).join();
}

TEST(ShardsTest, each_thread_runs_on_the_cpus_of_its_loop) {
    on_own_thread([] {
        const CpuSet all = *CpuSet::of_thread();
        const std::unique_ptr<Shards> shards = *Shards::create(0, true);
        ASSERT_EQ(shards->loops().size(), all.size());
        run(*shards, [](Shards& shards, CpuSet all) -> Task<> {
            std::vector<unsigned> seen;
            for (Loop* const loop : shards.loops()) {
                EXPECT_EQ((co_await run_on(shards.first(), *loop, look())).cpus, loop->cpus());
                seen.insert(seen.end(), loop->cpus().list().begin(), loop->cpus().list().end());
            }
            EXPECT_EQ(CpuSet(seen), all);
        }(*shards, all));
    });
}

TEST(ShardsTest, threads_that_are_not_pinned_run_everywhere) {
    on_own_thread([] {
        const CpuSet all = *CpuSet::of_thread();
        const std::unique_ptr<Shards> shards = *Shards::create(3, false);
        run(*shards, [](Shards& shards, CpuSet all) -> Task<> {
            for (Loop* const loop : shards.loops()) {
                EXPECT_TRUE(loop->cpus().empty());
                EXPECT_EQ((co_await run_on(shards.first(), *loop, look())).cpus, all);
            }
        }(*shards, all));
    });
}

TEST(ShardsTest, affinity_to_one_cpu_is_one_shard_there) {
    on_own_thread([] {
        const CpuSet last{CpuSet::of_thread()->list().back()};
        ASSERT_TRUE(last.bind());
        const std::unique_ptr<Shards> shards = *Shards::create(0, true);
        ASSERT_EQ(shards->loops().size(), 1u);
        EXPECT_EQ(shards->first().cpus(), last);
        run(*shards, []() -> Task<> { co_return; }());
    });
}

// As if a client on its CPU woke the shard all the time, until a thread that it has made is no more of its class.
Task<> make_thread_while_courteous(Loop& loop, const ShardThread& shard) {
    const auto turn = [](Loop& loop) -> Task<> {
        loop.count_near_wake_up();
        co_await loop.sleep(10us);
    };
    for (const auto until = std::chrono::steady_clock::now() + 60s; ::sched_getscheduler(0) != SCHED_IDLE;) {
        co_await turn(loop);
        if (std::chrono::steady_clock::now() > until) co_return ADD_FAILURE() << "it was never courteous";
    }
    std::atomic<bool> ends{false};
    std::atomic<pid_t> id{0};
    std::thread made([&] {
        id.store(::gettid());
        ends.wait(false);
    });
    for (const auto until = std::chrono::steady_clock::now() + 60s;
         id.load() == 0 || ::sched_getscheduler(id.load()) == SCHED_IDLE;) {
        co_await turn(loop);
        if (std::chrono::steady_clock::now() > until) {
            ADD_FAILURE() << "what it makes stays of its class";
            break;
        }
    }
    EXPECT_TRUE(shard.is(::gettid()));
    ends.store(true);
    ends.notify_one();
    made.join();
}

TEST(ShardsTest, what_a_courteous_thread_makes_is_an_ordinary_one) {
    if (!ShardThread::may_be_courteous()) GTEST_SKIP() << "needs to be root, or RLIMIT_NICE";
    on_own_thread([] {
        const std::unique_ptr<Shards> shards = *Shards::create(1, true);
        run(*shards, make_thread_while_courteous(shards->first(), *shards->threads().front()));
    });
}

// Of clients on the shard's CPU; of some elsewhere, which wait for each answer; or of some that keep its CPU busy.
enum class Requests { near, far, deep };

// A loop that does nothing but turn, as if clients woke it all the time.
class TurningShard {
  public:
    explicit TurningShard(const CpuSet& cpus, Requests requests = Requests::near)
        : loop_(std::move(*Loop::create())), all_(*CpuSet::of_thread()), requests_(requests) {
        loop_->set_cpus(cpus);
        thread_ = std::make_unique<ShardThread>(
            *loop_, all_,
            ShardThread::Parts{.most_idle =
                                   [this](const CpuSet& cpus, Scheduling::Clock::time_point) {
                                       asked_of_others_.store(cpus == all_ - loop_->cpus());
                                       return 100u;
                                   },
                               .courtesy_allowed = true,
                               .wake_guard = [this] { guards_wanted_.fetch_add(1); },
                               .find_share = [this] { return share(); }});
    }
    ~TurningShard() {
        loop_->stop();
        if (runner_.joinable()) runner_.join();
    }
    void start() {
        runner_ = std::thread([this] {
            thread_->begin();
            id_.store(::gettid());
            loop_->spawn(turn());
            loop_->run();
        });
        while (id_.load() == 0) std::this_thread::yield();
    }
    bool comes_to(Mode mode) const {
        return eventually([&] { return thread_->mode() == mode; });
    }
    bool makes_turns(uint64_t count) const {
        return eventually([&, before = loop_->turns()] { return loop_->turns() >= before + count; });
    }
    // From then on these are its CPUs, and all that the process may use.
    void give(const CpuSet& cpus) {
        const std::lock_guard guard(share_lock_);
        share_ = {.all = cpus, .own = cpus};
    }
    void hold(bool holds) { held_.store(holds); }
    void rest(bool rests) { rests_.store(rests); }

    ShardThread& thread() { return *thread_; }
    Loop& loop() { return *loop_; }
    pid_t id() const { return id_.load(); }
    int sched_class() const { return ::sched_getscheduler(id()); }
    // The last time that it asked how idle CPUs are, these were the ones that are not its own.
    bool asked_of_others() const { return asked_of_others_.load(); }
    int guards_wanted() const { return guards_wanted_.load(); }

  private:
    Task<> turn() {
        while (!loop_->ending()) {
            while (held_.load()) continue;  // ready to run, and no turn ends
            loop_->count_requests(requests_ == Requests::near ? 1 : 64);
            if (requests_ == Requests::near) loop_->count_near_wake_up();
            if (requests_ == Requests::deep) keep_busy(500us);
            // Far clients leave a thread time to sleep, also where each wake-up takes the kernel long.
            co_await loop_->sleep(rests_.load() ? 1s : requests_ == Requests::far ? 200us : 10us);
        }
    }

    static void keep_busy(std::chrono::nanoseconds time) {
        const auto end = std::chrono::steady_clock::now() + time;
        while (std::chrono::steady_clock::now() < end) continue;
    }

    ShardThread::Share share() {
        const std::lock_guard guard(share_lock_);
        return share_;
    }

    std::mutex share_lock_;
    ShardThread::Share share_;
    std::unique_ptr<Loop> loop_;
    const CpuSet all_;
    const Requests requests_;
    std::unique_ptr<ShardThread> thread_;
    std::thread runner_;
    std::atomic<pid_t> id_{0};
    std::atomic<bool> held_{false};
    std::atomic<bool> rests_{false};
    std::atomic<bool> asked_of_others_{false};
    std::atomic<int> guards_wanted_{0};
};

class CourteousShard : public testing::Test {
  protected:
    void SetUp() override {
        if (!ShardThread::may_be_courteous()) GTEST_SKIP() << "needs to be root, or RLIMIT_NICE";
        shard_.start();
        ASSERT_TRUE(shard_.comes_to(Mode::courteous));
        ASSERT_TRUE(eventually([&] { return shard_.guards_wanted() > 0; }));
    }
    TurningShard shard_{CpuSet{CpuSet::of_thread()->list().front()}};
};

TEST_F(CourteousShard, is_of_the_idle_class_while_it_turns) {
    int looks = 0;
    EXPECT_TRUE(eventually([&] {
        looks = shard_.thread().guard() && shard_.sched_class() == SCHED_IDLE ? looks + 1 : 0;
        return shard_.makes_turns(1) && looks == 10;
    }));
}

// Of the class idle, it would wait until the disk has nothing else to do.
TEST_F(CourteousShard, has_the_io_priority_of_an_ordinary_thread) {
    EXPECT_EQ(shard_.sched_class(), SCHED_IDLE);
    EXPECT_EQ(IOPRIO_PRIO_CLASS(::syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, shard_.id())), IOPRIO_CLASS_BE);
}

TEST_F(CourteousShard, that_gets_no_turn_is_courteous_no_more) {
    shard_.hold(true);
    EXPECT_TRUE(eventually([&] { return !shard_.thread().guard(); }));
    EXPECT_EQ(shard_.sched_class(), SCHED_OTHER);
    EXPECT_FALSE(shard_.thread().guard());
    shard_.hold(false);
    EXPECT_TRUE(shard_.comes_to(Mode::joined));
    EXPECT_TRUE(shard_.comes_to(Mode::courteous)) << "it tries again";
}

TEST_F(CourteousShard, that_has_nothing_to_do_needs_no_guard) {
    shard_.rest(true);
    EXPECT_TRUE(eventually([&] { return !shard_.thread().guard(); }));
    EXPECT_EQ(shard_.sched_class(), SCHED_OTHER);
    const int guards = shard_.guards_wanted();
    shard_.rest(false);
    EXPECT_TRUE(eventually([&] { return shard_.guards_wanted() > guards; })) << "it goes on where it was";
}

TEST(ShardThreadTest, the_times_of_its_thread_are_the_kernels) {
    TurningShard shard(CpuSet{CpuSet::of_thread()->list().front()});
    shard.start();
    ASSERT_TRUE(shard.comes_to(Mode::joined));
    const ShardThread::Times before = shard.thread().times();
    EXPECT_TRUE(eventually([&] {
        const ShardThread::Times after = shard.thread().times();
        return after.run > before.run && after.runs > before.runs && after.delay >= before.delay;
    }));
}

TEST(ShardThreadTest, an_affinity_that_somebody_sets_is_left_alone) {
    const CpuSet all = *CpuSet::of_thread();
    if (all.size() < 2) GTEST_SKIP() << "needs two CPUs";
    TurningShard shard(CpuSet{all.list().front()});
    shard.start();
    const CpuSet wanted{all.list().back()};
    ASSERT_TRUE(wanted.bind(shard.id()));
    EXPECT_TRUE(eventually([&] { return shard.loop().cpus().empty(); }));
    EXPECT_EQ(*CpuSet::of_thread(shard.id()), wanted);
    EXPECT_TRUE(shard.makes_turns(20'000));  // it would look again after one second
    EXPECT_EQ(*CpuSet::of_thread(shard.id()), wanted);
    EXPECT_EQ(shard.sched_class(), SCHED_OTHER);
}

TEST(ShardThreadTest, it_goes_where_its_cpus_are_now) {
    const CpuSet all = *CpuSet::of_thread();
    if (all.size() < 2) GTEST_SKIP() << "needs two CPUs";
    const CpuSet first{all.list().front()};
    TurningShard shard(first);
    shard.start();
    for (const CpuSet& cpus : {CpuSet{all.list().back()}, all, first}) {
        shard.give(cpus);
        EXPECT_TRUE(eventually([&] { return *CpuSet::of_thread(shard.id()) == cpus; }));
        EXPECT_TRUE(eventually([&] { return shard.loop().cpus() == cpus; }));
    }
}

// Its clients keep its CPU busy, and it has gone to the others.
class ShardBeside : public testing::Test {
  protected:
    void SetUp() override {
        if (all_.size() < 2) GTEST_SKIP() << "needs two CPUs";
        shard_.start();
        ASSERT_TRUE(eventually([&] { return *CpuSet::of_thread(shard_.id()) == all_ - own_; }));
    }
    const CpuSet all_ = *CpuSet::of_thread();
    const CpuSet own_{all_.list().front()};
    TurningShard shard_{own_, Requests::deep};
};

TEST_F(ShardBeside, comes_back_when_it_serves_no_more_there) {
    EXPECT_TRUE(shard_.asked_of_others());
    EXPECT_TRUE(shard_.comes_to(Mode::joined));
    EXPECT_TRUE(eventually([&] { return *CpuSet::of_thread(shard_.id()) == own_; }));
}

TEST_F(ShardBeside, leaves_an_affinity_alone_that_somebody_sets_meanwhile) {
    ASSERT_TRUE(all_.bind(shard_.id()));
    EXPECT_TRUE(eventually([&] { return shard_.loop().cpus().empty(); }));
    EXPECT_EQ(*CpuSet::of_thread(shard_.id()), all_);
}

TEST(ShardThreadTest, it_looks_before_it_sleeps_when_its_clients_run_elsewhere) {
    TurningShard shard(CpuSet{CpuSet::of_thread()->list().front()}, Requests::far);
    shard.start();
    EXPECT_TRUE(eventually([&] { return shard.loop().looks_before_sleep(); }));
    EXPECT_TRUE(eventually([&] { return !shard.loop().looks_before_sleep(); })) << "it serves no more for it";
}

TEST(ShardThreadTest, a_cpu_that_it_may_not_use_is_no_reason_to_stop) {
    TurningShard shard(CpuSet{60000});
    shard.start();
    EXPECT_TRUE(shard.makes_turns(5'000));
    EXPECT_EQ(*CpuSet::of_thread(shard.id()), *CpuSet::of_thread());
}

// They may wait for the first one until they have ended.
TEST(Shards, the_first_one_answers_until_the_others_have_ended) {
    const std::unique_ptr<Shards> shards = *Shards::create(2, false);
    unsigned answers = 0;
    struct Asking {
        static Task<bool> answer(unsigned& answers) {
            ++answers;
            co_return true;
        }
        static Task<> ask(Loop& first, unsigned& answers) {
            while (!Loop::current()->ending()) co_await run_on(first, answer(answers));
            for (int i = 0; i < 10; ++i) co_await run_on(first, answer(answers));
        }
        static Task<> end(Shards& shards, unsigned& answers) {
            Loop& first = shards.first();
            Gate asking;
            asking.spawn(run_on(first, *shards.loops()[1], ask(first, answers)));
            while (answers == 0) co_await Yield(first);
            const unsigned before = answers;
            co_await shards.end_others();
            EXPECT_GE(answers, before + 10);
            co_await asking.close();
        }
    };
    run(*shards, Asking::end(*shards, answers));
    EXPECT_GT(answers, 10);
}

}  // namespace
}  // namespace tarn
