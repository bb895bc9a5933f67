// What the one-sided operations of every transport that has them must do, told once: two hosts are joined by a channel.
//
// A transport takes part with one line at the end.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>

#include "tests/support/in_process_transport.hpp"

namespace tarn {
namespace {

// Two hosts that the transport under test joins.
class Pair {
  public:
    virtual ~Pair() = default;
    virtual std::array<std::unique_ptr<Channel>, 2> join(Loop& loop) = 0;
};

Task<std::array<std::unique_ptr<Channel>, 2>> connect(Loop& loop, Transport& from, Transport& to,
                                                      const std::string& address) {
    const std::unique_ptr<Connection> opened = from.open(address);
    EXPECT_TRUE(co_await opened->connect());
    auto accepted = co_await to.accept();
    EXPECT_TRUE(accepted);
    co_return std::array{opened->become_channel(loop), (*accepted)->become_channel(loop)};
}

class OneProcess final : public Pair {
  public:
    std::array<std::unique_ptr<Channel>, 2> join(Loop& loop) override {
        return loop.run_until_done(connect(loop, *one_, *other_, "other"));
    }

  private:
    InProcessNetwork network_;
    std::unique_ptr<Transport> one_ = network_.join("one");
    std::unique_ptr<Transport> other_ = network_.join("other");
};

class RemoteMemoryConformance : public testing::TestWithParam<std::unique_ptr<Pair> (*)()> {
  protected:
    void SetUp() override {
        loop_ = std::move(*Loop::create());
        pair_ = GetParam()();
        channels_ = pair_->join(*loop_);
        words_.fill(0);
        region_ = *owner().open(bytes());
    }

    RemoteMemory& user() { return *channels_[0]->remote_memory(); }
    RemoteMemory& owner() { return *channels_[1]->remote_memory(); }
    std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(words_)); }
    auto read(uint64_t offset, std::span<std::byte> into) {
        return loop_->run_until_done(user().read(region_, offset, into));
    }
    auto write(uint64_t offset, std::string_view text) {
        return loop_->run_until_done(user().write(region_, offset, std::as_bytes(std::span(text))));
    }
    auto compare_swap(uint64_t offset, uint64_t expected, uint64_t desired) {
        return loop_->run_until_done(user().compare_swap(region_, offset, expected, desired));
    }
    auto fetch_add(uint64_t offset, uint64_t summand) {
        return loop_->run_until_done(user().fetch_add(region_, offset, summand));
    }
    template <class T>
    static Errc error_of(const Result<T>& result) {
        EXPECT_FALSE(result);
        return result ? Errc::io : result.error().code;
    }

    std::unique_ptr<Loop> loop_;
    std::unique_ptr<Pair> pair_;
    std::array<std::unique_ptr<Channel>, 2> channels_;
    std::array<uint64_t, 1024> words_;
    RemoteRegion region_;
};

TEST_P(RemoteMemoryConformance, bytes_are_written_and_read_where_they_are_said_to_be) {
    ASSERT_TRUE(write(100, "bytes"));
    EXPECT_EQ(std::memcmp(bytes().data() + 100, "bytes", 5), 0);
    EXPECT_EQ(bytes()[99], std::byte{0});
    EXPECT_EQ(bytes()[105], std::byte{0});
    std::array<char, 7> found{};
    ASSERT_TRUE(read(99, std::as_writable_bytes(std::span(found))));
    EXPECT_EQ(std::string_view(found.data(), found.size()), std::string_view("\0bytes\0", 7));
}

TEST_P(RemoteMemoryConformance, a_word_is_exchanged_only_if_it_is_as_expected) {
    words_[3] = 5;
    EXPECT_EQ(*compare_swap(24, 4, 9), 5u);
    EXPECT_EQ(words_[3], 5u);
    EXPECT_EQ(*compare_swap(24, 5, 9), 5u);
    EXPECT_EQ(words_[3], 9u);
    EXPECT_EQ(*fetch_add(24, 3), 9u);
    EXPECT_EQ(std::atomic_ref(words_[3]).fetch_add(1), 12u) << "and the owner's own atomics count";
    EXPECT_EQ(*fetch_add(24, ~uint64_t{0}), 13u);
    EXPECT_EQ(words_[3], 12u);
}

TEST_P(RemoteMemoryConformance, what_is_sent_afterwards_comes_after_the_bytes) {
    for (uint64_t number = 1; number <= 100; ++number) {
        const std::string text = std::to_string(number) + " ";
        ASSERT_TRUE(write(0, text));
        const std::byte sent{static_cast<unsigned char>(number)};
        ASSERT_EQ(*loop_->run_until_done(channels_[0]->send(std::span(&sent, 1))), 1u);
        const auto received = loop_->run_until_done(channels_[1]->receive({}, number == 1 ? 0 : 1));
        ASSERT_TRUE(received);
        ASSERT_EQ(received->bytes.front(), sent);
        ASSERT_EQ(std::memcmp(bytes().data(), text.data(), text.size()), 0);
    }
}

TEST_P(RemoteMemoryConformance, nothing_beyond_the_region_is_reached) {
    std::array<std::byte, 16> some{};
    const uint64_t end = region_.size_bytes;
    EXPECT_EQ(end, bytes().size());
    EXPECT_TRUE(read(end - 16, some));
    EXPECT_TRUE(read(end, std::span(some).first(0)));
    EXPECT_EQ(error_of(read(end - 15, some)), Errc::refused);
    EXPECT_EQ(error_of(read(~uint64_t{0} - 7, some)), Errc::refused);
    EXPECT_EQ(error_of(write(end, "x")), Errc::refused);
    EXPECT_EQ(error_of(fetch_add(end, 1)), Errc::refused);
    EXPECT_EQ(error_of(compare_swap(4, 0, 1)), Errc::invalid);
    RemoteRegion lie = region_;
    lie.size_bytes *= 2;
    EXPECT_EQ(error_of(loop_->run_until_done(user().read(lie, end, some))), Errc::refused)
        << "the owner knows its size";
    lie.key += 1;
    EXPECT_EQ(error_of(loop_->run_until_done(user().read(lie, 0, some))), Errc::refused);
    EXPECT_EQ(error_of(loop_->run_until_done(owner().read(region_, 0, some))), Errc::refused)
        << "it is not the other's";
}

TEST_P(RemoteMemoryConformance, what_was_closed_is_reached_no_more) {
    ASSERT_TRUE(write(0, "before"));
    loop_->run_until_done(owner().close(region_));
    EXPECT_EQ(error_of(write(0, "behind")), Errc::refused);
    EXPECT_EQ(error_of(fetch_add(0, 1)), Errc::refused);
    EXPECT_EQ(std::memcmp(bytes().data(), "before", 6), 0);
    const RemoteRegion again = *owner().open(bytes());
    EXPECT_NE(again.key, region_.key);
    EXPECT_EQ(error_of(write(0, "behind")), Errc::refused) << "an old key stays closed";
    region_ = again;
    EXPECT_TRUE(write(0, "again"));
}

TEST_P(RemoteMemoryConformance, nothing_is_reached_over_a_channel_that_broke) {
    channels_[1]->shut_down();
    EXPECT_EQ(error_of(write(0, "behind")), Errc::closed);
    EXPECT_EQ(error_of(compare_swap(0, 0, 1)), Errc::closed);
    EXPECT_EQ(words_[0], 0u);
}

std::unique_ptr<Pair> in_one_process() {
    return std::make_unique<OneProcess>();
}
INSTANTIATE_TEST_SUITE_P(InProcess, RemoteMemoryConformance, testing::Values(in_one_process));

}  // namespace
}  // namespace tarn
