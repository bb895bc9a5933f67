#include "coherence/fabric/transport/shm/segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tiers/page.hpp"

namespace tarn {

namespace {

// The words of both rings lie in the first page, the rings behind it.
constexpr size_t size_bytes = page_size + 2 * Segment::ring_bytes;
static_assert(2 * sizeof(RingWords) <= page_size);

constexpr int size_seals = F_SEAL_SHRINK | F_SEAL_GROW;

}  // namespace

Result<std::unique_ptr<Segment>> Segment::create() {
    auto made = std::make_unique<Segment>();
    made->is_maker_ = true;
    made->memory_ = UniqueFd(::memfd_create("tarn-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!made->memory_) return fail(Errc::io, errno, "fabric.shm: memfd_create");
    // Given out now: a shortage shows here, and not as a signal later.
    if (const int error = ::posix_fallocate(made->memory_.get(), 0, size_bytes); error != 0)
        return fail(Errc::io, error, "fabric.shm: fallocate");
    if (::fcntl(made->memory_.get(), F_ADD_SEALS, size_seals | F_SEAL_SEAL) != 0)
        return fail(Errc::io, errno, "fabric.shm: seal");
    TRY_VOID(made->map());
    return made;
}

Result<std::unique_ptr<Segment>> Segment::adopt(UniqueFd memory) {
    const int seals = ::fcntl(memory.get(), F_GET_SEALS);
    struct stat status{};
    if (seals < 0 || (seals & size_seals) != size_seals)
        return fail(Errc::refused, 0, "fabric.shm: the memory's size is not sealed");
    if ((seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0)
        return fail(Errc::refused, 0, "fabric.shm: the memory cannot be written");
    if (::fstat(memory.get(), &status) != 0) return fail(Errc::io, errno, "fabric.shm: fstat");
    if (status.st_size != static_cast<off_t>(size_bytes))
        return fail(Errc::refused, 0, "fabric.shm: the memory has another size");
    auto adopted = std::make_unique<Segment>();
    adopted->memory_ = std::move(memory);
    TRY_VOID(adopted->map());
    return adopted;
}

Result<> Segment::map() {
    TRY(words_, Mapping::create(page_size, memory_.get()));
    for (size_t direction = 0; direction < twice_.size(); ++direction) {
        const size_t offset = page_size + direction * ring_bytes;
        TRY(twice_[direction], Mapping::create_twice(ring_bytes, memory_.get(), offset));
    }
    return {};
}

RingMemory Segment::ring(size_t direction) const {
    auto* const words = reinterpret_cast<RingWords*>(words_.bytes().data()) + direction;
    return {.words = words, .twice = twice_[direction].bytes()};
}

}  // namespace tarn
