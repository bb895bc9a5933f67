// DeviceConnection: one connection of a block device of this host's kernel, on one shard.
//
// The kernel does not notice that the daemon stops or is killed: what the connection has in flight is in a DeviceLog,
// and the next process goes on with it. So nothing here is answered, or forgotten, but through the log.
//
// A wake-up receives what there is into the log's ring, serves each request in it where it lies, and answers with one
// gathered send that points into frames; pins end right after that system call. What misses the hot path becomes a
// task. Once the first byte of a read is out, the others are at hand: what does not fit into one send is copied before
// it, and what the socket does not take behind it. For an error there would be no place any more, and the kernel waits
// for the rest of an answer as long as for the answer.
//
// Bounded by the log: requests by its slots, bytes by its ring. At a bound, and while the socket takes no replies, the
// connection stops reading.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "frontends/nbd/buffer.hpp"
#include "frontends/nbd/connection.hpp"
#include "frontends/nbd/device_log.hpp"
#include "frontends/volumes/volume.hpp"
#include "utils/interrupt.hpp"
#include "utils/loop.hpp"
#include "utils/sync.hpp"
#include "utils/unique_fd.hpp"

namespace tarn::nbd {

class DeviceConnection final : Loop::Posted {
  public:
    // How it ended.
    enum class End : uint8_t {
        stopped,       // by stop(): the next process goes on with the log
        disconnected,  // the kernel has said so: the device is to end
        lost,          // the kernel has hung up, or it cannot go on: the device may get another connection
    };

    // The memory, and first_receipt: see DeviceLog. The memory outlives the connection and its volume. resized is
    // called when the volume is found to have another size than at the last request; at first: than the exported one.
    DeviceConnection(
        Workspace& workspace, std::shared_ptr<Volume> volume, const Export& exported, UniqueFd socket,
        DeviceLog::Memory& memory, uint32_t first_receipt, Client client, std::function<void()> resized = [] {});
    DeviceConnection(const DeviceConnection&) = delete;
    ~DeviceConnection() { TARN_ASSERT(!send_posted_ && tasks_ == 0); }

    // On the shard of its workspace. Goes on with what is in flight, and serves until its end. The log keeps what is
    // not answered then.
    Task<End> serve();
    // Reads no further request. What is under way ends or is left to the next process.
    void stop();
    // The export is gone: everything is refused.
    void end_export() { export_ended_ = true; }
    const Volume& volume() const { return *volume_; }
    const Client& client() const { return client_; }

  private:
    struct Copy {            // of bytes to be sent: of the rest of the read, or of the front of that
        uint32_t begin = 0;  // in the data of the read
        Buffer bytes;
        bool has(uint32_t at) const { return at >= begin && at - begin < bytes.size(); }
    };
    enum class Added : uint8_t { whole, in_part, missing, no_room };
    class KernelLeft final : public Interrupt {};

    Task<> watch_kernel();
    void go_on();
    bool congested() const;
    void receive();
    void serve_received();
    // again: another process may have begun with it.
    void perform(uint16_t slot, bool again);
    Errno judge(const Request& request) const;
    void refuse_large_write();
    void start(Task<> task);
    Task<> carry_out(Task<> task);
    void note_size(uint64_t size_bytes);
    bool try_learn_size();
    Task<bool> learn_size();

    void perform_write(uint16_t slot, bool again);
    Task<> write_later(uint16_t slot);
    Task<> zero_later(uint16_t slot);
    // Of a request that is answered with whether this worked.
    Task<> finish_after(uint16_t slot, Task<Result<>> work) { end(slot, co_await std::move(work)); }
    void end(uint16_t slot, const Result<>& result);
    void finish(uint16_t slot, Errno error);

    void run() override;  // at the end of a turn in which tasks finished
    void post_send();
    void send();
    void fill(std::vector<uint16_t>& slots);
    Added add(uint16_t slot);
    Added add_data(uint16_t slot, uint32_t at);
    void keep_rest();
    void bring(uint16_t slot);
    Task<> fetch(uint16_t slot);
    Task<> copy(uint16_t slot);
    Task<> copy_rest(uint16_t slot);
    void settle(const std::vector<uint16_t>& slots);
    Task<> drain();
    void leave(End how);
    // Whether nobody takes answers any more.
    bool has_left() const { return ended_ && *ended_ != End::stopped; }
    void break_off(const char* why);

    Workspace& workspace_;
    const std::shared_ptr<Volume> volume_;
    Export export_;
    const UniqueFd socket_;
    DeviceLog log_;
    const Client client_;
    const std::function<void()> resized_;
    Budget budget_;

    bool readable_ = true;
    bool unserved_ = false;              // requests were received that have no slot yet
    Errno size_error_ = Errno::none;     // why it is not, which then is the answer to each request
    std::optional<uint16_t> too_large_;  // a write whose payload is thrown away as it comes
    std::deque<uint16_t> ready_;         // to be answered
    std::optional<uint16_t> partial_;    // a part of its answer is out: the rest comes before anything else
    bool brings_partial_ = false;        // its bytes are on their way
    std::map<uint16_t, Copy> copies_;
    std::optional<uint16_t> copied_;  // the read that is copied before its first byte is sent: one at a time
    std::vector<bool> fetched_;       // by slot: reads whose pages were brought in once
    bool send_blocked_ = false;       // drain() runs
    bool send_posted_ = false;
    std::optional<End> ended_;
    bool export_ended_ = false;
    size_t tasks_ = 0;
    KernelLeft kernel_left_;  // what the tasks carry: the kernel has hung up
    Event progress_;
    Gate gate_;
};

}  // namespace tarn::nbd
