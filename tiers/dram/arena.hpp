// Arena: the memory of one host's frames, in a memfd that may outlive the process: another tarnd adopts it (D2).
//
//   header           the store it belongs to, and the state that the next process needs
//   stages           writes under way (write_stage.hpp)
//   records          what each frame is held for (frame_record.hpp)
//   frames           the frames' headers (frame.hpp)
//   bytes            their pages, from a boundary of huge pages on
//   landing          where clients' writes come in: from there they are not copied into a stage
//   clients          what front ends note of their clients
//
// Whatever lies here is written so that a process which is killed between any two instructions leaves what the next one
// can take up. Stores of one thread reach the memory in their order (a kill is no power cut); the compiler is kept from
// moving them by release stores.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "tiers/dram/frame.hpp"
#include "tiers/dram/frame_record.hpp"
#include "tiers/dram/nodes.hpp"
#include "tiers/dram/write_stage.hpp"
#include "utils/mapping.hpp"
#include "utils/result.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {

struct ArenaHeader {
    static constexpr uint64_t magic_expected = 0x616e657261746e72;
    // The version of the layout. Version 2 has no notes of clients; version 1 has no landing memory either, and no
    // stage speaks of it.
    static constexpr uint32_t layout_expected = 3;
    static constexpr uint32_t layout_without_clients = 2;
    static constexpr uint32_t layout_without_landing = 1;
    static constexpr size_t stripes_max = 128;

    uint64_t magic = 0;  // set last
    uint32_t layout = 0;
    uint32_t frame_size = 0;
    uint64_t frame_count = 0;

    // Whose it is: an arena of another store, or of a process before the last, is worth nothing.
    std::array<uint8_t, 16> store{};
    std::atomic<uint32_t> epoch{0};        // of the process that uses it
    std::atomic<uint32_t> incarnation{0};  // of the memory: the epoch of the process that made it

    // Losses of others that this home may not have on record.
    std::atomic<bool> losses_unrecorded{false};
    // The process of each host that was last met, as incarnation << 32 | epoch.
    std::array<std::atomic<uint64_t>, hosts_max> met{};
    // By stripe: the last request that was numbered.
    std::array<std::atomic<uint32_t>, stripes_max> request_ids{};
    // An earlier process lost bytes that only its memory had, and the loss is not on record yet. Zero in arenas of
    // older programs.
    std::atomic<bool> memory_was_lost{false};
    uint32_t intact_since = 0;   // of the process that made it (process.hpp), likewise
    uint64_t landing_bytes = 0;  // likewise
    // What the processes before left open as a home (protocol::Home::Past).
    std::atomic<uint32_t> last_in_doubt{0};
    std::atomic<uint32_t> last_loss{0};
    std::atomic<uint32_t> past_known_to{0};  // the epoch of the last process that kept these; older programs do not
    uint64_t clients_bytes = 0;              // zero in arenas of older programs
};
static_assert(sizeof(ArenaHeader) <= page_size);
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

class Arena {
  public:
    static constexpr size_t stage_count = 64;

    // Reserves and touches the memory at once, so that a shortage shows at start. Errors: io.
    // The memory is divided among the nodes, as FramePool divides the frames.
    static Result<std::unique_ptr<Arena>> create(size_t frame_count, const Nodes& nodes = Nodes(),
                                                 size_t landing_bytes = 0, size_t clients_bytes = 0);
    // One that another process has left. Errors: invalid (not an arena as this program makes them), io.
    static Result<std::unique_ptr<Arena>> adopt(UniqueFd memfd);

    ArenaHeader& header() const { return *reinterpret_cast<ArenaHeader*>(at(0)); }
    std::span<WriteStage> stages() const { return {reinterpret_cast<WriteStage*>(at(page_size)), stage_count}; }
    FrameRecord* records() const { return reinterpret_cast<FrameRecord*>(at(records_offset)); }
    Frame* frames() const { return reinterpret_cast<Frame*>(at(frames_offset(frame_count_))); }
    std::span<std::byte> bytes() const {
        return mapping_.bytes().subspan(bytes_offset(frame_count_), frame_count_ * page_size);
    }
    std::span<std::byte> landing() const {
        return mapping_.bytes().subspan(landing_offset(frame_count_), header().landing_bytes);
    }
    // What front ends note of their clients; zeros at first.
    std::span<std::byte> clients() const { return mapping_.bytes().last(header().clients_bytes); }

    size_t frame_count() const { return frame_count_; }
    bool adopted() const { return adopted_; }
    int fd() const { return memfd_.get(); }

  private:
    static constexpr size_t records_offset = page_size + stage_count * sizeof(WriteStage);
    static size_t frames_offset(size_t frame_count);
    static size_t bytes_offset(size_t frame_count);
    static size_t landing_offset(size_t frame_count) { return bytes_offset(frame_count) + frame_count * page_size; }

    Arena() = default;
    Result<> map(size_t frame_count, size_t bytes_behind, const Nodes& nodes);
    std::byte* at(size_t offset) const { return mapping_.bytes().data() + offset; }

    UniqueFd memfd_;
    Mapping mapping_;
    size_t frame_count_ = 0;
    bool adopted_ = false;
};

}  // namespace tarn
