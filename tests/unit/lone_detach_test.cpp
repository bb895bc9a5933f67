// tarn detach where no tarnd answers: the kernel is played, and the keeper is a real one.
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "daemon/cli/verbs.hpp"
#include "daemon/keeper/keeping.hpp"
#include "tests/unit/other_user.hpp"
#include "tests/unit/played_kernel.hpp"
#include "utils/unix_socket.hpp"

namespace tarn {
namespace {

class LoneDetach : public testing::Test {
  protected:
    // Volume db is nbd0, a device that a tarnd has left behind.
    LoneDetach() {
        const UniqueFd kernels = make_pair();
        EXPECT_TRUE(kernel_.connect(0, {.backend = backend_of("db")}, std::array{kernels.get()}));
        kernel_.before = [this](const std::string& call) -> Result<> {
            if (call == "disconnect") was_shut_down_first_ = is_shut_down();
            if (call != failing_) return {};
            return fail(error_, EPERM, "played");
        };
    }
    // The test keeps the other end.
    UniqueFd make_pair() {
        std::array<int, 2> ends{};
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
        other_end_ = UniqueFd(ends[0]);
        return UniqueFd(ends[1]);
    }
    bool is_shut_down() const {
        std::byte byte;
        return ::recv(other_end_.get(), &byte, 1, MSG_DONTWAIT) == 0;
    }
    Options options(const std::string& name, bool force) const {
        Options options;
        options.control = control_;
        options.timeout_s = 1;
        options.name = name;
        options.force = force;
        return options;
    }
    Answer answer_to(const Options& options) { return detach_from(kernel_, kernel_.devices(), options); }
    // The code of how it ends; empty: well.
    std::string detach(const std::string& name, bool force = false) {
        const Answer answer = answer_to(options(name, force));
        EXPECT_EQ(answer.json["attachments"].size(), answer.failures.empty() ? 1u : 0u);
        if (answer.failures.empty()) return "";
        const Failure& failure = answer.failures.front();
        hint_ = failure.hint;
        return failure.code.empty() ? std::string(code_of(failure.exit)) : failure.code;
    }

    PlayedKernel kernel_;
    ScratchDirectory directory_;
    const std::string control_ = directory_ / "control";
    UniqueFd other_end_;
    std::string failing_;  // a call of the driver
    Errc error_ = Errc::io;
    bool was_shut_down_first_ = false;
    std::string hint_;
};

TEST_F(LoneDetach, ends_a_device_by_its_volume_or_its_name) {
    EXPECT_EQ(detach("db"), "");
    EXPECT_FALSE(kernel_.has(0));
    EXPECT_TRUE(kernel_.connect(0, {.backend = backend_of("db")}, {}));
    EXPECT_EQ(detach("nbd0"), "");
    EXPECT_FALSE(kernel_.has(0));
}

TEST_F(LoneDetach, ends_no_device_of_another_program) {
    EXPECT_TRUE(kernel_.connect(1, {.backend = "the device of another program"}, {}));
    for (const char* const name : {"nbd1", "the device of another program", "logs"})
        for (const bool force : {false, true}) EXPECT_EQ(detach(name, force), "not_found") << name;
    EXPECT_EQ(kernel_.device_count(), 2u);
    Options of_none = options("logs", false);
    of_none.if_attached = true;
    const Answer answer = answer_to(of_none);
    EXPECT_TRUE(answer.failures.empty());
    EXPECT_TRUE(answer.json["attachments"].empty());
}

TEST_F(LoneDetach, ends_a_device_in_use_by_force_alone) {
    kernel_.set("proc/swaps", "/dev/nbd0 partition 1 0 -2");
    EXPECT_EQ(detach("db"), "busy");
    EXPECT_TRUE(hint_.contains("start tarnd")) << hint_;
    EXPECT_TRUE(kernel_.has(0));
    EXPECT_FALSE(is_shut_down());
    EXPECT_EQ(detach("db", true), "");
    EXPECT_FALSE(kernel_.has(0));
}

TEST_F(LoneDetach, warns_of_a_device_that_is_still_mounted) {
    kernel_.set("sys/block/nbd0/dev", "43:0");
    kernel_.set("proc/self/mountinfo", "80 20 43:0 / /srv rw - ext4 /dev/tarn/by-name/db rw");
    EXPECT_EQ(detach("db"), "busy");
    EXPECT_TRUE(hint_.starts_with("umount /srv")) << hint_;
    // The kernel says what had the device long after that has gone.
    kernel_.set("proc/self/mountinfo", "80 20 0:9 / /srv rw - ext4 /dev/nbd0 rw");
    const Answer answer = answer_to(options("db", true));
    EXPECT_TRUE(answer.failures.empty());
    ASSERT_EQ(answer.warnings.size(), 1u);
    EXPECT_TRUE(answer.warnings.front().starts_with("/dev/nbd0 is still mounted on /srv")) << answer.warnings.front();
}

TEST_F(LoneDetach, says_what_a_kernel_that_refuses_lacks) {
    for (const char* const call : {"is_there", "disconnect"}) {
        failing_ = call;
        error_ = Errc::unsupported;
        EXPECT_EQ(detach("db"), "unsupported") << call;
        EXPECT_EQ(hint_, "modprobe nbd");
        error_ = Errc::refused;
        EXPECT_EQ(detach("db"), "refused") << call;
        EXPECT_EQ(hint_, "sudo");
        error_ = Errc::io;
        EXPECT_EQ(detach("db"), "io") << call;
        EXPECT_TRUE(kernel_.has(0)) << call;
    }
    error_ = Errc::not_found;  // it has ended meanwhile
    EXPECT_EQ(detach("db", true), "");
}

// Somebody listens, and never answers.
TEST_F(LoneDetach, of_a_keeper_that_hangs_ends_only_what_has_no_requests) {
    const UniqueFd listening = std::move(*listen_unix(Keeper::socket_of(control_), 0600));
    kernel_.set("sys/block/nbd0/inflight", "       0        1");
    EXPECT_EQ(detach("db", true), "io");
    EXPECT_TRUE(hint_.contains("kill -9 tarnd and tarn-keeper")) << hint_;
    EXPECT_TRUE(kernel_.has(0));
    kernel_.set("sys/block/nbd0/inflight", "       0        0");
    EXPECT_EQ(detach("db", true), "");
    EXPECT_FALSE(kernel_.has(0));
}

TEST_F(LoneDetach, of_a_keeper_of_another_user_is_refused) {
    if (!can_be_another_user()) GTEST_SKIP() << "only root can be another user";
    const sockaddr_un address = *unix_address(Keeper::socket_of(control_));
    const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    as_another_user([&] { ASSERT_EQ(::listen(socket.get(), 10), 0); });
    EXPECT_EQ(detach("db", true), "refused");
    EXPECT_EQ(hint_, "sudo");
    EXPECT_TRUE(kernel_.has(0));
}

// Beside a tarn-keeper, which has the socket of the device.
class LoneDetachKept : public LoneDetach {
  protected:
    LoneDetachKept() {
        for (const char* const name : {"other", "nbd0"}) EXPECT_TRUE(keeper_.keep(name, null_.get()));
        EXPECT_TRUE(keeper_.keep("nbd0.0", make_pair().get()));
    }
    ~LoneDetachKept() override {
        for (const char* const name : {"nbd0", "other"}) keeper_.drop(name);
        thread_.join();
    }

    const std::string path_ = Keeper::socket_of(control_);
    const UniqueFd listening_ = std::move(*listen_unix(path_, 0600));
    const UniqueFd null_{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
    std::thread thread_{[this] { keeper::keep_for(listening_.get()); }};
    const Keeper keeper_{path_};
};

// A kernel that waits to send would not hear of its end.
TEST_F(LoneDetachKept, shuts_the_sockets_down_before_it_ends_the_device) {
    EXPECT_EQ(detach("db"), "");
    EXPECT_TRUE(was_shut_down_first_);
    EXPECT_FALSE(kernel_.has(0));
    EXPECT_FALSE(keeper_.has("nbd0").value_or(true));
    EXPECT_TRUE(keeper_.has("other").value_or(false));
}

// Nobody would end the requests that were on them.
TEST_F(LoneDetachKept, leaves_the_sockets_of_a_device_that_it_cannot_end) {
    failing_ = "is_there";
    EXPECT_EQ(detach("db", true), "io");
    EXPECT_FALSE(is_shut_down());
    EXPECT_TRUE(keeper_.has("nbd0").value_or(false));
}

}  // namespace
}  // namespace tarn
