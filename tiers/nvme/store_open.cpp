// Format, open and recovery.
//
// Open takes the slab table as the last checkpoint left it and replays the journal's records on it: in memory only,
// nothing is written but the superblock, and the second place of what is bad in one of two. So a recovery that is cut
// short changes nothing, and what was recovered is what the next one finds.
#include <fcntl.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tiers/nvme/device/store_file.hpp"
#include "tiers/nvme/journal/scan.hpp"
#include "tiers/nvme/store.hpp"
#include "tiers/nvme/store_salvage.hpp"
#include "tiers/nvme/store_upgrade.hpp"
#include "utils/assert.hpp"
#include "utils/clock.hpp"
#include "utils/log.hpp"

namespace tarn {

namespace {

// Blocks per read or write of the table.
constexpr uint64_t scratch_block_count = 256;

BlockBytes block_at(std::span<std::byte> bytes, uint64_t block) {
    return BlockBytes(bytes.subspan(block * page_size, page_size));
}

// Without it a power cut may take the name of the new file.
Result<> sync_directory_of(const std::string& path) {
    const std::string directory = std::filesystem::path(path).parent_path().string();
    const UniqueFd fd(::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd || ::fsync(fd.get()) != 0) return fail(Errc::io, errno, "store.format: fsync of the directory");
    return {};
}

Result<> format_file(StoreFile& file, uint64_t size_bytes, const StoreIdentity& identity, bool force) {
    StoreFormat format{.identity = identity, .size_bytes = size_bytes ? size_bytes : file.size_bytes()};
    format.data_alignment = data_alignment_for(file.optimal_io_size());
    if (StoreGeometry::of_device(format.size_bytes, 0, format.data_alignment).slab_count == 0)
        return fail(Errc::invalid, 0, "store.format: too small for a store");
    if (!force) {
        TRY(const bool blank, file.is_blank());
        if (!blank) return fail(Errc::exists, 0, "store.format: something is stored there already");
    }
    TRY_VOID(file.set_size(format.size_bytes));
    if (::getrandom(format.store.data(), format.store.size(), 0) != static_cast<ssize_t>(format.store.size()))
        return fail(Errc::io, errno, "store.format: getrandom");
    return Store::format_device(file, format);
}

constexpr auto lock_pause = std::chrono::milliseconds(20);
constexpr int lock_attempts_max = 100;

// io_uring gives its references to a file back a while after the process ended (and in the same process: when the ring
// is next entered), and the lock goes with the last one: a daemon that starts right after one was killed must not take
// that for a living one.
Task<Result<StoreFile>> open_patiently(Loop& loop, std::string path) {
    for (int attempt = 1;; ++attempt) {
        Result<StoreFile> file = StoreFile::open(path);
        if (file || file.error().code != Errc::busy || attempt == lock_attempts_max) co_return file;
        co_await loop.sleep(lock_pause);
    }
}

uint64_t journaled_pages_max_of(const StoreGeometry& geometry) {
    return geometry.slab_count * 8 + 1024;
}

}  // namespace

bool has_met_nobody(const Superblock& superblock) {
    return superblock.is_complete && superblock.outdone_by_epoch == 0 &&
           std::ranges::all_of(superblock.heard, [](const StoreStanding& of) { return of.epoch == 0; }) &&
           std::ranges::all_of(superblock.forgotten, [](uint32_t process) { return process == 0; });
}

Store::Store(std::unique_ptr<BlockDevice> device, const Superblock& superblock)
    : device_(std::move(device)),
      superblock_(superblock),
      layout_(StoreLayout::of(superblock.geometry)),
      was_complete_(superblock.is_complete),
      used_before_(superblock.used_epoch != 0 ? superblock.used_epoch : superblock.home_epoch),
      loss_generation_(superblock.loss_generation),
      marks_(superblock.store),
      state_(superblock.store, superblock.geometry.slab_count),
      journal_(superblock.store, superblock.geometry),
      wanted_tail_{.position = superblock.journal_tail, .checksum = superblock.journal_tail_checksum},
      loss_generation_wanted_(superblock.loss_generation),
      journaled_pages_max_(journaled_pages_max_of(superblock.geometry)) {
    for (HostId host = 0; host < hosts_max; ++host) forgotten_[host] = superblock.forgotten[host];
}

Store::~Store() {
    TARN_ASSERT(!checkpointing_);
}

uint64_t Store::books_bytes_max(const StoreGeometry& geometry) {
    const uint64_t records_max = geometry.journal_size / (sizeof(JournalRecord) + sector_size);
    return Journal::staging_size(geometry.journal_size) +
           geometry.slab_count * (SlabTable::bytes_per_slab() + StoreState::bytes_per_slab) +
           std::min<uint64_t>(journaled_pages_max_of(geometry), records_max) * StoreState::bytes_per_journaled_page;
}

Result<> Store::format(const std::string& path, uint64_t size_bytes, const StoreIdentity& identity, bool force) {
    TARN_ASSERT(identity.host < hosts_max);
    TRY(StoreFile file, StoreFile::create(path));
    Result<> formatted = format_file(file, size_bytes, identity, force);
    if (file.made()) {
        if (formatted)
            formatted = sync_directory_of(path);
        else
            ::unlink(path.c_str());
    }
    return formatted;
}

// From the back to the superblocks: a format that was cut short leaves no store. The journal is written with zeros so
// that its later writes change no metadata of the file system, which each flush would have to wait for.
Result<> Store::format_device(BlockDevice& device, const StoreFormat& format) {
    const Superblock superblock{
        .identity = format.identity,
        .store = format.store,
        .geometry = StoreGeometry::of_device(format.size_bytes, format.journal_size, format.data_alignment),
        .generation = 1,
        .is_complete = true};
    if (superblock.geometry.slab_count == 0 || StoreLayout::of(superblock.geometry).end > device.size_bytes())
        return fail(Errc::invalid, 0, "store.format: too small for a store");
    TRY(const Mapping scratch, Mapping::create(scratch_block_count * page_size));
    const std::span<std::byte> bytes = scratch.bytes();
    const StoreLayout layout = StoreLayout::of(superblock.geometry);
    for (const uint64_t offset : StoreLayout::superblock_offsets)
        TRY_VOID(device.write_now(block_at(bytes, 0), offset));
    TRY_VOID(device.flush_now());
    for (uint64_t at = 0; at < superblock.geometry.journal_size; at += bytes.size())
        TRY_VOID(device.write_now(bytes.first(std::min(bytes.size(), superblock.geometry.journal_size - at)),
                                  StoreLayout::journal_offset + at));
    for (uint64_t slab = 0; slab < superblock.geometry.slab_count; slab += scratch_block_count) {
        const uint64_t count = std::min(scratch_block_count, superblock.geometry.slab_count - slab);
        for (uint64_t i = 0; i < count; ++i)
            SlabTable::encode_free(superblock.store, static_cast<SlabIndex>(slab + i), 1, block_at(bytes, i));
        for (const uint64_t offset : layout.table_offsets)
            TRY_VOID(device.write_now(bytes.first(count * page_size), offset + slab * page_size));
    }
    const std::span<std::byte> list = bytes.first(loss_list_size_max);
    for (const uint64_t offset : loss_list_offsets)
        TRY_VOID(device.write_now(encode_losses(superblock.store, {}, list), offset));
    TRY_VOID(device.flush_now());
    encode_superblock(superblock, block_at(bytes, 0));
    for (const uint64_t offset : StoreLayout::superblock_offsets)
        TRY_VOID(device.write_now(block_at(bytes, 0), offset));
    return device.flush_now();
}

Task<Result<std::unique_ptr<Store>>> Store::open(Loop& loop, std::string path, StoreIdentity expected,
                                                 OpenOptions options) {
    CO_TRY(StoreFile file, co_await open_patiently(loop, path));
    if (options.poll_reads) static_cast<void>(file.begin_polling(loop));
    co_return co_await open(loop, std::make_unique<StoreFile>(std::move(file)), expected, options);
}

Task<Result<std::unique_ptr<Store>>> Store::open(Loop& loop, std::unique_ptr<BlockDevice> device,
                                                 StoreIdentity expected, OpenOptions options) {
    return open_with(loop, std::move(device), expected, options, nullptr);
}

Task<Result<std::unique_ptr<Store>>> Store::open_with(Loop& loop, std::unique_ptr<BlockDevice> device,
                                                      StoreIdentity expected, OpenOptions options,
                                                      SalvageReport* report) {
    bool was_upgraded = false;
    if (options.upgrade) {
        CO_TRY(was_upgraded, upgrade_store(*device, expected));
    }
    CO_TRY(Superblock superblock, read_superblock(*device));
    if (superblock.identity.cluster != expected.cluster)
        co_return fail(Errc::refused, 0, "store.open: the store of another cluster");
    const std::unexpected<Error> other_host =
        fail(Errc::refused, 0, "store.open: the store of another host, or of another order of peers");
    const bool has_other_number = superblock.identity.host != expected.host;
    const bool has_name = !text_of(expected.host_name).empty();
    // Under a name that says that it is the same.
    if (has_other_number &&
        !(has_name && superblock.identity.host_name == expected.host_name && has_met_nobody(superblock)))
        co_return other_host;
    if (superblock.outdone_by_epoch != 0 && !options.accept_older && !report)
        co_return fail(Errc::refused, 0,
                       "store.open: another host remembers a newer state of this store, so it was copied back or made "
                       "anew; put the newest one back, or start tarnd once with --accept-older-store, which counts all "
                       "of its pages as lost");
    if (std::max<uint64_t>(superblock.home_epoch, superblock.outdone_by_epoch) == home_epoch_max)
        co_return fail(Errc::corrupt, 0, "store.open: home epoch at its end");

    std::unique_ptr<Store> store(new Store(std::move(device), superblock));
    CO_TRY_VOID(store->journal_.allocate());
    CO_TRY_VOID(store->load_losses());
    CO_TRY_VOID(store->load_marks(superblock.has_marks));
    if (superblock.outdone_by_epoch != 0 && options.accept_older) CO_TRY_VOID(store->accept_as_older());
    CO_TRY_VOID(store->load_table());
    std::vector<PageId> unsure;
    std::unique_ptr<Salvage> salvage = report ? std::make_unique<Salvage>(*store) : nullptr;
    CO_TRY(const bool proven, store->replay(unsure, salvage.get()));
    if (report) *report = salvage->report();
    if (has_other_number) {
        // The list of peers was corrected before there was anything whose home this host could be.
        if (store->space().allocated_bytes != 0 || !store->losses_.losses.empty()) co_return other_host;
        store->superblock_.identity.host = expected.host;
    }
    if (!report) ++store->superblock_.home_epoch;
    store->journal_.start(store->wanted_tail_, store->home_epoch());
    if (!report) store->begin_epoch();
    // Format 2 did not say it; who stopped in order left an empty journal.
    if (was_upgraded) store->was_complete_ = store->journal_.used_bytes() == 0;
    if (!options.use_later) store->note_use();
    if (report) store->superblock_.is_complete = false;
    std::vector<PageId> unwritten;
    CO_TRY_VOID(co_await store->settle_unsure(loop, unsure, unwritten));
    // After a process that was killed, the device may hold what it read to us in its cache only: the flushes of the
    // superblock are that of what was read and rewritten, too.
    CO_TRY_VOID(store->write_superblock_now());
    CO_TRY_VOID(store->rewrite_marks_now());
    if (!proven) {
        if (const Result<> proof = co_await store->prove(loop, unwritten); !proof) {
            static_cast<void>(co_await store->close(loop));  // fails as this did, once nothing is in flight
            co_return fail(proof.error());
        }
    }
    co_return store;
}

// A process that ends before this has changed nothing: neither is what the one before left in memory older than the
// store, nor has anything been lost with memory since that one stopped in order.
void Store::note_use() {
    superblock_.used_epoch = superblock_.home_epoch;
    superblock_.is_complete = false;
}

Task<Result<>> Store::begin_use(Loop& loop) {
    locked([&] { note_use(); });
    want_superblock();
    return flush(loop);
}

// A bad copy is repaired by the other one. Without either everything that this home has counts as lost.
Result<> Store::load_losses() {
    TRY(const Mapping scratch, Mapping::create(loss_list_size_max));
    std::array<Result<LossList>, loss_list_offsets.size()> copies;
    for (size_t i = 0; i < copies.size(); ++i) {
        const Result<> read = device_->read_now(scratch.bytes(), loss_list_offsets[i]);
        copies[i] = read ? decode_losses(superblock_.store, scratch.bytes()) : fail(read.error());
    }
    if (copies[0] && copies[1] && copies[0]->sequence == copies[1]->sequence) {
        losses_ = std::move(*copies[0]);
    } else {
        if (!copies[0] && !copies[1]) {
            log::error(
                "store: both copies of its list of losses are bad: all its pages count as lost, and clients from "
                "before get "
                "I/O errors");
            losses_ = {.sequence = superblock_.generation,
                       .losses = {{.first = {0},
                                   .last = last_page_id,
                                   .at_ns = realtime_ns(),
                                   .generation = static_cast<uint32_t>(superblock_.loss_generation) + 1}}};
        } else {
            const bool first = copies[0] && (!copies[1] || copies[0]->sequence > copies[1]->sequence);
            losses_ = std::move(*copies[first ? 0 : 1]);
        }
        ++losses_.sequence;
        TRY_VOID(write_losses_now());
    }
    losses_written_ = losses_.sequence;
    // They were durable, and the superblock not yet.
    for (const Loss& loss : losses_.losses)
        superblock_.loss_generation = std::max<uint64_t>(superblock_.loss_generation, loss.generation);
    loss_generation_ = loss_generation_wanted_ = superblock_.loss_generation;
    return {};
}

// A store that was stopped in order needs none. One that is older than they are, or whose marks are damaged, has any.
Result<> Store::load_marks(bool has_marks) {
    TRY(const Mapping scratch, Mapping::create(2 * marks_size));
    const std::span<std::byte> bytes = scratch.bytes();
    for (size_t place = 0; place < marks_offsets.size(); ++place) {
        const std::span<std::byte> blocks = bytes.subspan(place * marks_size, marks_size);
        // What cannot be read is as bad as what makes no sense.
        if (!device_->read_now(blocks, marks_offsets[place])) std::ranges::fill(blocks, std::byte{0});
    }
    marks_.load(bytes.first(marks_size), bytes.subspan(marks_size, marks_size));
    if (!has_marks) marks_.begin_everything();
    if (was_complete_) marks_.clear_all();
    if (marks_.is_everything() && !was_complete_)
        log::warning(
            "store: its marks of pages with newer bytes in memory are missing or bad: a loss of memory now counts for "
            "all pages");
    superblock_.has_marks = !marks_.is_everything();
    return {};
}

// After the superblock says that they do not count, if they do not.
Result<> Store::rewrite_marks_now() {
    if (marks_.is_damaged()) {
        TRY(const Mapping scratch, Mapping::create(marks_size));
        for (size_t place = 0; place < marks_offsets.size(); ++place) {
            TRY_VOID(device_->write_now(marks_.encode_all(place, scratch.bytes()), marks_offsets[place]));
            TRY_VOID(device_->flush_now());
        }
        marks_.is_rewritten();
    }
    if (!was_complete_ || !marks_.is_everything()) return {};
    marks_.end_everything();
    ++superblock_wanted_;
    return {};
}

Result<> Store::write_losses_now() {
    TRY(const Mapping scratch, Mapping::create(loss_list_size_max));
    return write_copies_now(*device_, loss_list_offsets, encode_losses(superblock_.store, losses_, scratch.bytes()));
}

Result<> Store::load_table() {
    TRY(const Mapping scratch, Mapping::create(2 * scratch_block_count * page_size));
    const uint64_t slab_count = superblock_.geometry.slab_count;
    for (uint64_t slab = 0; slab < slab_count; slab += scratch_block_count) {
        const uint64_t count = std::min(scratch_block_count, slab_count - slab);
        for (size_t place = 0; place < 2; ++place)
            TRY_VOID(device_->read_now(scratch.bytes().subspan(place * count * page_size, count * page_size),
                                       layout_.table_offsets[place] + slab * page_size));
        for (uint64_t i = 0; i < count; ++i) {
            const auto index = static_cast<SlabIndex>(slab + i);
            TRY(const SlabTable::Loaded loaded,
                state_.table.load(index, block_at(scratch.bytes(), i), block_at(scratch.bytes(), count + i)));
            table_sequence_ = std::max(table_sequence_, loaded.sequence);
            if (loaded.complete) continue;
            // At once: the next checkpoint writes the first place first, and that may be the only good one.
            const size_t bad = 1 - loaded.place;
            TRY_VOID(device_->write_now(block_at(scratch.bytes(), loaded.place * count + i),
                                        layout_.table_offsets[bad] + index * page_size));
        }
    }
    return {};
}

// Whether each batch is followed by one that proves it had been durable. unsure: pages whose writes into place may be
// lost, since nothing proves that a device flush came after them.
Result<bool> Store::replay(std::vector<PageId>& unsure, Salvage* salvage) {
    struct WrittenInPlace {
        uint64_t end;
        PageId page;
        uint32_t count;
    };
    std::vector<WrittenInPlace> in_place;
    const auto visit = [&](const FoundRecord& found) -> Result<> {
        const JournalRecord& record = found.record;
        TRY_VOID(state_.table.replay_take(record.slab, record.page));
        if (salvage && !salvage->admits(found)) return {};
        switch (record.kind) {
            case RecordKind::delta: {
                const JournaledPage* const base =
                    state_.table.present(record.slab, SlabTable::page_in_slab(record.page)) ? state_.find(record.page)
                                                                                            : nullptr;
                // After a hole a record that changes all sectors may follow one that is not there.
                const bool follows_all = salvage && salvage->is_after_hole();
                if (base && !follows_all && (record.flags & JournalRecord::base_is_zeros) == 0 &&
                    (base->checksum != record.base_checksum || base->tenure != record.base_tenure))
                    return fail(Errc::corrupt, 0, "store.journal: a record does not follow the one before");
                state_.on_delta(record, found.payload, found.end);
                break;
            }
            case RecordKind::in_place: {
                std::array<InPlaceEntry, pages_per_slab> entries;
                std::memcpy(entries.data(), found.bytes.data(), record.count * sizeof(InPlaceEntry));
                state_.on_in_place(record, entries, found.end);
                if ((record.flags & JournalRecord::moved) == 0)
                    in_place.push_back({.end = found.end, .page = record.page, .count = record.count});
                break;
            }
            case RecordKind::clear: state_.on_clear(record, found.end); break;
        }
        return {};
    };
    TRY(const JournalScan scan, scan_journal(*device_, superblock_, visit, salvage));
    for (const Journal::Boundary& boundary : scan.boundaries) journal_.found(boundary);
    state_.table.finish_load();
    TRY_VOID(rewrite_journal(scan.closed, scan.end));
    for (const WrittenInPlace& run : in_place)
        if (run.end > scan.closed)
            for (uint32_t i = 0; i < run.count; ++i) unsure.push_back({run.page.value + i});
    return scan.closed >= scan.end;
}

// A flush that failed before the restart may have left bytes in a cache that reads them to us, and will never write
// them. Written again they are like any other.
Result<> Store::rewrite_journal(uint64_t from, uint64_t end) {
    if (from >= end) return {};
    TRY(const Mapping scratch, Mapping::create(scratch_block_count * page_size));
    while (from < end) {
        const uint64_t size = std::min({end - from, journal_.until_wrap(from), uint64_t{scratch.bytes().size()}});
        TRY_VOID(device_->read_now(scratch.bytes().first(size), journal_.device_offset(from)));
        TRY_VOID(device_->write_now(scratch.bytes().first(size), journal_.device_offset(from)));
        from += size;
    }
    return {};
}

// Of the last round before the end only the journal may have reached the device: pages that do not match were never
// written, and nobody was told that they were. The others are written again, as the journal was.
Task<Result<>> Store::settle_unsure(Loop& loop, std::span<const PageId> unsure, std::vector<PageId>& unwritten) {
    const PageBuffer buffer = make_page_buffer(1);
    const BlockBytes bytes(buffer.get(), page_size);
    for (const PageId page : unsure) {
        const auto slab = state_.table.find(page.volume(), SlabTable::slab_number(page));
        if (!slab || !state_.table.present(*slab, SlabTable::page_in_slab(page))) continue;
        const PageLoader::Source source = source_of(page, *slab);
        PageLoader loader;
        loader.add(source, journal_, buffer.get());
        CO_TRY_VOID(co_await loader.run(loop, *device_));
        if (!loader.matches(0)) {
            unwritten.push_back(page);
            continue;
        }
        CO_TRY_VOID(device_->read_now(bytes, source.place));
        CO_TRY_VOID(device_->write_now(bytes, source.place));
    }
    co_return Result<>{};
}

// What was never written must be said in the journal, before what follows there proves that it had been durable. And
// something must follow: from here on a page that does not match is a fault of the media, not one that was not written,
// and a batch that is not whole is no end.
Task<Result<>> Store::prove(Loop& loop, std::span<const PageId> unwritten) {
    for (const PageId page : unwritten)
        if (const auto slab = state_.table.find(page.volume(), SlabTable::slab_number(page)))
            CO_TRY_VOID(co_await clear(loop, *slab, page, 1, Cleared::free));
    for (;;) {
        CO_TRY_VOID(co_await wait_for_room(loop, sizeof(JournalRecord)));
        const std::lock_guard lock(mutex_);
        if (!has_room(sizeof(JournalRecord))) continue;
        journal_.append_nothing();
        break;
    }
    co_return co_await flush(loop);
}

Result<> Store::write_superblock_now() {
    TRY(const Mapping scratch, Mapping::create(page_size));
    const BlockBytes block(scratch.bytes());
    ++superblock_.generation;
    encode_superblock(superblock_, block);
    return write_copies_now(*device_, StoreLayout::superblock_offsets, block);
}

}  // namespace tarn
