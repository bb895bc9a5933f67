// Mapping: owns a range of mapped memory and unmaps it.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
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

    std::span<std::byte> bytes() const { return bytes_; }

  private:
    std::span<std::byte> bytes_;
};

}  // namespace tarn
