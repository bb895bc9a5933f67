#include "frontends/fuse/ring.hpp"

#include <fmt/format.h>
#include <linux/fuse.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "frontends/fuse/file_system.hpp"
#include "utils/log.hpp"

namespace tarn::fuse {

namespace {

// In front of an entry's payload: the headers, and room to put a request together as the library expects it, in one
// piece with its payload.
constexpr size_t entry_front_bytes = 4096;
constexpr size_t entry_stride_bytes = entry_front_bytes + transfer_size_max;
static_assert(sizeof(RingHeaders) + sizeof(fuse_in_header) + sizeof(RingHeaders::first_argument) <= entry_front_bytes);

// An operation that waits, for a host that is away say, keeps its entry: there must be more than may wait at once. What
// they take of memory is the payloads they have had.
constexpr unsigned entries_max = 4096;  // of all CPUs that are on
constexpr unsigned depth_min = 32;
constexpr unsigned depth_max = 256;

// One that cannot be turned off has no such file.
bool is_online(size_t cpu) {
    std::ifstream state(fmt::format("/sys/devices/system/cpu/cpu{}/online", cpu));
    return !state || state.get() == '1';
}

}  // namespace

class Ring::Entry final : public Loop::Completion {
  public:
    Entry(Ring& ring, uint16_t queue, std::span<std::byte> memory)
        : queue(queue),
          headers(new(memory.data()) RingHeaders),
          payload(memory.subspan(entry_front_bytes)),
          vectors_{{{headers, sizeof *headers}, {payload.data(), payload.size()}}},
          ring_(ring) {}

    void complete(int32_t result, bool /*more: never*/) override { ring_.completed(*this, result); }
    void prepare(io_uring_sqe& sqe, int device, RingCommand command) {
        const bool joins = command == RingCommand::join;
        io_uring_prep_rw(IORING_OP_URING_CMD, &sqe, device, joins ? vectors_.data() : nullptr,
                         joins ? static_cast<unsigned>(vectors_.size()) : 0, 0);
        sqe.cmd_op = static_cast<uint32_t>(command);
        const RingCommandArguments arguments{.request_id = joins ? 0 : headers->request_id, .queue = queue};
        std::memcpy(sqe.cmd, &arguments, sizeof arguments);
    }

    const uint16_t queue;
    RingHeaders* const headers;
    const std::span<std::byte> payload;

  private:
    std::array<iovec, 2> vectors_;  // read when the entry joins
    Ring& ring_;
};

Result<std::vector<std::vector<RingQueue>>> ring_queues(std::span<Loop* const> shards) {
    const int possible = ::get_nprocs_conf();
    const int online = ::get_nprocs();
    if (possible <= 0 || online <= 0 || possible > UINT16_MAX) return fail(Errc::io, 0, "fuse.ring: number of CPUs");
    const unsigned depth = std::clamp(entries_max / static_cast<unsigned>(online), depth_min, depth_max);
    std::vector<std::vector<RingQueue>> queues(shards.size());
    for (unsigned cpu = 0; cpu < static_cast<unsigned>(possible); ++cpu) {
        const auto joined =
            std::ranges::find_if(shards, [&](const Loop* shard) { return shard->cpus().contains(cpu); });
        const size_t shard =
            joined == shards.end() ? cpu % shards.size() : static_cast<size_t>(joined - shards.begin());
        queues[shard].push_back({.number = static_cast<uint16_t>(cpu), .depth = is_online(cpu) ? depth : 1});
    }
    return queues;
}

Result<std::unique_ptr<Ring>> Ring::create(Loop& loop, fuse_session* session, std::span<const RingQueue> queues) {
    size_t entries = 0;
    for (const RingQueue& queue : queues) entries += queue.depth;
    std::unique_ptr<Ring> ring(new Ring(loop, session));
    if (entries == 0) return ring;
    TRY(ring->memory_, Mapping::create(entries * entry_stride_bytes));
    std::span<std::byte> rest = ring->memory_.bytes();
    for (const RingQueue& queue : queues)
        for (unsigned i = 0; i < queue.depth; ++i, rest = rest.subspan(entry_stride_bytes))
            ring->entries_.push_back(std::make_unique<Entry>(*ring, queue.number, rest.first(entry_stride_bytes)));
    return ring;
}

Ring::Ring(Loop& loop, fuse_session* session) : loop_(loop), session_(session) {}

Ring::~Ring() {
    TARN_ASSERT(submitted_ == 0);
}

void Ring::open() {
    for (const std::unique_ptr<Entry>& entry : entries_) submit(*entry, RingCommand::join);
}

void Ring::submit(Entry& entry, RingCommand command) {
    ++submitted_;
    const int device = fuse_session_fd(session_);
    loop_.start(entry, [&](io_uring_sqe& sqe) { entry.prepare(sqe, device, command); });
}

void Ring::completed(Entry& entry, int32_t result) {
    --submitted_;
    if (result >= 0) loop_.count_requests(1);
    if (result >= 0 && loop_.cpus().contains(entry.queue)) loop_.count_near_wake_up();
    if (result >= 0 && !refusing_) serve(entry);
    const bool ended = result == -ENOTCONN || result == -ECONNABORTED || result == -ECANCELED;
    if (result < 0 && !ended && !std::exchange(warned_, true))
        log::warning("fuse: the kernel refuses a request of io_uring on queue {}: {}; requests come over the device",
                     entry.queue, std::strerror(-result));
    if (submitted_ == 0) closed_.notify_all();
}

// The library takes a request in one piece: what precedes the payload is moved to where the payload begins.
void Ring::serve(Entry& entry) {
    const RingHeaders& headers = *entry.headers;
    fuse_in_header header{};
    std::memcpy(&header, headers.header.data(), sizeof header);
    const size_t payload_size = headers.payload_size_bytes;
    const size_t argument_size = header.len - sizeof header - payload_size;
    TARN_ASSERT(header.len >= sizeof header + payload_size && payload_size <= entry.payload.size() &&
                argument_size <= headers.first_argument.size());  // the kernel's word
    std::byte* const argument = entry.payload.data() - argument_size;
    std::byte* const request = argument - sizeof header;
    std::memcpy(argument, headers.first_argument.data(), argument_size);
    std::memcpy(request, &header, sizeof header);
    in_hand_.push_back({.unique = header.unique, .entry = &entry});
    fuse_buf buffer{};
    buffer.mem = request;
    buffer.size = header.len;
    fuse_session_process_buf(session_, &buffer);
}

bool Ring::reply(std::span<const iovec> message) {
    fuse_out_header header{};
    TARN_ASSERT(!message.empty() && message.front().iov_len == sizeof header);
    std::memcpy(&header, message.front().iov_base, sizeof header);
    const auto found = std::ranges::find(in_hand_.rbegin(), in_hand_.rend(), header.unique, &InHand::unique);
    if (found == in_hand_.rend()) return false;
    Entry& entry = *found->entry;
    *found = in_hand_.back();
    in_hand_.pop_back();
    std::memcpy(entry.headers->header.data(), &header, sizeof header);
    size_t size = 0;
    for (const iovec& part : message.subspan(1)) {
        TARN_ASSERT(part.iov_len <= entry.payload.size() - size);
        std::memcpy(entry.payload.data() + size, part.iov_base, part.iov_len);
        size += part.iov_len;
    }
    entry.headers->payload_size_bytes = static_cast<uint32_t>(size);
    submit(entry, RingCommand::answer_and_fetch);
    return true;
}

Task<> Ring::closed() {
    while (submitted_ > 0) co_await closed_.wait();
}

}  // namespace tarn::fuse
