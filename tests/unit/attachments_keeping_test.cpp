// Block devices whose keeper does not answer, or not in time. The keeper is played.
#include <poll.h>

#include <atomic>
#include <semaphore>

#include "tests/support/turns.hpp"
#include "tests/unit/attachments_fixture.hpp"
#include "tests/unit/played_keeper.hpp"
#include "utils/on_thread.hpp"

namespace tarn {
namespace {

// Where another thread waits until the test lets it go on.
class Halt {
  public:
    void wait() {
        is_reached_.release();
        may_go_on_.acquire();
    }
    Task<> reached() {
        co_await on_thread([this] {
            is_reached_.acquire();
            return true;
        });
    }
    void go_on() { may_go_on_.release(); }

  private:
    std::binary_semaphore is_reached_{0};
    std::binary_semaphore may_go_on_{0};
};

class AttachmentsKeeping : public AttachmentsTest {
  protected:
    using Does = PlayedKeeper::Does;

    void SetUp() override {
        AttachmentsTest::SetUp();
        keeper_path_ = directory_ / "played";
    }
    // It is watched in any case.
    static Does only_if(bool answers, const keeper::Said& said) {
        return answers || said.word == keeper::Word::watch ? Does::as_a_keeper : Does::hangs_up;
    }
    static Task<> until_kept(Host& host) {
        co_await until([&] { return host.attachments.list().front().is_kept; });
    }
    static Task<> detach(Host& host) { EXPECT_TRUE(co_await host.attachments.detach("db", true, root)); }

    // The kernel lets go of no device while keeps_.
    void keep_in_kernel() {
        kernel_.before = [this](const std::string& call) -> Result<> {
            if (call != "disconnect" || !keeps_) return {};
            ++refused_disconnects_;
            return fail(Errc::io, EMFILE, "played");
        };
    }

    const std::vector<std::string> all_of_one_{"nbd0", "nbd0.0"};
    std::atomic<bool> keeps_{true};
    std::atomic<int> refused_disconnects_{0};
};

TEST_F(AttachmentsKeeping, a_keeper_that_does_not_answer_at_first_has_the_device_once_it_does) {
    std::atomic<bool> answers{false};
    PlayedKeeper keeper(keeper_path_, [&](const keeper::Said& said, int) { return only_if(answers, said); });
    run([&](Host& host) -> Task<> {
        const auto attached = co_await host.attachments.attach(options(), root);
        EXPECT_TRUE(attached && !attached->is_kept);
        EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 0)));
        answers = true;
        co_await until_kept(host);
        EXPECT_EQ(keeper.names(), all_of_one_);
        co_await detach(host);
        co_await until([&] { return keeper.names().empty(); });
    });
}

TEST_F(AttachmentsKeeping, a_keeper_that_ended_just_after_it_was_told_is_told_again) {
    PlayedKeeper keeper(keeper_path_, [asked = 0](const keeper::Said& said, int) mutable {
        const bool is_successor = said.word == keeper::Word::has && ++asked == 1;
        return is_successor ? Does::denies : Does::as_a_keeper;
    });
    run([&](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(), root));
        co_await until_kept(host);
        EXPECT_EQ(keeper.names(), all_of_one_);
    });
}

// Meanwhile the kernel has another socket in place of what the keeper is being given.
TEST_F(AttachmentsKeeping, a_connection_that_is_replaced_while_the_keeper_is_told_is_kept_as_it_is_then) {
    std::atomic<bool> answers{false};
    std::atomic<int> times_told{0};
    Halt halt;
    PlayedKeeper keeper(keeper_path_, [&](const keeper::Said& said, int) {
        if (said.word == keeper::Word::keep && said.name == "nbd0.1" && answers && ++times_told == 1) {
            halt.wait();
        }
        return only_if(answers, said);
    });
    run([&](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(2), root));
        answers = true;
        co_await halt.reached();
        co_await ask(host, kernel_.socket(0, 1), nbd::Bytes().fill(28, std::byte{7}));  // no request: it is ended
        co_await on_thread([&] { return kernel_.wait_for_replaced(1); });
        EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 1)));
        halt.go_on();
        co_await until_kept(host);
        std::byte byte{};
        EXPECT_EQ(::send(kernel_.socket(0, 1), &byte, 1, MSG_NOSIGNAL), 1);
        EXPECT_EQ(::recv(keeper.descriptor("nbd0.1"), &byte, 1, MSG_DONTWAIT), 1) << "it leads to the kernel's socket";
    });
}

// The other way round: the keeper has been told as the kernel gets another socket.
TEST_F(AttachmentsKeeping, a_connection_whose_replacement_the_keeper_was_not_told_of_is_kept_as_it_is_then) {
    std::atomic<bool> answers{false};
    Halt halt;
    PlayedKeeper keeper(keeper_path_, [&](const keeper::Said& said, int) { return only_if(answers, said); });
    run([&](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(2), root));
        kernel_.before = [&](const std::string& call) -> Result<> {
            if (call != "reconfigure") return {};
            halt.wait();
            return {};
        };
        co_await ask(host, kernel_.socket(0, 1), nbd::Bytes().fill(28, std::byte{7}));  // no request: it is ended
        co_await halt.reached();
        answers = true;
        co_await until_kept(host);
        halt.go_on();
        co_await on_thread([&] { return kernel_.wait_for_replaced(1); });
        EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 1)));
        co_await until_kept(host);
        std::byte byte{};
        EXPECT_EQ(::send(kernel_.socket(0, 1), &byte, 1, MSG_NOSIGNAL), 1);
        EXPECT_EQ(::recv(keeper.descriptor("nbd0.1"), &byte, 1, MSG_DONTWAIT), 1) << "it leads to the kernel's socket";
    });
}

TEST_F(AttachmentsKeeping, a_keeper_that_hangs_while_a_device_ends_does_not_hold_up_the_loop) {
    std::atomic<bool> hangs{false};
    std::atomic<bool> was_waited_for{false};
    Halt halt;
    PlayedKeeper keeper(keeper_path_, [&](const keeper::Said& said, int client) {
        if (said.word != keeper::Word::drop || !hangs.exchange(false)) return Does::as_a_keeper;
        halt.wait();
        pollfd asks{.fd = client, .events = POLLRDHUP, .revents = 0};
        was_waited_for = ::poll(&asks, 1, 0) == 0;
        return Does::as_a_keeper;
    });
    run([&](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(), root));
        hangs = true;
        Gate detaching;
        detaching.spawn(detach(host));
        co_await halt.reached();
        (void)co_await turns(*host.loop);
        halt.go_on();
        co_await detaching.close();
        co_await until([&] { return keeper.names().empty(); });
        EXPECT_TRUE(was_waited_for);
    });
}

// The kernel has it no more, and so its number is free, before the keeper has heard of that.
TEST_F(AttachmentsKeeping, what_the_keeper_hears_late_of_a_device_is_not_of_the_next_one_of_its_number) {
    std::atomic<bool> hangs{false};
    Halt halt;
    PlayedKeeper keeper(keeper_path_, [&](const keeper::Said& said, int) {
        if (said.word == keeper::Word::drop && hangs.exchange(false)) {
            halt.wait();
        }
        return Does::as_a_keeper;
    });
    volumes_.add("other", size_bytes, false);
    run([&](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(), root));
        hangs = true;
        Gate both;
        both.spawn(detach(host));
        co_await halt.reached();
        const auto attach = [](Host& of) -> Task<> {
            const auto attached = co_await of.attachments.attach({.volume = "other", .connections = 1}, root);
            EXPECT_TRUE(attached && attached->device == "nbd0" && attached->is_kept);
        };
        both.spawn(attach(host));
        (void)co_await turns(*host.loop);
        halt.go_on();
        co_await both.close();
        EXPECT_EQ(keeper.names(), all_of_one_);
    });
}

TEST_F(AttachmentsKeeping, a_device_that_no_keeper_takes_can_be_detached) {
    PlayedKeeper keeper(keeper_path_, [&](const keeper::Said& said, int) { return only_if(false, said); });
    run([&](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(), root));
        co_await detach(host);
        co_await all_are_forgotten(host);
    });
}

TEST_F(AttachmentsKeeping, a_stop_does_not_wait_for_a_keeper_that_takes_nothing) {
    PlayedKeeper keeper(keeper_path_, [&](const keeper::Said& said, int) { return only_if(false, said); });
    run([&](Host& host) -> Task<> { EXPECT_TRUE(co_await host.attachments.attach(options(), root)); });
}

// As after a kill of the keeper, with a service manager that keeps the memory: who tells it of a device starts it.
TEST_F(AttachmentsKeeping, a_keeper_that_begins_late_is_watched) {
    run([&](Host& host) -> Task<> {
        const auto attached = co_await host.attachments.attach(options(), root);
        EXPECT_TRUE(attached && !attached->is_kept);
        PlayedKeeper keeper(keeper_path_, [](const keeper::Said&, int) { return Does::as_a_keeper; });
        co_await until_kept(host);
        co_await until([&] { return keeper.is_watched(); });
        co_await detach(host);
    });
}

TEST_F(AttachmentsKeeping, what_a_keeper_was_told_that_has_ended_meanwhile_does_not_count) {
    std::atomic<bool> answers{false};
    std::atomic<int> times_told{0};
    Halt halt;
    PlayedKeeper keeper(keeper_path_, [&](const keeper::Said& said, int) {
        if (said.word == keeper::Word::keep && said.name == "nbd0.0" && answers && ++times_told == 1) {
            halt.wait();
        }
        return only_if(answers, said);
    });
    run([&](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(), root));
        answers = true;
        co_await halt.reached();
        keeper.hang_up_on_watcher();
        co_await until([&] { return keepers_lost_ == 1; });
        halt.go_on();
        co_await until_kept(host);
        EXPECT_EQ(times_told, 2);
    });
}

TEST_F(AttachmentsKeeping, a_device_whose_detach_fails_is_told_to_the_keeper_that_began_meanwhile) {
    std::binary_semaphore may_fail{0};
    kernel_.before = [&](const std::string& call) -> Result<> {
        if (call != "disconnect") return {};
        may_fail.acquire();
        return fail(Errc::io, EMFILE, "played");
    };
    std::atomic<int> times_told{0};
    PlayedKeeper keeper(keeper_path_, [&](const keeper::Said& said, int) {
        times_told += said.word == keeper::Word::keep && said.name == "nbd0";
        return Does::as_a_keeper;
    });
    run([&](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(), root));
        Gate detaching;
        const auto fail_to_detach = [](Host& of) -> Task<> {
            EXPECT_FALSE(co_await of.attachments.detach("db", false, root));
        };
        detaching.spawn(fail_to_detach(host));
        co_await until([&] { return host.attachments.list().empty(); });
        keeper.hang_up_on_watcher();
        co_await until([&] { return keepers_lost_ == 1; });
        may_fail.release();
        co_await detaching.close();
        co_await until_kept(host);
        EXPECT_EQ(times_told, 2);
    });
}

TEST_F(AttachmentsKeeping, a_successor_that_hangs_does_not_hold_up_the_loop) {
    PlayedKeeper keeper(keeper_path_, [](const keeper::Said&, int) { return Does::as_a_keeper; });
    Halt halt;
    while_memory_is_told_ = [&] { halt.wait(); };
    run([&](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(), root));
        co_await until([&] { return keeper.is_watched(); });
        keeper.hang_up_on_watcher();
        co_await halt.reached();
        EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 0)));
        EXPECT_FALSE(host.attachments.list().front().is_kept);
        halt.go_on();
        co_await until_kept(host);
    });
}

TEST_F(AttachmentsKeeping, of_a_device_that_could_not_be_made_the_keeper_has_nothing) {
    PlayedKeeper keeper(keeper_path_, [](const keeper::Said& said, int) {
        return said.word == keeper::Word::keep && said.name == "nbd0" ? Does::hangs_up : Does::as_a_keeper;
    });
    kernel_.before = [](const std::string& call) -> Result<> {
        if (call == "connect") return fail(Errc::io, EMFILE, "played");
        return {};
    };
    run([&](Host& host) -> Task<> {
        EXPECT_FALSE(co_await host.attachments.attach(options(), root));
        EXPECT_TRUE(keeper.names().empty());
    });
}

// It was killed after it had said what it kept, and before anybody watched it.
TEST_F(AttachmentsKeeping, a_keeper_that_ends_as_a_process_begins_is_told_what_that_has_taken_over) {
    std::atomic<bool> is_another_one{false};
    PlayedKeeper keeper(keeper_path_, [&](const keeper::Said& said, int) {
        const bool begins = said.word == keeper::Word::has && is_another_one.exchange(false);
        return begins ? Does::begins : Does::as_a_keeper;
    });
    run([&](Host& host) -> Task<> { EXPECT_TRUE(co_await host.attachments.attach(options(), root)); });
    is_another_one = true;
    run([&](Host& host) -> Task<> {
        co_await until([&] { return !is_another_one && keeper.names() == all_of_one_; });
        co_await until_kept(host);
        EXPECT_TRUE(co_await is_served(host, kernel_.socket(0, 0)));
        co_await detach(host);
    });
}

// Another program has ended the device in the kernel, and nobody has noticed yet: its number is free.
TEST_F(AttachmentsKeeping, what_the_keeper_says_of_a_device_is_of_the_one_that_the_kernel_has) {
    volumes_.add("other", size_bytes, false);
    std::atomic<int> times_told{0};
    PlayedKeeper keeper(keeper_path_, [&](const keeper::Said& said, int) {
        times_told += said.word == keeper::Word::keep && said.name == "nbd0";
        return Does::as_a_keeper;
    });
    run([&](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(), root));
        kernel_.disconnect_in_silence(0);
        const auto attached = co_await host.attachments.attach({.volume = "other", .connections = 1}, root);
        EXPECT_EQ(attached ? attached->device : "", "nbd0");
        keeper.hang_up_on_watcher();  // its successor is told, of the older device first
        co_await until([&] { return keepers_lost_ == 1 && host.attachments.list().back().is_kept; });
        EXPECT_EQ(times_told, 3);
        co_await until([&] { return keeper.is_watched(); });
        keeper.cut("nbd0");
        co_await on_thread([&] { return kernel_.wait_for_end_of(0); });
    });
}

// Its keeper may have had nothing else.
TEST_F(AttachmentsKeeping, a_device_that_was_cut_is_not_told_to_another_keeper) {
    PlayedKeeper keeper(keeper_path_, [](const keeper::Said&, int) { return Does::as_a_keeper; });
    run([&](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(), root));
        keep_in_kernel();
        host.keeper.drop("nbd0");
        keeper.cut("nbd0");
        co_await until([&] { return refused_disconnects_ >= 1; });
        keeper.hang_up_on_watcher();
        co_await until([&] { return keepers_lost_ == 1 && keeper.is_watched() && refused_disconnects_ >= 3; });
        EXPECT_TRUE(keeper.names().empty());
        keeps_ = false;
        co_await all_are_forgotten(host);
    });
}

// Should this process be killed then, the next one finds nothing of it.
TEST_F(AttachmentsKeeping, a_device_that_was_cut_does_not_count_as_kept) {
    PlayedKeeper keeper(keeper_path_, [](const keeper::Said&, int) { return Does::as_a_keeper; });
    run([&](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(), root));
        co_await until_kept(host);
        keep_in_kernel();
        host.keeper.drop("nbd0");
        keeper.cut("nbd0");
        co_await until([&] { return refused_disconnects_ >= 1 && !host.attachments.list().empty(); });
        EXPECT_FALSE(host.attachments.list().front().is_kept);
        keeps_ = false;
        co_await all_are_forgotten(host);
    });
}

// The log says it once, not with each try.
TEST_F(AttachmentsKeeping, a_device_that_was_cut_and_that_the_kernel_keeps_is_told_of_once) {
    keeper_path_ = path_;  // the real one
    run([&](Host& host) -> Task<> {
        EXPECT_TRUE(co_await host.attachments.attach(options(), root));
        keep_in_kernel();
        testing::internal::CaptureStderr();
        EXPECT_TRUE(co_await on_thread([&] { return host.keeper.cut("nbd0").has_value(); }));
        co_await until([&] { return refused_disconnects_ >= 3; });
        const std::string said = testing::internal::GetCapturedStderr();
        const std::string text = "nbd0: tarn-keeper has it no more: somebody has detached it";
        EXPECT_NE(said.find(text), std::string::npos) << said;
        EXPECT_EQ(said.find(text), said.rfind(text)) << said;
        keeps_ = false;
        co_await all_are_forgotten(host);
    });
}

}  // namespace
}  // namespace tarn
