// recovery_load: how long a store takes to open after a crash that left its journal full, as JSON.
//
//   recovery_load --path FILE --fill pages|sectors    makes a store whose journal of 1 GiB is full of such records
//   recovery_load --path FILE                         opens it, and leaves it as it was
//
// pages: each record has a whole page, all of them different ones. sectors: each has one sector, so that there are
// seven times as many, of fewer pages. The file is sparse: only what recovery reads was ever written.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <coroutine>
#include <cstdlib>
#include <string>
#include <vector>

#include "tiers/nvme/device/page_buffer.hpp"
#include "tiers/nvme/device/store_file.hpp"
#include "tiers/nvme/store.hpp"
#include "utils/clock.hpp"

namespace tarn {
namespace {

constexpr uint64_t size_bytes = uint64_t{64} << 30;  // the smallest whose journal is as large as any
constexpr StoreIdentity identity = {.cluster = {}, .host = 0};
constexpr size_t batch_pages = 64;

[[noreturn]] void give_up(const std::string& text) {
    fmt::print(stderr, "recovery_load: {}\n", text);
    std::exit(1);
}

template <class T>
T check(Result<T> result, const char* what) {
    if (!result) give_up(fmt::format("{}: {} at {}", what, to_string(result.error().code), result.error().where));
    if constexpr (!std::is_void_v<T>) return std::move(*result);
}

// What lies behind the journal is never written: checkpoints begin and do not end, so the journal fills up.
class JournalOnly final : public BlockDevice {
  public:
    JournalOnly(StoreFile file, uint64_t journal_end) : file_(std::move(file)), journal_end_(journal_end) {}
    uint64_t size_bytes() const override { return file_.size_bytes(); }
    bool direct() const override { return file_.direct(); }
    Task<Result<>> read(Loop& loop, std::span<const iovec> into, uint64_t offset) override {
        return file_.read(loop, into, offset);
    }
    Task<Result<>> write(Loop& loop, std::span<const iovec> from, uint64_t offset) override {
        if (offset >= journal_end_) co_await std::suspend_always();
        co_return co_await file_.write(loop, from, offset);
    }
    Task<Result<>> flush(Loop& loop) override { return file_.flush(loop); }
    Result<> read_now(std::span<std::byte> into, uint64_t offset) override { return file_.read_now(into, offset); }
    Result<> write_now(std::span<const std::byte> from, uint64_t offset) override {
        return file_.write_now(from, offset);
    }
    Result<> flush_now() override { return file_.flush_now(); }

  private:
    StoreFile file_;
    uint64_t journal_end_;
};

Task<> fill(Loop& loop, Store& store, bool pages) {
    const PageBuffer buffer = make_page_buffer(batch_pages);
    const uint64_t page_count = pages ? size_bytes / page_size / 4 * 3 : 400'000;
    // Room for one batch more, and its header.
    const uint64_t full = store.journal_status().size_bytes - 2 * batch_pages * page_size;
    for (uint64_t written = 0; store.journal_status().used_bytes < full;) {
        std::vector<PageWrite> writes;
        for (size_t i = 0; i < batch_pages; ++i, ++written) {
            std::byte* const bytes = buffer.get() + i * page_size;
            for (size_t at = 0; at < (pages ? page_size : sector_size); at += sizeof written)
                std::memcpy(bytes + at, &written, sizeof written);
            // An odd multiple of another number than a power of two goes round all of them.
            const uint64_t page = written * 1'000'003 % page_count;
            writes.push_back({.page = PageId::of(1, page),
                              .tenure = written + 1,
                              .dirty = pages ? all_sectors : DirtyMask{1},
                              .bytes = bytes});
        }
        check(co_await store.write(loop, writes), "write");
    }
    check(co_await store.flush(loop), "flush");
}

int run(const std::string& path, const std::string& kind) {
    const std::unique_ptr<Loop> loop = check(Loop::create(), "loop");
    if (!kind.empty()) {
        StoreFile file = check(StoreFile::create(path), "create");
        if (::truncate(path.c_str(), size_bytes) != 0) give_up("truncate");
        file = {};
        file = check(StoreFile::open(path), "open");
        const StoreFormat format{.identity = identity, .store = {1}, .size_bytes = size_bytes};
        check(Store::format_device(file, format), "format");
        const uint64_t journal_end = StoreLayout::of(StoreGeometry::of_device(size_bytes)).table_offsets[0];
        auto device = std::make_unique<JournalOnly>(std::move(file), journal_end);
        const std::unique_ptr<Store> store =
            check(loop->run_until_done(Store::open(*loop, std::move(device), identity)), "open");
        loop->run_until_done(fill(*loop, *store, kind == "pages"));
        std::_Exit(0);  // the crash
    }
    Result<StoreFile> file = StoreFile::open(path);
    while (!file && file.error().code == Errc::busy) file = StoreFile::open(path);  // until the dead have let go
    auto device = std::make_unique<StoreFile>(check(std::move(file), "open"));
    const uint64_t start_ns = monotonic_ns();
    const std::unique_ptr<Store> store =
        check(loop->run_until_done(Store::open(*loop, std::move(device), identity)), "open");
    const double seconds = static_cast<double>(monotonic_ns() - start_ns) / 1e9;
    const JournalStatus journal = store->journal_status();
    fmt::print("{{\"seconds\": {:.3f}, \"journal_bytes\": {}, \"used_bytes\": {}, \"stored_bytes\": {}}}\n", seconds,
               journal.size_bytes, journal.used_bytes, store->space().stored_bytes);
    std::fflush(stdout);
    std::_Exit(0);
}

}  // namespace
}  // namespace tarn

int main(int count, char** arguments) {
    std::string path;
    std::string kind;
    for (int i = 1; i + 1 < count; i += 2) {
        const std::string key = arguments[i];
        if (key == "--path")
            path = arguments[i + 1];
        else if (key == "--fill")
            kind = arguments[i + 1];
        else
            tarn::give_up("unknown option " + key);
    }
    if (path.empty() || (!kind.empty() && kind != "pages" && kind != "sectors"))
        tarn::give_up("--path FILE [--fill pages|sectors]");
    return tarn::run(path, kind);
}
