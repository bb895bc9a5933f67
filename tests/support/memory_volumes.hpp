// MemoryVolumes: volumes in one process's memory instead of a cluster, for tests and benches of front ends.
//
// It keeps the promises of Volume and Volumes (page atomicity, holes, growth, any shard may call) and nothing more:
// no other host, no store. Faults are switched on by name: accesses that miss the hot path, flushes that fail, a
// volume that another host holds.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "frontends/volumes/volumes.hpp"
#include "utils/mapping.hpp"

namespace tarn {

// Switches of all volumes; the atomic ones may change at any time.
struct MemoryFaults {
    std::atomic<unsigned> miss_every{0};        // every n-th try_ call misses; 0: none
    std::atomic<unsigned> cold_delay_us{0};     // how long a cold access takes at least
    std::function<bool()> copies_wait;          // cold reads and writes wait while this is true; called in each turn
    std::function<bool()> size_waits;           // likewise who asks for the size, which is then not known at once
    std::atomic<bool> copies_cancelled{false};  // they then end as at a stop
    std::function<void(std::span<const Volume::Range>)> on_expect;  // hears what is expected
    std::function<void(std::span<const std::byte>)> on_write;       // hears where try_write writes from
    std::atomic<unsigned> failing_write{0};                         // so many cold writes from now on, one fails
    std::atomic<unsigned> failing_read{0};                          // likewise
    std::atomic<unsigned> failing_flushes{0};                       // the next flushes fail
    std::atomic<uint64_t> flush_count{0};                           // counted, not switched
    std::atomic<bool> attributes_lost{false};                       // clients that ask for attributes get an error
};

class MemoryVolume final : public Volume {
  public:
    static constexpr uint64_t stored_size_max = uint64_t{16} << 30;

    MemoryVolume(VolumeId id, Attributes attributes, MemoryFaults& faults);

    VolumeId id() const override { return id_; }
    // All clients share one session; the first that has a record gives it that.
    std::shared_ptr<VolumeSession> session() const override {
        const std::lock_guard lock(session_mutex_);
        return session_;
    }
    void record_session(std::shared_ptr<SessionRecord> record);
    void expect(std::span<const Range> ranges) override {
        if (faults_.on_expect) faults_.on_expect(ranges);
    }
    bool try_pin(uint64_t offset_bytes, uint32_t size_bytes, std::vector<Pin>& pins) override;
    void unpin(std::span<const Pin> pins) override;
    bool try_read(uint64_t offset_bytes, std::span<std::byte> into) override;
    bool try_write(uint64_t offset_bytes, std::span<const std::byte> from, WriteReceipts* receipts = nullptr) override;
    std::optional<Attributes> try_attributes() override;
    std::optional<uint64_t> try_size() override;
    Task<Result<>> read(uint64_t offset_bytes, std::span<std::byte> into) override;
    Task<Result<>> fetch(uint64_t offset_bytes, uint64_t size_bytes) override;
    Task<Result<>> write(uint64_t offset_bytes, std::span<const std::byte> from,
                         WriteReceipts* receipts = nullptr) override;
    Task<Result<>> zero(uint64_t offset_bytes, uint64_t size_bytes, bool keep_space,
                        WriteReceipts* receipts = nullptr) override;
    Task<Result<>> flush() override;
    Task<Result<>> prefetch(uint64_t offset_bytes, uint64_t size_bytes) override;
    Task<Result<std::vector<Extent>>> extents(uint64_t offset_bytes, uint64_t size_bytes) override;
    // All of it is here.
    std::vector<TierExtent> tiers(std::span<const Extent> extents) override;
    Task<Result<Attributes>> attributes() override;
    Attributes attributes_now();
    Task<Result<uint64_t>> size() override;
    Task<Result<Attributes>> change_attributes(AttributeChange change) override;
    Task<Result<>> write_growing(uint64_t offset_bytes, std::span<const std::byte> from) override;
    Task<Result<uint64_t>> append(std::span<const std::byte> from) override;

  private:
    bool misses();
    Task<> delay();
    Task<> delay_copy();
    void copy_out(uint64_t offset_bytes, std::span<std::byte> into);
    bool try_copy_in(uint64_t offset_bytes, std::span<const std::byte> from);
    void zero_range(uint64_t offset_bytes, uint64_t size_bytes, bool keep_space);
    void grow_to(uint64_t size_bytes);

    const VolumeId id_;
    mutable std::mutex session_mutex_;
    std::shared_ptr<VolumeSession> session_ = std::make_shared<VolumeSession>();
    MemoryFaults& faults_;
    Mapping data_;
    Mapping words_;  // per page: pins, whether it is being written, whether it is stored
    std::mutex attributes_mutex_;
    Attributes attributes_;
};

class MemoryVolumes : public Volumes {
  public:
    MemoryFaults faults;
    // What was asked so far.
    std::atomic<size_t> lists{0};
    std::set<std::string> sought() {
        const std::lock_guard lock(mutex_);
        return sought_;
    }

    Task<Result<std::vector<VolumeEntry>>> list() override;
    Task<Result<VolumeEntry>> find(std::string name) override;
    using Volumes::open;
    Task<Result<std::shared_ptr<Volume>>> open(std::string name, Access access, std::shared_ptr<VolumeSession> session,
                                               std::shared_ptr<SessionRecord> record) override;
    Task<Result<VolumeEntry>> create(std::string name, bool shared, Attributes attributes) override;
    Task<Result<Removal>> remove(std::string name, bool force) override;
    Task<Result<Space>> space() override;

    // For set-up, without a loop.
    std::shared_ptr<MemoryVolume> add(const std::string& name, uint64_t size_bytes, bool shared);
    void hold_elsewhere(const std::string& name);

  private:
    struct Entry {
        bool shared;
        std::shared_ptr<MemoryVolume> volume;
    };
    VolumeEntry describe(const std::string& name, const Entry& entry, Attributes attributes) const;

    std::mutex mutex_;
    std::map<std::string, Entry> entries_;
    std::set<std::string> held_elsewhere_;
    std::set<std::string> sought_;
    VolumeId last_id_ = 0;
};

}  // namespace tarn
