// Store's own blocks on the device: format, open and the rounds of flush.
#include <fcntl.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "tiers/nvme/store.hpp"
#include "utils/assert.hpp"

namespace tarn {

namespace {

// Table blocks per write: what one round encodes at most before it goes on to the next.
constexpr uint64_t scratch_block_count = 256;
// How much of a file must be zero before format takes it for an empty one.
constexpr uint64_t probe_size_bytes = uint64_t{1} << 20;

BlockBytes block_at(std::span<std::byte> bytes, uint64_t block) {
    return BlockBytes(bytes.subspan(block * page_size, page_size));
}

Result<bool> is_empty(const StoreFile& file, std::span<std::byte> scratch) {
    const std::span<std::byte> bytes = scratch.first(std::min({scratch.size(), probe_size_bytes, file.size_bytes()}));
    TRY_VOID(file.read(bytes.first(bytes.size() / page_size * page_size), 0));
    return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

// From the table to the superblocks: a format that was cut short leaves no store.
Result<> write_empty_store(const StoreFile& file, const Superblock& superblock, std::span<std::byte> scratch) {
    const StoreLayout layout = StoreLayout::of(superblock.slab_count);
    std::ranges::fill(block_at(scratch, 0), std::byte{0});
    for (const uint64_t offset : StoreLayout::superblock_offsets) TRY_VOID(file.write(block_at(scratch, 0), offset));
    TRY_VOID(file.sync());
    for (uint32_t place = 0; place < 2; ++place) {
        for (uint64_t block = 0; block < layout.table_block_count; block += scratch_block_count) {
            const uint64_t count = std::min(scratch_block_count, layout.table_block_count - block);
            for (uint64_t i = 0; i < count; ++i)
                SlabTable::encode_empty_block(superblock.store, block + i, place, block_at(scratch, i));
            TRY_VOID(file.write(scratch.first(count * page_size), layout.table_offsets[place] + block * page_size));
        }
    }
    TRY_VOID(file.sync());
    encode_superblock(superblock, block_at(scratch, 0));
    for (const uint64_t offset : StoreLayout::superblock_offsets) TRY_VOID(file.write(block_at(scratch, 0), offset));
    return file.sync();
}

// Without it a power cut may take the name of the new file.
Result<> sync_directory_of(const std::string& path) {
    const std::string directory = std::filesystem::path(path).parent_path().string();
    const UniqueFd fd(::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd || ::fsync(fd.get()) != 0) return fail(Errc::io, errno, "store.format: fsync of the directory");
    return {};
}

Result<> format_file(StoreFile& file, uint64_t size_bytes, const StoreIdentity& identity, bool force) {
    TRY(const Mapping scratch, Mapping::create(scratch_block_count * page_size));
    if (size_bytes == 0) size_bytes = file.size_bytes();
    const uint64_t slab_count = StoreLayout::slab_count_for(size_bytes);
    if (slab_count == 0) return fail(Errc::invalid, 0, "store.format: too small for a store");
    if (!force) {
        TRY(const bool empty, is_empty(file, scratch.bytes()));
        if (!empty) return fail(Errc::exists, 0, "store.format: something is stored there already");
    }
    TRY_VOID(file.set_size(size_bytes));
    Superblock superblock{.identity = identity, .slab_count = slab_count, .generation = 1};
    if (::getrandom(superblock.store.data(), superblock.store.size(), 0) !=
        static_cast<ssize_t>(superblock.store.size()))
        return fail(Errc::io, errno, "store.format: getrandom");
    return write_empty_store(file, superblock, scratch.bytes());
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

}  // namespace

Store::Store(StoreFile file, const Superblock& superblock)
    : file_(std::move(file)),
      superblock_(superblock),
      layout_(StoreLayout::of(superblock.slab_count)),
      loss_generation_(superblock.loss_generation),
      table_(superblock.store, superblock.slab_count) {}

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

Task<Result<std::unique_ptr<Store>>> Store::open(Loop& loop, std::string path, StoreIdentity expected) {
    CO_TRY(StoreFile file, co_await open_patiently(loop, path));
    CO_TRY(Mapping scratch, Mapping::create(scratch_block_count * page_size));
    const std::span<std::byte> bytes = scratch.bytes();
    if (file.size_bytes() < StoreLayout::of(1).end)
        co_return fail(Errc::invalid, 0, "store.open: too small for a store");
    std::array<Result<Superblock>, 2> copies;
    for (size_t i = 0; i < copies.size(); ++i) {
        CO_TRY_VOID(file.read(block_at(bytes, 0), StoreLayout::superblock_offsets[i]));
        copies[i] = decode_superblock(block_at(bytes, 0));
    }
    CO_TRY(Superblock superblock, choose_superblock(copies[0], copies[1]));
    if (superblock.identity.cluster != expected.cluster)
        co_return fail(Errc::refused, 0, "store.open: the store of another cluster");
    if (superblock.identity.host != expected.host)
        co_return fail(Errc::refused, 0, "store.open: the store of another host");
    if (StoreLayout::of(superblock.slab_count).end > file.size_bytes())
        co_return fail(Errc::corrupt, 0, "store.open: shorter than its superblock says");
    if (superblock.home_epoch == home_epoch_max) co_return fail(Errc::corrupt, 0, "store.open: home epoch at its end");
    ++superblock.home_epoch;

    std::unique_ptr<Store> store(new Store(std::move(file), superblock));
    store->scratch_ = std::move(scratch);
    CO_TRY_VOID(co_await store->load_table(loop));
    CO_TRY_VOID(co_await store->write_superblock(loop));
    co_return store;
}

Task<Result<>> Store::load_table(Loop& loop) {
    constexpr uint64_t chunk_block_count = scratch_block_count / 2;
    const std::span<std::byte> bytes = scratch_.bytes();
    for (uint64_t block = 0; block < layout_.table_block_count; block += chunk_block_count) {
        const uint64_t count = std::min(chunk_block_count, layout_.table_block_count - block);
        Transfer transfer(Transfer::Direction::read);
        for (size_t place = 0; place < 2; ++place)
            transfer.add(layout_.table_offsets[place] + block * page_size,
                         bytes.data() + place * chunk_block_count * page_size, count * page_size);
        CO_TRY_VOID(co_await transfer.run(loop, file_.fd()));
        for (uint64_t i = 0; i < count; ++i)
            CO_TRY_VOID(table_.load_block(block + i, block_at(bytes, i), block_at(bytes, chunk_block_count + i)));
    }
    co_return table_.finish_load();
}

// One copy after the other: at any instant one of them is whole.
Task<Result<>> Store::write_superblock(Loop& loop) {
    superblock_.loss_generation = loss_generation_.load(std::memory_order_relaxed);
    ++superblock_.generation;
    encode_superblock(superblock_, block_at(scratch_.bytes(), 0));
    for (const uint64_t offset : StoreLayout::superblock_offsets) {
        Transfer transfer(Transfer::Direction::write);
        transfer.add(offset, scratch_.bytes().data(), page_size);
        CO_TRY_VOID(co_await transfer.run(loop, file_.fd()));
        CO_TRY_VOID(co_await loop.fdatasync(file_.fd()));
    }
    co_return Result<>{};
}

Task<Result<>> Store::raise_loss_generation(Loop& loop) {
    loss_generation_.fetch_add(1, std::memory_order_relaxed);
    return flush(loop);
}

Task<Result<>> Store::flush(Loop& loop) {
    GroupCommit::Join join(flushes_, loop);
    if (!co_await join) co_return join.result();
    flushes_.begin();
    Result<> result;
    if (const std::optional<Error> failed = failure())
        result = fail(*failed);
    else
        result = co_await run_flush_round(loop);
    if (!result) {
        const std::lock_guard lock(mutex_);
        failure_ = result.error();
    }
    flushes_.finish(result);
    co_return result;
}

// The bytes are durable before the table that points to them is written. The table is encoded before the first
// barrier: it must not point to a page that was written after it.
Task<Result<>> Store::run_flush_round(Loop& loop) {
    size_t blocks_left = 0;
    uint64_t writes = 0;
    bool writes_are_durable = false;
    {
        const std::lock_guard lock(mutex_);
        blocks_left = table_.changed_block_count();
        writes = writes_;
        writes_are_durable = writes_ == durable_writes_;
    }
    while (blocks_left > 0) {
        SlabTable::Changes changes;
        {
            const std::lock_guard lock(mutex_);
            changes = table_.encode_changes(scratch_.bytes());
        }
        blocks_left -= std::min(blocks_left, changes.blocks.size());
        CO_TRY_VOID(co_await loop.fdatasync(file_.fd()));
        CO_TRY_VOID(co_await write_table(loop, changes));
        CO_TRY_VOID(co_await loop.fdatasync(file_.fd()));
        writes_are_durable = true;
        const std::lock_guard lock(mutex_);
        table_.changes_are_durable(changes);
    }
    if (!writes_are_durable) CO_TRY_VOID(co_await loop.fdatasync(file_.fd()));
    if (superblock_.loss_generation != loss_generation()) CO_TRY_VOID(co_await write_superblock(loop));
    const std::lock_guard lock(mutex_);
    durable_writes_ = std::max(durable_writes_, writes);
    co_return Result<>{};
}

Task<Result<>> Store::write_table(Loop& loop, const SlabTable::Changes& changes) {
    Transfer transfer(Transfer::Direction::write);
    for (size_t i = 0; i < changes.blocks.size(); ++i)
        transfer.add(layout_.table_offsets[changes.blocks[i].place] + changes.blocks[i].index * page_size,
                     scratch_.bytes().data() + i * page_size, page_size);
    co_return co_await transfer.run(loop, file_.fd());
}

}  // namespace tarn
