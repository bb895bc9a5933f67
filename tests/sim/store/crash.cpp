// Checks of the image that a power cut left: recovery keeps the contract's promises, and the tables agree.
#include <fmt/ranges.h>

#include <algorithm>

#include "tests/sim/store/crash_run.hpp"
#include "tests/support/store_identity.hpp"

namespace tarn::store_sim {

namespace {

constexpr uint64_t cuts_max = 120;  // per seed: many seeds find more than many cuts

}  // namespace

void CrashRun::on_operation() {
    if (cutting_ || died_ || !failure_.empty()) return;
    if (dies_in_ != UINT64_MAX && dies_in_-- == 0) {
        died_.emplace(disk_->cut(cuts_));
        disk_->die();
        return;
    }
    if (store_ && fills_in_ != UINT64_MAX && fills_in_-- == 0) {
        disk_->fill();
        ++counts_.full_disks;
    }
    // No copy mixes two formats.
    if (cuts_.below(200) == 0 && !upgrading_) earlier_ = disk_->copy();
    if (cut_count_ == cuts_max) return;
    // More often when there is more to lose, especially order.
    const uint64_t weight =
        std::min<uint64_t>(disk_->unsettled_count(), 8) +
        (disk_->any_unsettled(layout_.table_offsets[0], layout_.data_offset) ? 24 : 0) +
        (disk_->any_unsettled(loss_list_offsets[0], StoreLayout::superblock_offsets[1]) ? 200 : 0) +
        (upgrading_ || (records_losses_ && disk_->any_unsettled(0, StoreLayout::journal_offset)) ? 24 : 0);
    if (cuts_.below(cut_every_) >= weight) return;
    cutting_ = true;
    ++cut_count_;
    Before before;
    if (store_) before.position = store_->standing().position;
    const bool only_durable = store_ && !disk_fails_ && !fills_ && cuts_.chance(25);
    if (only_durable) before.free_bytes = store_->space().free_bytes;
    check_image(only_durable ? disk_->durable() : disk_->cut(cuts_), before);
    cutting_ = false;
}

std::map<uint64_t, Model::Found> CrashRun::read_all(Loop& loop, Store& store, bool& readable) {
    std::map<uint64_t, Model::Found> found;
    constexpr size_t run_max = 64;
    const PageBuffer buffer = make_page_buffer(run_max);
    readable = true;
    for (auto page = model_.pages().begin(); page != model_.pages().end();) {
        std::vector<std::byte*> into;
        const PageId first{page->first};
        for (; page != model_.pages().end() && page->first == first.value + into.size() && into.size() < run_max;
             ++page)
            into.push_back(buffer.get() + into.size() * page_size);
        if (const Result<> read = loop.run_until_done(store.read_run(loop, first, into)); !read) {
            readable = false;
            fail(fmt::format("volume {} page {} and on: {}", first.volume(), first.number(), read.error().where));
            return found;
        }
        for (size_t i = 0; i < into.size(); ++i) {
            const PageId id{first.value + i};
            Model::Found& now = found[id.value];
            now.tenure = store.tenure_of(id);
            if (!decode(id, into[i], now.contents))
                fail(fmt::format("volume {} page {} has bytes it was never given", id.volume(), id.number()));
        }
    }
    return found;
}

// Only pages that exist have space allocated.
bool CrashRun::check_books(Store& store, const std::map<uint64_t, Model::Found>& found) {
    std::map<uint64_t, bool> slabs;
    for (const auto& [page, now] : found)
        if (now.tenure != 0) slabs[page / pages_per_slab] = true;
    const uint64_t allocated = store.space().allocated_bytes / slab_size;
    if (keeps_space_ ? allocated < slabs.size() : allocated != slabs.size())
        fail(fmt::format("{} slabs are allocated, {} have pages", allocated, slabs.size()));
    return failure_.empty();
}

void CrashRun::check_losses(const Store& store) {
    const std::vector<Loss> found = store.losses();
    const auto same_pages = [](const Loss& a) {
        return [&a](const Loss& b) { return a.first == b.first && a.last == b.last; };
    };
    for (const Loss& loss : losses_recorded_) {
        const auto known = std::ranges::find_if(found, same_pages(loss));
        if (known == found.end() || known->generation != loss.generation) return fail("a loss on record is forgotten");
    }
    for (const Loss& loss : found) {
        if (std::ranges::none_of(losses_begun_, same_pages(loss))) fail("a loss is on record that never was");
        if (loss.generation > store.loss_generation()) fail("a loss is of a generation to come");
    }
}

void CrashRun::check_marks(const Store& store) {
    for (const PageId piece : marked_)
        if (!store.is_marked(piece)) return fail("a piece is not marked any more, and nobody took its mark off");
}

Result<std::unique_ptr<Store>> CrashRun::open_image(std::unique_ptr<Disk> disk) {
    if (upgrading_) {
        auto copy = std::make_unique<Disk>(disk->copy(), 1, true);
        Result<std::unique_ptr<Store>> store =
            other_.run_until_done(Store::open(other_, std::move(copy), store_identity));
        if (!store && store.error().code != Errc::unsupported) return store;
        if (store) other_.run_until_done((*store)->settle(other_));
    }
    return other_.run_until_done(Store::open(other_, std::move(disk), store_identity, {.upgrade = true}));
}

void CrashRun::check_image(Image image, const Before& before) {
    ++counts_.crash_points;
    if (before.position != 0 && cuts_.chance(40)) check_journal_reaches(image, before.position);
    const Image spare = cuts_.chance(25) ? Image(image) : Image(0);
    auto disk = std::make_unique<Disk>(std::move(image), cuts_.next(), true);
    const Disk* const disk_seen = disk.get();
    Result<std::unique_ptr<Store>> store = open_image(std::move(disk));
    if (!store) return fail(fmt::format("recovery failed: {}", store.error().where));
    bool readable = true;
    const auto found = read_all(other_, **store, readable);
    if (!readable) return;
    if (std::string wrong = model_.check(found); !wrong.empty()) fail("after a power cut: " + wrong);
    check_books(**store, found);
    check_losses(**store);
    check_marks(**store);
    if (before.free_bytes && (*store)->space().free_bytes < *before.free_bytes)
        fail("a slab is given away that is not free, durably");
    if (failure_.empty() && cuts_.chance(40)) go_on(**store, *disk_seen, found);
    other_.run_until_done((*store)->settle(other_));
    if (spare.size_bytes() != 0 && failure_.empty()) check_recovery_cut(spare);
}

// Cuts the recovery itself at one of its operations.
void CrashRun::check_recovery_cut(Image image) {
    auto cut_disk = std::make_unique<Disk>(std::move(image), cuts_.next(), true);
    Image left(0);
    uint64_t operations_left = cuts_.below(24);
    Disk* const cut_disk_seen = cut_disk.get();
    cut_disk->on_operation = [&, this] {
        if (operations_left-- == 0) left = cut_disk_seen->cut(cuts_);
    };
    Result<std::unique_ptr<Store>> first = open_image(std::move(cut_disk));
    if (!first) return fail(fmt::format("recovery failed: {}", first.error().where));
    other_.run_until_done((*first)->settle(other_));
    if (left.size_bytes() == 0) return;
    ++counts_.recovery_cuts;
    auto second_disk = std::make_unique<Disk>(std::move(left), cuts_.next(), true);
    Result<std::unique_ptr<Store>> second = open_image(std::move(second_disk));
    if (!second) return fail(fmt::format("recovery after a cut recovery failed: {}", second.error().where));
    bool readable = true;
    const auto again = read_all(other_, **second, readable);
    if (!readable) return;
    if (std::string wrong = model_.check(again); !wrong.empty()) fail("after a cut recovery: " + wrong);
    check_books(**second, again);
    check_losses(**second);
    check_marks(**second);
    other_.run_until_done((*second)->settle(other_));
}

void CrashRun::go_on(Store& store, const Disk& disk, const std::map<uint64_t, Model::Found>& found) {
    std::vector<PageId> pages;
    for (const auto& [page, now] : found) pages.push_back({page});
    if (pages.empty()) return;
    Model model = model_;
    model.restart(found);
    if (cuts_.chance(50)) check_spoiled(disk.cut(cuts_), model, true);
    uint64_t value = next_value_ + (uint64_t{1} << 20);  // a value that no client uses
    for (uint64_t rounds = cuts_.between(1, 4); rounds > 0; --rounds) {
        // Of many sizes, so that remains of the crash in the ring may follow without a gap.
        const uint64_t count = std::min<uint64_t>(cuts_.chance(50) ? 1 : cuts_.between(2, 8), pages.size());
        const uint64_t first = cuts_.below(pages.size() - count + 1);
        Batch batch(count);
        for (uint64_t i = 0; i < count; ++i) {
            const PageId page = pages[first + i];
            const auto dirty = cuts_.chance(50) ? all_sectors : static_cast<DirtyMask>(cuts_.between(1, 255));
            Contents contents = model.newest(page).contents;
            for (unsigned sector = 0; sector < sectors_per_page; ++sector)
                if ((dirty >> sector & 1) != 0) contents[sector] = value;
            const Tenure tenure = ++value;
            batch.add(page, contents, tenure, dirty, model.begin(page, contents, tenure));
        }
        const Result<> written = other_.run_until_done(store.write(other_, batch.writes));
        if (!written && written.error().code == Errc::no_space) return;
        const uint64_t moment = model.moment() + count;
        const Result<> flushed = other_.run_until_done(store.flush(other_));
        if (!written || !flushed) return fail("after a power cut neither a write nor a flush works");
        for (uint64_t i = 0; i < count; ++i) model.complete(pages[first + i], batch.versions[i]);
        model.durable(moment);
        auto cut_disk = std::make_unique<Disk>(disk.cut(cuts_), cuts_.next(), true);
        Result<std::unique_ptr<Store>> next =
            other_.run_until_done(Store::open(other_, std::move(cut_disk), store_identity));
        if (!next) return fail(fmt::format("the recovery after the next failed: {}", next.error().where));
        bool readable = true;
        const auto again = read_all(other_, **next, readable);
        other_.run_until_done((*next)->settle(other_));
        if (!readable) return;
        if (std::string wrong = model.check(again); !wrong.empty()) return fail("after the next power cut: " + wrong);
    }
}

void CrashRun::check_spoiled(Image image, const Model& model, bool data_only) {
    // The data have by far the most blocks; give each structure its share.
    const std::array<uint64_t, 5> ends = {StoreLayout::journal_offset, layout_.table_offsets[0],
                                          layout_.table_offsets[1], layout_.data_offset, image.size_bytes()};
    const std::vector<uint64_t> used = image.used_blocks();
    for (uint64_t flips = cuts_.between(1, data_only ? 40 : 4); flips > 0; --flips) {
        const size_t part = data_only ? 4 : cuts_.below(5);
        std::vector<uint64_t> blocks = used;
        std::erase_if(blocks, [&](uint64_t block) {
            return block * page_size >= ends[part] || (part > 0 && block * page_size < ends[part - 1]);
        });
        if (blocks.empty()) continue;
        const uint64_t block = blocks[cuts_.below(blocks.size())];
        std::array<std::byte, page_size> bytes;
        image.read(block * page_size, bytes);
        // Headers lie at the beginnings.
        const uint64_t at = cuts_.below(cuts_.chance(50) ? 256 : page_size);
        bytes[at] ^= static_cast<std::byte>(1u << cuts_.below(8));
        image.write(block * page_size, bytes);
    }
    check_bad_image(std::move(image), model, false);
}

void CrashRun::check_copied_while_running() {
    if (!earlier_) return;
    Image image = disk_->copy();
    const uint64_t end = cuts_.below(image.size_bytes() / page_size);
    std::array<std::byte, page_size> bytes;
    for (uint64_t block = 0; block < end; ++block) {
        earlier_->read(block * page_size, bytes);
        image.write(block * page_size, bytes);
    }
    // The beginning of the journal may be too old for its end: then places still have their earlier bytes.
    check_bad_image(std::move(image), model_, true);
}

void CrashRun::check_bad_image(Image image, const Model& model, bool of_any_time) {
    ++counts_.spoiled;
    auto disk = std::make_unique<Disk>(std::move(image), cuts_.next(), true);
    Result<std::unique_ptr<Store>> store = other_.run_until_done(Store::open(other_, std::move(disk), store_identity));
    if (!store) {
        ++counts_.refused;
        if (store.error().code != Errc::corrupt) fail(fmt::format("rot is reported as {}", store.error().where));
        return;
    }
    const PageBuffer buffer = make_page_buffer(1);
    for (const auto& [page, versions] : model.pages()) {
        const std::span<std::byte, page_size> into(buffer.get(), page_size);
        const Result<> read = other_.run_until_done((*store)->read(other_, PageId{page}, into));
        Contents contents{};
        if (!read) continue;
        if (!decode(PageId{page}, into.data(), contents) ||
            (!of_any_time &&
             std::ranges::none_of(versions, [&](const Version& version) { return version.contents == contents; })))
            fail(fmt::format("after rot volume {} page {} has bytes it was never given: {}, not {}",
                             PageId{page}.volume(), PageId{page}.number(), fmt::join(contents, ","),
                             fmt::join(versions.back().contents, ",")));
    }
    other_.run_until_done((*store)->settle(other_));
}

}  // namespace tarn::store_sim
