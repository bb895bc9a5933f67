// Volume: what a front end may do with one open volume of the cluster. Implemented by CachedVolume.
//
// Two ways for each access. The try_ calls are the hot path: they run to their end on the calling thread, without a
// message, lock, allocation or wait, when every page they need is in DRAM with the right ownership; else they change
// nothing and return false, and the caller awaits the cold path. Any shard may call either; a task stays on the
// shard that awaits it.
//
// Offsets and lengths are bytes and need no alignment. Bytes that were never written, or were zeroed, read as zeros.
// Nothing here checks the volume's size: a front end does, because each knows its own rule for the end (NBD refuses,
// files grow). Each page of a request is atomic, the request as a whole is not (C2).
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "coherence/flush/session_record.hpp"
#include "tiers/dram/write_receipts.hpp"
#include "tiers/page.hpp"
#include "utils/result.hpp"
#include "utils/task.hpp"

namespace tarn {

// An append of more bytes is made in pieces of this size. Other appends may come between them.
inline constexpr size_t append_at_once = 128 * 1024;

// Bytes of a cached page that stay put and stay current until unpinned. At most for one system call.
struct Pin {
    const std::byte* bytes;
    uint32_t size_bytes;
    FrameId frame;
};

// A run of a volume that is all stored, or all hole (reads as zeros and takes no space).
struct Extent {
    uint64_t offset_bytes;
    uint64_t size_bytes;
    bool hole;
};

// From where a read on this host would get its bytes.
enum class Tier : uint8_t {
    dram,    // this host's memory
    remote,  // another host's memory, as its home knows; only a home can tell
    nvme,    // their home: its store, or its memory
    hole,    // nowhere: they read as zeros
};

// Of so many bytes it is told at once. More would take long, as would the extents of more, for which a home walks over
// all that it has in memory.
inline constexpr uint64_t tiers_at_once = uint64_t{16} << 20;

struct TierExtent {
    uint64_t offset_bytes;
    uint64_t size_bytes;
    Tier tier;
};

// Coherent across hosts: kept in the volume's attribute page under the same protocol as its data.
struct Attributes {
    uint64_t size_bytes = 0;
    int64_t modified_ns = 0;  // since the Unix epoch; as coarse as a kernel's tick
    int64_t changed_ns = 0;
    uint32_t mode = 0600;  // permission bits
    uint32_t user = 0;
    uint32_t group = 0;
    uint32_t fail_after_ms = 0;  // how long an access waits for a host that does not answer; 0: until it does
    uint64_t truncations = 0;    // how often the volume was cut: if it is as before, nothing was cut meanwhile
};

struct AttributeChange {
    // Shrinking zeroes what lies past the new end, on all hosts, before the volume can grow there again.
    std::optional<uint64_t> size_bytes;
    std::optional<int64_t> modified_ns;
    std::optional<uint32_t> mode;
    std::optional<uint32_t> user;
    std::optional<uint32_t> group;
    std::optional<uint32_t> fail_after_ms;
};

// What is remembered of one client of a volume, for as long as it believes that it has the same device or file: over
// all its handles, and between them while it has none. Opaque but for this: once a flush failed for good, writes that
// it covered may be lost, and no later one of the client may succeed.
class VolumeSession {
  public:
    VolumeSession() = default;
    virtual ~VolumeSession() = default;

    // What the client is told of a flush that ended so. A host that cannot be reached has lost nothing yet.
    Result<> flushed(const Result<>& result) {
        if (!result && result.error().code != Errc::unavailable && result.error().code != Errc::cancelled)
            flush_failed_->store(true, std::memory_order_relaxed);
        if (result && flush_failed_->load(std::memory_order_relaxed))
            return fail(Errc::io, EIO, "flush: an earlier one of this client failed");
        return result;
    }

    // Where it is written down, and may outlive the process; null: it ends with that.
    const std::shared_ptr<SessionRecord> record;

  protected:
    explicit VolumeSession(std::shared_ptr<SessionRecord> in)
        : record(std::move(in)), flush_failed_(&record->flush_failed) {}

  private:
    std::atomic<bool> own_flush_failed_{false};
    std::atomic<bool>* const flush_failed_ = &own_flush_failed_;
};

class Volume {
  public:
    virtual ~Volume() = default;

    virtual VolumeId id() const = 0;
    // Of the client that this handle was opened for.
    virtual std::shared_ptr<VolumeSession> session() const = 0;

    // A hint: these ranges are read or written next. What that needs first is then fetched for all of them at once.
    struct Range {
        uint64_t offset_bytes;
        uint64_t size_bytes;
    };
    virtual void expect(std::span<const Range>) {}
    // Appends the pins that make up the range, in order; all of it or nothing.
    virtual bool try_pin(uint64_t offset_bytes, uint32_t size_bytes, std::vector<Pin>& pins) = 0;
    virtual void unpin(std::span<const Pin> pins) = 0;
    virtual bool try_read(uint64_t offset_bytes, std::span<std::byte> into) = 0;
    // Whole or not at all. receipts, of this and of write() and zero(): get one for each page that is changed; write()
    // and zero() leave pages that have one as they are.
    virtual bool try_write(uint64_t offset_bytes, std::span<const std::byte> from,
                           WriteReceipts* receipts = nullptr) = 0;

    // The attributes, if this host has them at hand.
    virtual std::optional<Attributes> try_attributes() = 0;
    // The size alone. A session gets it although changes of the attributes may be lost: for clients that see none of
    // the others (NBD).
    virtual std::optional<uint64_t> try_size() = 0;

    // Errors of all: io, corrupt, unavailable, cancelled; of those that write also no_space.
    virtual Task<Result<>> read(uint64_t offset_bytes, std::span<std::byte> into) = 0;
    // As read, but into this host's DRAM alone, for a try_pin that follows at once; under memory pressure a page may be
    // gone again by then.
    virtual Task<Result<>> fetch(uint64_t offset_bytes, uint64_t size_bytes) = 0;
    virtual Task<Result<>> write(uint64_t offset_bytes, std::span<const std::byte> from,
                                 WriteReceipts* receipts = nullptr) = 0;
    // Makes the range read as zeros. keep_space: it has its space, as written bytes have; else whole slabs lose theirs.
    virtual Task<Result<>> zero(uint64_t offset_bytes, uint64_t size_bytes, bool keep_space,
                                WriteReceipts* receipts = nullptr) = 0;
    // D1: when it returns, every write to this volume whose reply was sent before, on any host, is on stable storage.
    virtual Task<Result<>> flush() = 0;
    // The same for these pages alone, and the volume's attributes if they are asked for: what FUA and O_SYNC wait for.
    virtual Task<Result<>> flush_range(uint64_t /*offset_bytes*/, uint64_t /*size_bytes*/, bool /*attributes*/) {
        return flush();
    }
    // Brings the range into this host's DRAM as far as it fits; a hint that never fails for lack of room.
    virtual Task<Result<>> prefetch(uint64_t offset_bytes, uint64_t size_bytes) = 0;
    // The runs of the range, in order, neighbours merged; of a long one maybe only the front, at least a page. A stored
    // run may still read as zeros; a hole always does.
    virtual Task<Result<std::vector<Extent>>> extents(uint64_t offset_bytes, uint64_t size_bytes) = 0;
    // Where the bytes of these extents are at this moment, in order, neighbours merged; of a long range only the front.
    // It asks nobody, and changes nothing.
    virtual std::vector<TierExtent> tiers(std::span<const Extent> extents) = 0;

    virtual Task<Result<Attributes>> attributes() = 0;
    virtual Task<Result<uint64_t>> size() = 0;  // as try_size
    virtual Task<Result<Attributes>> change_attributes(AttributeChange change) = 0;
    // As write, and the size grows to cover it: the write of a file. An empty write grows the volume to its offset.
    // Bytes past the end appear together with the size that covers them, up to append_at_once of them. A truncation
    // that comes before all of them are written takes place after the write.
    virtual Task<Result<>> write_growing(uint64_t offset_bytes, std::span<const std::byte> from) = 0;
    // Writes at the end of the volume wherever that is now: append_at_once with the size that covers them.
    // Returns the offset of the first byte.
    virtual Task<Result<uint64_t>> append(std::span<const std::byte> from) = 0;
};

}  // namespace tarn
