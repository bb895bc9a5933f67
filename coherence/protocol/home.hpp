// Home side of the directory protocol: for each page homed here, which hosts hold it, and where its newest bytes are.
//
// A pure state machine: no socket, file, clock or thread, and no allocation inside on() if the caller called reserve()
// before. Home changes the claim the moment it orders a request, and sends each order to the host that will then hold
// the page; no handler waits for anything. docs/coherence.md lists the orders, with reasons.
//
//   home.cpp           requests and the orders they become, evictions, done
//   home_copies.cpp    bytes that come home: copies, write-backs, what may be freed
//   home_recovery.cpp  resolve, void incarnations, the start without an arena
//
// Invariants, checked after every event:
//   - C1: a page has one owner, or any number of readers, never both.
//   - I3: the tenure of a page never decreases: a page without a claim continues above retired_.
//   - A page without owner whose bytes home lacks has an anchor.
#pragma once

#include <vector>

#include "coherence/protocol/action.hpp"
#include "coherence/protocol/claim.hpp"
#include "coherence/protocol/event.hpp"
#include "coherence/protocol/marks.hpp"
#include "coherence/protocol/record_table.hpp"

namespace tarn::protocol {

class Digest;

class Home {
  public:
    // What is known of the earlier processes that had this memory. Such a process is in doubt while home may lack bytes
    // that a holder has, but does not count as dirty: the holder may not have heard yet that it is to write them back.
    struct Past {
        uint32_t last_in_doubt = 0;  // the epoch of the last process that was in doubt about every page, as it began.
                                     // The one that made the memory was
        uint32_t last_loss = 0;      // of the last one that came into doubt about single pages, which are on record,
                                     // while it served; 0: none did
    };
    // A home starts without claims, and serves only after the event `recovered`. Its epoch is durable and greater than
    // any before.
    Home(HostId self, uint32_t epoch, const Past& past);

    // Room for one step. Grows tables when needed: call it outside of on(), under the same latch.
    void reserve();
    // Call it before the first step, so that the tables do not grow, and move, in later ones.
    void expect(size_t page_count) { claims_.expect(page_count); }
    // Call it before the first event; without marks every page counts as marked. They outlive the home.
    void set_marks(const Marks& marks) { marks_ = &marks; }
    void prefetch(PageId page) const { claims_.prefetch(page); }
    void prefetch_record(PageId page) const { claims_.prefetch_record(page); }
    void on(const Event& event, Actions& actions);

    const Claim* find(PageId page) const { return claims_.find(page); }
    // Of all claims, whose lists name them.
    const NodePool<Request>& requests() const { return requests_; }
    const NodePool<HomeCopy>& copies() const { return copies_; }
    bool recovering() const { return recovering_; }
    // Whether home's own bytes of the page are the newest, and nobody may write it without asking first: the page needs
    // no mark once they are in the store.
    bool has_everything(PageId page) const;
    // visit(PageId, const Claim&)
    template <class Visitor>
    void for_each(Visitor&& visit) const {
        claims_.for_each(visit);
    }

    // All state that decides what happens next. Defined by the search through all states: tests/sim/explore/digest.cpp.
    void digest(PageId page, Digest& digest) const;

  private:
    // home.cpp
    void on_message(const Event& event, Actions& actions);
    void on_get(const Event& event, Actions& actions);
    void order(PageId page, Claim& claim, Request request, Actions& actions);
    void order_shared(PageId page, Claim& claim, Request& request, Actions& actions);
    void order_exclusive(PageId page, Claim& claim, Request& request, Actions& actions);
    HostId copy_source(const Claim& claim) const;
    bool lacks_mark(PageId page, const Request& request) const;
    void serve_queue(PageId page, Claim& claim, Actions& actions);
    void on_marked(const Event& event, Actions& actions);
    void on_done(const Event& event, Actions& actions);
    void on_evict(const Event& event, Actions& actions);
    bool may_evict(const Claim& claim, const Message& message) const;
    bool counts_on(const Claim& claim, HostId host) const;
    static bool only_has(const Claim& claim, HostId host);
    static bool brings_news(const Claim& claim, const Message& message);
    void take_evicted_bytes(Claim& claim, const Event& event, Actions& actions);
    template <class Predicate>
    void close_orders(PageId page, Claim& claim, Actions& actions, Predicate&& closes);
    Message to_holder(MessageKind kind, PageId page, Tenure tenure) const;
    Message to_holder(MessageKind kind, PageId page, const Request& request) const;
    Message grant_of(PageId page, const Request& request) const;
    uint32_t lost_in(PageId page) const;
    Claim& claim_of(PageId page);
    void settle(PageId page, Claim& claim, Actions& actions);
    void check(const Claim& claim) const;

    // home_copies.cpp
    void expect_copy(PageId page, Claim& claim, Tenure tenure, HostId host, Actions& actions);
    void on_home_copy(const Event& event, Actions& actions);
    static bool is_of_anchor(const Claim& claim, const Message& message);
    void leave_with_anchor(Claim& claim, const Event& event, Actions& actions);
    void on_write_back(const Event& event, Actions& actions);
    bool apply(PageId page, Claim& claim, PageVersion version, const Event& event, Actions& actions);
    void retire_copies(PageId page, Claim& claim, Actions& actions);
    void free_kept(PageId page, Claim& claim, HostId keeper, Tenure tenure, Actions& actions);
    bool may_have_newer(const Claim& claim, HostId host) const;
    static void refuse(const Event& event, Actions& actions, StaticText reason);
    static void discard_payload(const Event& event, Actions& actions);

    // home_recovery.cpp
    void on_peer_up(const Event& event, Actions& actions);
    void on_host_forgotten(HostId host, Actions& actions);
    void on_volume_unknown(VolumeId volume, Actions& actions);
    void on_hello(const Event& event, Actions& actions);
    void on_recovered(const Event& event, Actions& actions);
    void on_report(const Event& event, Actions& actions);
    void on_resolve(const Event& event, Actions& actions);
    void on_loss_recorded(const Event& event, Actions& actions);
    template <class Visitor>
    void for_each_claim(Actions& actions, Visitor&& visit);
    void forget_host(PageId page, Claim& claim, HostId host, Actions& actions);
    void forget_requests(Claim& claim, HostId host);
    void start_resolve(PageId page, Claim& claim, HostSet recalled, Actions& actions);
    void send_recall(PageId page, const Claim& claim, HostId host, Actions& actions) const;
    void finish_resolve(PageId page, Claim& claim, Actions& actions);
    void record_loss(PageId page, Claim& claim, Actions& actions);
    void confirm_holders(PageId page, Claim& claim, bool has_memory, Actions& actions);
    HostSet hosts_of_orders(const Claim& claim) const;
    HostSet hosts_of_copies(const Claim& claim) const;

    HostId self_;
    Tenure first_;          // of this home's epoch: its confirmations and orders are above
    Tenure told_in_doubt_;  // a holder with a lower tenure may not have heard what the last process in doubt said
    Tenure told_of_loss_;   // likewise, what the first process after the last loss said of pages on record
    bool recovering_ = true;
    Tenure retired_;  // no page without a claim ever had a greater tenure
    RecordTable<Claim> claims_;
    NodePool<Request> requests_;
    NodePool<HomeCopy> copies_;
    RecordTable<uint32_t> losses_;               // the loss generation of pages that lost writes since this home serves
    const LossRanges* losses_before_ = nullptr;  // and of those before
    const Marks* marks_ = nullptr;
    std::vector<PageId> pages_;  // scratch for recovery's walks
};

}  // namespace tarn::protocol
