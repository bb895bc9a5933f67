// The registrar, and what goes on although a host of the cluster does not. The test plays the other host.
#include "daemon/catalog/registrar.hpp"

#include "tests/unit/home_on_device.hpp"

namespace tarn::home_on_device {
namespace {

class RegistrarTest : public HomeOnDevice {
  protected:
    ~RegistrarTest() override {
        cache_->abandon();
        loop_->run_until_done(tasks_.close());
        loop_->run_until_done(registrar_.end_removals());
        catalog_.reset();
    }
    Result<std::string> change(HostId from, std::string request) {
        return loop_->run_until_done(registrar_.change(from, std::move(request)));
    }
    static Task<> remove(Removals& removals, bool& ended, bool& is_gone) {
        is_gone = co_await removals.perform(volume_id);
        ended = true;
    }

    std::unique_ptr<CachedVolume> catalog_ = std::make_unique<CachedVolume>(*volumes_, catalog_volume);
    CatalogTable table_{*catalog_};
    Removals removals_{*cache_, {loop_.get()}, {"here", "there"}};
    Registrar registrar_{*volumes_, table_, removals_};
    Gate tasks_;
};

TEST_F(RegistrarTest, a_hold_ends_with_the_process_of_its_host) {
    ASSERT_TRUE(loop_->run_until_done(table_.put_header({.next_id = 2, .slot_count = 1})));
    ASSERT_TRUE(loop_->run_until_done(table_.put({.name = "disk", .id = 1, .slot = 0})));
    ASSERT_TRUE(change(peer, hold_request("disk")));
    const Result<std::string> refused = change(0, hold_request("disk"));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::busy);
    cut();
    EXPECT_FALSE(change(0, hold_request("disk"))) << "it may only be unreachable";
    link();
    EXPECT_FALSE(change(0, hold_request("disk"))) << "it is the same process";
    cut();
    peer_process_ = {.incarnation = 1, .epoch = 2};  // with the memory of the one before
    link();
    EXPECT_TRUE(change(0, hold_request("disk")));
}

TEST_F(RegistrarTest, a_deletion_waits_for_a_host_that_is_away_until_that_is_forgotten) {
    cut();
    bool ended = false;
    bool is_gone = false;
    tasks_.spawn(remove(removals_, ended, is_gone));
    loop_->run_until_done(turns(*loop_));
    EXPECT_FALSE(ended);
    ASSERT_TRUE(loop_->run_until_done(cache_->forget_host(peer, peer_process_.incarnation)));
    loop_->run_until_done(turns(*loop_));
    EXPECT_TRUE(ended && is_gone);
}

}  // namespace
}  // namespace tarn::home_on_device
