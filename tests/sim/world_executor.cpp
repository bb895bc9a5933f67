// World: performs the actions of stripes and flush parts.
#include <algorithm>

#include "tests/sim/failure.hpp"
#include "tests/sim/world.hpp"

namespace tarn::sim {

using protocol::Action;
using protocol::Event;
using protocol::FlushAction;
using protocol::FlushActions;
using protocol::Message;
using protocol::MessageKind;
using protocol::Ownership;

FrameId World::allocate(HostId id) {
    auto& frames = hosts_.change(id).frames;
    const auto free = std::ranges::find(frames, false, &Frame::used);
    require(free != frames.end(), "frames leak");
    *free = {.used = true};
    return static_cast<FrameId>(free - frames.begin());
}

void World::send(HostId from, HostId to, Message message, Version version) {
    if (!hosts_[to].is_up) return;
    message.from = from;
    message.incarnation = hosts_[from].incarnation;
    message.loss_generation = hosts_[from].loss_generation;
    network_.push_back({.message = message,
                        .from = from,
                        .to = to,
                        .version = version,
                        .of_hello = saying_hello_to_ == to,
                        .number = ++last_message_});
}

void World::step(HostId id, const Event& first) {
    Host& host = hosts_.change(id);
    // Memory that is allocated once: a step may begin another one, but only so deep.
    struct Scratch {
        std::vector<Event> events;
        protocol::Actions actions;
    };
    static std::array<Scratch, 8> scratch;
    static size_t depth = 0;
    require(depth < scratch.size(), "a step begins too many others");
    auto& [events, actions] = scratch[depth++];
    struct Leave {
        ~Leave() { --depth; }
    } leave;
    events.assign(1, first);
    for (size_t next = 0; next < events.size(); ++next) {
        const Event event = events[next];
        actions.clear();
        host.stripe.reserve();
        host.stripe.on(event, actions);
        for (const Action& action : actions) perform(id, action, events);
    }
}

void World::perform(HostId id, const Action& action, std::vector<Event>& events) {
    Host& host = hosts_.change(id);
    Frame* const frame = action.frame == no_frame ? nullptr : &host.frames[action.frame];
    require(frame == nullptr || frame->used, "an action names a free frame");
    FlushActions flush_actions;
    switch (action.kind) {
        case Action::Kind::nothing: break;
        case Action::Kind::send: send(id, action.to, action.message, frame ? frame->version : garbage); break;
        case Action::Kind::send_home_bytes: {
            Message message = action.message;
            message.flags |= protocol::flag_payload;
            if (action.to != id) {
                send(id, action.to, message, host.home_bytes.version);
                break;
            }
            Event event = Event::message_of(message, allocate(id));
            event.message.from = id;
            host.frames[event.frame].version = host.home_bytes.version;
            events.push_back(event);
            break;
        }
        case Action::Kind::wake:
            frame->lost = action.lost;
            host.woken.push_back({action.frame, host.operation});
            break;
        case Action::Kind::fail: require(false, "no space was never said"); break;
        case Action::Kind::written: host.flush_holder.on_written(action.waiter, flush_actions); break;
        case Action::Kind::quiesce:
            events.push_back(Event::quiesced_of(action.page, frame->dirty || frame->writing ? 1 : 0));
            break;
        case Action::Kind::set_access:
            frame->access = action.ownership;
            frame->lost = action.lost;
            if (action.ownership != Ownership::none)
                host.bound = action.frame;
            else if (host.bound == action.frame)
                host.bound = no_frame;
            break;
        case Action::Kind::begin_writing:
            frame->writing |= frame->dirty;
            frame->dirty = false;
            break;
        case Action::Kind::clear_writing: frame->writing = false; break;
        case Action::Kind::clear_dirty: frame->dirty = frame->writing = false; break;
        case Action::Kind::mark_dirty: frame->dirty = true; break;
        case Action::Kind::release_frame: frame->used = false; break;
        case Action::Kind::apply_copy: {
            const protocol::PageVersion page_version{action.tenure, action.sequence};
            require(host.home_bytes.page_version < page_version, "home's bytes go back");
            host.home_bytes = {frame->version, page_version};
            if (!action.borrowed) frame->used = false;
            break;
        }
        case Action::Kind::keep_copy: require(false, "home wanted no copy"); break;
        case Action::Kind::holder_added: host.flush_home.holder_added(action.page, action.to); break;
        case Action::Kind::holder_removed: host.flush_home.holder_removed(action.page, action.to); break;
        case Action::Kind::copy_expected: host.flush_home.copy_expected(action.page, action.tenure); break;
        case Action::Kind::copy_arrived: host.flush_home.copy_arrived(action.page, action.tenure, flush_actions); break;
        case Action::Kind::refuse_peer: require(false, action.reason); break;
        case Action::Kind::record_loss: host.loss_due = true; break;
        case Action::Kind::mark: require(false, "every page counts as marked"); break;
    }
    perform_flush(id, flush_actions);
}

void World::perform_flush(HostId id, const FlushActions& actions) {
    for (const FlushAction& action : actions) {
        switch (action.kind) {
            case FlushAction::Kind::send:
                if (action.to != id) {
                    send(id, action.to, action.message);
                    break;
                }
                deliver_flush(id, action.message);
                break;
            case FlushAction::Kind::store_flush:
                hosts_.change(id).store_flushes.push_back({action.ticket, hosts_[id].home_bytes});
                break;
            case FlushAction::Kind::complete: {
                Host& host = hosts_.change(id);
                if (action.lost) {
                    // The client gives up, and begins anew with what it finds.
                    host.flush_requester.close(host.session);
                    host.flush_requester.open(++host.session, action.volume);
                } else {
                    require(hosts_[0].stored.version >= host.cover,
                            "I8: a flush succeeded before its bytes were durable");
                    require(std::ranges::find(log_, host.cover, &Write::version) != log_.end(),
                            "D1: a flush succeeded over a lost write");
                    flushed_ = std::max(flushed_, host.cover);
                }
                host.cover = 0;
                end_operation(id);
                break;
            }
        }
    }
}

void World::deliver_flush(HostId to, const Message& message) {
    Host& host = hosts_.change(to);
    FlushActions actions;
    if (message.kind == MessageKind::flush_ask) return answer_flush_ask(to, message);
    if (message.kind == MessageKind::flushed)
        host.flush_requester.on_message(message, actions);
    else
        host.flush_home.on_message(message, actions);
    perform_flush(to, actions);
}

void World::answer_flush_ask(HostId id, const Message& ask) {
    Host& host = hosts_.change(id);
    const protocol::WaiterToken waiter = host.flush_holder.on_ask(ask);
    const bool is_dirty = std::ranges::any_of(
        host.frames, [](const Frame& frame) { return frame.used && (frame.dirty || frame.writing); });
    if (is_dirty) step(id, Event::about(Event::Kind::write_back, ask.page, waiter));
    FlushActions actions;
    host.flush_holder.begun(waiter, is_dirty ? 1 : 0, actions);
    perform_flush(id, actions);
}

}  // namespace tarn::sim
