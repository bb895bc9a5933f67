// What counts as empty, so that a store may be made there: nothing that anybody has stored is ever taken for that.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/scratch_directory.hpp"
#include "tiers/nvme/store.hpp"

namespace tarn {
namespace {

constexpr uint64_t store_size = uint64_t{16} << 20;

class BlankFileTest : public testing::Test {
  protected:
    BlankFileTest() { path_ = directory_ / "file"; }

    // A file of zeros, a hole, with the text in it.
    void write(uint64_t offset_bytes, const std::string& text, uint64_t size_bytes) const {
        const UniqueFd fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
        ASSERT_TRUE(fd);
        ASSERT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size_bytes)), 0);
        ASSERT_EQ(::pwrite(fd.get(), text.data(), text.size(), static_cast<off_t>(offset_bytes)),
                  static_cast<ssize_t>(text.size()));
    }
    Errc refusal() const { return refusal_at(path_); }
    static Errc refusal_at(const std::string& path) {
        const Result<> formatted = Store::format(path, store_size, {}, false);
        EXPECT_FALSE(formatted) << path;
        return formatted ? Errc::io : formatted.error().code;
    }

    ScratchDirectory directory_;
    std::string path_;
};

TEST_F(BlankFileTest, whatever_is_stored_in_a_file_is_kept) {
    struct Content {
        const char* what;
        uint64_t offset_bytes;
        std::string text;
        uint64_t size_bytes;
    };
    const std::vector<Content> contents = {
        {"a line", 0, "nineteen bytes here", 19},
        {"all but a page", 0, std::string(4095, 'x'), 4095},
        {"one byte behind zeros", 0, std::string(180, '\0') + "x", 181},
        {"the last byte of a part of a page", 12287, "x", 12288 + 100},
        {"the last byte", (uint64_t{3} << 20) + 4999, "x", (uint64_t{3} << 20) + 5000},
        {"far behind a hole", uint64_t{40} << 20, std::string(8192, 'x'), uint64_t{60} << 20},
        {"far behind zeros", 0, std::string(uint64_t{5} << 20, '\0') + "x", uint64_t{6} << 20},
    };
    for (const Content& content : contents) {
        SCOPED_TRACE(content.what);
        write(content.offset_bytes, content.text, content.size_bytes);
        EXPECT_EQ(refusal(), Errc::exists);
        EXPECT_EQ(std::filesystem::file_size(path_), content.size_bytes);
        std::ifstream file(path_);
        file.seekg(static_cast<std::streamoff>(content.offset_bytes));
        std::string found(content.text.size(), '\0');
        file.read(found.data(), static_cast<std::streamsize>(found.size()));
        EXPECT_TRUE(found == content.text);
    }
    const std::string link = directory_ / "link";
    std::filesystem::create_symlink(path_, link);
    EXPECT_EQ(refusal_at(link), Errc::exists);
}

TEST_F(BlankFileTest, zeros_and_holes_are_nothing) {
    write(0, "", 0);
    EXPECT_TRUE(Store::format(path_, store_size, {}, false));
    write(0, "", uint64_t{1} << 36);
    EXPECT_TRUE(Store::format(path_, store_size, {}, false)) << "a hole";
    write(5000, std::string(5000, '\0'), 12345);
    EXPECT_TRUE(Store::format(path_, store_size, {}, false)) << "zeros, and the last page a part";
}

TEST_F(BlankFileTest, only_files_and_block_devices_are_touched) {
    ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
    for (const bool force : {false, true})
        for (const std::string& path : {path_, directory_.path().string(), std::string("/dev/null")}) {
            const Result<> formatted = Store::format(path, store_size, {}, force);
            ASSERT_FALSE(formatted) << path;
            EXPECT_EQ(formatted.error().code, Errc::invalid) << path;
        }
}

}  // namespace
}  // namespace tarn
