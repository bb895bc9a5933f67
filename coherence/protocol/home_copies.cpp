// Home: bytes that come home.
//
// Pages travel whole, so that newer bytes stand for all older ones: a copy that arrives early is applied at once, and
// those it overtook are counted as applied with it. Its mask is then the whole page, because what the overtaken copies
// changed has reached home by this one only.
#include "coherence/protocol/home.hpp"
#include "utils/assert.hpp"

namespace tarn::protocol {

void Home::discard_payload(const Event& event, Actions& actions) {
    if (event.frame != no_frame && !event.borrowed)
        actions.about_frame(Action::Kind::release_frame, event.page, event.frame);
}

void Home::refuse(const Event& event, Actions& actions, StaticText reason) {
    discard_payload(event, actions);
    actions.refuse_peer(event.page, event.message.from, reason);
}

// Only these hosts have, or sent home, bytes that home lacks. Any other that offers some is late, or lies.
bool Home::may_have_newer(const Claim& claim, HostId host) const {
    return claim.owner == host || claim.anchor == host || (claim.resolving && contains(claim.recalled, host)) ||
           contains(hosts_of_orders(claim) | hosts_of_copies(claim), host);
}

void Home::expect_copy(PageId page, Claim& claim, Tenure tenure, HostId host, Actions& actions) {
    copies_.add(claim.copies, {.tenure = tenure, .host = host});
    actions.about_copy(Action::Kind::copy_expected, page, tenure);
}

// True if the bytes are newer than what home has.
bool Home::apply(PageId page, Claim& claim, PageVersion version, const Event& event, Actions& actions) {
    if (version <= claim.applied) {
        discard_payload(event, actions);
        return false;
    }
    const bool overtakes =
        copies_.find(claim.copies, [&](const HomeCopy& copy) { return last_before(copy.tenure) < version; });
    claim.applied = version;
    Action& action = actions.add(Action::Kind::apply_copy, page);
    action.tenure = version.tenure;
    action.sequence = version.sequence;
    action.mask = overtakes ? all_sectors : event.message.dirty;
    action.frame = event.frame;
    action.borrowed = event.borrowed;
    return true;
}

void Home::on_home_copy(const Event& event, Actions& actions) {
    const Message& message = event.message;
    Claim* claim = claims_.find(message.page);
    if (claim == nullptr || recovering_) return discard_payload(event, actions);
    if (message.tenure > claim->tenure) return refuse(event, actions, "home_copy: of no order");
    HomeCopy* own = copies_.find(claim->copies, [&](HomeCopy& copy) { return copy.tenure == message.tenure; });
    if (own != nullptr && own->host != message.from) return refuse(event, actions, "home_copy: asked of another host");
    // If no order counts this copy, newer bytes stand for it already.
    if (own == nullptr)
        discard_payload(event, actions);
    else if (event.store_failed && message.has_bytes() && is_of_anchor(*claim, message))
        leave_with_anchor(*claim, event, actions);
    else if (message.has_bytes())
        apply(message.page, *claim, last_before(message.tenure), event, actions);
    else
        own->clean = true;
    retire_copies(message.page, *claim, actions);
    settle(message.page, *claim, actions);
}

// The copy belongs to the order that made its sender a reader: nobody has written since.
bool Home::is_of_anchor(const Claim& claim, const Message& message) {
    return claim.anchor == message.from && claim.tenure == message.tenure;
}

// The bytes would only fill home's memory, for good. Their holder stays the anchor, and other readers copy from it.
void Home::leave_with_anchor(Claim& claim, const Event& event, Actions& actions) {
    discard_payload(event, actions);
    copies_.remove_if(claim.copies, [&](const HomeCopy& copy) { return copy.tenure == event.message.tenure; });
    actions.about_copy(Action::Kind::copy_arrived, event.page, event.message.tenure);
}

void Home::on_write_back(const Event& event, Actions& actions) {
    const Message& message = event.message;
    Claim* claim = claims_.find(message.page);
    // If the store failed, so did the flush that asked; the page stays dirty where it is, and gets no answer.
    if (recovering_ || event.store_failed) return discard_payload(event, actions);
    if (claim != nullptr) {
        const PageVersion version{message.tenure, message.sequence};
        if (message.tenure > claim->tenure) return refuse(event, actions, "write_back: of no tenure");
        if (contains(claim->readers, message.from) && claim->home_has_bytes())
            discard_payload(event, actions);  // from a former anchor, whose last answer was lost
        else if (version > claim->applied && !may_have_newer(*claim, message.from))
            return refuse(event, actions, "write_back: of a page of another host");
        else
            apply(message.page, *claim, version, event, actions);
        retire_copies(message.page, *claim, actions);
        settle(message.page, *claim, actions);
    } else {
        discard_payload(event, actions);
    }
    Message answer = to_holder(MessageKind::written_back, message.page, message.tenure);
    answer.sequence = message.sequence;
    actions.send(message.from, answer);
}

// Removes the copies that are applied: those older than home's bytes, and clean ones with none before them.
void Home::retire_copies(PageId page, Claim& claim, Actions& actions) {
    while (!claim.copies.empty()) {
        const HomeCopy& first = copies_.at(claim.copies.first);
        if (last_before(first.tenure) > claim.applied) {
            if (!first.clean) break;
            claim.applied = last_before(first.tenure);
        }
        const HomeCopy copy = copies_.take_first(claim.copies);
        actions.about_copy(Action::Kind::copy_arrived, page, copy.tenure);
        free_kept(page, claim, copy.host, copy.tenure, actions);
    }
    if (claim.home_has_bytes()) claim.anchor = no_host;
}

// The keeper may forget the page of this order once the order is done and its copy is applied, whichever comes last.
void Home::free_kept(PageId page, Claim& claim, HostId keeper, Tenure tenure, Actions& actions) {
    if (claim.resolving) return;  // the resolve's end frees everything
    if (requests_.find(claim.orders, [&](Request& open) { return open.tenure == tenure && open.keeper == keeper; }))
        return;
    if (copies_.find(claim.copies, [&](HomeCopy& copy) { return copy.tenure == tenure; })) return;
    if (claim.anchor == keeper && claim.tenure == tenure && !claim.home_has_bytes()) return;  // it keeps its bytes
    actions.send(keeper, to_holder(MessageKind::free, page, tenure));
}

}  // namespace tarn::protocol
