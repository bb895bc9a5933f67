// Where data and holes of a file begin, as a volume tells of them that answers only the front of what it is asked.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>

#include "frontends/fuse/runs.hpp"
#include "tests/support/fake_volume.hpp"
#include "utils/loop.hpp"

namespace tarn::fuse {
namespace {

// One letter per page: d for data, another for a hole. It tells of so many pages at once.
class ToldInParts final : public FakeVolume {
  public:
    ToldInParts(std::string_view pages, size_t pages_at_once, uint64_t size_bytes)
        : pages_(pages), pages_at_once_(pages_at_once), size_bytes_(size_bytes) {}

    Task<Result<Attributes>> attributes() override { co_return Attributes{.size_bytes = size_bytes_}; }
    Task<Result<std::vector<Extent>>> extents(uint64_t offset_bytes, uint64_t asked_bytes) override {
        EXPECT_LE(offset_bytes + asked_bytes, size_bytes_) << "it is asked beyond the end";
        std::vector<Extent> told;
        const uint64_t end_bytes = offset_bytes + asked_bytes;
        const size_t first = offset_bytes / page_size;
        for (size_t page = first; page < first + pages_at_once_ && page * page_size < end_bytes; ++page) {
            const uint64_t begin = std::max<uint64_t>(page * page_size, offset_bytes);
            const uint64_t size = std::min<uint64_t>((page + 1) * page_size, end_bytes) - begin;
            const bool hole = pages_[page] != 'd';
            if (!told.empty() && told.back().hole == hole)
                told.back().size_bytes += size;
            else
                told.push_back({.offset_bytes = begin, .size_bytes = size, .hole = hole});
        }
        co_return told;
    }

  private:
    const std::string_view pages_;
    const size_t pages_at_once_;
    const uint64_t size_bytes_;
};

class FuseRuns : public testing::Test {
  protected:
    Result<uint64_t> find(std::string_view pages, uint64_t offset_bytes, bool hole, uint64_t less_bytes = 0) {
        ToldInParts volume(pages, 2, pages.size() * page_size - less_bytes);
        return loop_->run_until_done(find_run(volume, offset_bytes, hole));
    }
    uint64_t data(std::string_view pages, uint64_t offset_bytes) {
        return find(pages, offset_bytes, false).value_or(1);
    }
    uint64_t hole(std::string_view pages, uint64_t offset_bytes) { return find(pages, offset_bytes, true).value_or(1); }

    std::unique_ptr<Loop> loop_ = std::move(*Loop::create());
};

TEST_F(FuseRuns, the_rest_of_what_was_answered_in_part_is_asked_for) {
    EXPECT_EQ(data("-----d--", 0), 5 * page_size);
    EXPECT_EQ(data("------d-", 0), 6 * page_size);
    EXPECT_EQ(hole("ddddd-dd", 0), 5 * page_size);
    EXPECT_EQ(hole("dddddd-d", 0), 6 * page_size);
    EXPECT_EQ(data("---d----", page_size), 3 * page_size);
}

TEST_F(FuseRuns, an_offset_within_a_run_is_where_it_begins) {
    EXPECT_EQ(data("-dd-", page_size + 17), page_size + 17);
    EXPECT_EQ(hole("d--d", page_size + 17), page_size + 17);
}

TEST_F(FuseRuns, the_end_of_the_file_is_a_hole_and_beyond_it_is_nothing) {
    EXPECT_EQ(hole("ddddd", 0), 5 * page_size);
    EXPECT_EQ(find("ddddd", 0, true, 100).value_or(1), 5 * page_size - 100);
    EXPECT_EQ(find("d----", page_size, false).error().sys_errno, ENXIO);
    EXPECT_EQ(find("ddddd", 5 * page_size, true).error().sys_errno, ENXIO);
    EXPECT_EQ(find("ddddd", 5 * page_size, false).error().sys_errno, ENXIO);
}

}  // namespace
}  // namespace tarn::fuse
