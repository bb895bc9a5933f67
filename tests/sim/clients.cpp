// Cluster: the operations of local threads.
#include <algorithm>

#include "tests/sim/cluster.hpp"
#include "tests/sim/failure.hpp"

namespace tarn::sim {

namespace {

protocol::WaiterToken token_of(uint32_t client, uint64_t operation) {
    return uint64_t{client} << 48 | operation;
}

}  // namespace

// The clients of a host are as many sessions, or the connections of one, which then writes while it flushes.
std::map<VolumeId, Session>& Cluster::sessions_of(SimHost& host, Client& client) {
    return scenario_.shares_sessions != 0 ? host.shared_sessions : client.sessions;
}

// Who opens a session hears from each home that answers, so that no loss from before is held against it.
Session& Cluster::session_of(SimHost& host, Client& client, VolumeId volume) {
    Session& session = sessions_of(host, client)[volume];
    if (session.id != 0) return session;
    session.id = ++last_session_;
    host.memory.flush_requester.open(session.id, volume);
    session.losses->await((protocol::HostSet{1} << hosts_.size()) - 1);
    for (const SimHost& home : hosts_)
        if (has_met(host, home) && is_settled(home)) session.losses->began_after(home.id, home.loss_generation);
    return session;
}

// No loss is about to be found out: who begins now counts those from now on.
bool Cluster::is_settled(const SimHost& home) const {
    const auto is_linked = [&](const SimHost& peer) {
        return peer.id == home.id || peer.is_forgotten || link_is_up_[home.id][peer.id];
    };
    return home.memory.recovered && home.losses_pending == 0 && std::ranges::all_of(hosts_, is_linked);
}

void Cluster::end_session(SimHost& host, Client& client, VolumeId volume) {
    std::map<VolumeId, Session>& sessions = sessions_of(host, client);
    const auto session = sessions.find(volume);
    // Another connection of the client may have been told first.
    if (session == sessions.end()) return;
    host.memory.flush_requester.close(session->second.id);
    sessions.erase(session);
}

bool Cluster::may_see(Session& session, const Frame& frame, PageId page) {
    if (frame.lost == 0 || session.losses->may_read(page, ranges_.find(page).home, frame.lost)) return true;
    coverage_.reached(Sometimes::read_refused);
    return false;
}

void Cluster::start_operation(SimHost& host, uint32_t client_index) {
    Client& client = host.clients[client_index];
    // It may have begun together with another one.
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
    const protocol::HostSet homes = ranges_.homes_of(volume, last_page_number);
    bool knows_all = true;
    protocol::for_each_host(homes, [&](HostId home) { knows_all &= host.memory.flush_requester.knows(volume, home); });
    if (workload_.chance(scenario_.flush_percent) && knows_all) {
        operation.kind = Operation::Kind::flush;
        operation.cover = truth_.cover_of(volume, session);
        protocol::FlushActions actions;
        host.memory.flush_requester.start(session, homes, token_of(client_index, operation.number), actions);
        return perform_flush(host, actions);
    }
    operation.kind = workload_.chance(scenario_.read_percent) ? Operation::Kind::read : Operation::Kind::write;
    operation.mask = static_cast<DirtyMask>(workload_.between(1, all_sectors - 1));
    if (operation.kind == Operation::Kind::write && workload_.chance(scenario_.whole_write_percent)) {
        operation.kind = Operation::Kind::write_whole;
        operation.mask = all_sectors;
        operation.zero = workload_.chance(scenario_.zero_percent);
    }
    const Operation like = operation;
    access_or_wait(host, client_index);
    if (scenario_.together_percent != 0 && workload_.chance(scenario_.together_percent)) begin_together(host, like);
}

// A request over several pages: clients that are idle do the same to those that follow.
void Cluster::begin_together(SimHost& host, const Operation& like) {
    auto page = std::ranges::find(pages_, like.page);
    for (uint32_t index = 0; index < host.clients.size() && page + 1 != pages_.end(); ++index) {
        Client& client = host.clients[index];
        if (client.remaining == 0 || client.operation.kind != Operation::Kind::none) continue;
        --client.remaining;
        client.operation = like;
        client.operation.number = ++last_operation_;
        client.operation.page = *++page;
        access_or_wait(host, index);
    }
}

void Cluster::access_or_wait(SimHost& host, uint32_t client_index) {
    HostMemory& memory = host.memory;
    Operation& operation = host.clients[client_index].operation;
    Task task{.kind = Task::Kind::leave_latch,
              .host = host.id,
              .epoch = host.epoch,
              .client = client_index,
              .number = operation.number,
              .page = operation.page};
    const auto bound = memory.bound.find(operation.page);
    if (bound != memory.bound.end()) {
        Frame& frame = memory.frames[bound->second];
        const bool grants = frame.access == Ownership::exclusive ||
                            (frame.access == Ownership::shared && operation.want() == Want::shared);
        const bool is_preferred = operation.want() == Want::shared || !frame.urged || frame.preferred_writes > 0;
        if (grants && !frame.busy && is_preferred) {
            if (frame.urged) coverage_.reached(Sometimes::local_preference_used);
            if (frame.urged && operation.want() != Want::shared) --frame.preferred_writes;
            ++frame.latches;
            task.frame = bound->second;
            return schedule(workload_.below(scenario_.latch_max + 1), task);
        }
    }
    if (memory.used_frames >= scenario_.frame_count) {
        coverage_.reached(Sometimes::frames_exhausted);
        evict_something(host);
        task.kind = Task::Kind::retry;
        return schedule(workload_.between(1, 100), task);
    }
    operation.waits = true;
    if (workload_.chance(scenario_.cancel_percent)) {
        task.kind = Task::Kind::cancel;
        schedule(workload_.between(1, 100), task);
    }
    Event acquire = Event::acquire_of(operation.page, operation.want(), token_of(client_index, operation.number),
                                      memory.allocate());
    acquire.no_space =
        operation.want() != Want::shared && ranges_.find(operation.page).home == host.id && store_is_full();
    step(host, acquire);
}

void Cluster::access(SimHost& host, uint32_t client_index, FrameId frame_id) {
    Operation& operation = host.clients[client_index].operation;
    Frame& frame = host.memory.frames[frame_id];
    require(frame.used && frame.page == operation.page, "the frame of an operation was taken away");
    const HostId home = ranges_.find(operation.page).home;
    finds_loss_ = false;
    History::Operation seen{.invoked = operation.invoked, .answered = event_count_};
    Session& session = session_of(host, host.clients[client_index], operation.page.volume());
    if (protocol::contains(session.losses->unheard(), home)) {
        coverage_.reached(Sometimes::session_counts_from_use);
        session.losses->began_after(home, home == host.id ? host.loss_generation : host.memory.heard[home]);
    }
    uint64_t& newest_seen = session.seen[operation.page];
    if (operation.kind == Operation::Kind::read) {
        if (!may_see(session, frame, operation.page)) {
            // Some clients go on with what is left to them, others begin anew.
            if (workload_.chance(30)) end_session(host, host.clients[client_index], operation.page.volume());
            return;
        }
        require(frame.content.version >= newest_seen, "D4: a session reads back in time, and no error tells it");
        newest_seen = frame.content.version;
        truth_.check_read(operation.page, frame.content);
        require(!finds_loss_ || frame.lost != 0, "D4: a read goes back in time and was not told");
        seen.found = frame.content.sectors;
        history_.add(operation.page, seen);
        if (!is_secure(host, operation.page)) return;
        // After a crash the checks begin anew with what was found.
        return truth_.secure(operation.page,
                             {host.id, host.incarnation, home, incarnation_of(home), verifier_of(operation.page), 0});
    }
    hear_own_home(host, operation.page.volume());
    const protocol::Verifier noted = host.memory.flush_requester.known(operation.page.volume(), home);
    host.memory.flush_requester.wrote(session.id, home, operation.page, operation.page, noted);
    // The home that this host has met: a restart it does not know of yet may take the write.
    const Incarnation met = home == host.id ? host.incarnation : host.memory.met[home].incarnation;
    truth_.write(operation.page, frame.content, operation.mask, operation.zero,
                 {host.id, host.incarnation, home, met, noted, session.id});
    require(!finds_loss_ || frame.lost != 0, "D4: a write builds on what went back in time and was not told");
    if (operation.mask == all_sectors && frame.lost != 0) session.losses->wrote_whole(operation.page, frame.lost);
    newest_seen = frame.content.version;
    seen.written = operation.mask;
    seen.value = frame.content.version;
    history_.add(operation.page, seen);
    frame.dirty |= operation.mask;
}

// Whether home knows this host as the one that has the bytes.
bool Cluster::is_secure(const SimHost& host, PageId page) const {
    const SimHost& home = hosts_[ranges_.find(page).home];
    if (!home.is_up || !home.memory.recovered) return false;
    const protocol::Claim* claim = home.stripe_of(page).home().find(page);
    const protocol::Holding* holding = host.stripe_of(page).holder().find(page);
    return claim != nullptr && holding != nullptr && !claim->resolving && claim->copies.empty() &&
           claim->tenure == holding->tenure && !holding->unconfirmed &&
           (claim->owner == host.id || claim->anchor == host.id);
}

void Cluster::hear_own_home(SimHost& host, VolumeId volume) {
    if (host.memory.recovered)
        hear(host, host.id, volume, host.verifier());
    else
        host.memory.flush_requester.heard(volume, host.id, host.verifier());
}

void Cluster::leave_latch(SimHost& host, const Task& task) {
    Frame& frame = host.memory.frames[task.frame];
    access(host, task.client, task.frame);
    --frame.latches;
    if (frame.latches == 0) become_quiet(host, task.page, frame);
    finish_operation(host, task.client);
}

void Cluster::become_quiet(SimHost& host, PageId page, Frame& frame) {
    if (!frame.busy && !frame.urged) return;
    frame.busy = true;
    frame.urged = false;
    step(host, Event::quiesced_of(page, frame.dirty | frame.writing));
}

void Cluster::serve(SimHost& host, const Task& task) {
    Frame& frame = host.memory.frames[task.frame];
    frame.page = task.page;
    const protocol::Holding* holding = host.stripe_of(task.page).holder().find(task.page);
    require(holding != nullptr && holding->frame == task.frame, "a woken operation finds no page");
    if (holding->blank) coverage_.reached(Sometimes::write_woken_blank);
    access(host, task.client, task.frame);
    step(host, Event::about(Event::Kind::served, task.page));
    finish_operation(host, task.client);
}

void Cluster::finish_operation(SimHost& host, uint32_t client_index) {
    ++operation_count_;
    host.clients[client_index].operation = {};
    schedule(workload_.between(1, 60),
             {.kind = Task::Kind::start_operation, .host = host.id, .epoch = host.epoch, .client = client_index});
}

void Cluster::cancel(SimHost& host, const Task& task) {
    const Operation& operation = host.clients[task.client].operation;
    if (operation.number != task.number || !operation.waits || operation.kind == Operation::Kind::write_whole) return;
    coverage_.reached(Sometimes::waiter_cancelled);
    step(host, Event::about(Event::Kind::cancel, task.page, token_of(task.client, task.number)));
    finish_operation(host, task.client);
}

// As the page provider does when nothing else goes: any page that is held, also while it is being evicted.
void Cluster::drop_something(SimHost& host) {
    const PageId page = pages_[workload_.below(pages_.size())];
    if (ranges_.find(page).home == host.id) return;
    step(host, Event::evict_at_once(page));
    const protocol::Holding* holding = host.stripe_of(page).holder().find(page);
    if (holding != nullptr && holding->bare) coverage_.reached(Sometimes::left_bare);
}

void Cluster::evict_something(SimHost& host) {
    if (scenario_.at_once_percent != 0 && workload_.chance(scenario_.at_once_percent)) drop_something(host);
    if (host.memory.bound.empty()) return;
    auto victim = host.memory.bound.begin();
    std::advance(victim, static_cast<long>(workload_.below(host.memory.bound.size())));
    std::vector<PageId> pages{victim->first};
    if (scenario_.together_percent != 0 && workload_.chance(scenario_.together_percent))
        for (++victim; victim != host.memory.bound.end(); ++victim) pages.push_back(victim->first);
    for (const PageId page : pages) {
        // Not while its home is away: what sessions that open then have seen must be held when it is back.
        if (has_met(host, hosts_[ranges_.find(page).home])) step(host, Event::about(Event::Kind::evict, page));
    }
}

void Cluster::complete_flush(SimHost& host, protocol::WaiterToken waiter, bool lost) {
    const auto client = static_cast<uint32_t>(waiter >> 48);
    Operation& operation = host.clients[client].operation;
    if (lost) {
        coverage_.reached(Sometimes::flush_failed);
        // The client gives up, and begins anew with what it finds.
        end_session(host, host.clients[client], operation.page.volume());
    } else {
        truth_.flushed(operation.cover);
    }
    finish_operation(host, client);
}

}  // namespace tarn::sim
