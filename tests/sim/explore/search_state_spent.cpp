// SearchState: messages without effect.
//
// A message is spent if its receiver ignores it now, and will as long as it may come: its request is over, its order
// was undone, its tenure is past. Worlds that differ only in spent messages behave alike, and have equal digests; steps
// that deliver one are taken all the same, and must change nothing.
//
// The rules below rely on this: an id is given once; tenures only grow; a waiting request keeps its record; and
// messages from or to a host that crashes are gone. They must not rely on a floor, which goes with the record; nor is a
// `home_copy` ever spent, since each one makes home count the copies that newer bytes stand for.
#include <algorithm>

#include "tests/sim/explore/search_state.hpp"

namespace tarn::sim {

using protocol::Message;
using protocol::MessageKind;

bool SearchState::is_spent(const InFlight& each) const {
    const Message& message = each.message;
    if (each.of_hello || (protocol::is_from_home(message.kind) && !is_old_news(each.to))) return false;
    const protocol::Holding* const holding = hosts_[each.to].stripe.holder().find(page);
    switch (message.kind) {
        // Answers to a request that is over, or of an order that a resolve has undone.
        case MessageKind::grant:
        case MessageKind::data:
        case MessageKind::acknowledge:
            return holding == nullptr || holding->awaited.request_id != message.request_id ||
                   message.tenure < std::max(holding->floor, holding->awaited.heard_tenure);
        case MessageKind::evicted:
        case MessageKind::refused:
            return holding == nullptr || holding->custody != protocol::Custody::evicting ||
                   holding->eviction.id != message.request_id;
        case MessageKind::written_back: return holding != nullptr && message.tenure < holding->tenure;
        case MessageKind::free: return is_spent_free(each);
        case MessageKind::done:
        case MessageKind::resolve: return is_over(each.from, message.request_id);
        default: return false;
    }
}

// Whether home's present and later messages to this host carry the write verifier that the host knows.
bool SearchState::is_old_news(HostId to) const {
    if (crashed_ == 0) return crashes_left_ == 0;
    const bool may_change = crashes_left_ > 0 || hosts_[0].loss_due || hosts_[0].recovery.recovering() ||
                            hosts_[to].flush_requester.known(page.volume(), 0) != verifier();
    if (may_change) return false;
    for (HostId id = 0; id < world_hosts; ++id)
        if (!hosts_[id].is_up) return false;
    return std::ranges::all_of(network_, [&](const InFlight& each) {
        return each.from != 0 || each.to != to || !protocol::is_from_home(each.message.kind) ||
               protocol::verifier_of(each.message.incarnation, each.message.loss_generation) == verifier();
    });
}

// Whether home knows nothing of the request, and will not hear of it again: a new link may have repeated it.
bool SearchState::is_over(HostId requester, protocol::RequestId id) const {
    const protocol::Home& home = hosts_[0].stripe.home();
    const protocol::Claim* const claim = home.find(page);
    bool is_known = home.recovering();
    const auto look_at = [&](const protocol::Request& open) {
        is_known |= open.requester == requester && open.request_id == id;
    };
    if (claim != nullptr) {
        home.requests().for_each(claim->orders, look_at);
        home.requests().for_each(claim->queue, look_at);
    }
    return !is_known && std::ranges::none_of(network_, [&](const InFlight& each) {
        const MessageKind kind = each.message.kind;
        return each.from == requester && each.message.request_id == id &&
               (kind == MessageKind::get_shared || kind == MessageKind::get_exclusive ||
                kind == MessageKind::get_exclusive_no_read);
    });
}

// No bytes are kept for an order up to this one, nor will be: later orders of home are newer.
bool SearchState::is_spent_free(const InFlight& each) const {
    const Tenure tenure = each.message.tenure;
    const protocol::Holder& holder = hosts_[each.to].stripe.holder();
    if (const protocol::Holding* const holding = holder.find(page)) {
        const bool keeps = holding->kept_frame != no_frame && holding->kept_order <= tenure;
        const bool is_anchor = holding->anchor_since != 0 && holding->anchor_since <= tenure;
        const bool will_report = holding->report_due && holding->floor <= tenure;
        bool is_ordered = false;
        holder.successors().for_each(holding->successors,
                                     [&](const auto& order) { is_ordered |= order.tenure <= tenure; });
        if (keeps || is_anchor || will_report || is_ordered) return false;
    }
    return std::ranges::none_of(network_, [&](const InFlight& other) {
        return other.from == 0 && other.to == each.to && !other.ends_hello && other.message.tenure <= tenure &&
               (other.message.kind == MessageKind::move || other.message.kind == MessageKind::move_shared ||
                other.message.kind == MessageKind::drop || other.message.kind == MessageKind::recall ||
                other.message.kind == MessageKind::confirm);
    });
}

size_t SearchState::under_way() const {
    return static_cast<size_t>(std::ranges::count_if(network_, [&](const InFlight& each) { return !is_spent(each); }));
}

}  // namespace tarn::sim
