// The attribute page of a volume: its size and times, in a page of the volume itself, so that they are as coherent and
// as durable as its data. Page number page_number_mask, far above any data.
#pragma once

#include <algorithm>
#include <cstring>

#include "coherence/cache/page_access.hpp"
#include "coherence/volume.hpp"
#include "utils/clock.hpp"

namespace tarn {

inline constexpr PageId attribute_page_of(VolumeId volume) {
    return PageId::of(volume, page_number_mask);
}

struct AttributePage {
    static constexpr uint32_t layout_version = 1;  // 0: never written, all attributes are their defaults

    uint32_t version = 0;
    uint32_t mode = 0;
    uint32_t user = 0;
    uint32_t group = 0;
    uint64_t size_bytes = 0;
    int64_t modified_ns = 0;
    int64_t changed_ns = 0;
    uint32_t fail_after_ms = 0;
    uint32_t reserved = 0;

    static Attributes decode(const std::byte* bytes) {
        AttributePage page;
        std::memcpy(&page, bytes, sizeof page);
        if (page.version == 0) return {};
        return {.size_bytes = std::min(page.size_bytes, volume_size_max),
                .modified_ns = page.modified_ns,
                .changed_ns = page.changed_ns,
                .mode = page.mode & 07777,
                .user = page.user,
                .group = page.group,
                .fail_after_ms = page.fail_after_ms};
    }
    static void encode(const Attributes& attributes, std::byte* bytes) {
        const AttributePage page{.version = layout_version,
                                 .mode = attributes.mode,
                                 .user = attributes.user,
                                 .group = attributes.group,
                                 .size_bytes = attributes.size_bytes,
                                 .modified_ns = attributes.modified_ns,
                                 .changed_ns = attributes.changed_ns,
                                 .fail_after_ms = attributes.fail_after_ms};
        std::memcpy(bytes, &page, sizeof page);
    }
};
static_assert(sizeof(AttributePage) == 48);

// An update of the attributes in place. change(Attributes&) -> bool: whether it changed any.
template <class Change>
class AttributeUpdate final : public PageUpdate {
  public:
    explicit AttributeUpdate(Change& change) : change_(change) { size = sizeof(AttributePage); }
    bool apply(std::byte* bytes) override {
        after = AttributePage::decode(bytes);
        if (!change_(after)) return false;
        AttributePage::encode(after, bytes);
        return true;
    }
    Attributes after;

  private:
    Change& change_;
};

}  // namespace tarn
