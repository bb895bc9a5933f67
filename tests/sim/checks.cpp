// Cluster: what must hold after each step, and when nothing moves any more.
#include <cstdio>

#include "tests/sim/cluster.hpp"
#include "tests/sim/failure.hpp"

namespace tarn::sim {

void Cluster::check_page(PageId page) {
    unsigned owners = 0;
    unsigned readers = 0;
    for (const SimHost& host : hosts_) {
        if (!host.is_up) continue;
        const auto bound = host.memory.bound.find(page);
        if (bound == host.memory.bound.end()) continue;
        const Frame& frame = host.memory.frames[bound->second];
        require(frame.used && frame.page == page, "a bound frame is not its page's");
        owners += frame.access == Ownership::exclusive;
        readers += frame.access == Ownership::shared;
    }
    require(owners == 0 || (owners == 1 && readers == 0), "C1: more than one owner, or an owner and readers");

    const SimHost& home = hosts_[ranges_.find(page).home];
    if (!home.is_up) return;
    if (const protocol::Claim* claim = home.stripe_of(page).home().find(page)) {
        Tenure& greatest = greatest_tenure_[page];
        require(claim->tenure >= greatest, "I3: a tenure decreases");
        greatest = claim->tenure;
    }
}

void Cluster::describe() const {
    const auto hex = [](uint64_t value) { return static_cast<unsigned long long>(value); };
    for (const SimHost& host : hosts_) {
        std::printf("host %d %s, %u of %u frames\n", host.id, host.is_up ? "up" : "down", host.memory.used_frames,
                    scenario_.frame_count);
        for (const Client& client : host.clients)
            std::printf("  client: %u left, operation kind %d page %u.%llx\n", client.remaining,
                        static_cast<int>(client.operation.kind), client.operation.page.volume(),
                        hex(client.operation.page.number()));
        for (const PageId page : pages_) {
            if (host.memory.stripes.empty()) continue;
            if (const protocol::Holding* holding = host.stripe_of(page).holder().find(page))
                std::printf(
                    "  holds %u.%llx: ownership %d tenure %llx frame %d kept %d (%llx) awaits %u granted %llx ackers "
                    "%llx heard %llx bytes %d floor %llx unserved %u %s%s%s%s%s\n",
                    page.volume(), hex(page.number()), static_cast<int>(holding->ownership), hex(holding->tenure),
                    static_cast<int>(holding->frame), static_cast<int>(holding->kept_frame), hex(holding->kept_order),
                    holding->awaited.request_id, hex(holding->awaited.granted), hex(holding->awaited.ackers),
                    hex(holding->awaited.heard), holding->awaited.has_bytes, hex(holding->floor),
                    holding->unserved_count, holding->quiescing ? "quiescing " : "",
                    holding->evicting ? "evicting " : "", holding->unconfirmed ? "unconfirmed " : "",
                    holding->report_due ? "report due " : "", holding->blank ? "blank " : "");
            if (const protocol::Claim* claim = host.stripe_of(page).home().find(page))
                std::printf(
                    "  claim %u.%llx: tenure %llx owner %d anchor %d readers %llx applied %llx.%x%s missing "
                    "%llx%s%s%s%s\n",
                    page.volume(), hex(page.number()), hex(claim->tenure), claim->owner == no_host ? -1 : claim->owner,
                    claim->anchor == no_host ? -1 : claim->anchor, hex(claim->readers), hex(claim->applied.tenure),
                    claim->applied.sequence, claim->resolving ? " resolving" : "", hex(claim->missing),
                    claim->loss_pending ? " loss pending" : "", claim->orders.empty() ? "" : " open orders",
                    claim->queue.empty() ? "" : " queue", claim->copies.empty() ? "" : " copies");
        }
    }
}

void Cluster::check_end() const {
    require(!clients_are_busy(), "C4: an operation never ended");
    for (const SimHost& host : hosts_) {
        require(host.is_up, "a host is down at the end");
        const HostMemory& memory = host.memory;
        require(memory.recovered, "a home never recovered");
        require(memory.flush_home.flush_count() == 0 && memory.flush_requester.flush_count() == 0 &&
                    memory.flush_holder.ask_count() == 0,
                "a flush never ended");
        require(memory.flush_home.outstanding_copy_count() == 0, "a copy in the flush books never arrived");
        for (const protocol::Stripe& stripe : memory.stripes) {
            require(stripe.home().open_order_count() == 0, "an order is open at the end");
            require(stripe.home().home_copy_count() == 0, "a home copy is outstanding at the end");
            require(stripe.holder().waiter_count() == 0, "a waiter is left");
            require(stripe.holder().successor_count() == 0, "a successor is left");
            stripe.holder().for_each([&](PageId page, const protocol::Holding& holding) {
                require(holding.kept_frame == no_frame, "kept bytes are never freed");
                require(!holding.unconfirmed, "a frame is never confirmed");
                require(!holding.evicting && !holding.quiescing && holding.spare == no_frame,
                        "a page is busy at the end");
                const SimHost& home = hosts_[ranges_.find(page).home];
                const protocol::Claim* claim = home.stripe_of(page).home().find(page);
                require(claim != nullptr && claim->tenure == holding.tenure, "home does not know of a frame");
                require(holding.ownership == Ownership::exclusive ? claim->owner == host.id
                                                                  : protocol::contains(claim->readers, host.id),
                        "home is wrong about a frame");
            });
        }
        for (PageId page : pages_) {
            const SimHost& home = hosts_[ranges_.find(page).home];
            const protocol::Claim* claim = home.stripe_of(page).home().find(page);
            if (claim != nullptr && protocol::contains(claim->holders(), host.id))
                require(memory.bound.contains(page), "home names a host that has no frame");
        }
        require(memory.used_frames == memory.bound.size(), "a frame is leaked");
    }
}

}  // namespace tarn::sim
