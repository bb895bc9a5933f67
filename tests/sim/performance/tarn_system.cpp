#include "tests/sim/performance/tarn_system.hpp"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "coherence/protocol/lent_frame.hpp"

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
        Host& host = *hosts_.emplace_back(std::make_unique<Host>(*this, id));
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
        host.stay(frame);
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
        const FrameId lent = protocol::lent_frame(host.stripe.holder().find(message.page), message);
        event.frame = lent != no_frame ? lent : allocate(host, message.page);
    }
    step(host, event);
}

void TarnSystem::step(Host& host, const Event& event) {
    static constexpr StripeLinks every_link{.up = ~HostSet{0}};  // nothing fails
    const Executor executor(host.id, {host, host, host, host, host});
    StepResult result;
    StepObserver observer;
    executor.step(host.stripe, every_link, scratch_, event, result, observer);
    TARN_ASSERT(result.losses.empty() && result.marks.empty() && std::string_view(result.refused).empty());
    executor.finish(result);
}

bool TarnSystem::Host::wake(const Action& action, bool /*may_resume*/) {
    system.access(*this, static_cast<unsigned>(action.waiter), action.frame, false);
    return false;
}

HomeStore::Found TarnSystem::Host::find(PageId page) {
    return {system.at_home_[page.number()] ? Found::Where::frame : Found::Where::store};
}

void TarnSystem::Host::read(std::vector<HomeRead> reads) {
    for (HomeRead& each : reads) {
        each.message.flags |= protocol::flag_payload;
        system.machine_.read_store(id, [this, to = each.to, message = each.message] {
            if (to == id)
                system.receive(to, message);
            else
                system.machine_.send(id, to, message);
        });
    }
}

bool TarnSystem::Host::keep_copy(const Action& action) {
    system.at_home_[action.page.number()] = true;
    return !action.borrowed && release(action.frame);
}

Frames::Quiet TarnSystem::Host::quiesce(PageId /*page*/, FrameId frame_id, bool recalled) {
    Frame& frame = frames[frame_id];
    const protocol::WriteLease& lease = system.options_.lease;
    frame.recalled = recalled && lease.writes > 0 && frame.latch.inside > 0;
    frame.busy = !frame.recalled;
    if (frame.latch.inside == 0) return Quiet::now;
    if (!frame.recalled) return Quiet::later;
    frame.lease_writes = lease.writes;
    frame.lease_until = system.machine_.now() + Time{lease.time_us} * 1000;
    return Quiet::leased;
}

void TarnSystem::Host::set_access(PageId page, FrameId frame_id, Ownership ownership, uint32_t /*lost*/) {
    Frame& frame = frames[frame_id];
    frame.busy = frame.recalled = false;
    if (frame.access != Ownership::none) by_use.erase(frame.place);
    frame.access = ownership;
    if (ownership != Ownership::none) {
        frame.place = by_use.insert(by_use.end(), frame_id);
        frame.page = page;
        bound[page.number()] = frame_id;
        stay(frame);
        return;
    }
    if (bound[page.number()] == frame_id) bound[page.number()] = no_frame;
    // An eviction or a home copy is under way; after it the frame is free.
    if (!std::exchange(frame.leaving, true)) ++leaving;
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

bool TarnSystem::Host::release(FrameId frame_id) {
    Frame& frame = frames[frame_id];
    TARN_ASSERT(frame.used && frame.latch.inside == 0 && frame.access == Ownership::none);
    stay(frame);
    frame.used = false;
    --used;
    free.push_back(frame_id);
    if (starved.empty() || used >= system.options_.frames_per_host) return true;
    const unsigned client = starved.front();
    starved.pop_front();
    system.machine_.at(system.machine_.now(), [this, client] { system.acquire(*this, client); });
    return true;
}

void TarnSystem::Host::stay(Frame& frame) {
    if (std::exchange(frame.leaving, false)) --leaving;
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
