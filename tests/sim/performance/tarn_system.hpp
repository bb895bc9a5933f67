// TarnSystem: a cluster of the real protocol's stripes, with just enough executor around them to be timed.
//
// One stripe for each host. Frames have no bytes: only who holds what, and when, matters. Home's bytes are in its
// memory, or on its device until they came home once. Frames are replaced in order of their last use. Nothing fails.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <vector>

#include "coherence/protocol/stripe.hpp"
#include "tests/sim/performance/load.hpp"

namespace tarn::sim_performance {

struct TarnOptions {
    protocol::WriteLease lease;
    uint64_t page_count = 1;
    size_t frames_per_host = SIZE_MAX;
    bool home_on_device = false;
};

class TarnSystem : public System {
  public:
    TarnSystem(Machine& machine, const TarnOptions& options);

    void start(HostId host, unsigned client, const Operation& operation) override;
    void evict(HostId host, uint64_t page);

  private:
    struct Frame {
        bool used = false;
        PageId page{};
        protocol::Ownership access = protocol::Ownership::none;
        bool dirty = false;
        bool busy = false;      // quiesce was asked: no new accesses
        bool recalled = false;  // quiesce was asked, but local accesses may still go first
        bool leaving = false;   // hinted to be evicted
        uint32_t lease_writes = 0;
        Time lease_until = 0;
        Latch latch;
        std::list<FrameId>::iterator place;  // in by_use, if access is not none
    };
    struct Client {
        Operation operation;
        bool waits_for_frame = false;
    };
    struct Host {
        HostId id;
        protocol::Stripe stripe;
        std::vector<Frame> frames;
        std::vector<FrameId> free;
        std::vector<FrameId> bound;  // by page number
        std::list<FrameId> by_use;   // coldest first
        size_t used = 0;
        size_t leaving = 0;
        bool replacing = false;
        std::vector<Client> clients;
        std::deque<unsigned> starved;  // clients that wait for a frame
        std::deque<protocol::Event> pending;
        bool stepping = false;

        Host(HostId id, const RangeMap& ranges) : id(id), stripe(id, 1, ranges) {}
    };
    static constexpr size_t replaced_at_once = 32;

    static PageId page_id(uint64_t number) { return PageId::of(0, number); }
    void receive(HostId to, const Message& message);
    void step(Host& host, const protocol::Event& event);
    void perform(Host& host, const protocol::Action& action);
    void quiesce(Host& host, const protocol::Action& action);
    void set_access(Host& host, const protocol::Action& action);
    void acquire(Host& host, unsigned client);
    void access(Host& host, unsigned client, FrameId frame, bool was_hit);
    void accessed(Host& host, unsigned client, FrameId frame, bool was_hit);
    bool may_begin(Frame& frame, const Operation& operation);
    FrameId allocate(Host& host, PageId page);
    void release(Host& host, FrameId frame);
    void stay(Host& host, Frame& frame);
    void replace_soon(Host& host);
    void replace(Host& host);

    Machine& machine_;
    TarnOptions options_;
    RangeMap ranges_;
    std::vector<std::unique_ptr<Host>> hosts_;
    std::vector<bool> at_home_;  // pages whose bytes are in the memory of their homes
    protocol::Actions actions_;
};

}  // namespace tarn::sim_performance
