// Detaches that fail: what the device does then, and what must not be done twice.
#include <atomic>
#include <semaphore>

#include "tests/support/turns.hpp"
#include "tests/unit/attachments_fixture.hpp"
#include "utils/on_thread.hpp"

namespace tarn {
namespace {

class AttachmentsEnding : public AttachmentsTest {
  protected:
    // A device of the process before, whose volume cannot be opened yet.
    void leave_device() {
        run([](Host& host) -> Task<> { EXPECT_TRUE(co_await host.attachments.attach(options(), root)); });
        volumes_.opens_wait = true;
    }
    void let_it_open() {
        volumes_.opens_wait = false;
        volumes_.changed.notify_all();
    }
    // This call of the driver fails, but not before it may.
    void fail_slowly(const std::string& refused) {
        kernel_.before = [this, refused](const std::string& call) -> Result<> {
            if (call != refused) return {};
            ++refused_calls_;
            may_fail_.acquire();
            return fail(Errc::io, EMFILE, "played");
        };
    }
    static Task<> fail_to_detach(Host& host, bool force) {
        EXPECT_FALSE(co_await host.attachments.detach("db", force, root));
    }
    static Task<> being_ended(Host& host) {
        while (!host.attachments.list().empty()) co_await Yield(*host.loop);
    }

    // For what a thread and the loop would do by now if they did what they must not.
    static Task<> threads_have_time() {
        for (int i = 0; i < 50; ++i) co_await on_thread([] { return true; });
    }

    std::atomic<int> refused_calls_{0};
    std::counting_semaphore<> may_fail_{0};
};

TEST_F(AttachmentsEnding, a_device_whose_volume_comes_while_a_forced_detach_fails_is_served) {
    leave_device();
    fail_slowly("is_there");
    run([&](Host& host) -> Task<> {
        Gate detaching;
        detaching.spawn(fail_to_detach(host, true));
        co_await being_ended(host);
        let_it_open();
        may_fail_.release();
        co_await detaching.close();
        EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 0)));
    });
}

TEST_F(AttachmentsEnding, a_volume_that_is_being_opened_is_not_opened_again_when_a_detach_fails) {
    leave_device();
    fail_slowly("disconnect");
    run([&](Host& host) -> Task<> {
        const size_t before = volumes_.opens;
        may_fail_.release();
        co_await fail_to_detach(host, false);
        let_it_open();
        EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 0)));
        EXPECT_EQ(volumes_.opens, before);
    });
}

TEST_F(AttachmentsEnding, a_device_that_is_opened_again_stays_until_that_is_over) {
    leave_device();
    fail_slowly("disconnect");
    run([&](Host& host) -> Task<> {
        Gate detaching;
        detaching.spawn(fail_to_detach(host, false));
        co_await being_ended(host);
        let_it_open();
        volumes_.opens_wait = true;
        may_fail_.release();
        co_await detaching.close();
        kernel_.before = [](const std::string&) { return Result<>{}; };
        bool has_ended = false;
        const auto detach = [](Host& of, bool& ended) -> Task<> {
            EXPECT_TRUE(co_await of.attachments.detach("db", true, root));
            ended = true;
        };
        Gate ending;
        ending.spawn(detach(host, has_ended));
        co_await on_thread([&] { return kernel_.wait_for_end_of(0); });
        co_await threads_have_time();
        EXPECT_EQ(volumes_.held[volume_->id()], 1);
        EXPECT_FALSE(has_ended);
        let_it_open();
        co_await ending.close();
        EXPECT_TRUE(has_ended);
    });
}

TEST_F(AttachmentsEnding, a_device_whose_detach_fails_gets_the_size_that_its_volume_got_meanwhile) {
    fail_slowly("disconnect");
    run([&](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(), root));
        Gate detaching;
        detaching.spawn(fail_to_detach(host, false));
        co_await being_ended(host);
        EXPECT_TRUE(co_await volume_->change_attributes({.size_bytes = 2 * size_bytes}));
        EXPECT_TRUE(co_await host.attachments.follow_size_of(volume_->id()));
        may_fail_.release();
        co_await detaching.close();
        while (host.attachments.list().front().size_bytes != 2 * size_bytes) co_await on_thread([] { return true; });
        EXPECT_EQ(kernel_.told().size_bytes, 2 * size_bytes);
    });
}

// What its number is given to next must not be changed through it.
TEST_F(AttachmentsEnding, a_device_whose_volume_is_deleted_is_refused_everything_while_the_kernel_keeps_it) {
    fail_slowly("disconnect");
    may_fail_.release(10);
    run([&](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(), root));
        co_await host.attachments.end_clients_of(volume_->id());
        co_await on_thread([&] { return kernel_.wait_for_replaced(1); });
        co_await ask(host, kernel_.socket(0, 0), nbd::Bytes().request(nbd::Command::read, 77, 0, 4096));
        EXPECT_EQ(co_await answer(host, kernel_.socket(0, 0), 77), nbd::Errno::shutdown);
        kernel_.before = [](const std::string&) { return Result<>{}; };
        EXPECT_TRUE(co_await host.attachments.detach("db", true, root));
    });
}

TEST_F(AttachmentsEnding, a_device_that_was_made_in_vain_is_not_kept_though_the_kernel_has_it) {
    kernel_.takes_sizes = false;
    fail_slowly("disconnect");
    may_fail_.release();
    run([&](Host& host) -> Task<> {
        const auto attached = co_await host.attachments.attach(options(), root);
        EXPECT_NE(attached.error().sys_errno, EMFILE) << "why it was in vain, and not why it stays";
        EXPECT_TRUE(kernel_.has(0));
        EXPECT_FALSE(host.keeper.has("nbd0").value_or(true));
        EXPECT_FALSE(host.keeper.has("nbd0.0").value_or(true));
    });
}

// The log says so once, and somebody has to end it.
TEST_F(AttachmentsEnding, a_device_whose_volume_another_host_has_is_not_ended_again_and_again) {
    leave_device();
    let_it_open();
    volumes_.hold_elsewhere("db");
    fail_slowly("disconnect");
    may_fail_.release(1000);
    run([&](Host& host) -> Task<> {
        co_await on_thread([&] {
            while (refused_calls_ == 0) std::this_thread::yield();
            return true;
        });
        co_await threads_have_time();
        EXPECT_EQ(refused_calls_, 1);
        kernel_.before = [](const std::string&) { return Result<>{}; };
        EXPECT_TRUE(co_await host.attachments.detach("db", true, root));
    });
}

// Whoever deletes the volume ends its devices, also while somebody else does.
TEST_F(AttachmentsEnding, a_device_that_is_being_ended_is_not_ended_by_others_too) {
    run([&](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(), root));
        fail_slowly("disconnect");
        Gate detaching;
        detaching.spawn(fail_to_detach(host, false));
        co_await being_ended(host);
        EXPECT_TRUE(co_await host.attachments.end_devices_of(volume_->id()));
        EXPECT_TRUE(host.keeper.cut("nbd0"));
        (void)co_await turns(*host.loop);
        may_fail_.release(10);
        co_await detaching.close();
        EXPECT_EQ(refused_calls_, 1);
        kernel_.before = [](const std::string&) { return Result<>{}; };
        EXPECT_TRUE(co_await host.attachments.detach("db", true, root));
    });
}

}  // namespace
}  // namespace tarn
