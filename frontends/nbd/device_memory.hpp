// DeviceMemory: what of a kernel's device outlives the process: which volume it is, its session, and each connection's
// log. In a memfd that somebody keeps, with the sockets, while no tarnd runs.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coherence/flush/session_record.hpp"
#include "frontends/nbd/device_log.hpp"
#include "utils/mapping.hpp"
#include "utils/result.hpp"
#include "utils/unique_fd.hpp"

namespace tarn::nbd {

struct DeviceHeader {
    static constexpr uint64_t magic_expected = 0x6563697665646e72;
    // Of this and of DeviceLog::Memory.
    static constexpr uint32_t layout_expected = 3;
    static constexpr size_t name_size_max = 255;

    uint64_t magic = 0;  // set last
    uint32_t layout = 0;
    uint32_t connections = 0;
    uint32_t index = 0;  // of /dev/nbdN
    uint32_t block_size_bytes = 4096;
    uint64_t size_bytes = 0;  // of the device, in whole blocks
    VolumeId volume_id = 0;
    bool read_only = false;
    uint8_t has_lost_requests = 0;   // maybe, of a connection that broke: they are in no log, and the kernel has them
    uint32_t connected_by = 0;       // the thread that has; 0: it has not yet
    std::array<uint32_t, 8> cpus{};  // of each connection's queue, plus one; 0: not known
    std::array<char, name_size_max + 1> volume{};

    std::string_view volume_name() const { return volume.data(); }
};

class DeviceMemory {
  public:
    static constexpr unsigned connections_max = 8;

    // header: of the device, with the number of its connections. Errors: io, invalid (the name is too long).
    static Result<DeviceMemory> create(DeviceHeader header, std::string_view volume);
    // What another process has left. Errors: invalid (it is none, or of another layout), io.
    static Result<DeviceMemory> adopt(UniqueFd memfd);

    DeviceHeader& header() const { return *reinterpret_cast<DeviceHeader*>(header_.bytes().data()); }
    // Of the device at its volume.
    SessionRecord& session() const {
        return *reinterpret_cast<SessionRecord*>(header_.bytes().data() + session_offset);
    }
    DeviceLog::Memory& log(unsigned connection) const {
        return *reinterpret_cast<DeviceLog::Memory*>(logs_[connection].bytes().data());
    }
    // For a connection that begins anew: nobody uses the log.
    void clear_log(unsigned connection) const;
    // See DeviceLog, of each connection.
    std::vector<uint64_t> parsed() const;
    bool has_answered(std::span<const uint64_t> parsed) const;
    // Names the receipts of this connection's first slot.
    uint32_t first_receipt(unsigned connection) const {
        return ((header().index + 1) * connections_max + connection) * uint32_t{DeviceLog::slot_count};
    }
    // Writes what the arena's stages said when another process was killed (write_receipts.hpp): those that are ours.
    void add_receipts(std::span<const uint64_t> names) const;
    // None of the pages that requests have written are there any more.
    void forget_receipts() const;
    int fd() const { return memfd_.get(); }

  private:
    static constexpr size_t session_offset = 1024;
    Result<> map(unsigned connections);

    UniqueFd memfd_;
    Mapping header_;
    std::vector<Mapping> logs_;
};

}  // namespace tarn::nbd
