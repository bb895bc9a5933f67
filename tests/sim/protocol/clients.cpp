// SimCluster: the operations of local threads.
#include <algorithm>

#include "tests/sim/protocol/sim_cluster.hpp"
#include "tests/sim/support/failure.hpp"

namespace tarn::sim {

namespace {

protocol::WaiterToken token_of(uint32_t client, uint64_t operation) {
    return uint64_t{client} << 48 | operation;
}

}  // namespace

// The clients of a host are a session each, or the connections of one session, which then writes while it flushes.
std::map<VolumeId, Session>& SimCluster::sessions_of(SimHost& host, Client& client) {
    return scenario_.shares_sessions != 0 ? host.shared_sessions : client.sessions;
}

// A new session hears from each home that answers, so that no earlier loss is held against it.
Session& SimCluster::session_of(SimHost& host, Client& client, VolumeId volume) {
    Session& session = sessions_of(host, client)[volume];
    if (session.id != 0) return session;
    session.id = ++last_session_;
    host.memory.flush_requester.open(session.id, volume);
    session.losses->await((HostSet{1} << hosts_.size()) - 1);
    for (const SimHost& home : hosts_)
        if (answers(host, home) && is_settled(home)) session.losses->began_after(home.id, home.loss_generation);
    return session;
}

// The home cannot be about to discover a loss: a session that begins now counts losses from now on.
bool SimCluster::is_settled(const SimHost& home) const {
    const auto is_linked = [&](const SimHost& peer) {
        return peer.id == home.id || peer.is_forgotten || link_is_up_[home.id][peer.id];
    };
    return !home.memory.recovery.recovering() && home.losses_pending == 0 && std::ranges::all_of(hosts_, is_linked);
}

void SimCluster::end_session(SimHost& host, Client& client, VolumeId volume) {
    std::map<VolumeId, Session>& sessions = sessions_of(host, client);
    const auto session = sessions.find(volume);
    // Another connection of the client may have got the error first.
    if (session == sessions.end()) return;
    host.memory.flush_requester.close(session->second.id);
    sessions.erase(session);
}

bool SimCluster::may_see(Session& session, const Frame& frame, PageId page) {
    if (frame.lost == 0 || session.losses->may_read(page, ranges_.home_of(page), frame.lost)) return true;
    coverage_.reached(Sometimes::read_refused);
    return false;
}

void SimCluster::start_operation(SimHost& host, uint32_t client_index) {
    Client& client = host.clients[client_index];
    // The operation may have begun together with another one.
    if (client.remaining == 0 || client.operation.kind != Operation::Kind::none) return;
    --client.remaining;
    Operation& operation = client.operation;
    operation = {};
    operation.number = ++last_operation_;
    operation.invoked = event_count_;
    operation.page = pages_[workload_.below(pages_.size())];
    const VolumeId volume = operation.page.volume();
    hear_own_home(host, volume);
    const protocol::SessionId session = session_of(host, client, volume).id;
    const HostSet homes = ranges_.homes_of(volume, last_page_number);
    bool knows_all = true;
    for_each_host(homes, [&](HostId home) { knows_all &= host.memory.flush_requester.knows(volume, home); });
    if (workload_.chance(scenario_.flush_percent) && knows_all) {
        operation.kind = Operation::Kind::flush;
        operation.cover = truth_.cover_of(volume, session);
        protocol::FlushActions actions;
        host.memory.flush_requester.start(session, homes, token_of(client_index, operation.number), actions);
        return perform_flush(host, actions);
    }
    operation.kind = workload_.chance(scenario_.read_percent) ? Operation::Kind::read : Operation::Kind::write;
    Access first{.page = operation.page, .number = operation.number};
    const auto part = static_cast<DirtyMask>(workload_.between(1, all_sectors - 1));
    if (operation.kind == Operation::Kind::write) {
        const bool whole = workload_.chance(scenario_.whole_write_percent);
        first.mask = whole ? all_sectors : part;
        first.zero = whole && workload_.chance(scenario_.zero_percent);
    }
    operation.accesses.push_back(first);
    if (scenario_.together_percent != 0 && workload_.chance(scenario_.together_percent)) add_pages(operation);
    begin_accesses(host, client_index);
}

// The following pages. Those in the middle of a write are written whole; the last one may be, too.
void SimCluster::add_pages(Operation& operation) {
    const Access first = operation.accesses.front();
    const auto begin = std::ranges::find(pages_, first.page);
    const auto end =
        begin + std::min<int64_t>(pages_.end() - begin, workload_.between(2, workload_.chance(25) ? 8 : 3));
    for (auto page = begin + 1; page != end && page->volume() == first.page.volume(); ++page) {
        Access next = first;
        next.page = *page;
        next.number = ++last_operation_;
        if (operation.kind == Operation::Kind::write) next.mask = all_sectors;
        operation.accesses.push_back(next);
    }
    if (operation.accesses.size() == 1) return;
    operation.accesses.back().mask = first.mask;
    coverage_.reached(Sometimes::request_of_many_pages);
}

// All at once if all are here, like a write of neighbours; otherwise separately.
void SimCluster::begin_accesses(SimHost& host, uint32_t client_index) {
    Operation& operation = host.clients[client_index].operation;
    operation.missing = operation.accesses.size() + 1;
    const bool all_here = std::ranges::all_of(
        operation.accesses, [&](const Access& access) { return latchable(host, access) != no_frame; });
    if (all_here) {
        if (operation.accesses.size() > 1) coverage_.reached(Sometimes::request_latched_at_once);
        const Time delay = workload_.below(scenario_.latch_max + 1);
        for (const Access& access : operation.accesses) latch(host, client_index, access, delay);
    } else {
        // An access may end meanwhile, but not the operation.
        const size_t count = operation.accesses.size();
        for (size_t index = 0; index < count; ++index) access_or_wait(host, client_index, operation.accesses[index]);
    }
    end_access(host, client_index);
}

// Returns the frame if a local thread may latch it for this access now.
FrameId SimCluster::latchable(const SimHost& host, const Access& access) const {
    const auto bound = host.memory.bound.find(access.page);
    if (bound == host.memory.bound.end()) return no_frame;
    const Frame& frame = host.memory.frames[bound->second];
    const bool reads = access.want() == Want::shared;
    const bool grants = frame.access == Ownership::exclusive || (frame.access == Ownership::shared && reads);
    const bool is_leased = reads || !frame.recalled || frame.lease_writes > 0;
    const bool is_free = reads || frame.sends == 0;
    return grants && !frame.busy && is_leased && is_free ? bound->second : no_frame;
}

void SimCluster::latch(SimHost& host, uint32_t client_index, const Access& access, Time delay) {
    const FrameId id = latchable(host, access);
    Frame& frame = host.memory.frames[id];
    if (frame.recalled) coverage_.reached(Sometimes::write_lease_used);
    if (frame.recalled && access.want() != Want::shared) {
        --frame.lease_writes;
        ++frame.writes_since_recall;
        check_lease(host, frame);
    }
    ++frame.latches;
    Task task = task_of(Task::Kind::leave_latch, host, client_index, access);
    task.frame = id;
    schedule(delay, std::move(task));
}

SimCluster::Task SimCluster::task_of(Task::Kind kind, const SimHost& host, uint32_t client_index,
                                     const Access& access) {
    return {.kind = kind,
            .host = host.id,
            .epoch = host.epoch,
            .client = client_index,
            .number = access.number,
            .page = access.page};
}

void SimCluster::access_or_wait(SimHost& host, uint32_t client_index, Access& access) {
    HostMemory& memory = host.memory;
    if (latchable(host, access) != no_frame)
        return latch(host, client_index, access, workload_.below(scenario_.latch_max + 1));
    const bool writes = access.want() != Want::shared;
    // Pages that cannot leave must not take all frames.
    const unsigned reserve = knows_a_failed_store(host) ? scenario_.page_count : 0;
    if (memory.used_frames >= scenario_.frame_count + reserve) {
        if (writes && refuses_writes(host, access.page)) return fail_access(host, client_index, access);
        coverage_.reached(Sometimes::frames_exhausted);
        evict_something(host);
        return schedule(workload_.between(1, 100), task_of(Task::Kind::retry, host, client_index, access));
    }
    access.waits = true;
    if (workload_.chance(scenario_.cancel_percent)) {
        Task task = task_of(Task::Kind::cancel, host, client_index, access);
        task.number = host.clients[client_index].operation.number;
        schedule(workload_.between(1, 100), std::move(task));
    }
    Event acquire =
        Event::acquire_of(access.page, access.want(), token_of(client_index, access.number), memory.allocate());
    const bool is_home = ranges_.home_of(access.page) == host.id;
    acquire.no_space = writes && is_home && store_is_full();
    acquire.store_failed = writes && is_home && host.store_failed;
    step(host, acquire);
}

void SimCluster::perform_access(SimHost& host, uint32_t client_index, Access& access, FrameId frame_id) {
    Client& client = host.clients[client_index];
    Operation& operation = client.operation;
    const PageId page = access.page;
    Frame& frame = host.memory.frames[frame_id];
    require(frame.used && frame.page == page, "the frame of an operation was taken away");
    const HostId home = ranges_.home_of(page);
    finds_loss_ = false;
    History::Operation seen{.invoked = operation.invoked, .answered = event_count_};
    Session& session = session_of(host, client, page.volume());
    if (contains(session.losses->unheard(), home)) {
        coverage_.reached(Sometimes::session_counts_from_use);
        session.losses->began_after(home, home == host.id ? host.loss_generation : host.memory.heard[home]);
    }
    uint64_t& newest_seen = session.seen[page];
    if (access.mask == 0) {
        if (!may_see(session, frame, page)) {
            // Some clients go on with the remaining bytes, others begin again.
            if (workload_.chance(30)) end_session(host, client, page.volume());
            return;
        }
        require(frame.content.version >= newest_seen, "D4: a session reads back in time, and no error tells it");
        newest_seen = frame.content.version;
        truth_.check_read(page, frame.content);
        require(!finds_loss_ || frame.lost != 0, "D4: a read goes back in time and was not told");
        seen.found = frame.content.sectors;
        history_.add(page, seen);
        if (!is_secure(host, page)) return;
        // After a crash the checks start again from the bytes found.
        return truth_.secure(page, {host.id, host.incarnation, home, incarnation_of(home), verifier_of(page), 0});
    }
    require(frame.sends == 0, "I9: a buffer that is being sent is written");
    hear_own_home(host, page.volume());
    const protocol::Verifier known = host.memory.flush_requester.known(page.volume(), home);
    const protocol::Verifier noted = operation.began.try_emplace(home, known).first->second;
    if (noted != known) coverage_.reached(Sometimes::request_met_a_loss);
    // The home's process that this host has met: the write may be lost in a restart that the host does not know of yet.
    const Incarnation met = home == host.id ? host.incarnation : host.memory.met[home].incarnation;
    truth_.write(page, frame.content, access.mask, access.zero,
                 {host.id, host.incarnation, home, met, noted, session.id});
    require(!finds_loss_ || frame.lost != 0, "D4: a write builds on what went back in time and was not told");
    if (access.mask == all_sectors && frame.lost != 0) session.losses->wrote_whole(page, frame.lost);
    access.version = newest_seen = frame.content.version;
    seen.written = access.mask;
    seen.value = frame.content.version;
    history_.add(page, seen);
    frame.dirty |= access.mask;
}

// Whether home knows that this host has the bytes.
bool SimCluster::is_secure(const SimHost& host, PageId page) const {
    const SimHost& home = hosts_[ranges_.home_of(page)];
    if (!home.is_up || home.memory.recovery.recovering()) return false;
    const protocol::Claim* claim = home.stripe_of(page).home().find(page);
    const protocol::Holding* holding = host.stripe_of(page).holder().find(page);
    return claim != nullptr && holding != nullptr && !claim->resolving && claim->copies.empty() &&
           claim->tenure == holding->tenure && holding->trust == protocol::Trust::confirmed &&
           (claim->owner == host.id || claim->anchor == host.id);
}

void SimCluster::hear_own_home(SimHost& host, VolumeId volume) {
    if (!host.memory.recovery.recovering())
        hear(host, host.id, volume, host.verifier());
    else
        host.memory.flush_requester.heard(volume, host.id, host.verifier());
}

void SimCluster::leave_latch(SimHost& host, const Task& task) {
    Frame& frame = host.memory.frames[task.frame];
    perform_access(host, task.client, host.clients[task.client].operation.access_to(task.page), task.frame);
    --frame.latches;
    if (frame.latches == 0) become_quiet(host, task.page, frame);
    end_access(host, task.client);
}

void SimCluster::become_quiet(SimHost& host, PageId page, Frame& frame) {
    if (!frame.busy && !frame.recalled) return;
    frame.busy = true;
    frame.recalled = false;
    step(host, Event::quiesced_of(page, frame.dirty | frame.writing));
}

void SimCluster::serve(SimHost& host, const Task& task) {
    Frame& frame = host.memory.frames[task.frame];
    if (frame.sends != 0 && host.clients[task.client].operation.access_to(task.page).want() != Want::shared) {
        coverage_.reached(Sometimes::writer_waited_for_a_send);
        return schedule(disturbances_.between(1, 20), task);
    }
    frame.page = task.page;
    const protocol::Holding* holding = host.stripe_of(task.page).holder().find(task.page);
    require(holding != nullptr && holding->frame == task.frame, "a woken operation finds no page");
    if (holding->custody == protocol::Custody::blank) coverage_.reached(Sometimes::write_woken_blank);
    perform_access(host, task.client, host.clients[task.client].operation.access_to(task.page), task.frame);
    step(host, Event::about(Event::Kind::served, task.page));
    end_access(host, task.client);
}

void SimCluster::fail_access(SimHost& host, uint32_t client_index, Access& access) {
    access.waits = false;
    host.clients[client_index].operation.failed = true;
    end_access(host, client_index);
}

void SimCluster::end_access(SimHost& host, uint32_t client_index) {
    if (--host.clients[client_index].operation.missing == 0) finish_operation(host, client_index);
}

// Its changes are noted only now, under the verifiers known before it began: its first page may be lost again by now.
void SimCluster::note_writes(SimHost& host, Client& client) {
    const Operation& operation = client.operation;
    for (const Access& access : operation.accesses) {
        if (access.version == 0) continue;
        const HostId home = ranges_.home_of(access.page);
        const protocol::SessionId session = session_of(host, client, access.page.volume()).id;
        host.memory.flush_requester.wrote(session, home, access.page, access.page, operation.began.at(home));
        if (!operation.failed) truth_.replied(access.page, access.version, session);
    }
}

void SimCluster::finish_operation(SimHost& host, uint32_t client_index) {
    ++operation_count_;
    note_writes(host, host.clients[client_index]);
    host.clients[client_index].operation = {};
    schedule(workload_.between(1, 60),
             {.kind = Task::Kind::start_operation, .host = host.id, .epoch = host.epoch, .client = client_index});
}

void SimCluster::cancel(SimHost& host, const Task& task) {
    Operation& operation = host.clients[task.client].operation;
    if (operation.number != task.number || operation.kind == Operation::Kind::none) return;
    ++operation.missing;  // so that nothing ends before all pages were requested
    for (Access& access : operation.accesses) {
        if (!access.waits || access.want() == Want::exclusive_no_read) continue;
        coverage_.reached(Sometimes::waiter_cancelled);
        const PageId page = access.page;
        const protocol::WaiterToken waiter = token_of(task.client, access.number);
        fail_access(host, task.client, access);
        step(host, Event::about(Event::Kind::cancel, page, waiter));
    }
    end_access(host, task.client);
}

// Like the page provider's last resort: any held page, even while it is being evicted.
void SimCluster::drop_something(SimHost& host) {
    const PageId page = pages_[workload_.below(pages_.size())];
    if (ranges_.home_of(page) == host.id) return;
    step(host, Event::evict_at_once(page));
    const protocol::Holding* holding = host.stripe_of(page).holder().find(page);
    if (holding != nullptr && holding->custody == protocol::Custody::bare) coverage_.reached(Sometimes::left_bare);
}

void SimCluster::evict_something(SimHost& host) {
    if (scenario_.at_once_percent != 0 && workload_.chance(scenario_.at_once_percent)) drop_something(host);
    if (host.memory.bound.empty()) return;
    auto victim = host.memory.bound.begin();
    std::advance(victim, static_cast<long>(workload_.below(host.memory.bound.size())));
    std::vector<PageId> pages{victim->first};
    if (scenario_.together_percent != 0 && workload_.chance(scenario_.together_percent))
        for (++victim; victim != host.memory.bound.end(); ++victim) pages.push_back(victim->first);
    for (const PageId page : pages) {
        // Not while its home is away: pages that sessions opened then have seen must still be held when it is back.
        if (has_met(host, hosts_[ranges_.home_of(page)])) step(host, Event::about(Event::Kind::evict, page));
    }
}

void SimCluster::complete_flush(SimHost& host, protocol::WaiterToken waiter, bool lost) {
    const auto client = static_cast<uint32_t>(waiter >> 48);
    Operation& operation = host.clients[client].operation;
    if (lost) {
        coverage_.reached(Sometimes::flush_failed);
        // The client gives up, and starts again with the bytes that it finds.
        end_session(host, host.clients[client], operation.page.volume());
    } else {
        truth_.flushed(operation.cover);
    }
    finish_operation(host, client);
}

}  // namespace tarn::sim
