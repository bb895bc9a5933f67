// The ring of a loop that asks a device for completions: made when somebody wants to read so, on the loop's thread.
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "utils/loop.hpp"
#include "utils/operation_ring.hpp"

namespace tarn {
namespace {

struct Seen {
    unsigned made = 0;
    unsigned attached = 0;
    unsigned detached = 0;
    std::thread::id thread;  // of the last of them
};

// Of a kernel that has nothing to do.
class SeenRing final : public OperationRing {
  public:
    explicit SeenRing(Seen& seen) : seen_(seen) {}
    Result<> register_buffers(std::span<const iovec>) override { return {}; }
    void attach() override { note(seen_.attached); }
    void detach() override { note(seen_.detached); }
    io_uring_sqe& next_submission() override { return entry_; }
    void submit(bool) override {}
    size_t reap(std::span<Completed>) override { return 0; }

  private:
    void note(unsigned& count) {
        ++count;
        seen_.thread = std::this_thread::get_id();
    }
    Seen& seen_;
    io_uring_sqe entry_{};
};

class PolledRing : public testing::Test {
  protected:
    // refuse: the kernel makes no such ring.
    std::unique_ptr<Loop> make_loop(bool refuse) {
        const auto make = [this, refuse](unsigned) -> Result<std::unique_ptr<OperationRing>> {
            ++seen_.made;
            if (refuse) return fail(Errc::io, ENOSYS, "played");
            return std::make_unique<SeenRing>(seen_);
        };
        return std::move(*Loop::create(std::move(*make_io_uring(64)), make));
    }
    static Task<> ask(Loop& loop, size_t times, size_t& yes) {
        for (size_t i = 0; i < times; ++i) yes += loop.polls();
        co_return;
    }

    Seen seen_;
};

// Only who has attached it can detach it, and the loop may be destroyed on another thread.
TEST_F(PolledRing, belongs_to_the_thread_of_the_loop_until_its_end) {
    const std::unique_ptr<Loop> loop = make_loop(false);
    size_t yes = 0;
    std::thread::id thread;
    std::thread shard([&] {
        thread = std::this_thread::get_id();
        loop->run_until_done(ask(*loop, 3, yes));
        loop->stop();
        loop->run();
    });
    shard.join();
    EXPECT_EQ(yes, 3u);
    EXPECT_EQ(seen_.made, 1u);
    EXPECT_EQ(seen_.attached, 1u);
    EXPECT_EQ(seen_.detached, 1u);
    EXPECT_EQ(seen_.thread, thread);
}

TEST_F(PolledRing, is_not_asked_for_again_once_the_kernel_refused_it) {
    const std::unique_ptr<Loop> loop = make_loop(true);
    size_t yes = 0;
    loop->run_until_done(ask(*loop, 3, yes));
    EXPECT_EQ(yes, 0u);
    EXPECT_EQ(seen_.made, 1u);
}

// Most loops never read so.
TEST_F(PolledRing, is_made_for_nobody_who_does_not_ask) {
    const std::unique_ptr<Loop> loop = make_loop(false);
    const auto take_turns = [](Loop& on) -> Task<> { co_await Yield(on); };
    loop->run_until_done(take_turns(*loop));
    EXPECT_EQ(seen_.made, 0u);
}

}  // namespace
}  // namespace tarn
