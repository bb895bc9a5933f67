// Who hears of a volume's new size, and what is said of who did not.
#include "daemon/attachments/size_notices.hpp"

#include <gtest/gtest.h>

#include "tests/support/recording_fabric.hpp"

namespace tarn {
namespace {

constexpr VolumeId resized = 7;

class SizeNoticesTest : public testing::Test {
  protected:
    SizeNoticesTest() {
        notices_.set_follow([this](VolumeId volume) { return follow(volume); });
        fabric_.on_call = [this](HostId to, CallKind kind, std::string request) {
            EXPECT_EQ(kind, CallKind::resized);
            EXPECT_EQ(unpack<VolumeId>(request), resized);
            told_.push_back(to);
            return answer_of(to);
        };
    }
    Task<Result<>> follow(VolumeId volume) {
        followed_.push_back(volume);
        co_await Yield(*loop_);
        followed_whole_ = followed_;
        co_return fails_here_ ? Result<>(fail(Errc::io)) : Result<>();
    }
    Task<Result<std::string>> answer_of(HostId host) const {
        if (host == silent_host_) co_return fail(Errc::unavailable);
        co_return std::string();
    }
    std::vector<HostId> tell() { return loop_->run_until_done(notices_.tell(resized)); }
    Result<std::string> hear(std::string request) {
        return loop_->run_until_done(fabric_.calls().answer(CallKind::resized, 1, std::move(request)));
    }

    std::unique_ptr<Loop> loop_ = std::move(*Loop::create());
    RecordingFabric fabric_;
    SizeNotices notices_{*loop_, fabric_, 0, {1, 2}};
    std::vector<HostId> told_;
    std::vector<VolumeId> followed_;
    std::vector<VolumeId> followed_whole_;
    HostId silent_host_ = no_host;
    bool fails_here_ = false;
};

TEST_F(SizeNoticesTest, all_hosts_hear_of_it_and_this_one_too) {
    EXPECT_TRUE(tell().empty());
    EXPECT_EQ(told_, (std::vector<HostId>{1, 2}));
    EXPECT_EQ(followed_whole_, std::vector<VolumeId>{resized}) << "it is waited for";
}

TEST_F(SizeNoticesTest, who_did_not_say_so_is_named) {
    silent_host_ = 2;
    EXPECT_EQ(tell(), std::vector<HostId>{2});
    fails_here_ = true;
    EXPECT_EQ(tell(), (std::vector<HostId>{2, 0}));
}

TEST_F(SizeNoticesTest, a_host_says_so_when_its_devices_have_the_size_and_not_before) {
    EXPECT_TRUE(hear(pack(resized)));
    EXPECT_EQ(followed_whole_, std::vector<VolumeId>{resized});
    fails_here_ = true;
    EXPECT_EQ(hear(pack(resized)).error().code, Errc::io);
}

TEST_F(SizeNoticesTest, what_names_no_volume_is_refused) {
    for (const std::string& request : {std::string("x"), pack(VolumeId{0}), pack(VolumeId{volume_id_max + 1})})
        EXPECT_EQ(hear(request).error().code, Errc::protocol);
    EXPECT_TRUE(followed_.empty());
}

TEST_F(SizeNoticesTest, of_a_host_alone_are_its_own) {
    SizeNotices alone(5);
    EXPECT_TRUE(loop_->run_until_done(alone.tell(resized)).empty()) << "no device can be there yet";
    alone.set_follow([this](VolumeId volume) { return follow(volume); });
    fails_here_ = true;
    EXPECT_EQ(loop_->run_until_done(alone.tell(resized)), std::vector<HostId>{5});
}

}  // namespace
}  // namespace tarn
