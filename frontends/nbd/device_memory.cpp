#include "frontends/nbd/device_memory.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace tarn::nbd {

namespace {

constexpr size_t header_size_bytes = 4096;
static_assert(sizeof(DeviceLog::Memory) % 4096 == 0);
static_assert(offsetof(DeviceLog::Memory, ring) + DeviceLog::ring_size_bytes == sizeof(DeviceLog::Memory));

constexpr size_t offset_of(unsigned connection) {
    return header_size_bytes + connection * sizeof(DeviceLog::Memory);
}

// With its ring mapped once more behind it.
Result<Mapping> map_log(int fd, unsigned connection) {
    TRY(Mapping mapping, Mapping::create(sizeof(DeviceLog::Memory) + DeviceLog::ring_size_bytes));
    const auto place = [&](size_t at, size_t offset, size_t size) {
        return ::mmap(mapping.bytes().data() + at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                      static_cast<off_t>(offset)) != MAP_FAILED;
    };
    constexpr size_t ring = offsetof(DeviceLog::Memory, ring);
    if (!place(0, offset_of(connection), sizeof(DeviceLog::Memory)) ||
        !place(sizeof(DeviceLog::Memory), offset_of(connection) + ring, DeviceLog::ring_size_bytes))
        return fail(Errc::io, errno, "device memory: mmap");
    return mapping;
}

}  // namespace

Result<DeviceMemory> DeviceMemory::create(DeviceHeader header, std::string_view volume) {
    if (volume.size() > DeviceHeader::name_size_max)
        return fail(Errc::invalid, 0, "device memory: the volume's name is too long");
    static_assert(sizeof(DeviceHeader) <= session_offset &&
                  session_offset + sizeof(SessionRecord) <= header_size_bytes);
    DeviceMemory memory;
    memory.memfd_ = UniqueFd(::memfd_create("tarn-device", MFD_CLOEXEC));
    if (!memory.memfd_) return fail(Errc::io, errno, "device memory: memfd_create");
    if (::ftruncate(memory.fd(), static_cast<off_t>(offset_of(header.connections))) != 0)
        return fail(Errc::io, errno, "device memory: ftruncate");
    TRY_VOID(memory.map(header.connections));
    header.layout = DeviceHeader::layout_expected;
    std::ranges::copy(volume, header.volume.begin());
    memory.header() = header;
    std::atomic_ref(memory.header().magic).store(DeviceHeader::magic_expected, std::memory_order_release);
    return memory;
}

Result<DeviceMemory> DeviceMemory::adopt(UniqueFd memfd) {
    DeviceMemory memory;
    memory.memfd_ = std::move(memfd);
    struct stat about{};
    if (::fstat(memory.fd(), &about) != 0) return fail(Errc::io, errno, "device memory: fstat");
    const auto size = static_cast<size_t>(about.st_size);
    if (size < header_size_bytes) return fail(Errc::invalid, 0, "device memory: too small");
    TRY_VOID(memory.map(0));
    const DeviceHeader& header = memory.header();
    if (header.magic != DeviceHeader::magic_expected || header.layout != DeviceHeader::layout_expected ||
        header.connections == 0 || header.connections > connections_max || size != offset_of(header.connections) ||
        (header.block_size_bytes != 512 && header.block_size_bytes != 4096) ||
        std::ranges::find(header.volume, '\0') == header.volume.end())
        return fail(Errc::invalid, 0, "device memory: not as this program makes it");
    TRY_VOID(memory.map(header.connections));
    return memory;
}

Result<> DeviceMemory::map(unsigned connections) {
    TRY(header_, Mapping::create(header_size_bytes, fd()));
    for (unsigned i = 0; i < connections; ++i) {
        TRY(Mapping log, map_log(fd(), i));
        logs_.push_back(std::move(log));
    }
    return {};
}

void DeviceMemory::clear_log(unsigned connection) const {
    std::memset(static_cast<void*>(&log(connection)), 0, offsetof(DeviceLog::Memory, parking));
}

std::vector<uint64_t> DeviceMemory::parsed() const {
    std::vector<uint64_t> all;
    for (unsigned connection = 0; connection < header().connections; ++connection)
        all.push_back(DeviceLog::parsed(log(connection)));
    return all;
}

bool DeviceMemory::has_answered(std::span<const uint64_t> parsed) const {
    for (unsigned connection = 0; connection < parsed.size(); ++connection)
        if (!DeviceLog::has_answered(log(connection), parsed[connection])) return false;
    return true;
}

void DeviceMemory::forget_receipts() const {
    for (unsigned connection = 0; connection < header().connections; ++connection)
        for (uint32_t i = 0; i < DeviceLog::slot_count; ++i)
            log(connection).slots[i].receipts.begin(first_receipt(connection) + i);
}

void DeviceMemory::add_receipts(std::span<const uint64_t> names) const {
    for (const uint64_t name : names) {
        const auto number = static_cast<uint32_t>(name >> 32);
        const uint32_t first = first_receipt(0);
        if (number < first || number >= first + header().connections * DeviceLog::slot_count) continue;
        WriteReceipts& receipts =
            log((number - first) / DeviceLog::slot_count).slots[(number - first) % DeviceLog::slot_count].receipts;
        const uint64_t page = name & UINT32_MAX;
        if (receipts.number() == number && page < receipts.window() + WriteReceipts::window_pages) receipts.add(page);
    }
}

}  // namespace tarn::nbd
