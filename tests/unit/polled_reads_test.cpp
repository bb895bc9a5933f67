// Reads whose end no interrupt tells: the loop asks the device. Where the device below the tests has no queues for
// that, Linux 6.1 completes such reads all the same; later kernels refuse them.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "tests/support/scratch_directory.hpp"
#include "tiers/nvme/device/page_buffer.hpp"
#include "tiers/nvme/device/store_file.hpp"
#include "tiers/page.hpp"
#include "utils/loop.hpp"

namespace tarn {
namespace {

using namespace std::chrono_literals;

constexpr size_t page_count = 64;

class PolledReads : public testing::Test {
  protected:
    PolledReads() : loop_(std::move(*Loop::create())), path_(directory_ / "store") {
        StoreFile file = std::move(*StoreFile::create(path_));
        EXPECT_TRUE(file.set_size(page_count * page_size));
        const PageBuffer page = make_page_buffer(1);
        for (size_t i = 0; i < page_count; ++i) {
            std::fill_n(page.get(), page_size, static_cast<std::byte>(i + 1));
            EXPECT_TRUE(file.write_now({page.get(), page_size}, i * page_size));
        }
    }
    // What the kernel would say of the device that the file is on, or of the disk that this is a part of.
    void tell(const std::string& text, bool of_disk = false) {
        struct stat status{};
        ASSERT_EQ(::stat(path_.c_str(), &status), 0);
        const std::string devices = directory_ / "root/sys/dev/block";
        const std::string device = fmt::format("{}/{}:{}", devices, major(status.st_dev), minor(status.st_dev));
        const std::string queue = (of_disk ? devices : device) + "/queue";
        std::filesystem::create_directories(device);
        std::filesystem::create_directories(queue);
        std::ofstream(queue + "/io_poll") << text << '\n';
    }
    std::string root() { return directory_ / "root"; }
    bool begin_polling(StoreFile& file) {
        struct Begin {
            static Task<bool> run(Loop& loop, StoreFile& file, std::string root) {
                co_return file.begin_polling(loop, root);
            }
        };
        return loop_->run_until_done(Begin::run(*loop_, file, root()));
    }
    // Whether the kernel takes such reads.
    bool takes_polled_reads() {
        const UniqueFd fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
        if (!fd) return false;
        const Result<size_t> read = read_polled(fd.get(), 0);
        EXPECT_TRUE(read || read.error().sys_errno == EOPNOTSUPP);
        return read.has_value();
    }
    Result<size_t> read_polled(int fd, size_t page) {
        return loop_->run_until_done(read_one(*loop_, fd, buffer_.get(), page));
    }
    static Task<Result<size_t>> read_one(Loop& loop, int fd, std::byte* into, size_t page) {
        EXPECT_TRUE(loop.polls());
        const iovec piece{.iov_base = into, .iov_len = page_size};
        co_return co_await loop.readv_polled(fd, std::span(&piece, 1), page * page_size);
    }
    // All pages, some at a time.
    static Task<> read_some(Loop& loop, StoreFile& file, std::byte* into, size_t first, size_t& right) {
        for (size_t page = first; page < page_count; page += 8) {
            const iovec piece{.iov_base = into + page * page_size, .iov_len = page_size};
            if (!co_await file.read(loop, std::span(&piece, 1), page * page_size)) co_return;
            right += into[page * page_size] == static_cast<std::byte>(page + 1);
        }
    }
    static Task<size_t> read_all(Loop& loop, StoreFile& file) {
        const PageBuffer into = make_page_buffer(page_count);
        size_t right = 0;
        Gate gate;
        for (size_t first = 0; first < 8; ++first) gate.spawn(read_some(loop, file, into.get(), first, right));
        co_await gate.close();
        co_return right;
    }
    static Task<bool> sleep_meanwhile(Loop& loop, StoreFile& file, bool& slept) {
        Gate gate;
        struct Sleep {
            static Task<> run(Loop& loop, bool& slept) { slept = co_await loop.sleep(1ms); }
        };
        gate.spawn(Sleep::run(loop, slept));
        while (!slept && co_await read_all(loop, file) == page_count) continue;
        co_await gate.close();
        co_return slept;
    }

    ScratchDirectory directory_;
    std::unique_ptr<Loop> loop_;
    std::string path_;
    PageBuffer buffer_ = make_page_buffer(1);
};

TEST_F(PolledReads, bring_the_bytes_and_the_loop_does_not_sleep_meanwhile) {
    if (!takes_polled_reads()) GTEST_SKIP() << "the kernel refuses them here";
    const UniqueFd fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
    const uint64_t waits = loop_->waits();
    const uint64_t turns = loop_->turns();
    for (size_t page = 0; page < page_count; ++page) {
        const Result<size_t> read = read_polled(fd.get(), page);
        ASSERT_TRUE(read);
        EXPECT_EQ(*read, page_size);
        EXPECT_EQ(buffer_.get()[page_size - 1], static_cast<std::byte>(page + 1));
    }
    EXPECT_EQ(loop_->waits(), waits);
    EXPECT_GE(loop_->turns(), turns + page_count);
}

TEST_F(PolledReads, of_a_file_that_cannot_be_read_so_are_refused) {
    const UniqueFd fd(::memfd_create("pages", MFD_CLOEXEC));
    ASSERT_EQ(::ftruncate(fd.get(), page_size), 0);
    EXPECT_EQ(read_polled(fd.get(), 0).error().sys_errno, EOPNOTSUPP);
    // The loop sleeps again.
    const uint64_t waits = loop_->waits();
    struct Sleep {
        static Task<bool> run(Loop& loop) { co_return co_await loop.sleep(1ms); }
    };
    EXPECT_TRUE(loop_->run_until_done(Sleep::run(*loop_)));
    EXPECT_GT(loop_->waits(), waits);
}

TEST_F(PolledReads, are_those_of_a_store_whose_device_has_queues_for_them) {
    const bool can = takes_polled_reads();
    for (const bool of_disk : {false, true}) {
        std::filesystem::remove_all(root());
        tell("1", of_disk);
        StoreFile file = std::move(*StoreFile::open(path_));
        EXPECT_FALSE(file.polls_reads());
        EXPECT_TRUE(begin_polling(file));
        EXPECT_TRUE(file.polls_reads());
        const uint64_t waits = loop_->waits();
        EXPECT_EQ(loop_->run_until_done(read_all(*loop_, file)), page_count);
        EXPECT_EQ(file.polls_reads(), can) << "until the kernel refuses one";
        if (can) EXPECT_EQ(loop_->waits(), waits);
        bool slept = false;
        EXPECT_TRUE(loop_->run_until_done(sleep_meanwhile(*loop_, file, slept)));
        std::array<iovec, 2> pieces{iovec{buffer_.get(), page_size}, iovec{buffer_.get(), page_size}};
        struct Beyond {
            static Task<Result<>> read(Loop& loop, StoreFile& file, std::span<const iovec> pieces) {
                co_return co_await file.read(loop, pieces, (page_count - 1) * page_size);
            }
        };
        EXPECT_FALSE(loop_->run_until_done(Beyond::read(*loop_, file, pieces))) << "it ends before";
    }
}

// As a device mapper's device whose table has changed since.
TEST_F(PolledReads, that_the_kernel_refuses_are_made_as_others) {
    tell("1");
    StoreFile file = std::move(*StoreFile::open(path_));
    if (!file.direct()) GTEST_SKIP() << "the file system takes no O_DIRECT";
    ASSERT_TRUE(begin_polling(file));
    std::error_code is_closed;
    for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
        const int fd = std::stoi(each.path().filename());
        if (std::filesystem::read_symlink(each.path(), is_closed) == path_)
            ASSERT_EQ(::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_DIRECT), 0);
    }
    EXPECT_EQ(loop_->run_until_done(read_all(*loop_, file)), page_count);
    EXPECT_FALSE(file.polls_reads());
}

TEST_F(PolledReads, are_none_of_a_store_whose_device_has_no_queues_for_them) {
    StoreFile file = std::move(*StoreFile::open(path_));
    EXPECT_FALSE(begin_polling(file)) << "nothing is known of it";
    tell("0");
    tell("1", true);
    EXPECT_FALSE(begin_polling(file));
    EXPECT_FALSE(file.polls_reads());
    EXPECT_EQ(loop_->run_until_done(read_all(*loop_, file)), page_count);
}

}  // namespace
}  // namespace tarn
