// What is checked of an image that a power cut left: recovery finds what the contract promises, and the books agree.
#include <fmt/format.h>

#include <algorithm>

#include "tests/store_sim/world.hpp"

namespace tarn::store_sim {

namespace {

constexpr StoreIdentity identity = {.cluster = {0xc1}, .host = 1};

}  // namespace

void World::on_operation() {
    if (cutting_ || died_ || !failure_.empty()) return;
    if (dies_in_ != UINT64_MAX && dies_in_-- == 0) {
        died_.emplace(disk_->cut(cuts_));
        disk_->die();
        return;
    }
    if (cuts_.below(cut_every_) != 0) return;
    cutting_ = true;
    check_image(disk_->cut(cuts_));
    cutting_ = false;
}

std::map<uint64_t, Model::Found> World::read_all(Loop& loop, Store& store, bool& readable) {
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

// Nothing is allocated but for pages that are there.
bool World::check_books(Store& store, const std::map<uint64_t, Model::Found>& found) {
    std::map<uint64_t, bool> slabs;
    for (const auto& [page, now] : found)
        if (now.tenure != 0) slabs[page / pages_per_slab] = true;
    const uint64_t allocated = store.space().allocated_bytes / slab_size;
    if (keeps_space_ ? allocated < slabs.size() : allocated != slabs.size())
        fail(fmt::format("{} slabs are allocated, {} have pages", allocated, slabs.size()));
    return failure_.empty();
}

void World::check_image(Image image) {
    ++counts_.crash_points;
    const Image spare = cuts_.chance(25) ? Image(image) : Image(0);
    auto disk = std::make_unique<Disk>(std::move(image), cuts_.next(), true);
    Result<std::unique_ptr<Store>> store = other_.run_until_done(Store::open(other_, std::move(disk), identity));
    if (!store) return fail(fmt::format("recovery failed: {}", store.error().where));
    bool readable = true;
    const auto found = read_all(other_, **store, readable);
    if (!readable) return;
    if (std::string wrong = model_.check(found); !wrong.empty()) fail("after a power cut: " + wrong);
    check_books(**store, found);
    other_.run_until_done((*store)->settle(other_));
    if (spare.size_bytes() == 0 || !failure_.empty()) return;

    // The same, and recovery itself is cut at one of its operations.
    auto cut_disk = std::make_unique<Disk>(Image(spare), cuts_.next(), true);
    Image left(0);
    uint64_t operations_left = cuts_.below(24);
    Disk* const cut_disk_seen = cut_disk.get();
    cut_disk->on_operation = [&, this] {
        if (operations_left-- == 0) left = cut_disk_seen->cut(cuts_);
    };
    Result<std::unique_ptr<Store>> first = other_.run_until_done(Store::open(other_, std::move(cut_disk), identity));
    if (!first) return fail(fmt::format("recovery failed: {}", first.error().where));
    other_.run_until_done((*first)->settle(other_));
    if (left.size_bytes() == 0) return;
    ++counts_.recovery_cuts;
    auto second_disk = std::make_unique<Disk>(std::move(left), cuts_.next(), true);
    Result<std::unique_ptr<Store>> second =
        other_.run_until_done(Store::open(other_, std::move(second_disk), identity));
    if (!second) return fail(fmt::format("recovery after a cut recovery failed: {}", second.error().where));
    const auto again = read_all(other_, **second, readable);
    if (!readable) return;
    if (std::string wrong = model_.check(again); !wrong.empty()) fail("after a cut recovery: " + wrong);
    check_books(**second, again);
    other_.run_until_done((*second)->settle(other_));
}

// A few flipped bits in any structure: data, an error for that page, or a refusal; never a crash or wrong bytes.
void World::check_spoiled(Image image) {
    const std::vector<uint64_t> used = image.used_blocks();
    const uint64_t flips = cuts_.between(1, 4);
    for (uint64_t i = 0; i < flips; ++i) {
        const uint64_t block = used[cuts_.below(used.size())];
        std::array<std::byte, page_size> bytes;
        image.read(block * page_size, bytes);
        // Headers lie at the beginnings.
        const uint64_t at = cuts_.below(cuts_.chance(50) ? 256 : page_size);
        bytes[at] ^= static_cast<std::byte>(1u << cuts_.below(8));
        image.write(block * page_size, bytes);
    }
    ++counts_.spoiled;
    auto disk = std::make_unique<Disk>(std::move(image), cuts_.next(), true);
    Result<std::unique_ptr<Store>> store = other_.run_until_done(Store::open(other_, std::move(disk), identity));
    if (!store) {
        ++counts_.refused;
        if (store.error().code != Errc::corrupt) fail(fmt::format("rot is reported as {}", store.error().where));
        return;
    }
    const PageBuffer buffer = make_page_buffer(1);
    for (const auto& [page, versions] : model_.pages()) {
        const std::span<std::byte, page_size> into(buffer.get(), page_size);
        const Result<> read = other_.run_until_done((*store)->read(other_, PageId{page}, into));
        Contents contents{};
        if (!read) continue;
        if (!decode(PageId{page}, into.data(), contents) ||
            std::ranges::none_of(versions, [&](const Version& version) { return version.contents == contents; }))
            fail(fmt::format("after rot volume {} page {} has bytes it was never given", PageId{page}.volume(),
                             PageId{page}.number()));
    }
    other_.run_until_done((*store)->settle(other_));
}

}  // namespace tarn::store_sim
