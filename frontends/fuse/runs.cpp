#include "frontends/fuse/runs.hpp"

#include <algorithm>
#include <cerrno>
#include <vector>

namespace tarn::fuse {

namespace {
constexpr uint64_t seek_window_bytes = uint64_t{16} << 30;  // of one question for extents
}

Task<Result<uint64_t>> find_run(Volume& volume, uint64_t offset_bytes, bool hole) {
    CO_TRY(const Attributes attributes, co_await volume.attributes());
    const uint64_t end = attributes.size_bytes;
    if (offset_bytes >= end) co_return fail(Errc::io, ENXIO, "fuse.seek");
    for (uint64_t at = offset_bytes; at < end;) {
        const uint64_t window_bytes = std::min(seek_window_bytes, end - at);
        CO_TRY(const std::vector<Extent> extents, co_await volume.extents(at, window_bytes));
        for (const Extent& extent : extents)
            if (extent.hole == hole) co_return std::max(extent.offset_bytes, offset_bytes);
        at = extents.back().offset_bytes + extents.back().size_bytes;  // it may have ended early
    }
    if (hole) co_return end;
    co_return fail(Errc::io, ENXIO, "fuse.seek");
}

}  // namespace tarn::fuse
