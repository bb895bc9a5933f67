// The connections of a block device: which are replaced, and by whom what replaces them is kept.
#include <atomic>
#include <semaphore>

#include "tests/support/turns.hpp"
#include "tests/unit/attachments_fixture.hpp"
#include "tests/unit/played_keeper.hpp"
#include "utils/on_thread.hpp"

namespace tarn {
namespace {

using nbd::Bytes;

class AttachmentsConnections : public AttachmentsTest {
  protected:
    std::vector<Keeper::Kept> kept() const {
        PassedDescriptors none;
        return std::move(*Keeper(path_).take(none));
    }
    static size_t place_of(const std::vector<Keeper::Kept>& kept, const std::string& name) {
        return static_cast<size_t>(std::ranges::find(kept, name, &Keeper::Kept::name) - kept.begin());
    }
    static Task<> attach(Host& host) { EXPECT_TRUE(co_await host.attachments.attach(options(2), root)); }
    // What is no request ends a connection.
    Task<> break_connection(Host& host, size_t connection) {
        co_await ask(host, kernel_.socket(0, connection), Bytes().fill(28, std::byte{7}));
    }
    // Whether the other end of ours is the kernel's of this connection.
    bool leads_to(const UniqueFd& ours, size_t connection) {
        std::byte byte{};
        EXPECT_EQ(::send(kernel_.socket(0, connection), &byte, 1, MSG_NOSIGNAL), 1);
        return ::recv(ours.get(), &byte, 1, MSG_DONTWAIT) == 1;
    }
};

// What is under way on the others would be asked for again, and only once its timeout has passed.
TEST_F(AttachmentsConnections, of_a_device_whose_detach_fails_only_those_that_broke_are_replaced) {
    std::binary_semaphore broke{0};
    kernel_.before = [&](const std::string& call) -> Result<> {
        if (call != "disconnect") return {};
        broke.acquire();
        return fail(Errc::io, EMFILE, "played");
    };
    run([&](Host& host) -> Task<> {
        co_await attach(host);
        const int first = kernel_.socket(0, 0);
        Gate detaching;
        const auto detach = [](Host& of) -> Task<> { EXPECT_FALSE(co_await of.attachments.detach("db", false, root)); };
        detaching.spawn(detach(host));
        while (!host.attachments.list().empty()) co_await Yield(*host.loop);
        ::shutdown(kernel_.socket(0, 1), SHUT_RDWR);
        (void)co_await turns(*host.loop);
        broke.release();
        co_await detaching.close();
        co_await on_thread([&] { return kernel_.wait_for_replaced(1); });
        EXPECT_EQ(kernel_.socket(0, 0), first);
        for (const size_t connection : {0, 1}) EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, connection)));
    });
}

TEST_F(AttachmentsConnections, of_a_device_that_nobody_keeps_are_replaced_too) {
    keeper_path_ = directory_ / "none";
    run([this](Host& host) -> Task<> {
        co_await attach(host);
        EXPECT_FALSE(host.keeper.has("nbd0"));
        co_await break_connection(host, 1);
        co_await on_thread([&] { return kernel_.wait_for_replaced(1); });
        EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 1)));
    });
}

// It says that it has taken the new socket, and has not.
TEST_F(AttachmentsConnections, that_the_kernel_has_not_given_up_yet_are_replaced_once_it_has) {
    run([this](Host& host) -> Task<> {
        co_await attach(host);
        kernel_.late = 1;
        testing::internal::CaptureStderr();
        co_await break_connection(host, 1);
        co_await on_thread([&] { return kernel_.wait_for_replaced(1); });
        EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 1)));
        const std::string said = testing::internal::GetCapturedStderr();
        EXPECT_EQ(said.find("and has a new one"), said.rfind("and has a new one")) << said;
    });
}

// Somebody has ended it there, and this process has not heard of it.
TEST_F(AttachmentsConnections, of_a_device_that_the_keeper_has_no_more_are_not_replaced) {
    run([this](Host& host) -> Task<> {
        co_await attach(host);
        host.keeper.drop("nbd0");
        co_await break_connection(host, 1);
        co_await all_are_forgotten(host);
        EXPECT_FALSE(kernel_.has(0));
    });
}

TEST_F(AttachmentsConnections, that_a_process_replaces_are_there_for_the_one_after_the_next) {
    run([](Host& host) -> Task<> { co_await attach(host); });
    run([this](Host& host) -> Task<> {
        co_await break_connection(host, 1);
        co_await on_thread([&] { return kernel_.wait_for_replaced(1); });
        EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 1)));
    });
    const std::vector<Keeper::Kept> all = kept();
    const size_t second = place_of(all, "nbd0.1");
    ASSERT_LT(second, all.size());
    EXPECT_TRUE(leads_to(all[second].fd, 1));
}

TEST_F(AttachmentsConnections, that_the_keeper_has_lost_are_replaced) {
    run([](Host& host) -> Task<> { co_await attach(host); });
    Keeper(path_).drop("nbd0.1");
    run([this](Host& host) -> Task<> {
        EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 0)));
        co_await on_thread([&] { return kernel_.wait_for_replaced(1); });
        EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 1)));
    });
}

// Whatever else the keeper has, and in whatever order it says so.
TEST_F(AttachmentsConnections, are_adopted_each_by_its_name) {
    run([](Host& host) -> Task<> { co_await attach(host); });
    const NbdKernel kernel = kernel_.kernel();
    for (const bool is_reversed : {false, true}) {
        std::vector<Keeper::Kept> all = kept();
        if (is_reversed) std::ranges::reverse(all);
        const size_t memory = place_of(all, "nbd0");
        ASSERT_LT(memory, all.size());
        const auto adopted = AttachedDevice::adopt(kernel, all, memory);
        ASSERT_TRUE(adopted && *adopted);
        EXPECT_TRUE((*adopted)->about.is_kept);
        ASSERT_EQ((*adopted)->sockets.size(), 2u);
        for (const size_t connection : {0, 1}) EXPECT_TRUE(leads_to((*adopted)->sockets[connection], connection));
    }
}

TEST_F(AttachmentsConnections, of_a_device_that_is_another_one_by_now_are_not_adopted) {
    run([](Host& host) -> Task<> { co_await attach(host); });
    const NbdKernel kernel = kernel_.kernel();
    kernel_.set("sys/block/nbd0/pid", "7");
    std::vector<Keeper::Kept> all = kept();
    const auto adopted = AttachedDevice::adopt(kernel, all, place_of(all, "nbd0"));
    ASSERT_TRUE(adopted);
    EXPECT_FALSE(*adopted);
}

// Its number is part of what says which writes were finished.
TEST_F(AttachmentsConnections, of_a_device_whose_memory_is_of_another_number_are_not_adopted) {
    run([](Host& host) -> Task<> { co_await attach(host); });
    const NbdKernel kernel = kernel_.kernel();
    std::vector<Keeper::Kept> all = kept();
    const size_t memory = place_of(all, "nbd0");
    nbd::DeviceMemory::adopt(UniqueFd(::dup(all[memory].fd.get())))->header().index = 1;
    const auto adopted = AttachedDevice::adopt(kernel, all, memory);
    EXPECT_EQ(adopted ? Errc::closed : adopted.error().code, Errc::invalid);
}

// It was killed.
TEST_F(AttachmentsConnections, are_kept_by_the_successor_of_their_keeper_which_is_watched) {
    run([this](Host& host) -> Task<> {
        co_await attach(host);
        for (const char* const name : {"nbd0", Keeper::memory_name}) host.keeper.drop(name);
        const RunningKeeper successor(path_);
        while (!host.keeper.has("nbd0").value_or(false)) co_await on_thread([] { return true; });
        for (const char* const name : {"nbd0.0", "nbd0.1"}) EXPECT_TRUE(host.keeper.has(name).value_or(false)) << name;
        for (const size_t connection : {0, 1}) EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, connection)));
        EXPECT_TRUE(host.keeper.cut("nbd0"));
        co_await all_are_forgotten(host);
        EXPECT_FALSE(kernel_.has(0));
    });
}

TEST_F(AttachmentsConnections, of_a_device_that_a_new_keeper_is_told_of_this_moment_are_replaced) {
    keeper_path_ = directory_ / "played";
    std::atomic<int> asked{0};
    const PlayedKeeper keeper(keeper_path_, [&](const keeper::Said& said, int) {
        const bool denies = said.word == keeper::Word::has && ++asked == 2;
        return denies ? PlayedKeeper::Does::denies : PlayedKeeper::Does::as_a_keeper;
    });
    run([&](Host& host) -> Task<> {
        co_await attach(host);
        EXPECT_EQ(asked, 1);
        co_await break_connection(host, 1);
        co_await on_thread([&] { return kernel_.wait_for_replaced(1); });
        EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 1)));
        EXPECT_GT(asked, 3);
    });
}

}  // namespace
}  // namespace tarn
