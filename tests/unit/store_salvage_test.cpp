// A journal that is damaged where it had been durable: what a salvage keeps, and that all the rest is on the list.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>

#include "tests/support/scratch_directory.hpp"
#include "tests/support/store_identity.hpp"
#include "tiers/nvme/device/page_buffer.hpp"
#include "tiers/nvme/device/store_file.hpp"
#include "tiers/nvme/journal/scan.hpp"
#include "tiers/nvme/store.hpp"

namespace tarn {
namespace {

constexpr VolumeId volume = 1;
constexpr uint64_t page_count = 900;
constexpr uint64_t last_page = 2000;

using Sectors = std::array<uint8_t, sectors_per_page>;

class StoreSalvage : public testing::Test {
  protected:
    StoreSalvage() : pages_(make_page_buffer(64)) {
        path_ = directory_ / "store";
        loop_ = std::move(*Loop::create());
    }
    ~StoreSalvage() override { drop(); }

    void begin() {
        drop();
        std::filesystem::remove(path_);
        history_.clear();
        ASSERT_TRUE(Store::format(path_, uint64_t{8} << 20, store_identity, false));
        ASSERT_TRUE(open());
    }
    void drop() {
        if (store_) loop_->run_until_done(store_->settle(*loop_));
        store_.reset();
        loop_->run_until_done(pause(*loop_));  // the ring gives back its reference to the file, and the lock
    }
    static Task<bool> pause(Loop& loop) { co_return co_await loop.sleep(std::chrono::milliseconds(1)); }
    Result<> open() {
        drop();
        Result<std::unique_ptr<Store>> store = loop_->run_until_done(Store::open(*loop_, path_, store_identity));
        if (!store) return fail(store.error());
        store_ = std::move(*store);
        return {};
    }
    Result<SalvageReport> salvage() {
        drop();
        Result<StoreFile> file = StoreFile::open(path_);
        if (!file) return fail(file.error());
        return loop_->run_until_done(Store::salvage(*loop_, std::make_unique<StoreFile>(*std::move(file))));
    }

    std::vector<Sectors>& history_of(uint64_t page) {
        std::vector<Sectors>& history = history_[page];
        if (history.empty()) history.push_back({});
        return history;
    }
    void write(uint64_t first, size_t count, DirtyMask dirty) {
        std::vector<PageWrite> writes;
        for (size_t i = 0; i < count; ++i) {
            std::vector<Sectors>& history = history_of(first + i);
            Sectors now = history.back();
            std::byte* const bytes = pages_.get() + i * page_size;
            for (size_t sector = 0; sector < now.size(); ++sector) {
                if ((dirty >> sector & 1) != 0) now[sector] = static_cast<uint8_t>(random_() % 255 + 1);
                std::memset(bytes + sector * sector_size, now[sector], sector_size);
            }
            history.push_back(now);
            writes.push_back({.page = PageId::of(volume, first + i),
                              .tenure = history.size(),
                              .dirty = count > 1 ? all_sectors : dirty,
                              .bytes = bytes});
        }
        ASSERT_TRUE(loop_->run_until_done(store_->write(*loop_, writes)));
    }
    void zero(uint64_t first, uint64_t count) {
        for (uint64_t page = first; page < first + count; ++page) history_of(page).push_back({});
        ASSERT_TRUE(loop_->run_until_done(store_->zero(*loop_, PageId::of(volume, first), count)));
    }
    void flush() { ASSERT_TRUE(loop_->run_until_done(store_->flush(*loop_))); }

    // So many steps, each durable, and at the end one that proves them.
    void work(unsigned steps) {
        for (unsigned i = 0; i < steps; ++i) {
            const uint64_t page = random_() % page_count;
            switch (random_() % 8) {
                case 0: write(page, 16 + random_() % 40, all_sectors); break;
                case 1: zero(page, 1 + random_() % 300); break;
                case 2:
                case 3: write(page, 1, static_cast<DirtyMask>(random_() % 255 + 1)); break;
                default: write(page, 1, all_sectors); break;
            }
            if (random_() % 3 == 0) flush();
        }
        for (int i = 0; i < 3; ++i) {
            write(last_page, 1, all_sectors);
            flush();
        }
    }
    // Where the batches begin, but for those that nothing proves, and where these begin.
    std::vector<uint64_t> batches() {
        StoreFile file = std::move(*StoreFile::open_read_only(path_));
        const Superblock superblock = *read_superblock(file);
        ring_size_ = superblock.geometry.journal_size;
        const JournalScan scan = *scan_journal(file, superblock, [](const FoundRecord&) { return Result<>(); });
        std::vector<uint64_t> starts = {superblock.journal_tail};
        for (const Journal::Boundary& boundary : scan.boundaries)
            if (boundary.position <= scan.closed) starts.push_back(boundary.position);
        return starts;
    }
    // Bytes behind the store's back, from this position of the journal on.
    void spoil(uint64_t position, size_t count, uint8_t flip) {
        const UniqueFd fd(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
        for (size_t i = 0; i < count; ++i) {
            const auto offset = static_cast<off_t>(StoreLayout::journal_offset + (position + i) % ring_size_);
            uint8_t byte = 0;
            ASSERT_EQ(::pread(fd.get(), &byte, 1, offset), 1);
            byte = flip != 0 ? byte ^ flip : static_cast<uint8_t>(random_());
            ASSERT_EQ(::pwrite(fd.get(), &byte, 1, offset), 1);
        }
    }

    // What is not on the list is as it was last written; what is on it is as it once was, or an error.
    size_t expect_all_but_losses() {
        const std::vector<Loss> losses = store_->losses();
        size_t lost = 0;
        for (const auto& [page, versions] : history_) {
            const PageId id = PageId::of(volume, page);
            const bool is_lost =
                std::ranges::any_of(losses, [&](const Loss& loss) { return loss.first <= id && id <= loss.last; });
            lost += is_lost;
            const Result<> read = loop_->run_until_done(
                store_->read(*loop_, id, std::span<std::byte, page_size>(pages_.get(), page_size)));
            if (!read) {
                EXPECT_TRUE(is_lost) << "page " << page << " cannot be read";
                continue;
            }
            const auto is_version = [&](const Sectors& sectors) {
                for (size_t sector = 0; sector < sectors.size(); ++sector)
                    for (size_t i = 0; i < sector_size; ++i)
                        if (static_cast<uint8_t>(pages_[sector * sector_size + i]) != sectors[sector]) return false;
                return true;
            };
            if (is_lost)
                EXPECT_TRUE(std::ranges::any_of(versions, is_version)) << "page " << page << " never was so";
            else
                EXPECT_TRUE(is_version(versions.back())) << "page " << page << " is old and not on the list";
        }
        return lost;
    }

    std::mt19937_64 random_{3};
    ScratchDirectory directory_;
    std::string path_;
    std::unique_ptr<Loop> loop_;
    std::unique_ptr<Store> store_;
    PageBuffer pages_;
    uint64_t ring_size_ = 0;
    std::map<uint64_t, std::vector<Sectors>> history_;
};

TEST_F(StoreSalvage, one_flipped_bit_anywhere_in_the_live_journal_costs_nothing) {
    for (int round = 0; round < 40; ++round) {
        begin();
        work(60);
        drop();
        const std::vector<uint64_t> starts = batches();
        ASSERT_GT(starts.size(), 2u);
        const uint64_t length = starts.back() - starts.front();
        // Sometimes in a header.
        const uint64_t position = round % 4 == 0 ? starts[random_() % (starts.size() - 1)] + random_() % 64
                                                 : starts.front() + random_() % length;
        spoil(position, 1, static_cast<uint8_t>(1u << random_() % 8));
        const Result<> refused = open();
        ASSERT_FALSE(refused);
        EXPECT_EQ(refused.error().code, Errc::corrupt);
        EXPECT_NE(std::string(refused.error().where).find("tarn store repair --salvage-journal"), std::string::npos);
        const Result<SalvageReport> report = salvage();
        ASSERT_TRUE(report) << report.error().where;
        EXPECT_EQ(report->bits_mended, 1u) << position - starts.front() << " of " << length;
        EXPECT_EQ(report->bytes_damaged, 0u);
        ASSERT_TRUE(open());
        EXPECT_EQ(expect_all_but_losses(), 0u);
    }
}

TEST_F(StoreSalvage, what_is_damaged_worse_is_on_the_list_and_all_else_is_served) {
    size_t rounds_that_kept_some = 0;
    size_t rounds_that_knew = 0;
    for (int round = 0; round < 60; ++round) {
        random_.seed(round);
        begin();
        work(60);
        drop();
        const std::vector<uint64_t> starts = batches();
        const uint64_t length = starts.back() - starts.front();
        for (int hole = 0; hole <= round % 2; ++hole) {
            const uint64_t position = starts.front() + random_() % length;
            const size_t sizes[] = {2, 3, 100, 512, 4096, 20000};
            spoil(position, std::min<uint64_t>(sizes[random_() % 6], starts.back() - position), 0);
        }
        const uint64_t epoch = [&] {
            StoreFile file = std::move(*StoreFile::open_read_only(path_));
            return read_superblock(file)->home_epoch;
        }();
        const Result<SalvageReport> report = salvage();
        ASSERT_TRUE(report) << report.error().where;
        if (!report->found_damage()) continue;  // random bytes that were there before
        ASSERT_TRUE(open());
        EXPECT_EQ(store_->home_epoch(), epoch + 1) << "a salvage is no start";
        EXPECT_TRUE(store_->losses().empty() || report->bytes_damaged != 0);
        SCOPED_TRACE("round " + std::to_string(round) + ", bytes " + std::to_string(report->bytes_damaged) +
                     (report->any_page ? ", any page" : ""));
        const size_t lost = expect_all_but_losses();
        if (HasFailure()) return;
        rounds_that_kept_some += lost < history_.size();
        rounds_that_knew += !report->any_page && report->bytes_damaged > 0;
        // And it goes on.
        const std::vector<Loss> losses = store_->losses();
        work(40);
        ASSERT_TRUE(open());
        EXPECT_EQ(store_->losses(), losses);
        expect_all_but_losses();
    }
    EXPECT_GT(rounds_that_kept_some, 30u);
    EXPECT_GT(rounds_that_knew, 5u);
}

TEST_F(StoreSalvage, a_plan_writes_nothing_and_a_whole_journal_stays_as_it_is) {
    begin();
    work(60);
    drop();
    const auto bytes_of = [&] {
        const UniqueFd fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
        std::vector<char> bytes(uint64_t{8} << 20);
        EXPECT_EQ(::read(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
        return bytes;
    };
    std::vector<char> before = bytes_of();
    const Result<SalvageReport> nothing = salvage();
    ASSERT_TRUE(nothing);
    EXPECT_FALSE(nothing->found_damage());
    EXPECT_EQ(bytes_of(), before);
    spoil(batches().front() + 100, 3000, 0);
    before = bytes_of();
    StoreFile file = std::move(*StoreFile::open_read_only(path_));
    const Result<SalvageReport> plan = loop_->run_until_done(Store::plan_salvage(*loop_, file));
    ASSERT_TRUE(plan);
    EXPECT_TRUE(plan->found_damage());
    EXPECT_FALSE(plan->losses.empty());
    EXPECT_EQ(bytes_of(), before);
}

}  // namespace
}  // namespace tarn
