// SimCluster: processes that end, with their memory or without, and the recovery by their successors and the others.
#include <bit>
#include <iterator>
#include <utility>

#include "tests/sim/protocol/sim_cluster.hpp"

namespace tarn::sim {

namespace {
constexpr uint64_t store_retry = 100;
}

void SimCluster::recover_if_all_have_reported(SimHost& host) {
    Recovery& recovery = host.memory.recovery;
    Recovery::Next next = recovery.next(recovery.moment(), scenario_.mark_delay_max == 0);
    if (next == Recovery::Next::record) {
        const bool losses = recovery.lacks_losses();
        if (losses) record_possible_losses(host);
        if (scenario_.mark_delay_max != 0) mark_what_is_held(host);
        require(recovery.recorded(recovery.moment(), losses), "nothing is heard while losses are recorded");
        next = recovery.next(recovery.moment(), true);
    }
    if (next == Recovery::Next::serve) recover(host);
}

void SimCluster::recover(SimHost& host) {
    const bool has_memory = !host.memory.recovery.has_recorded_losses() && host.incarnation != host.epoch;
    host.memory.losses_before = protocol::LossRanges(host.losses);
    for (unsigned stripe = 0; stripe < stripes_per_host; ++stripe) {
        host.memory.stripes[stripe].home().for_each([&](PageId, const protocol::Claim& claim) {
            if (claim.stored_unknown && (claim.keepers & ~claim.holders()) != 0)
                coverage_.reached(Sometimes::stored_bytes_win);
        });
    }
    Event event = Event::about(Event::Kind::recovered, PageId{});
    event.has_memory = has_memory;
    event.losses = &host.memory.losses_before;
    step_all(host, event);
    protocol::FlushActions actions;
    host.memory.flush_home.on_recovered(actions);
    perform_flush(host, actions);
    for (SimHost& peer : hosts_) {
        if (!link_is_up_[host.id][peer.id] && peer.id != host.id) continue;
        if (peer.is_paused)
            schedule(0, {.kind = Task::Kind::volumes_opened,
                         .host = peer.id,
                         .from = host.id,
                         .epoch = peer.epoch,
                         .link_epoch = link_epoch_[host.id][peer.id]});
        else
            open_volumes(peer, host);
    }
}

// An operator tells every host that is up.
void SimCluster::forget(SimHost& dead) {
    coverage_.reached(Sometimes::host_forgotten);
    dead.is_forgotten = true;
    for (SimHost& host : hosts_)
        if (host.is_paused) resume(host);  // the operator sees to it that all hear of this
    for (SimHost& host : hosts_) {
        if (!host.is_up) continue;
        for (unsigned stripe = 0; stripe < stripes_per_host; ++stripe) {
            host.memory.stripes[stripe].home().for_each([&](PageId, const protocol::Claim& claim) {
                if (claim.owner == dead.id) coverage_.reached(Sometimes::forgotten_owner);
            });
            Event event = Event::host_forgotten_of(dead.id);
            event.waiter = stripe;
            step(host, event);
        }
        protocol::FlushActions actions;
        host.memory.flush_holder.on_peer_up(dead.id);
        host.memory.flush_home.on_peer_up(dead.id, {}, host.memory.met[dead.id], actions);
        host.memory.flush_requester.give_up_on(dead.id, actions);
        perform_flush(host, actions);
        host.memory.recovery.on_dead(dead.id);
        if (host.memory.recovery.recovering()) host.begin_unrecorded_losses();
        recover_if_all_have_reported(host);
    }
}

void SimCluster::boot(SimHost& host) {
    const bool adopts = std::exchange(host.keeps_memory, false) && !host.is_forgotten;
    HostMemory arena = std::exchange(host.memory, HostMemory(host.id));
    ++host.epoch;
    if (!adopts) host.incarnation = host.epoch;
    if (!adopts) host.past = {.last_in_doubt = host.epoch};
    host.is_up = true;
    host.is_forgotten = false;
    for (unsigned stripe = 0; stripe < stripes_per_host; ++stripe) {
        host.memory.stripes.emplace_back(host.id, host.epoch, host.past, ranges_);
        if (scenario_.mark_delay_max != 0) host.memory.stripes.back().set_marks(host.marks);
    }
    host.store_failed = host.store_failure_told = false;
    if (!adopts) host.losses_unrecorded = false;
    if (!adopts) host.left_bare.clear();
    host.memory_was_lost |= !adopts && host.epoch > 1;
    begin_recovery(host, adopts);
    if (adopts) adopt(host, std::move(arena));
    for (const SimHost& peer : hosts_)
        if (peer.id < hosts_.size() && peer.id != host.id && peer.is_up)
            schedule(faults_.between(1, 100), {.kind = Task::Kind::link_up, .host = host.id, .from = peer.id});
    for (uint32_t client = 0; client < host.clients.size(); ++client)
        schedule(workload_.between(1, 50),
                 {.kind = Task::Kind::start_operation, .host = host.id, .epoch = host.epoch, .client = client});
    if (scenario_.evict_interval != 0)
        schedule(workload_.between(1, 2 * scenario_.evict_interval),
                 {.kind = Task::Kind::evict_hint, .host = host.id, .epoch = host.epoch});
}

void SimCluster::begin_recovery(SimHost& host, bool adopts) {
    Recovery& recovery = host.memory.recovery;
    recovery = Recovery(host.id, set_of_first(hosts_.size()), host.memory_was_lost);
    for (const SimHost& peer : hosts_) {
        if (!peer.is_forgotten) continue;
        recovery.on_dead(peer.id);
        host.losses_unrecorded |= adopts;
    }
    if (host.losses_unrecorded) recovery.begin_unrecorded_losses();
}

// The contents of a real host's arena: its frames, as recorded at the end of the last step. Requests, orders, asks and
// notes are gone.
void SimCluster::adopt(SimHost& host, HostMemory&& arena) {
    coverage_.reached(Sometimes::memory_adopted);
    HostMemory& memory = host.memory;
    memory.home_bytes = std::move(arena.home_bytes);
    memory.met = std::move(arena.met);
    memory.frames = std::move(arena.frames);
    for (Frame& frame : memory.frames) {
        frame.used = frame.busy = frame.recalled = false;
        frame.latches = frame.sends = 0;
        frame.released = false;
        frame.access = Ownership::none;
        frame.dirty |= std::exchange(frame.writing, DirtyMask{0});
    }
    for (unsigned stripe = 0; stripe < stripes_per_host; ++stripe) {
        const protocol::Holder& before = arena.stripes[stripe].holder();
        memory.stripes[stripe].adopt_request_ids(before.last_request_id());
        before.for_each([&](PageId page, const protocol::Holding& holding) {
            if (holding.custody == protocol::Custody::bare) host.left_bare.insert(page);
            protocol::Adopted adopted = holding.recorded();
            const auto take = [&](FrameId frame) {
                if (frame == no_frame) return;
                memory.frames[frame].used = true;
                memory.frames[frame].page = page;
                ++memory.used_frames;
            };
            take(adopted.held.frame);
            take(adopted.kept.frame);
            if (adopted.held.frame == no_frame && adopted.kept.frame == no_frame) return;
            if (adopted.held.frame != no_frame) adopted.held.dirty = memory.frames[adopted.held.frame].dirty;
            Event event = Event::about(Event::Kind::adopted, page);
            event.process = host.process();
            event.adopted = &adopted;
            say_what_home_has(host, event);
            step(host, event);
        });
    }
}

// A store that failed records nothing: the page is served again by the next process.
void SimCluster::record_loss(SimHost& host, const Task& task) {
    if (host.store_failed) {
        check_store_failure(host);
        return schedule(store_retry, task);
    }
    host.past.last_loss = host.epoch;
    ++host.loss_generation;
    host.losses.push_back({.first = task.page, .last = task.page, .generation = host.loss_generation});
    --host.losses_pending;
    step(host, Event::loss_recorded_of(task.page, host.loss_generation));
}

// While a home knew no claims, another host may have lost writes to its pages; or it lost its own memory. Any page that
// nobody holds may be concerned.
void SimCluster::record_possible_losses(SimHost& host) {
    if (std::exchange(host.losses_unrecorded, false)) coverage_.reached(Sometimes::losses_unrecorded);
    host.memory_was_lost = false;
    host.past.last_in_doubt = host.epoch;
    std::vector<PageId> held;
    for (const protocol::Stripe& stripe : host.memory.stripes)
        stripe.home().for_each([&](PageId page, const protocol::Claim& claim) {
            if (claim.holders() != 0) held.push_back(page);
        });
    ++host.loss_generation;
    std::vector<protocol::LossRange> possible;
    if (scenario_.mark_delay_max == 0) possible.push_back({.first = {0}, .last = {UINT64_MAX}});
    for (const PageId page : host.marks.pages) possible.push_back({.first = page, .last = page});
    for (protocol::LossRange range : protocol::without(possible, std::move(held))) {
        range.generation = host.loss_generation;
        host.losses.push_back(range);
    }
}

// Marked before a home serves: holders go on writing their pages.
void SimCluster::mark_what_is_held(SimHost& host) const {
    for (const protocol::Stripe& stripe : host.memory.stripes)
        stripe.home().for_each([&](PageId page, const protocol::Claim& claim) {
            if (claim.holders() != 0) host.marks.pages.insert(page);
        });
    for (const auto& [page, bytes] : host.memory.home_bytes) host.marks.pages.insert(page);
}

// A failed store marks nothing, and waiting writers are refused.
void SimCluster::finish_mark(SimHost& host, const Task& task) {
    if (host.store_failed)
        check_store_failure(host);
    else
        host.marks.pages.insert(task.page);
    step(host, Event::marked_of(task.page, host.store_failed));
}

void SimCluster::clear_a_mark(SimHost& host) {
    if (host.marks.pages.empty() || host.store_failed) return;
    auto page = host.marks.pages.begin();
    std::advance(page, static_cast<long>(marks_.below(host.marks.pages.size())));
    // The host gives up pages that only it may write, and its writes come home.
    const protocol::Claim* const claim = host.stripe_of(*page).home().find(*page);
    if (claim != nullptr && claim->owner == host.id) step(host, Event::evict_at_once(*page));
    const auto newer = host.memory.home_bytes.find(*page);
    const auto stored = host.store.find(*page);
    const bool is_stored = newer == host.memory.home_bytes.end() ||
                           (stored != host.store.end() && stored->second.page_version >= newer->second.page_version);
    if (!is_stored || !host.stripe_of(*page).home().has_everything(*page)) return;
    coverage_.reached(Sometimes::mark_cleared);
    host.marks.pages.erase(page);
}

void SimCluster::say_what_home_has(const SimHost& host, Event& event) const {
    const auto newer = host.memory.home_bytes.find(event.page);
    const auto stored = host.store.find(event.page);
    if (newer != host.memory.home_bytes.end()) {
        event.stored_tenure = newer->second.page_version.tenure;
        event.stored_sequence = newer->second.page_version.sequence;
    } else if (stored != host.store.end()) {
        event.stored_tenure =
            scenario_.store_knows_tenures != 0 ? stored->second.page_version.tenure : protocol::unknown_tenure;
    }
}

void SimCluster::crash(SimHost& host) {
    coverage_.reached(Sometimes::host_crashed);
    host.is_up = false;
    if (host.is_paused) resume(host);
    for (const SimHost& peer : hosts_)
        if (peer.id != host.id) set_link_down(host.id, peer.id);
    host.keeps_memory = faults_.chance(scenario_.adopt_percent);
    host.losses_unrecorded |= host.losses_pending != 0;
    host.losses_pending = 0;
    // The store writes in the background: unflushed bytes may be there, or not.
    for (const auto& [page, bytes] : host.memory.home_bytes)
        if (faults_.chance(30)) host.store[page] = bytes;
    for (Client& client : host.clients) {
        client.operation = {};
        client.sessions.clear();
    }
    host.shared_sessions.clear();
    const bool will_be_forgotten = !host.keeps_memory && faults_.chance(scenario_.forget_percent);
    if (will_be_forgotten) schedule(faults_.between(1, 300), {.kind = Task::Kind::forget, .host = host.id});
    schedule(faults_.between(1, will_be_forgotten ? 2000 : 500), {.kind = Task::Kind::restart, .host = host.id});
}

}  // namespace tarn::sim
