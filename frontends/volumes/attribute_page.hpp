// The attribute page of a volume: its size and times, in a page of the volume itself, so that they are as coherent and
// as durable as its data. Page number page_number_mask, far above any data.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>

#include "coherence/cache/cache.hpp"
#include "frontends/volumes/volume.hpp"
#include "utils/clock.hpp"

namespace tarn {

struct AttributePage {
    static constexpr uint32_t layout_version = 2;  // 1: never cut; 0: never written, all attributes are their defaults
    static constexpr uint64_t no_zeroing = UINT64_MAX;
    static constexpr size_t cuts_kept = 8;
    static constexpr size_t front_size = 64;  // what each access reads: one line of the CPU's caches

    uint32_t version = 0;
    uint32_t mode = 0;
    uint32_t user = 0;
    uint32_t group = 0;
    uint64_t size_bytes = 0;
    int64_t modified_ns = 0;
    int64_t changed_ns = 0;
    uint32_t fail_after_ms = 0;
    uint32_t zeroing_attempt = 0;  // who goes on with it counts it, so that no two do
    uint64_t truncations = 0;
    uint64_t zeroing_from = no_zeroing;  // what lies past it is being zeroed, and nothing may be written there
    // Only who cuts or grows the volume needs the rest.
    uint64_t zeroing_end = 0;
    uint32_t zeroing_host =
        0;  // whose process zeroes it; if that is gone, whoever wants to write there goes on with it
    uint32_t zeroing_epoch = 0;
    std::array<uint64_t, cuts_kept>
        cuts{};  // the new sizes of the last truncations, each at its number modulo their count

    // As it would be written today. Of its first front_size bytes alone: what attributes() needs.
    static AttributePage load(const std::byte* bytes, size_t size = sizeof(AttributePage)) {
        AttributePage page;
        std::memcpy(&page, bytes, size);
        return page.as_of_today();
    }
    void store(std::byte* bytes) const { std::memcpy(bytes, this, sizeof *this); }

    Attributes attributes() const {
        return {.size_bytes = size_bytes,
                .modified_ns = modified_ns,
                .changed_ns = changed_ns,
                .mode = mode,
                .user = user,
                .group = group,
                .fail_after_ms = fail_after_ms,
                .truncations = truncations};
    }
    bool is_new() const { return changed_ns == 0; }  // nobody has changed the volume yet
    bool zeroes_before(uint64_t end_bytes) const { return zeroing_from < end_bytes; }
    void cut(uint64_t new_size_bytes) {
        size_bytes = new_size_bytes;
        cuts[truncations++ % cuts_kept] = new_size_bytes;
    }
    // The smallest size of all cuts after the first `before` ones; nothing: they are too many to be remembered.
    std::optional<uint64_t> least_cut_since(uint64_t before) const {
        if (truncations - before > cuts_kept) return std::nullopt;
        uint64_t least = UINT64_MAX;
        for (uint64_t each = before; each < truncations; ++each) least = std::min(least, cuts[each % cuts_kept]);
        return least;
    }

  private:
    AttributePage as_of_today() const {
        AttributePage page = *this;
        if (version == 0) {
            const Attributes defaults;
            page = {};
            page.mode = defaults.mode;
        }
        if (version < 2) {
            page.truncations = 0;
            page.zeroing_from = no_zeroing;
            page.zeroing_end = page.zeroing_attempt = 0;
            page.cuts = {};
        }
        page.version = layout_version;
        page.size_bytes = std::min(page.size_bytes, volume_size_max);
        page.mode &= 07777;
        return page;
    }
};
static_assert(AttributePage::front_size == offsetof(AttributePage, zeroing_end));
static_assert(sizeof(AttributePage) == 144);

// All but the size.
inline void change_page(AttributePage& page, const AttributeChange& change) {
    const int64_t now = realtime_ns();
    if (change.size_bytes) page.modified_ns = now;
    if (change.modified_ns) page.modified_ns = *change.modified_ns;
    if (change.mode) page.mode = *change.mode;
    if (change.user) page.user = *change.user;
    if (change.group) page.group = *change.group;
    if (change.fail_after_ms) page.fail_after_ms = *change.fail_after_ms;
    page.changed_ns = now;
}

// Its front, if this host has it at hand.
inline std::optional<AttributePage> try_load_front(Cache& cache, VolumeId volume, LossView& view) {
    std::array<std::byte, AttributePage::front_size> front;
    if (!cache.pages().try_read(attribute_page_of(volume), 0, front, view)) return std::nullopt;
    return AttributePage::load(front.data(), front.size());
}

}  // namespace tarn
