// SearchState: what may happen next, and what must hold after it.
#include <algorithm>
#include <bit>

#include "tests/sim/explore/search_state.hpp"
#include "tests/sim/support/failure.hpp"

namespace tarn::sim {

using protocol::Event;
using protocol::FlushActions;
using protocol::Ownership;
using protocol::Want;

namespace {

constexpr std::array<HostId, world_hosts> all_hosts{0, 1, 2};
const RangeMap ranges(1, all_hosts, 16);

Want want_of(SearchState::What operation) {
    if (operation == SearchState::What::read) return Want::shared;
    return operation == SearchState::What::write_whole ? Want::exclusive_no_read : Want::exclusive;
}

constexpr HostSet all_hosts_set = set_of_first(world_hosts);

bool serves(Recovery& recovery) {
    return recovery.next(recovery.moment(), true) == Recovery::Next::serve;
}

}  // namespace

SearchState::Host::Host(HostId id)
    : stripe(id, 1, {.last_in_doubt = 1}, ranges),
      flush_home(id),
      flush_holder(id),
      flush_requester(id),
      recovery(id, all_hosts_set) {
    flush_requester.open(session, page.volume());
}

SearchState::Hosts::Hosts() {
    for (const HostId id : all_hosts) slots_.emplace_back(id);
}

SearchState::SearchState(const Bounds& bounds) : crashes_left_(static_cast<uint8_t>(bounds.crashes)) {
    for (const HostId id : all_hosts) {
        step(id, Event::about(Event::Kind::recovered, PageId{}));
        FlushActions actions;
        for (const HostId peer : all_hosts) hosts_.change(id).recovery.on_reported(peer);
        require(serves(hosts_.change(id).recovery), "a home that all have told may serve");
        hosts_.change(id).flush_home.on_recovered(actions);
        hosts_.change(id).flush_requester.heard(page.volume(), 0, verifier());
    }
}

protocol::Verifier SearchState::verifier() const {
    return protocol::verifier_of(hosts_[0].incarnation, hosts_[0].loss_generation);
}

void SearchState::steps(const Bounds& bounds, std::vector<Step>& into) const {
    into.clear();
    for (HostId id = 0; id < world_hosts; ++id) {
        const Host& host = hosts_[id];
        if (!host.is_up) {
            into.push_back({What::restart, id});
            continue;
        }
        for (uint8_t index = 0; index < host.woken.size(); ++index) into.push_back({What::serve, id, index});
        for (uint8_t index = 0; index < host.store_flushes.size(); ++index)
            into.push_back({What::store_flushed, id, index});
        if (host.loss_due) into.push_back({What::lost, id});
    }
    for (uint8_t index = 0; index < network_.size(); ++index) {
        const InFlight& each = network_[index];
        if (!may_come(each)) continue;
        into.push_back({What::deliver, each.to, index, each.number, is_spent(each)});
    }
    const bool may_begin = started_ < bounds.operations && under_way() <= bounds.under_way;
    for (HostId id = 0; id < world_hosts && may_begin; ++id) {
        const Host& host = hosts_[id];
        if (!host.is_up) continue;
        if (bounds.evictions && host.bound != no_frame) into.push_back({What::evict, id});
        if (host.is_busy) continue;
        if (bounds.reads) into.push_back({What::read, id});
        into.push_back({What::write, id});
        if (bounds.whole_writes) into.push_back({What::write_whole, id});
        if (bounds.flushes) into.push_back({What::flush, id});
    }
    for (HostId id = 0; id < world_hosts && crashes_left_ > 0; ++id) {
        into.push_back({What::crash, id, 0});
        // The store may have been written in the background.
        if (id == 0 && hosts_[0].stored.version != hosts_[0].home_bytes.version) into.push_back({What::crash, id, 1});
    }
}

// Hello messages come first, then their end, then everything else of that link.
bool SearchState::may_come(const InFlight& each) const {
    if (each.of_hello && !each.ends_hello) return true;
    return std::ranges::none_of(network_, [&](const InFlight& other) {
        return other.of_hello && other.from == each.from && other.to == each.to &&
               !(each.ends_hello && other.ends_hello);
    });
}

// Nobody learns anything from the end of most hellos: it lets other messages come, and who waits for a page has home
// resolve it. When that happens makes no difference to the first, unless a host crashes meanwhile. The second happens
// at the earliest moment here; the simulator varies it.
bool SearchState::is_idle_end(const InFlight& each) const {
    if (!each.ends_hello || each.from == 0 || crashes_left_ > 0 || !may_come(each)) return false;
    if (each.to != 0 || !hosts_[0].recovery.recovering()) return true;
    // Home waits for more.
    return (hosts_[0].recovery.reported() | set_of(each.from)) != all_hosts_set;
}

void SearchState::end_idle_hellos() {
    for (;;) {
        const auto idle = std::ranges::find_if(network_, [&](const InFlight& each) { return is_idle_end(each); });
        if (idle == network_.end()) return;
        deliver(static_cast<size_t>(idle - network_.begin()));
    }
}

bool SearchState::commutes(const Bounds& bounds, const Step& delivery, const Step& other) const {
    // Outside the receiver a message changes only the network. Exceptions: the end of a flush, which looks at the store
    // and the log, and the end of a hello, with which home may recover and everyone hear of it.
    const auto sent = std::ranges::find(network_, delivery.message, &InFlight::number);
    if (other.host == delivery.host || sent->ends_hello || sent->message.kind == protocol::MessageKind::flushed)
        return false;
    switch (other.what) {
        case What::read:
        case What::write:
        case What::write_whole:
        case What::evict:
        case What::flush: return bounds.under_way == Bounds{}.under_way;  // else it depends on the number of messages
        case What::deliver: return !network_[other.index].ends_hello;
        case What::serve:
        case What::store_flushed:
        case What::lost: return true;
        case What::crash:
        case What::restart: return false;
    }
    return false;
}

void SearchState::take(const Bounds& bounds, const Step& what) {
    Host& host = hosts_.change(what.host);
    switch (what.what) {
        case What::read:
        case What::write:
        case What::write_whole:
        case What::flush: start(what.host, what.what); break;
        case What::evict:
            ++started_;
            step(what.host, Event::about(Event::Kind::evict, page));
            break;
        case What::deliver: deliver(what.index); break;
        case What::serve: {
            const Woken woken = host.woken[what.index];
            host.woken.erase(host.woken.begin() + what.index);
            access(what.host, woken.operation, woken.frame);
            step(what.host, Event::about(Event::Kind::served, page));
            end_operation(what.host);
            break;
        }
        case What::store_flushed: {
            const StoreFlush done = host.store_flushes[what.index];
            host.store_flushes.erase(host.store_flushes.begin() + what.index);
            if (host.stored.page_version < done.bytes.page_version) host.stored = done.bytes;
            FlushActions actions;
            host.flush_home.on_store_flushed(done.ticket, false, verifier(), actions);
            perform_flush(what.host, actions);
            break;
        }
        case What::lost:
            host.loss_due = false;
            host.lost = ++host.loss_generation;
            step(what.host, Event::loss_recorded_of(page, host.lost));
            break;
        case What::crash: crash(what.host, what.index != 0); break;
        case What::restart:
            restart(what.host);
            if (bounds.hello_at_once) say_hello();
            break;
    }
    end_idle_hellos();
    check_state();
}

void SearchState::hear_own_home(HostId id) {
    if (id == 0) hosts_.change(0).flush_requester.heard(page.volume(), 0, verifier());
}

void SearchState::start(HostId id, What operation) {
    Host& host = hosts_.change(id);
    ++started_;
    host.is_busy = true;
    host.operation = operation;
    if (operation == What::flush) {
        hear_own_home(id);
        host.cover = 0;
        for (const Write& write : log_)
            if (!may_be_lost(write)) host.cover = write.version;
        FlushActions actions;
        host.flush_requester.start(host.session, set_of(0), id, actions);
        return perform_flush(id, actions);
    }
    if (host.bound != no_frame) {
        const Ownership ownership = host.frames[host.bound].access;
        if (ownership == Ownership::exclusive || (ownership == Ownership::shared && operation == What::read)) {
            access(id, operation, host.bound);
            return end_operation(id);
        }
    }
    step(id, Event::acquire_of(page, want_of(operation), id, allocate(id)));
}

void SearchState::access(HostId id, What operation, FrameId frame_id) {
    Host& host = hosts_.change(id);
    Frame& frame = host.frames[frame_id];
    require(frame.used, "the frame of an operation was taken away");
    if (operation == What::read) return check_read(frame.version, frame.lost);
    if (operation == What::write) check_read(frame.version, frame.lost);
    hear_own_home(id);
    const protocol::Verifier noted = host.flush_requester.known(page.volume(), 0);
    host.flush_requester.wrote(host.session, 0, page, page, noted);
    frame.version = ++last_version_;
    frame.dirty = true;
    log_.push_back({.version = last_version_,
                    .writer = id,
                    .writer_incarnation = host.incarnation,
                    .home_incarnation = id == 0 ? host.incarnation : host.met[0],
                    .noted = noted});
}

// Like the simulator's Truth.
bool SearchState::may_be_lost(const Write& write) const {
    if (write.version == 0) return false;
    const auto lives = [&](HostId id, Incarnation incarnation) {
        return hosts_[id].is_up && hosts_[id].incarnation == incarnation;
    };
    return !lives(write.writer, write.writer_incarnation) || !lives(0, write.home_incarnation);
}

bool SearchState::write_home_lives(const Write& write) const {
    // A write under the verifier of an earlier home may be one that the present one never knew of.
    return hosts_[0].is_up && hosts_[0].incarnation == write.noted >> 32;
}

void SearchState::check_read(Version found, uint32_t mark) {
    require(found != garbage, "C5: a frame without bytes was read");
    while (log_.back().version > found) {
        const Write& lost = log_.back();
        require(lost.version > flushed_, "D1: a flushed write is lost");
        // With one crash, a page that its writer handed on is lost only if both its present holder and home fail; the
        // simulator follows that through several crashes.
        require(crashed_ > 0, "I2: not the latest write, and nobody crashed");
        require(may_be_lost(lost) || lost.noted != verifier(), "I2, D3: not the latest write, and nothing was lost");
        require(lost.noted != verifier(), "D4: a write is lost and the verifier did not change");
        if (write_home_lives(lost)) require(mark != 0, "D4: a read goes back in time and was not told");
        log_.pop_back();
    }
    require(log_.back().version == found, "I2: a lost write came back");
}

void SearchState::deliver(size_t index) {
    const InFlight arrived = network_[index];
    network_[index] = network_.back();
    network_.pop_back();
    if (arrived.ends_hello) return hello_ended(arrived.from, arrived.to);
    Host& host = hosts_.change(arrived.to);
    const protocol::Message& message = arrived.message;
    require(protocol::validate(message).has_value(), "an invalid message was sent");
    if (protocol::is_from_home(message.kind))
        host.flush_requester.heard(page.volume(), arrived.from,
                                   protocol::verifier_of(message.incarnation, message.loss_generation));
    if (protocol::is_about_flush(message.kind)) return deliver_flush(arrived.to, message);
    Event event = Event::message_of(message);
    if (message.has_bytes()) {
        event.frame = allocate(arrived.to);
        host.frames[event.frame].version = arrived.version;
    }
    if (message.kind == protocol::MessageKind::hello) event.stored_tenure = host.stored.page_version.tenure;
    step(arrived.to, event);
}

void SearchState::crash(HostId id, bool writes_behind) {
    Host& host = hosts_.change(id);
    ++crashed_;
    --crashes_left_;
    if (writes_behind && host.stored.page_version < host.home_bytes.page_version) host.stored = host.home_bytes;
    Host empty(id);
    empty.is_up = false;
    empty.incarnation = host.incarnation;
    empty.stored = host.stored;
    empty.loss_generation = host.loss_generation;
    empty.lost = host.lost;
    host = empty;
    std::erase_if(network_, [&](const InFlight& each) { return each.from == id || each.to == id; });
}

void SearchState::restart(HostId id) {
    Host& host = hosts_.change(id);
    host.is_up = true;
    ++host.incarnation;
    host.stripe = protocol::Stripe(id, host.incarnation, {.last_in_doubt = host.incarnation}, ranges);
    if (host.lost != 0) step(id, Event::loss_recorded_of(page, host.lost));
    host.home_bytes = {host.stored.version, {}};
    host.met = {};
    host.recovery = Recovery(id, all_hosts_set);
    for (HostId peer = 0; peer < world_hosts; ++peer) {
        if (peer == id || !hosts_[peer].is_up) continue;
        hello(id, peer);
        hello(peer, id);
    }
}

// Every hello message arrives, in the order in which they were sent.
void SearchState::say_hello() {
    for (bool again = true; std::exchange(again, false);) {
        for (size_t index = 0; index < network_.size() && !again; ++index) {
            if (!network_[index].of_hello) continue;
            // Not swapped with the last one: the order must stay.
            std::rotate(network_.begin() + static_cast<long>(index), network_.begin() + static_cast<long>(index) + 1,
                        network_.end());
            deliver(network_.size() - 1);
            again = true;
        }
    }
}

void SearchState::hello(HostId id, HostId peer) {
    Host& host = hosts_.change(id);
    const Incarnation before = std::exchange(host.met[peer], hosts_[peer].incarnation);
    const Process previous{.incarnation = before, .epoch = before};
    const Process present{.incarnation = hosts_[peer].incarnation, .epoch = hosts_[peer].incarnation};
    host.recovery.on_link_up(peer);
    saying_hello_to_ = peer;
    step(id, Event::peer_up_of(peer, present, previous));
    FlushActions actions;
    host.flush_holder.on_peer_up(peer);
    host.flush_home.on_peer_up(peer, present, previous, actions);
    host.flush_requester.on_peer_up(peer, actions);
    perform_flush(id, actions);
    saying_hello_to_ = no_host;
    network_.push_back(
        {.message = {}, .from = id, .to = peer, .of_hello = true, .ends_hello = true, .number = ++last_message_});
}

void SearchState::hello_ended(HostId from, HostId to) {
    Host& host = hosts_.change(to);
    if (from == 0 && !hosts_[0].recovery.recovering()) host.flush_requester.heard(page.volume(), 0, verifier());
    step(to, Event::peer_greeted_of(from));
    host.recovery.on_reported(from);
    if (!serves(host.recovery)) return;
    step(to, Event::about(Event::Kind::recovered, PageId{}));
    FlushActions actions;
    host.flush_home.on_recovered(actions);
    perform_flush(to, actions);
    if (to == 0)
        for (HostId peer = 1; peer < world_hosts; ++peer)
            if (hosts_[peer].is_up) hosts_.change(peer).flush_requester.heard(page.volume(), 0, verifier());
}

void SearchState::check_state() const {
    unsigned owners = 0;
    unsigned readers = 0;
    for (const HostId id : all_hosts) {
        const Host& host = hosts_[id];
        if (!host.is_up || host.bound == no_frame) continue;
        owners += host.frames[host.bound].access == Ownership::exclusive;
        readers += host.frames[host.bound].access == Ownership::shared;
    }
    require(owners == 0 || (owners == 1 && readers == 0), "C1: more than one owner, or an owner and readers");
}

bool SearchState::is_quiet() const {
    return under_way() == 0 && std::ranges::all_of(all_hosts, [&](HostId id) {
               const Host& host = hosts_[id];
               return host.is_up && host.woken.empty() && host.store_flushes.empty() && !host.loss_due;
           });
}

void SearchState::check_end() const {
    const protocol::Home& home = hosts_[0].stripe.home();
    const protocol::Claim* const claim = home.find(page);
    require(!hosts_[0].recovery.recovering(), "C4: home never recovered");
    require(home.requests().used() == 0 && home.copies().used() == 0, "C4: an order or a copy never ended");
    require(hosts_[0].flush_home.flush_count() == 0 && hosts_[0].flush_home.outstanding_copy_count() == 0,
            "C4: a flush never ended");
    for (HostId id = 0; id < world_hosts; ++id) {
        const Host& host = hosts_[id];
        require(!host.is_busy, "C4: an operation never ended");
        const auto used = std::ranges::count(host.frames, true, &Frame::used);
        require(used == (host.bound == no_frame ? 0 : 1), "a frame is leaked");
        const bool is_named = claim != nullptr && contains(claim->holders(), id);
        require(is_named == (host.bound != no_frame), "home is wrong about a frame");
    }
}

std::string SearchState::describe(const Step& what) const {
    static constexpr const char* names[] = {"reads",         "writes",   "writes whole", "evicts",
                                            "flushes",       "receives", "serves",       "store flushed",
                                            "loss recorded", "crashes",  "restarts"};
    std::string text = "host " + std::to_string(what.host) + " " + names[static_cast<size_t>(what.what)];
    if (what.what != What::deliver) return text;
    const InFlight& each = network_[what.index];
    if (each.ends_hello) return text + " the end of hello from " + std::to_string(each.from);
    const protocol::Message& message = each.message;
    text += std::string(" ") + protocol::to_string(message.kind) + " from " + std::to_string(each.from) + " tenure " +
            std::to_string(message.tenure & 0xffff) + " request " + std::to_string(message.request_id) + " flags " +
            std::to_string(message.flags);
    if (message.host != no_host) text += " host " + std::to_string(message.host);
    if (message.kind == protocol::MessageKind::grant) text += " hosts " + std::to_string(message.hosts);
    if (each.version != garbage) text += " version " + std::to_string(each.version);
    return text;
}

}  // namespace tarn::sim
