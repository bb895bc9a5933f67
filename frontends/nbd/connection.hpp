// Connection: one NBD client on one shard at a time, from its greeting to its end.
//
// A wake-up receives all there is into the shard's one buffer, serves each request in it where it lies, and answers
// with one gathered send that points into frames; pins end right after that system call. What misses the hot path
// becomes a task and is answered when it is done, in any order. An idle connection therefore owns no buffer.
//
// Each request is checked against the size that the volume has after it came: who shrinks a volume, on whatever host,
// and then hears of it, sees no later write past the new end.
//
// Bounded: tasks, and bytes held for requests and replies. At a bound, and while the socket takes no replies, the
// connection stops reading; it never grows and holds up nobody else. It does not wait for other connections to give
// back their part of the share, since they may be waiting for a host that is away: a connection with nothing else in
// work goes on without room, and serves a large request in pieces. So beyond the share a connection holds at most one
// piece of a request and one of what it has received. (If its client takes no replies: what one send leaves over, at
// most twice ReplyBatch::read_size_max.)
//
// It follows its client: when that runs on the CPU of another shard, it goes on there (following.hpp). It leaves a
// shard only while nothing is in work, so each request ends where it began.
//
// A write is answered only when all of it has arrived, even if it is refused: clients take an answer to a request that
// they are still sending for a protocol error. It also takes effect only then, unless it is served in pieces.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "frontends/nbd/admission.hpp"
#include "frontends/nbd/buffer.hpp"
#include "frontends/nbd/client_cpu.hpp"
#include "frontends/nbd/device_replies.hpp"
#include "frontends/nbd/following.hpp"
#include "frontends/nbd/handshake.hpp"
#include "frontends/nbd/landing.hpp"
#include "frontends/nbd/newcomers.hpp"
#include "frontends/nbd/out_queue.hpp"
#include "frontends/nbd/reply.hpp"
#include "frontends/nbd/request.hpp"
#include "frontends/nbd/sessions.hpp"
#include "frontends/nbd/settings.hpp"
#include "frontends/nbd/stream.hpp"
#include "frontends/volumes/volumes.hpp"
#include "utils/interrupt.hpp"
#include "utils/log_limit.hpp"
#include "utils/loop.hpp"
#include "utils/sync.hpp"
#include "utils/unique_fd.hpp"

namespace tarn::nbd {

// What the connections of one shard share: between two waits, one of them uses it.
struct Workspace {
    static constexpr size_t receive_size_bytes = 256 * 1024;  // at once
    static_assert(receive_size_bytes < LandingBuffers::buffer_size_bytes);

    // memory: LandingBuffers::size_bytes, from where the volumes' writes need fewer copies; or none.
    Workspace(Loop& shard, Share& daemon_share, const Settings& of_server, Newcomers& of_all_shards,
              std::span<std::byte> memory = {})
        : loop(shard),
          share(daemon_share),
          settings(of_server),
          newcomers(of_all_shards),
          own_memory(memory.empty() ? LandingBuffers::size_bytes : 0),
          landing(memory.empty() ? std::span(own_memory) : memory) {}

    Loop& loop;
    Share& share;
    const Settings& settings;
    Newcomers& newcomers;
    std::vector<std::byte> own_memory;
    LandingBuffers landing;
    TlsBuffers tls;
    ReplyBatch batch;
    std::vector<iovec> vectors;
    std::vector<Volume::Range> expected;
    DeviceReplies device_replies;
    LogLimit refusals{20, std::chrono::seconds(10)};  // lines about clients that break the protocol
};

class Connection final : Loop::Posted {
  public:
    // How long a client has to take its last replies, and the requests of a client that has left have to end. After
    // that they are interrupted: they may wait for a host that is away.
    static constexpr std::chrono::seconds farewell_time_max{5};
    // How long the end of a connection within TLS is waited for that the client has announced.
    static constexpr std::chrono::seconds end_time_max{1};
    static constexpr size_t tasks_max = 256;
    // And half of the share.
    static constexpr size_t held_bytes_max = 64 * 1024 * 1024;
    static constexpr uint32_t piece_size_max = 64 * 1024;
    static_assert(piece_size_max <= Workspace::receive_size_bytes && piece_size_max > extended_request_size);
    // What was only looked at (socket_reader.hpp) is taken so long after.
    static constexpr std::chrono::milliseconds take_after{20};
    // Of a client that sends more at a time nothing stays on the socket: it does not wait for each answer.
    static constexpr uint64_t looked_at_together_max = 4;
    // What is read for it before the others on its shard have their turn; a request counts as a page at least.
    static constexpr size_t turn_size_max = size_t{4} << 20;
    // The memory of a request that waits, apart from its bytes. Measured.
    static constexpr size_t task_size_bytes = 2048;
    static constexpr size_t task_bytes_per_page = 256;

    // The shard on which a connection is to go on that was served until now, but for a client on this CPU; null: it
    // stays. Who gets one goes there.
    using ShardOf = std::function<Workspace*(unsigned cpu)>;

    // The workspace is that of its first shard. shard_of: empty, it stays there.
    // place: among the connections of its client. admission: null, it may use every export, and has no TLS.
    Connection(Workspace& workspace, Volumes& volumes, Sessions& sessions, UniqueFd socket, Client client,
               ShardOf shard_of = {}, unsigned place = 0, std::shared_ptr<const Admission> admission = {});
    Connection(const Connection&) = delete;
    ~Connection() { TARN_ASSERT(!send_posted_ && tasks_ == 0); }

    // On the shard of its workspace. Returns null when the client is gone and nothing is in flight, or the shard on
    // which to call it again.
    Task<Workspace*> serve();
    // Reads no further request, answers those in flight, then ends.
    void stop();
    // The export is gone: what the client has sent is refused, then it is disconnected.
    void end_export();
    bool uses(VolumeId volume) const { return volume_ && volume_->id() == volume; }
    const Client& client() const { return client_; }

  private:
    struct Incoming {  // a write whose payload is still on its way
        Request request;
        // The payload: a copy of all of it, or of a piece; or all of it where it came in, and as many bytes held.
        Buffer copied;
        LandingBuffers::Landed landed;
        Held held;
        size_t received_bytes = 0;  // of payload()
        uint32_t done_bytes = 0;    // in pieces before this one

        std::span<std::byte> payload() const { return landed ? landed.payload() : copied.bytes(); }
        bool is_complete() const { return received_bytes == payload().size(); }
        uint32_t rest_bytes() const {
            return request.data_bytes() - done_bytes - static_cast<uint32_t>(payload().size());
        }
        bool is_last_piece() const { return rest_bytes() == 0; }
        // Its buffer is the shard's, which the connection is about to leave.
        void leave_shard();
    };
    class ClientLeft final : public Interrupt {};
    struct Refused {  // a request that is not served, and whose payload, mostly a write's, is still on its way
        Request request;
        Errno error;
        uint64_t skip_bytes;
    };

    // Negotiation (negotiate.cpp).
    Task<Result<>> negotiate();
    Task<Result<>> converse(Handshake& handshake);
    Task<> answer(Handshake& handshake);
    Task<> answer_list(Handshake& handshake);
    ExportEntry describe(const VolumeEntry& entry, uint64_t size_bytes) const;
    Task<Result<VolumeEntry>> find(const std::string& name);
    Task<Result<std::vector<VolumeEntry>>> visible();
    bool may_see(const std::string& volume) const;
    Handshake::Tls tls_offer() const;
    Task<Result<>> begin_tls();
    // Nobody waits for the end of its handshake any more.
    bool is_given_up() const { return leaving_ || !visit_->has_place(); }
    Task<Result<std::shared_ptr<Volume>>> open(const VolumeEntry& entry);
    Task<> refuse(Handshake& handshake, Error error);
    Task<> end_tasks();

    // Transmission.
    Task<Workspace*> transmit();
    void note_wake_up();
    bool settled() const;
    Task<> watch_client(Timer& timer);
    Task<> take_later(Timer& timer);
    Task<> say_farewell();
    Task<> say_end(bool waits);
    void leave();
    void receive_and_serve();
    void serve_carried();
    bool learn_size();
    Task<> await_size();
    void settle_carry();
    void serve_incoming();
    size_t serve(std::span<const std::byte> bytes);
    size_t header_size() const { return export_.extended ? extended_request_size : request_size; }
    Result<Request> decode(std::span<const std::byte> bytes) const;
    Errno judge(const Request& request) const;
    size_t serve_received(std::span<const std::byte> bytes);
    size_t announce(std::span<const std::byte> bytes);
    static size_t bytes_to_hold(const Request& request, size_t received_bytes);
    size_t begin_write(const Request& request, std::span<const std::byte> bytes, Held held);
    bool busy() const { return tasks_ > 0 || !queue_.empty(); }
    bool congested() const;

    void refuse_write(const Request& request, Errno error, uint64_t rest_bytes);
    size_t skip(std::span<const std::byte> bytes);
    size_t fill(std::span<const std::byte> bytes);
    void on_read(const Request& request, Held held);
    void on_write(const Request& request, std::span<const std::byte> payload, Buffer owned);
    bool unpinned();
    void on_other(const Request& request);
    void status(const Request& request, Errno error);

    // Tasks (tasks.cpp).
    void start(const Request& request, Task<> task);
    Task<> carry_out(Task<> task, size_t task_bytes);
    Task<> read_later(Request request);
    Task<> read_copied(Request request, Buffer data);
    static uint32_t piece_size(const Request& request, uint32_t done_bytes);
    Task<> read_pieces(Request request);
    void start_piece(Incoming piece);
    Task<> write_piece(Incoming piece);
    void reply_fetched();
    Task<> copy_fetched(Request request, Buffer data);
    Task<> write_later(Request request, Buffer payload);
    // A request that is answered with whether this worked.
    Task<> finish_after(Request request, Task<Result<>> work) { finish(request, to_errno(co_await std::move(work))); }
    Task<> zero_later(Request request);
    Task<> block_status_later(Request request);
    Task<Result<>> flush_range(const Request& request) {
        return volume_->flush_range(request.offset_bytes, request.size_bytes, false);
    }
    void finish(const Request& request, Errno error) { finish(encode_status(request, error, export_.structured), {}); }
    void finish(const ReplyHeader& header, Buffer payload);
    void finish_queued();
    void post_send();

    // Sending.
    void run() override;  // at the end of a turn in which tasks finished
    void send();
    bool send_queue();
    bool send_gathered(std::span<const iovec> vectors, size_t& sent_bytes);
    Task<> drain();
    void break_off();
    void log_refusal(const char* what, std::string_view why);

    Workspace* workspace_;  // of the shard that it is on
    Volumes& volumes_;
    Sessions& sessions_;
    Stream stream_;
    const std::shared_ptr<const Admission> admission_;
    Client client_;
    const ShardOf shard_of_;
    ClientCpu client_cpu_;
    Following following_;
    std::optional<Newcomers::Visit> visit_;  // until it was let in
    bool negotiated_ = false;

    Export export_;
    std::shared_ptr<Volume> volume_;
    Budget budget_;
    size_t wanted_bytes_ = 1;       // of the request that is next
    uint64_t came_together_ = 0;    // requests that were served together, the last time
    bool in_pieces_ = false;        // a request is: nothing else may begin
    bool readable_ = true;          // the socket may have more bytes, or its end
    bool hung_up_ = false;          // no more bytes will come than the socket has now
    std::vector<std::byte> carry_;  // received and not served yet
    Held carry_held_;
    bool awaits_size_ = false;        // for which another host may be asked
    bool carry_may_serve_ = false;    // it may hold whole requests, or complete what is incoming
    Errno size_error_ = Errno::none;  // why it is not known, which then is the answer to each request
    std::optional<Incoming> incoming_;
    std::optional<Refused> refused_;

    OutQueue queue_;
    std::vector<Request> fetched_;  // reads whose pages were brought in; answered at the end of the turn
    size_t copying_ = 0;            // of these, because they were gone again
    bool send_blocked_ = false;     // drain() runs
    bool send_posted_ = false;
    bool was_refused_ = false;  // an export, and the log says so
    bool said_disconnect_ = false;
    bool leaving_ = false;  // no more requests
    bool broken_ = false;   // no more replies either, so nothing is served
    size_t tasks_ = 0;
    size_t tasks_ended_ = 0;
    ClientLeft client_left_;  // what the tasks carry
    bool stopped_ = false;
    bool export_ended_ = false;
    Event progress_;
    Gate gate_;
};

}  // namespace tarn::nbd
