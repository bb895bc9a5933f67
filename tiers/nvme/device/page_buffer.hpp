// PageBuffer: memory for whole pages, aligned as O_DIRECT wants it.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "tiers/page.hpp"

namespace tarn {

using PageBuffer = std::unique_ptr<std::byte[], decltype([](std::byte* bytes) { std::free(bytes); })>;

inline PageBuffer make_page_buffer(size_t page_count) {
    return PageBuffer(static_cast<std::byte*>(std::aligned_alloc(page_size, page_count * page_size)));
}

}  // namespace tarn
