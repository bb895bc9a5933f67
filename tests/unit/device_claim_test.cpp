// Who claims a device; tests/vm/attach.bats asks of real ones.
#include "daemon/cli/device_claim.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/scratch_directory.hpp"

namespace tarn {
namespace {

TEST(DeviceClaim, what_opens_or_is_not_there_is_not_claimed) {
    EXPECT_FALSE(is_claimed("/dev/null", std::chrono::seconds(60)));
    EXPECT_FALSE(is_claimed("/dev/null/none", std::chrono::seconds(60)));
}

// A FIFO, which waits for a writer, opens no sooner than a device that nobody serves.
TEST(DeviceClaim, a_device_that_does_not_open_is_not_waited_for) {
    const ScratchDirectory scratch;
    const std::string fifo = scratch / "fifo";
    ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
    EXPECT_FALSE(is_claimed(fifo, std::chrono::milliseconds(50)));
}

}  // namespace
}  // namespace tarn
