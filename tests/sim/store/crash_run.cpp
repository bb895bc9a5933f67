#include "tests/sim/store/crash_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/support/store_identity.hpp"

namespace tarn::store_sim {

namespace {

constexpr uint64_t idle_turns_max = 100000;

// Drives the disk from the loop: one completion per turn. True: another turn, without waiting for the kernel.
bool complete_one(void* disk) {
    auto& [the_disk, idle_turns] = *static_cast<std::pair<Disk*, uint64_t>*>(disk);
    if (the_disk->complete_one()) {
        idle_turns = 0;
    } else if (++idle_turns > idle_turns_max) {
        std::fputs("hang: nothing is under way, and somebody waits\n", stderr);
        std::abort();
    }
    return true;
}

// The hook is asked at the end of a turn; the first one must not wait for the kernel.
Task<> begin_turns(Loop& loop) {
    co_await Yield(loop);
}

}  // namespace

Habits::Habits(Random& random)
    : weights{0, 30, 12, 12, 10, 6, 16},
      pages(random.chance(50) ? random.between(30, 120) : UINT64_MAX),
      whole_percent(random.chance(50) ? 5 : 40) {
    constexpr std::array<unsigned, 6> factors = {0, 1, 1, 1, 1, 5};
    for (unsigned& weight : weights) weight *= factors[random.below(factors.size())];
    weights[1] = std::max(weights[1], 2u);
    // Few flushes make large rounds, and leave much to lose.
    constexpr std::array<unsigned, 4> flushes = {1, 4, 20, 60};
    weights[0] = flushes[random.below(flushes.size())];
}

CrashRun::CrashRun(uint64_t seed, Loop& loop, Loop& other, Counts& counts)
    : random_(seed),
      cuts_(random_.split(1)),
      marks_(seed ^ 0x6d61726b),
      habits_(random_),
      loop_(loop),
      other_(other),
      counts_(counts),
      marks_pieces_(seed % 3 == 1) {
    cut_every_ = random_.chance(10) ? random_.between(10, 60) : random_.between(150, 1500);
    keeps_space_ = random_.chance(30);
    disk_fails_ = random_.chance(20);
    constexpr std::array<uint64_t, 4> sizes = {0, page_size, 4 * page_size, 0};
    atomic_max_ = sizes[seed % sizes.size()];
    records_losses_ = seed % 5 == 0;
    fills_ = random_.chance(10);
}

std::string CrashRun::run() {
    const uint64_t slab_count = random_.between(4, 10);
    const uint64_t journal_size = journal_size_min * (random_.chance(35) ? 12 : random_.chance(70) ? 1 : 2);
    const StoreGeometry geometry{.slab_count = slab_count, .journal_size = journal_size};
    layout_ = StoreLayout::of(geometry);
    const StoreFormat format{.identity = store_identity,
                             .store = {static_cast<uint8_t>(random_.next()), 7},
                             .size_bytes = layout_.end,
                             .journal_size = journal_size};
    auto disk = std::make_unique<Disk>(Image(format.size_bytes), random_.next(), false);
    disk->atomic_max = atomic_max_;
    if (!Store::format_device(*disk, format)) return "format failed";
    if (random_.chance(50)) start_journal_late(*disk, journal_size);

    const uint64_t lives = random_.between(2, 5);
    for (uint64_t life_number = 0; life_number < lives && failure_.empty(); ++life_number) {
        disk_ = disk.get();
        disk_->faults = {};
        std::pair<Disk*, uint64_t> driven(disk_, 0);
        loop_.set_idle_hook(complete_one, &driven);
        loop_.run_until_done(begin_turns(loop_));
        earlier_.reset();
        if (life_number > 0 && records_losses_ && random_.chance(50)) make_format_2();
        disk_->on_operation = [this] { on_operation(); };
        Result<std::unique_ptr<Store>> opened = loop_.run_until_done(
            Store::open(loop_, std::make_unique<DiskHandle>(*disk_), store_identity, {.upgrade = true}));
        upgrading_ = false;
        if (!opened) {
            loop_.set_idle_hook(nullptr, nullptr);
            return fmt::format("open failed: {}", opened.error().where);
        }
        std::unique_ptr<Store> store = std::move(*opened);
        bool readable = true;
        const auto found = read_all(loop_, *store, readable);
        if (!readable && failure_.empty()) fail("a page cannot be read after a restart");
        if (std::string wrong = model_.check(found); !wrong.empty()) fail("after a restart: " + wrong);
        if (failure_.empty()) check_books(*store, found);
        if (failure_.empty()) check_losses(*store);
        if (failure_.empty()) check_marks(*store);
        model_.restart(found);
        // What the store reported to have found, it must find again.
        if (failure_.empty()) check_image(disk_->cut(cuts_), {});
        begun_ = disk_->copy();
        if (disk_fails_ && random_.chance(60))
            disk_->faults = {.read = static_cast<unsigned>(random_.below(20)),
                             .write = static_cast<unsigned>(random_.below(30)),
                             .flush = static_cast<unsigned>(random_.below(400))};
        if (random_.chance(70)) dies_in_ = random_.below(1000);
        fills_in_ = fills_ && random_.chance(60) ? random_.below(400) : UINT64_MAX;
        store_ = store.get();
        if (failure_.empty()) loop_.run_until_done(life(*store));
        if (failure_.empty() && disk_->full()) check_full(*store);
        if (failure_.empty() && !died_ && !disk_->full() && random_.chance(60)) check_at_rest(*store);
        store_ = nullptr;
        const JournalStatus status = store->journal_status();
        counts_.checkpoints += status.checkpoints;
        counts_.waits += status.waits;
        counts_.failed_disks += store->failure() ? 1 : 0;
        // The end of this life: the next one starts with the rest of the disk.
        const bool orderly = random_.chance(10) && !store->failure() && !died_;
        if (orderly && !loop_.run_until_done(store->close(loop_)) && !may_fail()) fail("close failed");
        const bool only_the_process = !died_ && random_.chance(40);
        Image left = died_ ? std::move(*died_) : disk_->cut(cuts_);
        died_.reset();
        dies_in_ = UINT64_MAX;
        disk_->on_operation = nullptr;
        disk_->give_space();
        if (failure_.empty()) check_copied_while_running();
        if (!only_the_process) disk_->die();
        loop_.run_until_done(store->settle(loop_));
        loop_.set_idle_hook(nullptr, nullptr);
        store.reset();
        hash_ = mix64(hash_ ^ disk_->hash());
        if (failure_.empty() && random_.chance(50)) check_spoiled(Image(left), model_, false);
        if (failure_.empty() && random_.chance(50)) check_lies(Image(left));
        if (only_the_process) continue;
        counts_.operations += disk_->operation_count();
        disk_ = nullptr;
        disk = std::make_unique<Disk>(std::move(left), random_.next(), false);
        disk->atomic_max = atomic_max_;
    }
    return failure_;
}

// Clients work concurrently. The last of them ends the life in the middle of the others' work.
Task<> CrashRun::life(Store& store) {
    Gate clients;
    const uint64_t steps = random_.between(5, 100);
    for (VolumeId volume = 1; volume <= client_count; ++volume) clients.spawn(client(store, volume, steps));
    co_await clients.close();
}

Task<> CrashRun::client(Store& store, VolumeId volume, uint64_t steps) {
    for (uint64_t i = 0; i < steps && failure_.empty() && !died_; ++i) {
        for (uint64_t yields = random_.below(4); yields > 0; --yields) co_await Yield(loop_);
        co_await step(store, volume);
    }
}

Task<> CrashRun::step(Store& store, VolumeId volume) {
    if (marks_pieces_ && marks_.chance(15)) co_await mark_or_unmark(store);
    unsigned sum = 0;
    for (const unsigned weight : habits_.weights) sum += weight;
    uint64_t dice = random_.below(sum);
    size_t kind = 0;
    for (; dice >= habits_.weights[kind]; ++kind) dice -= habits_.weights[kind];
    switch (kind) {
        case 0:
            if (random_.chance(10)) store.catch_up(loop_);
            co_return co_await (records_losses_ && random_.chance(15) ? record_loss(store) : flush(store));
        case 1: co_return co_await write_some(store, volume);
        case 2: {
            const uint64_t count = random_.between(16, 60);
            co_return co_await write_run(store, volume, random_.below(pages_per_client - count), count);
        }
        case 3: co_return co_await write_group(store, volume);
        case 4: co_return co_await zero_some(store, volume);
        case 5: co_return co_await replace_some(store, volume);
        default: co_return co_await read_some(store, volume);
    }
}

// The sectors changed since the store last took the page, as a cache would know them.
DirtyMask CrashRun::draw_dirty(PageId page) {
    auto drawn = static_cast<DirtyMask>(random_.between(1, 255));
    if (random_.chance(habits_.whole_percent))
        drawn = all_sectors;
    else if (random_.chance(60))
        drawn = static_cast<DirtyMask>(1u << random_.below(sectors_per_page));
    return model_.newest(page).completed_at == UINT64_MAX ? all_sectors : drawn;
}

// New numbers for these sectors; the others stay.
Contents CrashRun::change(PageId page, DirtyMask dirty) {
    Contents contents = model_.newest(page).contents;
    for (unsigned sector = 0; sector < sectors_per_page; ++sector)
        if ((dirty >> sector & 1) != 0) contents[sector] = next_value_++;
    return contents;
}

Task<> CrashRun::write_batch(Store& store, const Batch& batch) {
    const Result<> written = co_await store.write(loop_, batch.writes);
    ++counts_.changes;
    if (!written && written.error().code == Errc::no_space) {
        ++counts_.no_space;
        co_return;
    }
    if (!written && !may_fail()) fail(fmt::format("write failed: {}", written.error().where));
    for (size_t i = 0; written && i < batch.writes.size(); ++i)
        model_.complete(batch.writes[i].page, batch.versions[i]);
}

Task<> CrashRun::write_some(Store& store, VolumeId volume) {
    const uint64_t count = random_.between(1, 6);
    Batch batch(count);
    const uint64_t first = random_.below(std::min(habits_.pages, pages_per_client - count * 3));
    for (uint64_t i = 0, at = first; i < count; ++i, at += random_.between(1, 3)) {
        const PageId page = PageId::of(volume, at);
        const DirtyMask dirty = draw_dirty(page);
        const Tenure tenure = next_value_++;
        const Contents contents = change(page, dirty);
        batch.add(page, contents, tenure, dirty, model_.begin(page, contents, tenure));
    }
    co_await write_batch(store, batch);
}

Task<> CrashRun::write_run(Store& store, VolumeId volume, uint64_t first, uint64_t count) {
    Batch batch(count);
    for (uint64_t i = 0; i < count; ++i) {
        const PageId page = PageId::of(volume, first + i);
        const Tenure tenure = next_value_++;
        const Contents contents = change(page, all_sectors);
        batch.add(page, contents, tenure, all_sectors, model_.begin(page, contents, tenure));
    }
    co_await write_batch(store, batch);
}

Task<> CrashRun::write_group(Store& store, VolumeId volume) {
    const uint64_t count = random_.between(2, std::min<uint64_t>(24, store.group_pages_max()));
    const uint64_t stride = std::min(habits_.pages, pages_per_client) / count;
    Batch batch(count);
    Model::Group group;
    for (uint64_t i = 0; i < count; ++i) {
        const PageId page = PageId::of(volume, i * stride + random_.below(stride));
        const DirtyMask dirty = draw_dirty(page);
        const Tenure tenure = next_value_++;
        const Contents contents = change(page, dirty);
        batch.add(page, contents, tenure, dirty, model_.begin(page, contents, tenure));
        group.members.emplace_back(page.value, batch.versions.back());
    }
    model_.add_group(group);
    const Result<> written = co_await store.write(loop_, batch.writes, Atomicity::group);
    ++counts_.groups;
    if (!written) model_.forget_group(group);
    if (!written && !may_fail() && written.error().code != Errc::no_space)
        fail(fmt::format("write of a group failed: {}", written.error().where));
    for (size_t i = 0; written && i < count; ++i) model_.complete(batch.writes[i].page, batch.versions[i]);
}

Task<> CrashRun::zero_some(Store& store, VolumeId volume) {
    if (random_.chance(35)) return zero(store, volume, 0, pages_per_client);
    const uint64_t first = random_.below(pages_per_client);
    return zero(store, volume, first, random_.between(1, std::min<uint64_t>(400, pages_per_client - first)));
}

// The old pages are trimmed, durably or not, and new ones take their place at once.
Task<> CrashRun::replace_some(Store& store, VolumeId volume) {
    const uint64_t count = random_.between(16, 60);
    const uint64_t first = random_.below(std::min(habits_.pages, pages_per_client - count));
    co_await zero(store, volume, first, count);
    if (random_.chance(80)) co_await flush(store);
    co_await write_run(store, volume, first, count);
}

Task<> CrashRun::zero(Store& store, VolumeId volume, uint64_t first, uint64_t count) {
    return zero(store, volume, first, count, keeps_space_ && random_.chance(30));
}

Task<> CrashRun::zero(Store& store, VolumeId volume, uint64_t first, uint64_t count, bool keep_space) {
    const bool whole = count == pages_per_client;
    std::vector<std::pair<PageId, size_t>> versions;
    for (uint64_t i = 0; i < count; ++i) {
        const PageId page = PageId::of(volume, first + i);
        if (model_.pages().contains(page.value)) versions.emplace_back(page, model_.begin(page, {}, 0));
    }
    Result<> zeroed;
    if (whole)
        zeroed = co_await store.drop_volume(loop_, volume);
    else
        zeroed = co_await store.zero(loop_, PageId::of(volume, first), count, keep_space);
    ++counts_.changes;
    if (!zeroed && !may_fail()) fail(fmt::format("zero failed: {}", zeroed.error().where));
    if (!zeroed) co_return;
    for (const auto& [page, version] : versions) model_.complete(page, version);
}

Task<> CrashRun::flush(Store& store) {
    const uint64_t moment = model_.moment();
    const Result<> flushed = co_await store.flush(loop_);
    ++counts_.flushes;
    if (flushed) model_.durable(moment);
    if (!flushed && !may_fail()) fail(fmt::format("flush failed: {}", flushed.error().where));
}

// No page twice, so that losses can be told apart.
Task<> CrashRun::record_loss(Store& store) {
    std::vector<Loss> losses;
    // Sometimes more than fit in a sector, and never more than are kept separate.
    const bool many = random_.chance(40) && losses_begun_.size() < losses_max / 2;
    for (uint64_t left = many ? random_.between(10, 200) : random_.between(1, 3); left > 0; --left) {
        // Among those that are there, so that the list changes in the middle.
        uint64_t scattered = 0;
        for (unsigned bit = 0; bit < 16; ++bit) scattered |= (losses_begun_.size() >> bit & 1) << (16 - bit);
        const PageId page = PageId::of(9, scattered);
        losses.push_back({.first = page, .last = page, .page_count = 1, .at_ns = 1, .host = 2});
        losses_begun_.push_back(losses.back());
    }
    const Result<uint32_t> recorded = co_await store.record_losses(loop_, losses);
    ++counts_.losses;
    if (!recorded) {
        if (!may_fail()) fail(fmt::format("a loss was not recorded: {}", recorded.error().where));
        co_return;
    }
    for (Loss& loss : losses) {
        loss.generation = *recorded;
        losses_recorded_.push_back(loss);
    }
}

// Some in a row, and some that lie in one block.
Task<> CrashRun::mark_or_unmark(Store& store) {
    if (!marked_.empty() && marks_.chance(30)) {
        auto piece = marked_.begin();
        std::advance(piece, static_cast<long>(marks_.below(marked_.size())));
        if (!store.begin_unmark(*piece)) co_return;
        store.end_unmark(*piece, true);
        marked_.erase(piece);
        if (marks_.chance(50)) (void)co_await store.write_marks(loop_);
        co_return;
    }
    std::vector<PageId> pieces;
    for (uint64_t left = marks_.between(1, 3); left > 0; --left)
        pieces.push_back(PageId::of(static_cast<VolumeId>(marks_.between(1, 40)), marks_.below(100) * piece_pages));
    const Result<> marked = co_await store.mark(loop_, pieces);
    ++counts_.marks;
    if (marked)
        marked_.insert(pieces.begin(), pieces.end());
    else if (!may_fail())
        fail(fmt::format("a piece was not marked: {}", marked.error().where));
}

void CrashRun::make_format_2() {
    const PageBuffer buffer = make_page_buffer(loss_list_size_max / page_size);
    const std::span<std::byte> list(buffer.get(), loss_list_size_max);
    const BlockBytes block(list.first(page_size));
    const Result<Superblock> superblock = read_superblock(*disk_);
    if (!superblock) return fail(fmt::format("no superblock: {}", superblock.error().where));
    std::memset(list.data(), 0xee, list.size());
    bool written = true;
    for (const uint64_t offset : loss_list_offsets) written &= disk_->write_now(list, offset).has_value();
    for (const uint64_t offset : marks_offsets) written &= disk_->write_now(list.first(page_size), offset).has_value();
    Superblock old = *superblock;
    old.has_marks = false;
    encode_superblock(old, block, store_format_upgradable);
    for (const uint64_t offset : StoreLayout::superblock_offsets)
        written &= disk_->write_now(block, offset).has_value();
    if (!written || !disk_->flush_now()) fail("the disk fails before its time");
    losses_begun_.clear();
    losses_recorded_.clear();
    upgrading_ = true;
    ++counts_.upgrades;
}

Task<> CrashRun::read_some(Store& store, VolumeId volume) {
    const uint64_t count = random_.between(1, 20);
    const uint64_t first = random_.below(pages_per_client - count);
    const PageBuffer buffer = make_page_buffer(count);
    std::vector<std::byte*> into;
    for (uint64_t i = 0; i < count; ++i) into.push_back(buffer.get() + i * page_size);
    const Result<> read = co_await store.read_run(loop_, PageId::of(volume, first), into);
    if (!read) {
        if (!may_fail() || read.error().code != Errc::io) fail(fmt::format("read failed: {}", read.error().where));
        co_return;
    }
    for (uint64_t i = 0; i < count; ++i) {
        const PageId page = PageId::of(volume, first + i);
        const auto known = model_.pages().find(page.value);
        Contents contents{};
        if (!decode(page, into[i], contents))
            fail(fmt::format("volume {} page {} reads as garbage", volume, first + i));
        // After a failed write it may be old or new.
        const auto fits = [&](const Version& version) { return version.contents == contents; };
        if (known == model_.pages().end()                     ? contents != Contents{}
            : known->second.back().completed_at != UINT64_MAX ? !fits(known->second.back())
                                                              : std::ranges::none_of(known->second, fits))
            fail(fmt::format("volume {} page {} does not read as it was written", volume, first + i));
    }
}

}  // namespace tarn::store_sim
