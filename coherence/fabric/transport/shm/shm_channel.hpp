// ShmChannel: two rings in memory that the hosts at both ends share, as a link uses them.
//
// While a loop is awake it looks at its rings at every turn, and nobody needs to wake it. One that sleeps is woken by a
// byte over the socket that the connection began with; the end of that is the end of the channel. What the peer writes
// is never more than bytes: positions that make no sense break the channel. Made from a connection of ShmTransport.
#pragma once

#include <coroutine>
#include <memory>
#include <vector>

#include "coherence/fabric/transport/shm/segment.hpp"
#include "coherence/fabric/transport/transport.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {

class ShmChannel final : public Channel, private Loop::Watched {
  public:
    ShmChannel(Loop& loop, UniqueFd socket, std::unique_ptr<Segment> segment);

    size_t try_send(std::span<const std::byte> bytes) override;
    Task<Result<size_t>> send(std::span<const std::byte> bytes) override;
    Task<Result<Received>> receive(std::span<std::byte> page, size_t taken) override;
    void shut_down() override;
    Task<> close() override;

  private:
    // Until look() finds something to do.
    struct Wait {
        bool await_ready() const noexcept { return false; }
        void await_suspend(std::coroutine_handle<> handle) { waiter = handle; }
        void await_resume() const noexcept {}
        std::coroutine_handle<> waiter;
    };

    bool look() override;
    bool begin_sleep() override;
    void end_sleep() override;

    bool has_more() { return reader_.bytes().size() > known_ || reader_.is_broken() || is_over_; }
    bool has_room() { return writer_.room(1) > 0 || writer_.is_broken() || is_over_; }
    void take(size_t count);
    void spill();
    void wake_peer();
    Task<> watch_socket();

    Loop& loop_;
    const UniqueFd socket_;
    const std::unique_ptr<Segment> segment_;
    RingWriter writer_;
    RingReader reader_;
    Readiness readiness_;
    Gate watching_;
    bool is_over_ = false;  // shut down, here or there
    bool sleeps_ = false;
    size_t known_ = 0;                // bytes in the ring that receive() has returned
    std::vector<std::byte> spilled_;  // what came before those, of a record that is longer than the ring
    Wait sends_;
    Wait receives_;
};

}  // namespace tarn
