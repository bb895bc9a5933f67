// Holder side of the directory protocol: what this host may do with each page it caches, and what it owes to others.
//
// A pure state machine like Home. Local operations that cannot proceed become waiters; one request per page is on its
// way at a time. A frame is taken away, or its bytes snapshotted, only while it is quiet: Holder asks (`quiesce`), the
// executor keeps new latches out and answers (`quiesced`) when the last one is gone.
//
//   holder.cpp           waiters, requests, grants, completion
//   holder_orders.cpp    what happens to a quiet frame: move, drop, copy, eviction, write-back
//   holder_recovery.cpp  recall, hello, a restarted home
//
// Invariants, checked after every event:
//   - A frame is Shared or Exclusive, or it is not named by `frame`.
//   - I3: tenures and floors only grow while the record lives.
//   - No waiter is forgotten: waiters imply a request, a woken operation, or an answer that is on its way.
#pragma once

#include <vector>

#include "coherence/membership/range_map.hpp"
#include "coherence/protocol/action.hpp"
#include "coherence/protocol/event.hpp"
#include "coherence/protocol/holding.hpp"
#include "coherence/protocol/record_table.hpp"

namespace tarn::protocol {

class Digest;

class Holder {
  public:
    // ranges must outlive the Holder.
    Holder(HostId self, const RangeMap& ranges);
    // The map to use from the next step on. It must not be older than the last one, and outlive the Holder, too.
    void use(const RangeMap& ranges);

    // Room for one step. Grows tables when needed: call it outside of on(), under the same latch.
    void reserve();
    // Call it before the first step, so that the tables do not grow, and move, in later ones.
    void expect(size_t page_count) { holdings_.expect(page_count); }
    void prefetch(PageId page) const { holdings_.prefetch(page); }
    void prefetch_record(PageId page) const { holdings_.prefetch_record(page); }
    void on(const Event& event, Actions& actions);

    const Holding* find(PageId page) const { return holdings_.find(page); }
    // Of all holdings, whose lists name them.
    const NodePool<Waiter>& waiters() const { return waiters_; }
    const NodePool<Successor>& successors() const { return successors_; }
    template <class Visitor>
    void for_each(Visitor&& visit) const {
        holdings_.for_each(visit);
    }

    // See Home.
    void digest(PageId page, Digest& digest) const;
    RequestId last_request_id() const { return last_request_id_; }
    // The previous process's ids: answers to its requests must not be mistaken for answers to ours.
    void adopt_request_ids(RequestId last);

  private:
    // holder.cpp
    void on_acquire(const Event& event, Actions& actions);
    void on_served(PageId page, Holding& holding, Actions& actions);
    void on_evict(const Event& event, Holding& holding, Actions& actions);
    void on_cancel(const Event& event, Holding& holding, Actions& actions);
    void on_message(const Event& event, Actions& actions);
    void on_grant(const Event& event, Holding& holding, Actions& actions);
    void on_data(const Event& event, Holding& holding, Actions& actions);
    static void take_bytes(const Event& event, Holding& holding, Actions& actions);
    void on_acknowledge(const Event& event, Holding& holding, Actions& actions);
    void on_no_space(const Event& event, Holding& holding, Actions& actions);
    static bool hear(Holding& holding, const Message& message);
    static bool was_not_asked(const Awaited& awaited, const Message& message);
    void complete(PageId page, Holding& holding, Actions& actions);
    void send_done(PageId page, Holding& holding, Actions& actions);
    void wake_waiters(PageId page, Holding& holding, Actions& actions);
    void send_request(PageId page, Holding& holding, Actions& actions);
    Message request_message(PageId page, const Holding& holding) const;
    Message to_home(MessageKind kind, PageId page, const Holding& holding) const;
    RequestId next_request_id();

    // Does whatever can be done now: the last call of every handler.
    void advance(PageId page, Holding& holding, Actions& actions);
    void check(const Holding& holding) const;

    // holder_orders.cpp
    void on_successor(const Event& event, Actions& actions);
    void on_quiesced(const Event& event, Holding& holding, Actions& actions);
    bool serve_without_frame(PageId page, Holding& holding, Actions& actions);
    bool wants_quiet(const Holding& holding) const;
    bool has_applicable_order(const Holding& holding) const;
    void serve_quiet(PageId page, Holding& holding, DirtyMask dirty, Actions& actions);
    void serve_move(PageId page, Holding& holding, const Successor& order, DirtyMask dirty, Actions& actions);
    void serve_drop(PageId page, Holding& holding, const Successor& order, DirtyMask dirty, Actions& actions);
    void answer_requester(PageId page, const Successor& order, FrameId bytes, Actions& actions) const;
    void answer_home(PageId page, const Holding& holding, const Successor& order, DirtyMask dirty,
                     Actions& actions) const;
    void start_eviction(PageId page, Holding& holding, EvictionWish wish, DirtyMask dirty, Actions& actions);
    void start_write_back(PageId page, Holding& holding, DirtyMask dirty, Actions& actions);
    void send_eviction(PageId page, Holding& holding, DirtyMask dirty, FrameId bytes, Actions& actions);
    void leave_bare(PageId page, Holding& holding, Actions& actions);
    void say_that_it_is_gone(PageId page, Tenure order, Actions& actions);
    void on_eviction_answer(const Event& event, Holding& holding, Actions& actions);
    void on_written_back(const Event& event, Holding& holding, Actions& actions);
    void on_free(const Event& event, Holding& holding, Actions& actions);
    void keep(PageId page, Holding& holding, Tenure order, PageVersion version, Actions& actions);
    void let_go(PageId page, Holding& holding, Actions& actions);
    FrameId end_custody(PageId page, Holding& holding, Actions& actions);
    void end_write_backs(PageId page, Holding& holding, Actions& actions);
    void repeat_write_back(Holding& holding);
    void forget_kept(PageId page, Holding& holding, Actions& actions);
    static bool is_applicable(const Holding& holding, const Successor& order);
    static bool is_answered_blindly(const Holding& holding, const Successor& order);

    HostId home_of(PageId page) const { return ranges_->home_of(page); }

    // holder_recovery.cpp
    void on_peer_up(const Event& event, Actions& actions);
    void on_peer_greeted(HostId host, Actions& actions) const;
    void on_recall(const Event& event, Actions& actions);
    void on_confirm(const Event& event, Holding& holding, Actions& actions);
    void report(PageId page, Holding& holding, Actions& actions);
    void on_adopted(const Event& event, Actions& actions);
    void home_restarted(PageId page, Holding& holding, uint32_t epoch, bool has_memory, Actions& actions);
    void send_hello(PageId page, const Holding& holding, Actions& actions) const;
    void raise_floor(Holding& holding, Tenure floor);

    // Each host has one request for a page at a time; a few more orders may be left that a resolve has undone.
    static constexpr size_t successors_max = 4 * hosts_max;

    HostId self_;
    const RangeMap* ranges_;  // the only source of a page's home: no record stores it
    RequestId last_request_id_ = 0;
    bool adopted_ = false;  // this process adopted its predecessor's memory
    RecordTable<Holding> holdings_;
    NodePool<Waiter> waiters_;
    NodePool<Successor> successors_;
    std::vector<PageId> pages_;  // scratch for recovery's walks
};

}  // namespace tarn::protocol
