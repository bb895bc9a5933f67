#include "coherence/protocol/stripe.hpp"

#include "coherence/protocol/coalescing.hpp"

namespace tarn::protocol {

void Stripe::reserve() {
    home_.reserve();
    holder_.reserve();
}

void Stripe::on(const Event& event, Actions& actions) {
    size_t next = actions.size();
    prefetch(event.page);
    if (event.kind == Event::Kind::message && is_joined(event.message)) {
        dispatch(Event::message_of(grant_of_joined(event.message)), actions);
        Event data = event;
        data.message = data_of_joined(event.message);
        dispatch(data, actions);
    } else {
        dispatch(event, actions);
    }
    for (; next < actions.size(); ++next) {
        if (actions[next].kind != Action::Kind::send || actions[next].to != self_) continue;
        Event local = Event::message_of(actions[next].message, actions[next].frame);
        local.borrowed = local.frame != no_frame;
        local.no_space = event.no_space;
        local.store_failed = event.store_failed;
        local.stored_tenure = event.stored_tenure;
        local.stored_sequence = event.stored_sequence;
        actions[next].kind = Action::Kind::nothing;
        reserve();  // a home that has recovered is asked at once for all that its own host waits for
        dispatch(local, actions);
    }
}

void Stripe::dispatch(const Event& event, Actions& actions) {
    switch (event.kind) {
        case Event::Kind::acquire:
        case Event::Kind::served:
        case Event::Kind::cancel:
        case Event::Kind::evict:
        case Event::Kind::write_back:
        case Event::Kind::adopted:
        case Event::Kind::quiesced:
        case Event::Kind::peer_greeted: holder_.on(event, actions); break;
        case Event::Kind::message:
            if (is_for_home(event.message.kind))
                home_.on(event, actions);
            else
                holder_.on(event, actions);
            break;
        case Event::Kind::peer_up:
            home_.on(event, actions);
            holder_.on(event, actions);
            break;
        case Event::Kind::recovered:
        case Event::Kind::host_forgotten:
        case Event::Kind::volume_unknown:
        case Event::Kind::loss_recorded:
        case Event::Kind::marked: home_.on(event, actions); break;
    }
}

}  // namespace tarn::protocol
