#include "tiers/dram/arena.hpp"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <new>

#include "utils/assert.hpp"
#include "utils/file_text.hpp"

namespace tarn {

namespace {

constexpr size_t huge_page_size = 2 << 20;

// Gives new memory its pages: huge ones as far as there are some, also where the machine makes none by itself of memory
// that processes share. A gain, not a need: the rest has no pages yet.
void make_huge(std::span<std::byte> memory) {
    constexpr int collapse = 25;  // MADV_COLLAPSE, which the C library does not have yet
    if (text_of("/sys/kernel/mm/transparent_hugepage/enabled").contains("[never]")) return;
    const size_t whole_bytes = memory.size() / huge_page_size * huge_page_size;
    // The kernel passes over a range that has no page at all.
    for (size_t at = 0; at < whole_bytes; at += huge_page_size) ::madvise(&memory[at], page_size, MADV_POPULATE_WRITE);
    ::madvise(memory.data(), whole_bytes, collapse);
}

}  // namespace

size_t Arena::frames_offset(size_t frame_count) {
    return round_up(records_offset + frame_count * sizeof(FrameRecord), alignof(Frame));
}

size_t Arena::bytes_offset(size_t frame_count) {
    // A small pool has no use for huge pages.
    const size_t alignment = frame_count * page_size >= 16 * huge_page_size ? huge_page_size : page_size;
    return round_up(frames_offset(frame_count) + frame_count * sizeof(Frame), alignment);
}

// bytes_behind: of what comes behind the pages' bytes.
Result<> Arena::map(size_t frame_count, size_t bytes_behind, const Nodes& nodes) {
    frame_count_ = frame_count;
    TRY(mapping_, Mapping::create_aligned(landing_offset(frame_count) + bytes_behind, memfd_.get(), huge_page_size));
    const std::span<std::byte> all = mapping_.bytes();
    ::madvise(all.data(), all.size(), MADV_HUGEPAGE);  // where they are allowed to who asks for them
    for (size_t part = 0; nodes.count() > 1 && part < nodes.count(); ++part) {
        const size_t begin = nodes.begin_of(part, frame_count_);
        const size_t end = nodes.begin_of(part + 1, frame_count_);
        nodes.place(bytes().subspan(begin * page_size, (end - begin) * page_size), part);
    }
    if (!adopted_) make_huge(all);
    // Of an arena that is adopted the pages are there; without this each first access would be a fault of its own.
    if (::madvise(all.data(), all.size(), MADV_POPULATE_WRITE) != 0)
        return fail(Errc::io, errno, "dram.arena: memory is short");
    return {};
}

Result<std::unique_ptr<Arena>> Arena::create(size_t frame_count, const Nodes& nodes, size_t landing_bytes,
                                             size_t clients_bytes) {
    TARN_ASSERT(frame_count > 0 && frame_count < no_frame);
    std::unique_ptr<Arena> arena(new Arena);
    arena->memfd_ = UniqueFd(::memfd_create("tarn-arena", MFD_CLOEXEC));
    if (!arena->memfd_) return fail(Errc::io, errno, "dram.arena: memfd_create");
    const size_t size = landing_offset(frame_count) + landing_bytes + clients_bytes;
    if (::ftruncate(arena->memfd_.get(), static_cast<off_t>(size)) != 0)
        return fail(Errc::io, errno, "dram.arena: ftruncate");
    TRY_VOID(arena->map(frame_count, landing_bytes + clients_bytes, nodes));
    auto* const header = new (arena->at(0)) ArenaHeader;
    header->layout = ArenaHeader::layout_expected;
    header->frame_size = page_size;
    header->frame_count = frame_count;
    header->landing_bytes = landing_bytes;
    header->clients_bytes = clients_bytes;
    for (WriteStage& stage : arena->stages()) new (&stage) WriteStage;
    for (size_t i = 0; i < frame_count; ++i) {
        new (&arena->records()[i]) FrameRecord;
        new (&arena->frames()[i]) Frame;
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
    header->magic = ArenaHeader::magic_expected;
    return arena;
}

Result<std::unique_ptr<Arena>> Arena::adopt(UniqueFd memfd) {
    struct stat status{};
    if (::fstat(memfd.get(), &status) != 0) return fail(Errc::io, errno, "dram.arena: fstat");
    const auto size = static_cast<size_t>(status.st_size);
    if (size < bytes_offset(1)) return fail(Errc::invalid, 0, "dram.arena: too small for an arena");
    size_t frame_count = 0;
    size_t bytes_behind = 0;
    {
        TRY(const Mapping first, Mapping::create(page_size, memfd.get()));
        const auto& header = *reinterpret_cast<const ArenaHeader*>(first.bytes().data());
        const bool is_known =
            header.layout >= ArenaHeader::layout_without_landing && header.layout <= ArenaHeader::layout_expected;
        if (header.magic != ArenaHeader::magic_expected || !is_known || header.frame_size != page_size)
            return fail(Errc::invalid, 0, "dram.arena: of another version, or never finished");
        frame_count = header.frame_count;
        if (header.landing_bytes <= size && header.clients_bytes <= size)
            bytes_behind = header.landing_bytes + header.clients_bytes;
        else
            frame_count = 0;
    }
    if (frame_count == 0 || frame_count >= no_frame || size != landing_offset(frame_count) + bytes_behind)
        return fail(Errc::invalid, 0, "dram.arena: its size is not what its header says");
    std::unique_ptr<Arena> arena(new Arena);
    arena->memfd_ = std::move(memfd);
    arena->adopted_ = true;
    TRY_VOID(arena->map(frame_count, bytes_behind, Nodes()));
    return arena;
}

}  // namespace tarn
