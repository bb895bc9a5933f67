// Mapping: owns a range of mapped memory and unmaps it.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "utils/result.hpp"

namespace tarn {

class Mapping {
  public:
    Mapping() = default;
    Mapping(Mapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
    Mapping& operator=(Mapping&& other) noexcept {
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~Mapping() {
        if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
    }

    // Anonymous when fd is -1, else shared with everybody who maps fd. Errors: io.
    static Result<Mapping> create(size_t size_bytes, int fd = -1) {
        const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
        void* const start = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
        if (start == MAP_FAILED) return fail(Errc::io, errno, "mapping.create");
        Mapping mapping;
        mapping.bytes_ = {static_cast<std::byte*>(start), size_bytes};
        return mapping;
    }

    // The same of whole pages, at a multiple of alignment, which is a power of two in bytes.
    static Result<Mapping> create_aligned(size_t size_bytes, int fd, size_t alignment) {
        // A place for more than that is found first; what lies around it goes back.
        const size_t place_bytes = size_bytes + alignment;
        void* const found = ::mmap(nullptr, place_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (found == MAP_FAILED) return fail(Errc::io, errno, "mapping.create_aligned");
        Mapping mapping;
        mapping.bytes_ = {static_cast<std::byte*>(found), place_bytes};
        const size_t front_bytes = -reinterpret_cast<uintptr_t>(found) % alignment;
        std::byte* const start = mapping.bytes_.data() + front_bytes;
        if (::mmap(start, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
            return fail(Errc::io, errno, "mapping.create_aligned");
        if (front_bytes > 0) ::munmap(found, front_bytes);
        ::munmap(start + size_bytes, alignment - front_bytes);
        mapping.bytes_ = {start, size_bytes};
        return mapping;
    }

    // A part of fd twice, one behind the other: what goes over its end goes on at its beginning. Sizes and offsets of
    // whole pages. Errors: io.
    static Result<Mapping> create_twice(size_t size_bytes, int fd, size_t offset_bytes) {
        Mapping mapping;
        void* const found =
            ::mmap(nullptr, 2 * size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (found == MAP_FAILED) return fail(Errc::io, errno, "mapping.create_twice");
        mapping.bytes_ = {static_cast<std::byte*>(found), 2 * size_bytes};
        for (size_t copy = 0; copy < 2; ++copy)
            if (::mmap(mapping.bytes_.data() + copy * size_bytes, size_bytes, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_FIXED, fd, static_cast<off_t>(offset_bytes)) == MAP_FAILED)
                return fail(Errc::io, errno, "mapping.create_twice");
        return mapping;
    }

    std::span<std::byte> bytes() const { return bytes_; }

  private:
    std::span<std::byte> bytes_;
};

}  // namespace tarn
