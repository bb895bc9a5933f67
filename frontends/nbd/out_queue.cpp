#include "frontends/nbd/out_queue.hpp"

#include <algorithm>
#include <cstring>

#include "utils/assert.hpp"

namespace tarn::nbd {

void OutQueue::push_copy(Budget& budget, std::span<const iovec> vectors, size_t skip_bytes) {
    size_t size_bytes = 0;
    for (const iovec& vector : vectors) size_bytes += vector.iov_len;
    TARN_ASSERT(skip_bytes <= size_bytes);
    if (skip_bytes == size_bytes) return;
    Buffer copy(budget, size_bytes - skip_bytes);
    std::byte* to = copy.bytes().data();
    for (const iovec& vector : vectors) {
        const size_t skip = std::min(skip_bytes, vector.iov_len);
        skip_bytes -= skip;
        const size_t rest = vector.iov_len - skip;
        std::memcpy(to, static_cast<const std::byte*>(vector.iov_base) + skip, rest);
        to += rest;
    }
    push({}, std::move(copy));
}

void OutQueue::gather(std::vector<iovec>& vectors, size_t vectors_max) const {
    for (const Segment& segment : segments_) {
        if (vectors.size() + 2 > vectors_max) return;
        size_t skip = segment.sent_bytes;
        for (const std::span<const std::byte> part : {std::span(segment.header.bytes).first(segment.header.size_bytes),
                                                      std::span<const std::byte>(segment.payload.bytes())}) {
            const std::span<const std::byte> rest = part.subspan(std::min(skip, part.size()));
            skip -= part.size() - rest.size();
            if (!rest.empty()) vectors.push_back({const_cast<std::byte*>(rest.data()), rest.size()});
        }
    }
}

void OutQueue::consume(size_t sent_bytes) {
    while (sent_bytes > 0) {
        TARN_ASSERT(!segments_.empty());
        Segment& segment = segments_.front();
        const size_t taken = std::min(sent_bytes, segment.size_bytes() - segment.sent_bytes);
        segment.sent_bytes += taken;
        sent_bytes -= taken;
        if (segment.sent_bytes == segment.size_bytes()) segments_.pop_front();
    }
}

}  // namespace tarn::nbd
