// SimCluster: several hosts, a network that delays and reorders, clients, and faults; one thread, one seed.
//
// Virtual time advances from task to task; equal times run in the order in which they were scheduled. Nothing here
// depends on addresses or on the order of hash tables, so one seed is one run, bit for bit (trace_hash).
//
//   sim_cluster.cpp  virtual time
//   network.cpp      links, and messages
//   faults.cpp       which faults come, and when
//   recovery.cpp     processes that end and start
//   effects.cpp      what stands behind the executor
//   clients.cpp      operations of local threads
//   checks.cpp       invariants after each step, and at the end
//   trace.cpp        printing of a run
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <queue>
#include <string>
#include <vector>

#include "coherence/executor/executor.hpp"
#include "coherence/membership/range_map.hpp"
#include "tests/sim/protocol/coverage.hpp"
#include "tests/sim/protocol/history.hpp"
#include "tests/sim/protocol/scenario.hpp"
#include "tests/sim/protocol/sim_host.hpp"
#include "tests/sim/protocol/truth.hpp"
#include "tests/sim/support/random.hpp"

namespace tarn::sim {

enum class Tracing : uint8_t {
    off,
    last,  // kept: as many lines as a failure report has room for
    all,   // printed as it happens
};

class SimCluster : public Truth::World {
  public:
    SimCluster(uint64_t seed, const Scenario& scenario, Tracing tracing = Tracing::off);

    // Runs until every client is done and nothing is under way. Throws Failure.
    void run();

    // After a failed run: the last steps, if they were kept, and what each host holds and waits for.
    void describe() const;

    uint64_t trace_hash() const { return trace_hash_; }
    uint64_t event_count() const { return event_count_; }
    uint64_t operation_count() const { return operation_count_; }
    const Coverage& coverage() const { return coverage_; }

    uint32_t incarnation_of(HostId host) const override;
    protocol::Verifier verifier_of(PageId page) const override;
    uint64_t stored_version_of(PageId page) const override;
    void lost(PageId page) override {
        history_.forget(page);
        finds_loss_ = true;
    }

  private:
    class Effects;
    using Time = uint64_t;

    struct Task {
        enum class Kind : uint8_t {
            start_operation,  // client
            leave_latch,      // client, frame: a local hit ends
            serve,            // client, frame: a woken operation has its access
            retry,            // client, page: there was no free frame
            cancel,           // client
            message,          // message, content
            home_read,        // message, to: home's bytes are there
            store_flushed,    // ticket
            loss_recorded,    // page
            marked,           // page
            evict_hint,
            hello_done,  // from
            lease_over,  // frame, number
            crash,
            restart,
            forget,          // host: those who are up are told that it is dead
            cut,             // a random link
            link_up,         // from
            side_up,         // from: the host's side of that link is up, too
            unstick,         // from: the direction from there flows again, or the link is given up
            pause,           // a random process is stopped
            resume,          // host: it goes on
            leave,           // from: to there, frame, content as it was handed over; its bytes leave this host
            replace_store,   // host: an operator ends its process, since its store failed
            volumes_opened,  // from: this home has recovered while the host was paused
        };
        Kind kind{};
        HostId host = no_host;
        HostId from = no_host;
        uint32_t epoch = 0;  // of `host`'s process: the task dies with it; 0: it does not
        uint32_t link_epoch = 0;
        bool has_content = false;
        uint32_t client = 0;
        FrameId frame = no_frame;
        uint64_t number = 0;
        PageId page{};
        protocol::Message message{};
        std::vector<protocol::Part> parts{};  // of message
        Content content{};
        std::vector<std::pair<PageId, Bytes>> bytes{};  // store_flushed
    };
    // The last message on a link, as long as more may join it.
    struct Gathering {
        protocol::Batch batch;
        uint32_t slot = 0;  // of its task
        uint32_t link_epoch = 0;
        Time until = 0;
    };
    struct Due {
        Time time;
        uint64_t sequence;
        uint32_t slot;
        bool operator>(const Due& other) const {
            return time != other.time ? time > other.time : sequence > other.sequence;
        }
    };

    // sim_cluster.cpp
    void schedule(Time delay, Task task) { (void)enter(delay, std::move(task)); }
    // What was held back: before all else of this moment, so that nothing overtakes it on its link.
    void schedule_first(Task task) { (void)enter(0, std::move(task), ++first_sequence_); }
    uint32_t enter(Time delay, Task task) { return enter(delay, std::move(task), ++sequence_); }
    uint32_t enter(Time delay, Task task, uint64_t sequence);  // its slot
    void run_if_alive(Task& task);
    void run_task(Task& task);
    bool is_dead(const Task& task) const;
    bool clients_are_busy() const;

    // network.cpp
    void set_link_down(HostId a, HostId b);
    void link_up(HostId a, HostId b);
    void side_up(HostId host, HostId peer);
    void hello(HostId host, HostId peer, Time until_up);
    void open_volumes(SimHost& host, const SimHost& home) const;
    static void hear(SimHost& host, HostId home, VolumeId volume, protocol::Verifier verifier);
    void transmit(HostId from, HostId to, protocol::Message message, const Content* content);
    void stamp(HostId from, protocol::Message& message) const;
    void carry(HostId from, HostId to, const protocol::Message& message, const Content* content);
    bool send_later(SimHost& host, HostId to, protocol::Message message, FrameId frame);
    void finish_send(const Task& task, bool leaves);
    bool join_last(const Task& task);
    void deliver(const Task& task);
    void tell_flush_home(SimHost& host, const protocol::Message& message, protocol::FlushActions& actions);
    void note_failed_stores(SimHost& host, Event& event);
    void deliver_page(SimHost& host, const Task& task, const protocol::Message& message);

    // faults.cpp
    void begin_faults();
    void crash_somebody(const Task& task);
    void cut_something(const Task& task);
    void stick(HostId from, HostId to);
    void unstick(const Task& task);
    void pause_somebody(const Task& task);
    void resume(SimHost& host);
    bool hold_back(Task& task);
    void fail_store(SimHost& host);
    void check_store_failure(SimHost& host);
    bool refuses_writes(const SimHost& host, PageId page) const;
    bool knows_a_failed_store(const SimHost& host) const;
    void record_loss(SimHost& host, const Task& task);
    bool answers(const SimHost& host, const SimHost& peer) const;

    // recovery.cpp
    void boot(SimHost& host);
    void adopt(SimHost& host, HostMemory&& arena);
    void crash(SimHost& host);
    void mark_what_is_held(SimHost& host) const;
    void finish_mark(SimHost& host, const Task& task);
    void clear_a_mark(SimHost& host);
    void record_possible_losses(SimHost& host);
    void say_what_home_has(const SimHost& host, Event& event) const;
    void forget(SimHost& dead);
    void recover_if_all_have_reported(SimHost& host);
    void recover(SimHost& host);
    void begin_recovery(SimHost& host, bool adopts);

    // trace.cpp
    void trace(const Task& task);

    // effects.cpp
    void step(SimHost& host, const Event& event);
    void step_all(SimHost& host, Event event);
    static bool is_about_page(const Event& event);
    void perform_flush(SimHost& host, const protocol::FlushActions& actions);
    void read_home_bytes(SimHost& host, const Task& task);
    void answer_flush_ask(SimHost& host, const protocol::Message& ask);
    void start_store_flush(SimHost& host, VolumeId volume, uint64_t ticket);
    void finish_store_flush(SimHost& host, const Task& task);
    void observe(const SimHost& host, const Event& event);
    void observe_batch(const SimHost& host, const Task& task);

    // clients.cpp
    bool is_settled(const SimHost& home) const;
    Session& session_of(SimHost& host, Client& client, VolumeId volume);
    void start_operation(SimHost& host, uint32_t client);
    void add_pages(Operation& operation);
    void begin_accesses(SimHost& host, uint32_t client);
    FrameId latchable(const SimHost& host, const Access& access) const;
    void latch(SimHost& host, uint32_t client, const Access& access, Time delay);
    static Task task_of(Task::Kind kind, const SimHost& host, uint32_t client, const Access& access);
    void access_or_wait(SimHost& host, uint32_t client, Access& access);
    void perform_access(SimHost& host, uint32_t client, Access& access, FrameId frame);
    void fail_access(SimHost& host, uint32_t client, Access& access);
    void end_access(SimHost& host, uint32_t client);
    void note_writes(SimHost& host, Client& client);
    bool is_secure(const SimHost& host, PageId page) const;
    std::map<VolumeId, Session>& sessions_of(SimHost& host, Client& client);
    void end_session(SimHost& host, Client& client, VolumeId volume);
    bool may_see(Session& session, const Frame& frame, PageId page);
    static void hear_own_home(SimHost& host, VolumeId volume);
    void leave_latch(SimHost& host, const Task& task);
    void become_quiet(SimHost& host, PageId page, Frame& frame);
    bool store_is_full() { return workload_.chance(scenario_.no_space_percent); }
    void serve(SimHost& host, const Task& task);
    void finish_operation(SimHost& host, uint32_t client);
    void cancel(SimHost& host, const Task& task);
    void drop_something(SimHost& host);
    void evict_something(SimHost& host);
    void complete_flush(SimHost& host, protocol::WaiterToken waiter, bool lost);

    // checks.cpp
    void check_page(const SimHost& stepped, PageId page);
    void check_frame(const SimHost& host, PageId page, const Frame& frame) const;
    // Home's new bytes differ from its present ones only in the named sectors: only these are written to the store.
    void check_mask(const SimHost& home, const protocol::Action& copy, const Content& content) const;
    void check_request(const SimHost& host, const SimHost& home, PageId page) const;
    void check_orders(const SimHost& host, PageId page) const;
    // The tenure of an order that only local operations delay; 0: none.
    static Tenure order_at_hand(const SimHost& host, PageId page);
    void check_lease(const SimHost& host, const Frame& frame) const;
    void check_copies(const SimHost& home, PageId page, const protocol::Claim& claim) const;
    bool has_met(const SimHost& host, const SimHost& peer) const;
    uint64_t home_version_of(PageId page) const;
    void check_end() const;

    Scenario scenario_;
    Tracing tracing_;
    std::deque<std::string> trace_lines_;
    Random network_;
    Random workload_;
    Random faults_;
    Random store_;
    Random disturbances_;
    Random marks_;
    std::vector<PageId> pages_;
    RangeMap ranges_;
    std::vector<SimHost> hosts_;
    Coverage coverage_;
    Truth truth_;
    History history_;
    bool finds_loss_ = false;       // the access under way
    uint64_t operation_count_ = 0;  // that ended, successfully or not
    std::array<std::array<uint32_t, sim_hosts_max>, sim_hosts_max> link_epoch_{};
    std::array<std::array<bool, sim_hosts_max>, sim_hosts_max> link_is_up_{};
    std::array<std::array<Time, sim_hosts_max>, sim_hosts_max>
        not_before_{};  // messages of a link come after its hello
    std::array<std::array<Gathering, sim_hosts_max>, sim_hosts_max> gathering_{};
    // Messages in a stuck direction, neither lost nor delivered yet.
    std::array<std::array<bool, sim_hosts_max>, sim_hosts_max> is_stuck_{};
    std::array<std::array<std::vector<Task>, sim_hosts_max>, sim_hosts_max> stuck_{};
    std::array<std::vector<Task>, sim_hosts_max> piled_up_{};  // of a paused host
    HostId saying_hello_to_ = no_host;
    Time hello_time_ = 0;

    Time now_ = 0;
    uint64_t first_sequence_ = 0;  // of tasks that come first, among those of one moment
    uint64_t sequence_ = uint64_t{1} << 32;
    std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
    std::deque<Task> slots_;  // a deque: slots do not move
    std::vector<uint32_t> free_slots_;

    SmallMap<PageId, Tenure> greatest_tenure_;
    uint64_t last_operation_ = 0;
    protocol::SessionId last_session_ = 0;
    unsigned crash_count_ = 0;
    unsigned cut_count_ = 0;
    unsigned store_failure_count_ = 0;
    uint64_t trace_hash_ = 0;
    uint64_t event_count_ = 0;
    StepScratch scratch_;
};

}  // namespace tarn::sim
