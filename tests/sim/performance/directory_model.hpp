// DirectoryModel: other systems' protocols, as far as timing requires, to compare with tarn's choices.
//
// A directory without failures, evictions, flushes and copies for durability: omitting them makes it faster.
//
//   queue      chain: home names the next owner before the page is there (ScaleStore). fifo: home orders the next
//              request when the one before has said that it is done. poll: home refuses while a request is under way,
//              and the requester asks again after back_off.
//   resolves   home: home tells the holders whom to serve. requester: home tells the requester, who asks the holders.
//   on_read    downgrade: the owner stays a reader. steal: it loses the page to the reader (ScaleStore).
//
// With chain, requester and steal it is ScaleStore's protocol. With chain, home and downgrade it is tarn's without
// copies to home, which shows their cost, and that the model is not handicapped.
#pragma once

#include <deque>
#include <vector>

#include "coherence/protocol/event.hpp"
#include "tests/sim/performance/load.hpp"

namespace tarn::sim_performance {

struct ModelOptions {
    enum class Queue : uint8_t { chain, fifo, poll };
    enum class Resolves : uint8_t { home, requester };
    enum class OnRead : uint8_t { downgrade, steal };

    Queue queue = Queue::chain;
    Resolves resolves = Resolves::requester;
    OnRead on_read = OnRead::steal;
    Time back_off = 0;
    uint64_t page_count = 1;
};

class DirectoryModel : public System {
  public:
    DirectoryModel(Machine& machine, const ModelOptions& options);

    void start(HostId host, unsigned client, const Operation& operation) override;

  private:
    // Home's record of a page. `source` has its bytes, or no_host: home's memory does.
    struct Entry {
        Tenure tenure = 1;
        HostId owner = no_host;
        HostId source = no_host;
        HostSet readers = 0;
        bool busy = false;  // fifo and poll: a request is under way
        std::deque<Message> queue;
    };
    // A host's state of a page.
    struct Held {
        protocol::Ownership ownership = protocol::Ownership::none;
        Tenure tenure = 0;  // of the present or the last frame
        Latch latch;
        std::vector<unsigned> waiters;
        std::vector<Message> orders;  // not served yet

        protocol::RequestId request = 0;  // 0: none
        MessageKind asked{};
        Tenure granted = 0;
        bool needs_bytes = false;
        bool has_bytes = false;
        HostSet ackers = 0;
        HostSet heard = 0;

        bool complete() const { return granted != 0 && (ackers & ~heard) == 0 && (!needs_bytes || has_bytes); }
    };

    HostId home_of(uint64_t page) const { return static_cast<HostId>(page % machine_.host_count()); }
    Held& held(HostId host, uint64_t page) { return held_[host * options_.page_count + page]; }
    void post(HostId from, HostId to, Message message);
    void receive(HostId to, const Message& message);

    void at_home(const Message& request);
    void order(const Message& request);
    void tell(HostId to, MessageKind kind, const Message& request, Tenure tenure, bool with_bytes, HostId from);
    void done(const Message& message);

    void on_grant(HostId host, const Message& grant);
    void on_refused(HostId host, const Message& refused);
    void advance(HostId host, uint64_t page);
    void complete(HostId host, uint64_t page);
    bool serve(HostId host, uint64_t page, const Message& order);
    void request(HostId host, uint64_t page);
    void access(HostId host, unsigned client, bool was_hit);
    static bool suffices(const Held& held, const Operation& operation);

    Machine& machine_;
    ModelOptions options_;
    std::vector<Entry> entries_;
    std::vector<Held> held_;
    std::vector<std::vector<Operation>> operations_;  // by host and client
    protocol::RequestId last_request_ = 0;
};

}  // namespace tarn::sim_performance
