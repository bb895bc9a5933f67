// TarnSystem: a cluster of the real protocol's stripes and executor, with just enough effects to be timed.
//
// One stripe for each host. Frames have no bytes: only holders and times matter. Home's bytes are on its device until
// they came home once, then in its memory. Frames are replaced in order of their last use. Nothing fails.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <vector>

#include "coherence/executor/executor.hpp"
#include "tests/sim/performance/load.hpp"
#include "utils/assert.hpp"

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
        bool leaving = false;   // an eviction hint was given
        uint32_t lease_writes = 0;
        Time lease_until = 0;
        Latch latch;
        std::list<FrameId>::iterator place;  // in by_use, if access is not none
    };
    struct Client {
        Operation operation;
        bool waits_for_frame = false;
    };
    // The executor's effects: the frames of one host. FLUSH is not timed.
    struct Host final : Frames, HomeStore, Outbox, FlushBooks, Accesses {
        Host(TarnSystem& system, HostId id)
            : system(system), id(id), stripe(id, 1, {.last_in_doubt = 1}, system.ranges_) {}

        Quiet quiesce(PageId page, FrameId frame, bool recalled) override;
        DirtyMask unwritten_of(FrameId frame) override { return frames[frame].dirty ? all_sectors : 0; }
        void set_access(PageId page, FrameId frame, protocol::Ownership ownership, uint32_t lost) override;
        void begin_writing(FrameId frame) override { frames[frame].dirty = false; }
        void clear_writing(FrameId) override {}
        void clear_dirty(FrameId frame) override { frames[frame].dirty = false; }
        void mark_dirty(FrameId frame) override { frames[frame].dirty = true; }
        bool release(FrameId frame) override;
        uint32_t age_of(FrameId) override { return 0; }
        void keep_lease(PageId, FrameId) override {}
        void freed() override {}

        bool apply_copy(const protocol::Action& action) override { return keep_copy(action); }
        bool keep_copy(const protocol::Action& action) override;
        Found find(PageId page) override;
        bool share(FrameId) override { return false; }
        void copy(Found, FrameId) override {}
        FrameId take_free_frame() override { return no_frame; }
        void read(std::vector<HomeRead> reads) override;
        void record_losses(std::vector<PageId>, HostId) override {}
        void mark(std::vector<PageId>) override {}

        void send(HostId to, const Message& message, FrameId) override { system.machine_.send(id, to, message); }

        void book(const protocol::Action&, protocol::FlushActions&) override {}
        void on_written(protocol::WaiterToken, protocol::FlushActions&) override {}
        void run(protocol::FlushActions) override {}

        bool wake(const protocol::Action& action, bool may_resume) override;
        void refuse(const protocol::Action&) override { TARN_ASSERT(false); }
        void resume(protocol::WaiterToken) override {}

        void stay(Frame& frame);

        TarnSystem& system;
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
    };
    static constexpr size_t replaced_at_once = 32;

    static PageId page_id(uint64_t number) { return PageId::of(0, number); }
    void receive(HostId to, const Message& message);
    void step(Host& host, const protocol::Event& event);
    void acquire(Host& host, unsigned client);
    void access(Host& host, unsigned client, FrameId frame, bool was_hit);
    void accessed(Host& host, unsigned client, FrameId frame, bool was_hit);
    bool may_begin(Frame& frame, const Operation& operation);
    FrameId allocate(Host& host, PageId page);
    void replace_soon(Host& host);
    void replace(Host& host);

    Machine& machine_;
    TarnOptions options_;
    RangeMap ranges_;
    std::vector<std::unique_ptr<Host>> hosts_;
    std::vector<bool> at_home_;  // pages whose bytes are in the memory of their homes
    StepScratch scratch_;
};

}  // namespace tarn::sim_performance
