// Writes of bytes into a frame that the next process finishes if this one is killed half-way: a page must not be half
// of one write and half of another (D2).
#include <array>
#include <cstring>
#include <utility>

#include "coherence/pages/pages.hpp"
#include "utils/copy_past_caches.hpp"

namespace tarn {

namespace {

// Runs from this length on are copied past the CPU's caches. The pages of shorter ones stay there for their next
// reader.
constexpr size_t long_run_pages = 8;

// A stage of the arena for one write at a time.
class Staged {
  public:
    explicit Staged(Arena& arena) : landing_(arena.landing()) {
        const std::span<WriteStage> stages = arena.stages();
        // Each thread comes to use a stage of its own.
        static std::atomic<size_t> last{0};
        thread_local size_t preferred = last.fetch_add(1, std::memory_order_relaxed);
        for (;; ++preferred) {
            stage_ = &stages[preferred % stages.size()];
            if (!stage_->taken.exchange(true, std::memory_order_acquire)) return;
        }
    }
    Staged(const Staged&) = delete;
    ~Staged() {
        if (!stage_) return;
        stage_->pending.store(WriteStage::Pending::nothing, std::memory_order_release);
        stage_->taken.store(false, std::memory_order_release);
    }

    // The write is in the stage from here on. Bytes that have landed in the arena are not copied into the stage, unless
    // that is to last longer than the call that writes (needs_copy). Returns where to write them from.
    const std::byte* begin(std::span<const std::byte> bytes, const Frame& frame, FrameId id, size_t offset,
                           const PageReceipt* receipt, bool needs_copy = false) {
        const bool has_landed = !needs_copy && bytes.data() >= landing_.data() &&
                                bytes.data() + bytes.size() <= landing_.data() + landing_.size();
        if (has_landed)
            stage_->landed_at = static_cast<uint64_t>(bytes.data() - landing_.data());
        else
            std::memcpy(stage_->bytes, bytes.data(), bytes.size());
        begin(has_landed ? WriteStage::Pending::landed : WriteStage::Pending::bytes, frame, id, offset, bytes.size(),
              receipt);
        return has_landed ? bytes.data() : stage_->bytes;
    }
    void begin(WriteStage::Pending what, const Frame& frame, FrameId id, size_t offset, size_t size,
               const PageReceipt* receipt) {
        stage_->frame = id;
        stage_->page = frame.page_id().value;
        stage_->receipt = receipt ? receipt->name() : 0;
        stage_->offset = static_cast<uint32_t>(offset);
        stage_->size = static_cast<uint32_t>(size);
        stage_->pending.store(what, std::memory_order_release);
        // Later writes must not be moved before this one.
        std::atomic_signal_fence(std::memory_order_seq_cst);
    }
    // It can begin again.
    void end() {
        stage_->pending.store(WriteStage::Pending::nothing, std::memory_order_release);
        std::atomic_signal_fence(std::memory_order_seq_cst);  // what is staged next comes after that
    }
    // The frame has changed. A blank one is not on record yet: the next process would drop it, and with it the write.
    void end(const Frame& frame, PageReceipt* receipt) {
        if (!receipt || !*receipt) return;
        if (is_on_record(frame)) return receipt->add();
        receipt->await(*std::exchange(stage_, nullptr));
    }

    static bool is_on_record(const Frame& frame) {
        return (frame.word.load() & FrameWord::ownership_mask) != FrameWord::none;
    }

  private:
    const std::span<const std::byte> landing_;
    WriteStage* stage_;
};

}  // namespace

void Pages::write_frame(Frame& frame, size_t offset, std::span<const std::byte> from, PageReceipt* receipt) {
    const FrameId id = pool_.id_of(frame);
    Staged staged(pool_.arena());
    const std::byte* const bytes = staged.begin(from, frame, id, offset, receipt, !Staged::is_on_record(frame));
    std::memcpy(pool_.bytes(id) + offset, bytes, from.size());
    mark_written(frame, offset, from.size());
    staged.end(frame, receipt);
}

void Pages::write_frames(std::span<Frame* const> frames, size_t offset, std::span<const std::byte> from,
                         WriteReceipts* receipts) {
    // Marks come before all copies, since atomic steps wait for copies past the caches. If this process is killed then,
    // a page may be marked and not written: it is stored once more, as it was.
    for (size_t i = 0; i < frames.size(); ++i) {
        const RunPart part = part_of_run(i, offset, from);
        mark_written(*frames[i], part.offset, part.bytes.size());
    }
    Staged staged(pool_.arena());
    for (size_t i = 0; i < frames.size(); ++i) {
        const RunPart part = part_of_run(i, offset, from);
        const FrameId id = pool_.id_of(*frames[i]);
        PageReceipt receipt(receipts, i);
        const std::byte* const bytes = staged.begin(part.bytes, *frames[i], id, part.offset, &receipt);
        if (frames.size() >= long_run_pages && part.bytes.size() == page_size)
            copy_past_caches(pool_.bytes(id), bytes, page_size);
        else
            std::memcpy(pool_.bytes(id) + part.offset, bytes, part.bytes.size());
        receipt.add();
        staged.end();
    }
    order_copies_past_caches();
}

void Pages::zero_frame(Frame& frame, size_t offset, size_t size, PageReceipt* receipt) {
    const FrameId id = pool_.id_of(frame);
    Staged staged(pool_.arena());
    staged.begin(WriteStage::Pending::zeros, frame, id, offset, size, receipt);
    std::memset(pool_.bytes(id) + offset, 0, size);
    mark_written(frame, offset, size);
    frame.zeroed.store(size == page_size, std::memory_order_relaxed);
    staged.end(frame, receipt);
}

void Pages::update_frame(Frame& frame, PageUpdate& update) {
    const FrameId id = pool_.id_of(frame);
    // Called before a stage is taken: it may write other pages, which need stages of their own.
    alignas(64) thread_local std::array<std::byte, page_size> scratch;
    std::memcpy(scratch.data(), pool_.bytes(id), page_size);
    if (!update.apply(scratch.data())) return;
    Staged staged(pool_.arena());
    const std::byte* const bytes =
        staged.begin(std::span(scratch).subspan(update.offset, update.size), frame, id, update.offset, nullptr);
    std::memcpy(pool_.bytes(id) + update.offset, bytes, update.size);
    mark_written(frame, update.offset, update.size);
}

}  // namespace tarn
