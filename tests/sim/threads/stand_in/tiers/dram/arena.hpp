// Arena as the model of threads has it: the frames of a pool, in memory of its own, new in each run.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "tiers/dram/frame.hpp"
#include "tiers/dram/frame_record.hpp"
#include "tiers/dram/write_stage.hpp"
#include "utils/result.hpp"

namespace tarn {

class Arena {
  public:
    explicit Arena(size_t frame_count)
        : frame_count_(frame_count),
          frames_(std::make_unique<Frame[]>(frame_count)),
          records_(frame_count),
          bytes_(frame_count * page_size) {}
    static Result<std::unique_ptr<Arena>> create(size_t frame_count) { return std::make_unique<Arena>(frame_count); }

    std::span<WriteStage> stages() { return stages_; }
    static std::span<std::byte> landing() { return {}; }
    FrameRecord* records() { return records_.data(); }
    Frame* frames() { return frames_.get(); }
    std::span<std::byte> bytes() { return bytes_; }
    size_t frame_count() const { return frame_count_; }
    static bool adopted() { return false; }

  private:
    size_t frame_count_;
    std::array<WriteStage, 4> stages_;
    std::unique_ptr<Frame[]> frames_;
    std::vector<FrameRecord> records_;
    std::vector<std::byte> bytes_;
};

}  // namespace tarn
