// RecordLog: a file that clients of all hosts append to and cut, and what must be in it at the end.
//
// Each append has an end of its own: none overwrites another, and nobody sees a size without its bytes. What was
// appended stays, unless the file was cut there since, or power was lost and no flush had covered it.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "tests/sim/hosts/client.hpp"

namespace tarn::hosts_sim {

class RecordLog {
  public:
    // A whole number of these lies in each append.
    struct Slot {
        uint64_t append;  // its number, from 1
        uint64_t index;
        std::array<uint64_t, 6> rest;
    };
    static_assert(page_size % sizeof(Slot) == 0);

    explicit RecordLog(VolumeId volume) : volume_(volume) {}
    VolumeId volume() const { return volume_; }

    static std::vector<Slot> slots_of(uint64_t append, size_t count);
    uint64_t begin_append(size_t slot_count, uint64_t now);
    void end_append(uint64_t append, uint64_t offset_bytes, uint64_t now);
    uint64_t begin_cut(uint64_t size_bytes, uint64_t now);
    void end_cut(uint64_t cut, uint64_t now);
    void note_flush(const checker::Flush& flush) { flushes_.push_back(flush); }
    uint64_t slots_appended() const { return slots_appended_; }

    // What is read at the end, when nothing is under way. Empty, or what is wrong with it.
    std::string check(std::span<const Slot> read, const std::vector<checker::Loss>& losses) const;

  private:
    struct Append {
        size_t slot_count;
        uint64_t invoked;
        checker::Nanoseconds ended = checker::never;
        uint64_t offset_bytes = 0;
    };
    struct Cut {
        uint64_t size_bytes;
        uint64_t invoked;
        checker::Nanoseconds ended = checker::never;
    };
    bool may_be_gone(const Append& append, const std::vector<checker::Loss>& losses) const;

    VolumeId volume_;
    uint64_t slots_appended_ = 0;
    std::vector<Append> appends_;  // by number, from 1
    std::vector<Cut> cuts_;
    std::vector<checker::Flush> flushes_;
};

class LogClient final : public Client {
  public:
    // cuts: one client alone, so that no size that it sets lies past the end.
    LogClient(World& world, HostId host, unsigned number, RecordLog& log, bool cuts)
        : Client(world, host, number, log.volume()), log_(log), cuts_(cuts) {}

  private:
    Task<bool> step(CachedVolume& volume) override;
    Task<bool> look(CachedVolume& volume) override;
    Task<bool> append(CachedVolume& volume);
    Task<bool> cut(CachedVolume& volume);
    Task<bool> flush(CachedVolume& volume);
    Task<bool> read_end(CachedVolume& volume);

    RecordLog& log_;
    const bool cuts_;
};

}  // namespace tarn::hosts_sim
