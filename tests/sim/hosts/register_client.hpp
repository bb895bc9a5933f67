// RegisterClient: reads, writes, zeroes and flushes the pages of a volume in all the ways that a front end has.
#pragma once

#include "tests/sim/hosts/client.hpp"
#include "tests/sim/hosts/registers.hpp"

namespace tarn::hosts_sim {

class RegisterClient final : public Client {
  public:
    RegisterClient(World& world, HostId host, unsigned number, Registers& registers)
        : Client(world, host, number, registers.volume()), registers_(registers) {}

  private:
    struct Range {
        size_t page;  // its index, and how many follow it
        size_t page_count;
        uint64_t first_byte;
        uint64_t end_byte;
    };

    Task<bool> step(CachedVolume& volume) override;
    Task<bool> look(CachedVolume& volume) override;
    void on_session() override { registers_.note_session(session_, world_.tick()); }

    Task<bool> read(CachedVolume& volume, const Range& range);
    Task<Result<>> read_pinned(CachedVolume& volume, const Range& range, std::span<std::byte> into);
    Task<bool> write(CachedVolume& volume, const Range& range, bool through);
    Task<bool> zero(CachedVolume& volume, const Range& range);
    Task<bool> flush(CachedVolume& volume, bool of_all);
    Range draw_pages(size_t count_max);
    size_t draw_length(size_t usual);
    Range draw_sectors();
    Registers::Who who() const { return {.client = number_, .session = session_}; }

    Registers& registers_;
};

}  // namespace tarn::hosts_sim
