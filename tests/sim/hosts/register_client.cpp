#include "tests/sim/hosts/register_client.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tarn::hosts_sim {

namespace {

constexpr uint64_t flushed_bytes = uint64_t{256} << 20;
constexpr size_t looked_at_max = 64;  // pages; of more every host looks at others

}  // namespace

RegisterClient::Range RegisterClient::draw_pages(size_t count_max) {
    const size_t page = world_.random().below(registers_.page_count());
    const size_t count = registers_.run_of(page, world_.random().between(1, count_max));
    const uint64_t first_byte = registers_.number_of(page) * page_size;
    return {.page = page, .page_count = count, .first_byte = first_byte, .end_byte = first_byte + count * page_size};
}

// As a rule a few, now and then more than the frames that are free.
size_t RegisterClient::draw_length(size_t usual) {
    const uint64_t what = world_.random().below(100);
    return what < 10 ? 64 : what < 25 ? 8 : usual;
}

// Whole ones: the rest of a sector belongs to it.
RegisterClient::Range RegisterClient::draw_sectors() {
    Range range = draw_pages(2);
    constexpr uint64_t sectors = page_size / sector_size;
    range.first_byte += world_.random().below(sectors) * sector_size;
    const uint64_t last = range.end_byte - sector_size;
    range.end_byte -= std::min(world_.random().below(sectors) * sector_size, last - range.first_byte);
    return range;
}

Task<bool> RegisterClient::step(CachedVolume& volume) {
    const uint64_t what = world_.random().below(100);
    if (what < 6) co_return co_await flush(volume, world_.random().chance(50));
    if (what < 12) co_return co_await zero(volume, world_.random().chance(50) ? draw_sectors() : draw_pages(4));
    if (what < 16) co_return co_await write(volume, draw_sectors(), true);
    if (what < 40) co_return co_await write(volume, draw_sectors(), false);
    if (what < 50) co_return co_await write(volume, draw_pages(draw_length(6)), false);
    co_return co_await read(volume, draw_pages(draw_length(1)));
}

Task<bool> RegisterClient::look(CachedVolume& volume) {
    const size_t stride = std::max<size_t>(1, registers_.page_count() / looked_at_max);
    for (size_t page = host_.id() % stride; page < registers_.page_count(); page += stride) {
        const uint64_t first_byte = registers_.number_of(page) * page_size;
        const bool good = co_await read(
            volume, {.page = page, .page_count = 1, .first_byte = first_byte, .end_byte = first_byte + page_size});
        if (!good && hears() && world_.disks_are_good())
            world_.fail(fmt::format("page {} cannot be read, and no disk has failed", registers_.number_of(page)));
    }
    co_return co_await flush(volume, true);
}

// As NBD answers a read: from the frames, which stay for one system call.
Task<Result<>> RegisterClient::read_pinned(CachedVolume& volume, const Range& range, std::span<std::byte> into) {
    CO_TRY_VOID(co_await volume.fetch(range.first_byte, into.size()));
    std::vector<Pin> pins;
    if (!volume.try_pin(range.first_byte, static_cast<uint32_t>(into.size()), pins))
        co_return co_await volume.read(range.first_byte, into);
    for (std::byte* at = into.data(); const Pin& pin : pins) {
        std::memcpy(at, pin.bytes, pin.size_bytes);
        at += pin.size_bytes;
    }
    volume.unpin(pins);
    co_return Result<>{};
}

Task<bool> RegisterClient::read(CachedVolume& volume, const Range& range) {
    constexpr size_t page_words = page_size / sizeof(uint64_t);
    std::vector<uint64_t> words(range.page_count * page_words);
    const auto bytes = std::as_writable_bytes(std::span(words));
    const uint64_t invoked = world_.tick();
    Result<> done;
    if (world_.random().chance(15))
        done = co_await read_pinned(volume, range, bytes);
    else if (!volume.try_read(range.first_byte, bytes))
        done = co_await volume.read(range.first_byte, bytes);
    if (!done || !hears()) co_return false;
    const uint64_t ended = world_.tick();
    for (size_t i = 0; i < range.page_count; ++i)
        if (!registers_.note_read(range.page + i, std::span(words).subspan(i * page_words, page_words), invoked, ended,
                                  who()))
            world_.fail(fmt::format("a sector of page {} is torn", registers_.number_of(range.page + i)));
    co_return true;
}

// through: as with FUA.
Task<bool> RegisterClient::write(CachedVolume& volume, const Range& range, bool through) {
    const uint64_t size = range.end_byte - range.first_byte;
    const uint64_t value = ++world_.last_value;
    const std::vector<uint64_t> words(size / sizeof value, value);
    const auto bytes = std::as_bytes(std::span(words));
    const Registers::Write write =
        registers_.begin_write(range.first_byte, range.end_byte, value, world_.tick(), who());
    Result<> written;
    if (!volume.try_write(range.first_byte, bytes)) written = co_await volume.write(range.first_byte, bytes);
    if (written && through) written = co_await volume.flush_range(range.first_byte, size, false);
    if (!written || !hears()) co_return false;  // it may yet take effect
    registers_.end_write(write, world_.tick(), through);
    co_return true;
}

Task<bool> RegisterClient::zero(CachedVolume& volume, const Range& range) {
    const Registers::Write write = registers_.begin_write(range.first_byte, range.end_byte, 0, world_.tick(), who());
    const Result<> done =
        co_await volume.zero(range.first_byte, range.end_byte - range.first_byte, world_.random().chance(50));
    if (!done || !hears()) co_return false;
    registers_.end_write(write, world_.tick(), false);
    co_return true;
}

Task<bool> RegisterClient::flush(CachedVolume& volume, bool of_all) {
    const uint64_t invoked = world_.tick();
    // The volume has no size: without one, what this client has written is all that a flush is about.
    const Result<> done = of_all ? co_await volume.flush_up_to(flushed_bytes) : co_await volume.flush();
    if (!done || !hears()) co_return false;
    registers_.note_flush({.invoked = invoked, .ended = world_.tick(), .session = session_}, of_all);
    ++world_.counts.flushes;
    co_return true;
}

}  // namespace tarn::hosts_sim
