#include "tests/sim/performance/tarn_system.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "utils/assert.hpp"

namespace tarn::sim_performance {

using protocol::Action;
using protocol::Event;
using protocol::Ownership;
using protocol::Want;

namespace {

Want want_of(Operation::Kind kind) {
    switch (kind) {
        case Operation::Kind::read: return Want::shared;
        case Operation::Kind::write: return Want::exclusive;
        case Operation::Kind::write_whole: return Want::exclusive_no_read;
    }
    return Want::exclusive;
}

RangeMap round_robin(unsigned host_count) {
    std::vector<HostId> hosts(host_count);
    std::iota(hosts.begin(), hosts.end(), HostId{0});
    return RangeMap(1, hosts, 1);
}

}  // namespace

TarnSystem::TarnSystem(Machine& machine, const TarnOptions& options)
    : machine_(machine),
      options_(options),
      ranges_(round_robin(machine.host_count())),
      at_home_(options.page_count, !options.home_on_device) {
    for (HostId id = 0; id < machine.host_count(); ++id) {
        Host& host = *hosts_.emplace_back(std::make_unique<Host>(id, ranges_));
        host.bound.assign(options.page_count, no_frame);
        step(host, Event::about(Event::Kind::recovered, PageId{}));
    }
    machine.set_receiver([this](HostId to, const Message& message) { receive(to, message); });
}

void TarnSystem::start(HostId id, unsigned client, const Operation& operation) {
    Host& host = *hosts_[id];
    if (client >= host.clients.size()) host.clients.resize(client + 1);
    host.clients[client].operation = operation;
    const FrameId frame = host.bound[operation.page];
    if (frame != no_frame && may_begin(host.frames[frame], operation)) return access(host, client, frame, true);
    machine_.at(machine_.now() + machine_.costs().message_cpu, [this, &host, client] { acquire(host, client); });
}

bool TarnSystem::may_begin(Frame& frame, const Operation& operation) {
    const bool writes = operation.kind != Operation::Kind::read;
    if (frame.busy || frame.access < (writes ? Ownership::exclusive : Ownership::shared)) return false;
    if (!frame.recalled) return true;
    if (frame.latch.inside == 0 || frame.lease_writes == 0 || machine_.now() >= frame.lease_until) {
        frame.busy = true;
        return false;
    }
    if (writes) --frame.lease_writes;
    return true;
}

void TarnSystem::acquire(Host& host, unsigned client) {
    if (host.used >= options_.frames_per_host) {
        host.starved.push_back(client);
        return replace_soon(host);
    }
    const Operation& operation = host.clients[client].operation;
    const PageId page = page_id(operation.page);
    step(host, Event::acquire_of(page, want_of(operation.kind), client, allocate(host, page)));
}

void TarnSystem::access(Host& host, unsigned client, FrameId id, bool was_hit) {
    Frame& frame = host.frames[id];
    const bool writes = host.clients[client].operation.kind != Operation::Kind::read;
    frame.dirty |= writes;
    if (frame.access != Ownership::none) {
        host.by_use.splice(host.by_use.end(), host.by_use, frame.place);
        stay(host, frame);
    }
    const Time ends = frame.latch.enter(machine_.now(), machine_.costs().access, writes);
    machine_.at(ends, [this, &host, client, id, was_hit] { accessed(host, client, id, was_hit); });
}

void TarnSystem::accessed(Host& host, unsigned client, FrameId id, bool was_hit) {
    const PageId page = host.frames[id].page;
    --host.frames[id].latch.inside;
    if (!was_hit) step(host, Event::about(Event::Kind::served, page));
    Frame& frame = host.frames[id];
    if (frame.page == page && frame.latch.inside == 0 && (frame.busy || frame.recalled)) {
        frame.busy = true;
        frame.recalled = false;
        step(host, Event::quiesced_of(page, frame.dirty ? all_sectors : 0));
    }
    finished(host.id, client, was_hit);
}

void TarnSystem::receive(HostId to, const Message& message) {
    Host& host = *hosts_[to];
    Event event = Event::message_of(message);
    if (message.has(protocol::flag_payload)) {
        const FrameId lent = host.stripe.lent_frame(message);
        event.frame = lent != no_frame ? lent : allocate(host, message.page);
    }
    step(host, event);
}

void TarnSystem::step(Host& host, const Event& first) {
    host.pending.push_back(first);
    if (std::exchange(host.stepping, true)) return;
    while (!host.pending.empty()) {
        const Event event = host.pending.front();
        host.pending.pop_front();
        actions_.clear();
        host.stripe.reserve();
        host.stripe.on(event, actions_);
        for (const Action& action : actions_) perform(host, action);
    }
    host.stepping = false;
}

void TarnSystem::perform(Host& host, const Action& action) {
    Frame* const frame = action.frame == no_frame ? nullptr : &host.frames[action.frame];
    TARN_ASSERT(frame == nullptr || frame->used);
    switch (action.kind) {
        case Action::Kind::nothing: break;
        case Action::Kind::send: {
            Message message = action.message;
            message.from = host.id;
            machine_.send(host.id, action.to, message);
            break;
        }
        case Action::Kind::send_home_bytes: {
            Message message = action.message;
            message.from = host.id;
            message.flags |= protocol::flag_payload;
            const auto deliver = [this, &host, to = action.to, message] {
                if (to == host.id)
                    receive(to, message);
                else
                    machine_.send(host.id, to, message);
            };
            if (at_home_[action.page.number()])
                deliver();
            else
                machine_.read_store(host.id, deliver);
            break;
        }
        case Action::Kind::wake: access(host, static_cast<unsigned>(action.waiter), action.frame, false); break;
        case Action::Kind::quiesce: quiesce(host, action); break;
        case Action::Kind::set_access: set_access(host, action); break;
        case Action::Kind::begin_writing:
        case Action::Kind::clear_dirty: frame->dirty = false; break;
        case Action::Kind::mark_dirty: frame->dirty = true; break;
        case Action::Kind::release_frame: release(host, action.frame); break;
        case Action::Kind::apply_copy:
        case Action::Kind::keep_copy:
            at_home_[action.page.number()] = true;
            if (!action.borrowed) release(host, action.frame);
            break;
        case Action::Kind::written:
        case Action::Kind::clear_writing:
        case Action::Kind::holder_added:
        case Action::Kind::holder_removed:
        case Action::Kind::copy_expected:
        case Action::Kind::copy_arrived: break;
        case Action::Kind::fail:
        case Action::Kind::refuse_peer:
        case Action::Kind::mark:
        case Action::Kind::record_loss: TARN_ASSERT(false); break;
    }
}

void TarnSystem::quiesce(Host& host, const Action& action) {
    Frame& frame = host.frames[action.frame];
    if (frame.latch.inside == 0) {
        frame.busy = true;
        host.pending.push_front(Event::quiesced_of(action.page, frame.dirty ? all_sectors : 0));
        return;
    }
    if (!action.recalled || options_.lease.writes == 0) {
        frame.busy = true;
        return;
    }
    frame.recalled = true;
    frame.lease_writes = options_.lease.writes;
    frame.lease_until = machine_.now() + Time{options_.lease.time_us} * 1000;
}

void TarnSystem::set_access(Host& host, const Action& action) {
    Frame& frame = host.frames[action.frame];
    frame.busy = frame.recalled = false;
    if (frame.access != Ownership::none) host.by_use.erase(frame.place);
    frame.access = action.ownership;
    if (action.ownership != Ownership::none) {
        frame.place = host.by_use.insert(host.by_use.end(), action.frame);
        frame.page = action.page;
        host.bound[action.page.number()] = action.frame;
        stay(host, frame);
        return;
    }
    if (host.bound[action.page.number()] == action.frame) host.bound[action.page.number()] = no_frame;
    // An eviction or a home copy is on its way, and then the frame is free.
    if (!std::exchange(frame.leaving, true)) ++host.leaving;
}

FrameId TarnSystem::allocate(Host& host, PageId page) {
    if (host.free.empty()) {
        host.free.push_back(static_cast<FrameId>(host.frames.size()));
        host.frames.emplace_back();
    }
    const FrameId frame = host.free.back();
    host.free.pop_back();
    host.frames[frame] = {};
    host.frames[frame].used = true;
    host.frames[frame].page = page;
    ++host.used;
    replace_soon(host);
    return frame;
}

void TarnSystem::release(Host& host, FrameId id) {
    Frame& frame = host.frames[id];
    TARN_ASSERT(frame.used && frame.latch.inside == 0 && frame.access == Ownership::none);
    stay(host, frame);
    frame.used = false;
    --host.used;
    host.free.push_back(id);
    if (host.starved.empty() || host.used >= options_.frames_per_host) return;
    const unsigned client = host.starved.front();
    host.starved.pop_front();
    machine_.at(machine_.now(), [this, &host, client] { acquire(host, client); });
}

void TarnSystem::stay(Host& host, Frame& frame) {
    if (std::exchange(frame.leaving, false)) --host.leaving;
}

void TarnSystem::replace_soon(Host& host) {
    if (host.used - host.leaving + replaced_at_once <= options_.frames_per_host || host.replacing) return;
    host.replacing = true;
    machine_.at(machine_.now(), [this, &host] { replace(host); });
}

void TarnSystem::replace(Host& host) {
    host.replacing = false;
    std::vector<PageId> pages;
    for (const FrameId id : host.by_use) {
        Frame& frame = host.frames[id];
        if (pages.size() == replaced_at_once) break;
        if (frame.leaving || frame.latch.inside != 0) continue;
        frame.leaving = true;
        ++host.leaving;
        pages.push_back(frame.page);
    }
    for (const PageId page : pages) step(host, Event::about(Event::Kind::evict, page));
}

void TarnSystem::evict(HostId host, uint64_t page) {
    step(*hosts_[host], Event::about(Event::Kind::evict, page_id(page)));
}

}  // namespace tarn::sim_performance
