// SimCluster: the checks after each step, and when nothing moves any more.
#include <algorithm>
#include <cstdio>

#include "tests/sim/protocol/sim_cluster.hpp"
#include "tests/sim/support/failure.hpp"

namespace tarn::sim {

// Called after a step of `stepped`. Conditions on other hosts only were checked before.
void SimCluster::check_page(const SimHost& stepped, PageId page) {
    unsigned owners = 0;
    unsigned readers = 0;
    for (SimHost& host : hosts_) {
        if (!host.is_up) continue;
        const auto bound = host.memory.bound.find(page);
        if (bound == host.memory.bound.end()) continue;
        host.left_bare.erase(page);
        const Frame& frame = host.memory.frames[bound->second];
        require(frame.used && frame.page == page, "a bound frame is not its page's");
        check_frame(host, page, frame);
        owners += frame.access == Ownership::exclusive;
        readers += frame.access == Ownership::shared;
    }
    require(owners == 0 || (owners == 1 && readers == 0), "C1: more than one owner, or an owner and readers");

    const SimHost& home = hosts_[ranges_.home_of(page)];
    for (const SimHost& host : hosts_)
        if (host.is_up && (stepped.id == home.id || stepped.id == host.id)) check_request(host, home, page);

    check_orders(stepped, page);

    if (!home.is_up) return;
    if (const protocol::Claim* claim = home.stripe_of(page).home().find(page)) {
        check_copies(home, page, *claim);
        Tenure& greatest = greatest_tenure_[page];
        require(claim->tenure >= greatest, "I3: a tenure decreases");
        greatest = claim->tenure;
    }
}

// Both are up, and each knows the other's present process.
bool SimCluster::has_met(const SimHost& host, const SimHost& peer) const {
    if (!host.is_up || !peer.is_up) return false;
    if (host.id == peer.id) return true;
    return link_is_up_[host.id][peer.id] && host.memory.met[peer.id] == peer.process() &&
           peer.memory.met[host.id] == host.process();
}

uint64_t SimCluster::home_version_of(PageId page) const {
    const SimHost& home = hosts_[ranges_.home_of(page)];
    const auto newer = home.memory.home_bytes.find(page);
    return newer != home.memory.home_bytes.end() ? newer->second.content.version : stored_version_of(page);
}

void SimCluster::check_mask(const SimHost& home, const protocol::Action& copy, const Content& content) const {
    if (copy.mask == 0) return;
    const auto newer = home.memory.home_bytes.find(copy.page);
    const auto stored = home.store.find(copy.page);
    Content present;
    if (newer != home.memory.home_bytes.end() && newer->second.content.version != 0)
        present = newer->second.content;
    else if (stored != home.store.end())
        present = stored->second.content;
    for (unsigned sector = 0; sector < sectors_per_page; ++sector)
        require((copy.mask >> sector & 1) != 0 || content.sectors[sector] == present.sectors[sector],
                "a sector of home's bytes changes that no mask names");
}

// Bytes newer than home's are marked dirty on some host, except while they are on their way home.
void SimCluster::check_frame(const SimHost& host, PageId page, const Frame& frame) const {
    const SimHost& home = hosts_[ranges_.home_of(page)];
    if ((frame.dirty | frame.writing) != 0 || !has_met(host, home) || home.memory.recovery.recovering()) return;
    const protocol::Claim* claim = home.stripe_of(page).home().find(page);
    const protocol::Holding* holding = host.stripe_of(page).holder().find(page);
    if (claim == nullptr || claim->resolving || !claim->copies.empty() || holding == nullptr ||
        holding->trust != protocol::Trust::confirmed)
        return;
    if (frame.content.version <= home_version_of(page)) return;
    const HostId keeper = claim->owner != no_host ? claim->owner : claim->anchor;
    if (keeper != no_host && !has_met(hosts_[keeper], home)) return;  // it is away: its bytes may be lost
    // A home that does not know which bytes are newest names an anchor, which marks the page dirty when it hears.
    const protocol::Holding* kept = keeper == no_host ? nullptr : hosts_[keeper].stripe_of(page).holder().find(page);
    if (kept != nullptr && kept->trust != protocol::Trust::confirmed) return;
    const auto is_dirty = [&](const Frame& each) {
        return each.used && each.page == page && (each.dirty | each.writing) != 0 &&
               each.content.version >= frame.content.version;
    };
    const bool somewhere = std::ranges::any_of(
        hosts_, [&](const SimHost& each) { return std::ranges::any_of(each.memory.frames, is_dirty); });
    require(somewhere, "D1: bytes that home lacks are dirty nowhere");
}

// Recovery relies on this: a granted request is one of home's open orders until it is complete.
void SimCluster::check_request(const SimHost& host, const SimHost& home, PageId page) const {
    const protocol::Holding* holding = host.stripe_of(page).holder().find(page);
    if (holding == nullptr || holding->awaited.request_id == 0 || holding->awaited.granted == 0 ||
        !has_met(host, home) || home.memory.recovery.recovering())
        return;
    const protocol::Claim* claim = home.stripe_of(page).home().find(page);
    bool is_open = false;
    if (claim != nullptr)
        home.stripe_of(page).home().requests().for_each(claim->orders, [&](const protocol::Request& open) {
            is_open |= open.requester == host.id && open.request_id == holding->awaited.request_id;
        });
    require(is_open, "I4: a granted request is not among home's open orders");
}

namespace {

bool is_at_hand(const protocol::Holding& holding, const protocol::Successor& order) {
    if (holding.frame == no_frame || holding.custody == protocol::Custody::blank || holding.tenure + 1 != order.tenure)
        return false;
    const bool is_for_owner =
        order.kind == protocol::MessageKind::move || order.kind == protocol::MessageKind::move_shared;
    return order.kind != protocol::MessageKind::copy && is_for_owner == (holding.ownership == Ownership::exclusive);
}

}  // namespace

// An order waits only for what comes before it: the grant of an older tenure, an older order under way, or local
// operations, which wait for nothing themselves. So hosts cannot wait for each other in a cycle.
void SimCluster::check_orders(const SimHost& host, PageId page) const {
    const protocol::Holder& holder = host.stripe_of(page).holder();
    const protocol::Holding* holding = holder.find(page);
    if (!host.is_up || holding == nullptr || holding->successors.empty()) return;
    holder.successors().for_each(holding->successors, [&](const protocol::Successor& order) {
        const protocol::Awaited& awaited = holding->awaited;
        const Tenure own = order.kind == protocol::MessageKind::copy ? order.tenure : order.tenure - 1;
        const bool waits_for_grant = awaited.request_id != 0 && awaited.granted <= own;
        const bool waits_for_local = is_at_hand(*holding, order) || holding->custody == protocol::Custody::quiescing ||
                                     holding->unserved_count > 0;
        const bool waits_for_order = holding->frame != no_frame && holding->tenure < own;
        // Nobody waits for an order that a resolve has undone.
        const SimHost& requester = hosts_[order.requester];
        const protocol::Holding* asking = requester.is_up ? requester.stripe_of(page).holder().find(page) : nullptr;
        const bool is_waited_for = asking != nullptr && asking->awaited.request_id == order.request_id &&
                                   asking->awaited.granted == order.tenure;
        require(!is_waited_for || waits_for_grant || waits_for_order || waits_for_local,
                "I6: an order waits for what comes after it");
    });
}

Tenure SimCluster::order_at_hand(const SimHost& host, PageId page) {
    const protocol::Holder& holder = host.stripe_of(page).holder();
    const protocol::Holding* holding = holder.find(page);
    Tenure at_hand = 0;
    if (holding == nullptr || holding->successors.empty()) return 0;
    holder.successors().for_each(holding->successors, [&](const protocol::Successor& order) {
        if (is_at_hand(*holding, order)) at_hand = order.tenure;
    });
    return at_hand;
}

// A write begins although another host waits for the page.
void SimCluster::check_lease(const SimHost& host, const Frame& frame) const {
    require(frame.writes_since_recall <= scenario_.lease_writes, "I7: more local writes than may go first");
    require(now_ <= frame.recalled_at + scenario_.lease_time || host.resumed_at > frame.recalled_at,
            "I7: local writes go first for too long");
}

// Until home has them, bytes on their way home are also kept at their source.
void SimCluster::check_copies(const SimHost& home, PageId page, const protocol::Claim& claim) const {
    if (home.memory.recovery.recovering() || claim.resolving) return;
    home.stripe_of(page).home().copies().for_each(claim.copies, [&](const protocol::HomeCopy& copy) {
        const SimHost& source = hosts_[copy.host];
        if (!has_met(source, home) || copy.clean) return;
        if (source.left_bare.contains(page)) return;
        require(source.stripe_of(page).holder().find(page) != nullptr, "I4: bytes on their way home are kept nowhere");
    });
}

void SimCluster::check_end() const {
    if (const std::string wrong = history_.check(); !wrong.empty()) throw Failure("C2: not linearizable: " + wrong);
    require(!clients_are_busy(), "C4: an operation never ended");
    // A home whose store failed lets write-backs wait: they stay dirty where they are.
    const bool a_store_failed = std::ranges::any_of(hosts_, &SimHost::store_failed);
    for (const SimHost& host : hosts_) {
        require(host.is_up, "a host is down at the end");
        const HostMemory& memory = host.memory;
        require(!memory.recovery.recovering(), "a home never recovered");
        require(memory.flush_home.flush_count() == 0 && memory.flush_requester.flush_count() == 0 &&
                    (memory.flush_holder.ask_count() == 0 || a_store_failed),
                "a flush never ended");
        require(a_store_failed ||
                    std::ranges::none_of(memory.frames, [](const Frame& frame) { return frame.writing != 0; }),
                "a page is still being written home at the end");
        require(memory.flush_home.outstanding_copy_count() == 0, "a copy in the flush books never arrived");
        for (const protocol::Stripe& stripe : memory.stripes) {
            require(stripe.home().requests().used() == 0, "an order is open at the end");
            require(stripe.home().copies().used() == 0, "a home copy is outstanding at the end");
            require(stripe.holder().waiters().used() == 0 || a_store_failed, "a waiter is left");
            require(stripe.holder().successors().used() == 0, "a successor is left");
            stripe.holder().for_each([&](PageId page, const protocol::Holding& holding) {
                require(holding.kept_frame == no_frame, "kept bytes are never freed");
                require(holding.trust == protocol::Trust::confirmed, "a frame is never confirmed");
                require(holding.custody != protocol::Custody::evicting &&
                            holding.custody != protocol::Custody::quiescing && holding.spare == no_frame,
                        "a page is busy at the end");
                const SimHost& home = hosts_[ranges_.home_of(page)];
                const protocol::Claim* claim = home.stripe_of(page).home().find(page);
                require(claim != nullptr && claim->tenure == holding.tenure, "home does not know of a frame");
                require(holding.ownership == Ownership::exclusive ? claim->owner == host.id
                                                                  : contains(claim->readers, host.id),
                        "home is wrong about a frame");
            });
        }
        for (PageId page : pages_) {
            const SimHost& home = hosts_[ranges_.home_of(page)];
            const protocol::Claim* claim = home.stripe_of(page).home().find(page);
            if (claim != nullptr && contains(claim->holders(), host.id))
                require(memory.bound.contains(page) || host.left_bare.contains(page),
                        "home names a host that has no frame");
        }
        require(memory.used_frames == memory.bound.size(), "a frame is leaked");
    }
}

}  // namespace tarn::sim
