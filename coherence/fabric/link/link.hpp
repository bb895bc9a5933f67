// Link: sends to and receives from one other host, over any transport, and handles its breaks.
//
// Lives as long as the fabric; channels come and go. Each is served on one shard, and there the link is meanwhile.
// Sending appends to a buffer that the link's shard hands to the channel, everything of a turn in one call; messages
// that may wait do not cost an extra call. RecordReader receives. A peer from which nothing came for a while is asked
// whether it is there: a stopped process keeps its connections. Made and used by LinkedFabric.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coherence/fabric/fabric.hpp"
#include "coherence/fabric/link/record_reader.hpp"
#include "coherence/fabric/transport/transport.hpp"
#include "coherence/protocol/coalescing.hpp"
#include "utils/broadcast.hpp"
#include "utils/log_limit.hpp"
#include "utils/loop.hpp"
#include "utils/per_loop.hpp"
#include "utils/spinlock.hpp"

namespace tarn {

// Since the fabric began; any thread.
struct LinkStatus {
    TransportKind transport{};   // of the present channel, or the last one
    uint64_t links = 0;          // that have come up: all but the first are retries
    uint64_t messages_sent = 0;  // in parts that were joined, one each
    uint64_t messages_received = 0;
    uint64_t bytes_sent = 0;
    uint64_t bytes_received = 0;
    std::chrono::nanoseconds round_trip{};  // of the last question whether the host is there; 0: it was never asked
};

class Link final {
  public:
    // A shard's corks: how many are open, and the links that it has sent to since.
    struct Corked {
        unsigned depth = 0;
        std::vector<Link*> links;
    };

    // calls: handlers for the peer's calls. name: the peer's, for the log. buffer_bytes: each of the two buffers keeps
    // at most this capacity while there is nothing to send. drained: announced when the link is not congested any more.
    // corked: shared by all links. loop: where it is until the first channel.
    Link(Loop& loop, HostId peer, std::string name, Fabric::Receiver& receiver, const CallHandlers& calls,
         size_t buffer_bytes, std::chrono::milliseconds listen_for, Broadcast& drained, PerLoop<Corked>& corked)
        : loop_(&loop),
          peer_(peer),
          name_(std::move(name)),
          receiver_(receiver),
          handlers_(calls),
          buffer_bytes_(buffer_bytes),
          listen_for_(listen_for),
          drained_(drained),
          corked_(corked) {}

    HostId peer() const { return peer_; }
    const std::string& name() const { return name_; }
    // The link's shard. It changes while no channel is served, on the shard that it leaves.
    Loop& loop() const { return *loop_.load(std::memory_order_acquire); }
    bool up() const { return up_.load(std::memory_order_relaxed); }
    // At least as many bytes wait as a buffer may keep.
    bool congested() const { return waiting_bytes_.load(std::memory_order_relaxed) >= buffer_bytes_; }
    bool answers() const { return up() && answers_.load(std::memory_order_relaxed); }
    // On any shard: waits until no connection is served or about to be.
    Task<> idle();

    // Any thread. take_over: serves an authenticated connection on this shard until it breaks, unless the link has
    // ended. An older connection is closed: the peer would not connect again if it still had that.
    void take_over(std::unique_ptr<Connection> connection, Process process, Loop& shard);
    void resume();
    void send(const protocol::Message& message, std::span<const std::byte> payload);
    Task<Result<std::string>> call(CallKind kind, std::string request);
    // Called by a shard that had corked it.
    void uncork();
    LinkStatus status() const;
    uint64_t received_count(protocol::MessageKind kind) const {
        return received_[static_cast<uint8_t>(kind)].load(std::memory_order_relaxed);
    }

    // On the link's shard: closes the present connection; end() closes later ones, too.
    void close();
    void end();

    // What its RecordReader has read.
    Result<> on_control(ControlRecord record);
    void count_bytes(size_t count) { add(bytes_received_, count); }
    void count_message(protocol::MessageKind kind) {
        loop().count_message();
        add(received_[static_cast<uint8_t>(kind)], 1);
    }

  private:
    struct Arrival {
        std::unique_ptr<Connection> connection;
        Process process;
        Loop* shard = nullptr;
    };
    Task<> welcome();
    bool try_move_to(Loop& shard);
    Task<> serve(std::unique_ptr<Connection> connection, Process process);
    void connection_ended();

    struct Call;
    // A call on the link's shard; posted again only once it runs.
    template <void (Link::*function)()>
    struct Wake final : Loop::Posted {
        explicit Wake(Link& of) : link(of) {}
        void run() override { (link.*function)(); }
        Link& link;
    };
    // By the link's shard alone, or under the lock.
    static void add(std::atomic<uint64_t>& count, uint64_t summand) {
        count.store(count.load(std::memory_order_relaxed) + summand, std::memory_order_relaxed);
    }
    void wake_writer();
    void begin_later();
    void wake_reader();
    void begin_welcome();

    void cork_if_shard_has();
    void append(std::span<const std::byte> header, std::span<const std::byte> payload, bool may_wait = false);
    bool join_last(const protocol::Message& message);
    void note_waiting(size_t sending_bytes);
    void schedule_writer();
    void schedule_later();
    Task<> write_later();
    void send_control(ControlRecord::Kind kind, uint32_t id = 0, uint8_t detail = 0, std::string_view body = {});
    void append_control(ControlRecord::Kind kind, uint32_t id, uint8_t detail, std::string_view body);
    Task<> write_all(Channel& channel);
    Task<> answer(uint32_t id, CallKind kind, std::string request, uint64_t link);
    void fail_calls();
    Task<> listen_to_peer(Timer& timer);
    void set_answers(bool answers);

    std::atomic<Loop*> loop_;
    HostId peer_;
    const std::string name_;
    Fabric::Receiver& receiver_;
    const CallHandlers& handlers_;
    const size_t buffer_bytes_;
    const std::chrono::milliseconds listen_for_;
    Broadcast& drained_;
    PerLoop<Corked>& corked_;
    Channel* channel_ = nullptr;  // the present one; used on the link's shard
    RecordReader* reader_ = nullptr;
    Broadcast closed_;

    SpinLock lock_;
    std::atomic<bool> up_{false};
    std::atomic<bool> answers_{true};
    std::atomic<TransportKind> transport_{TransportKind::tcp};
    bool greeting_ = false;
    bool writer_busy_ = false;  // the writer looks at outgoing_ again before it waits
    unsigned cork_count_ = 0;   // corked shards that have sent: the writer waits for them
    bool wake_posted_ = false;
    bool later_posted_ = false;  // write_later() will write outgoing_, unless a writer does so first
    std::vector<std::byte> outgoing_;
    size_t sending_bytes_ = 0;              // taken from outgoing_, not yet by the channel
    std::atomic<size_t> waiting_bytes_{0};  // in outgoing_, later_ and being sent
    protocol::Batch batch_;                 // the last record in outgoing_, while messages may join it
    size_t batch_at_ = 0;                   // where it begins in outgoing_
    std::vector<std::byte> later_;          // sent by other shards during our greeting
    std::map<uint32_t, Call*> calls_;
    uint32_t last_call_ = 0;
    std::atomic<uint64_t> link_count_{0};  // links that have come up
    std::atomic<uint64_t> messages_sent_{0};
    std::atomic<uint64_t> bytes_sent_{0};
    std::atomic<uint64_t> bytes_received_{0};
    uint64_t asked_at_ns_ = 0;  // 0: no answer is awaited
    std::atomic<uint64_t> round_trip_ns_{0};
    std::vector<Arrival> arrivals_;                                          // not served yet
    bool welcoming_ = false;                                                 // somebody sees to them
    std::array<std::atomic<uint64_t>, ControlRecord::kind_min> received_{};  // by kind

    Wake<&Link::wake_writer> wake_writer_{*this};
    Wake<&Link::begin_later> wake_later_{*this};
    Wake<&Link::wake_reader> wake_reader_{*this};
    Wake<&Link::begin_welcome> wake_welcome_{*this};
    std::atomic<bool> reader_posted_{false};
    Event writable_;
    bool connection_ends_ = false;
    LogLimit silences_{4, std::chrono::seconds(60)};  // log lines about a silent peer
    std::atomic<unsigned> connection_count_{0};
    bool ended_ = false;
};

}  // namespace tarn
