#include "tests/sim/cluster.hpp"

#include <algorithm>
#include <cstdio>

#include "coherence/protocol/admission.hpp"
#include "tests/sim/failure.hpp"

namespace tarn::sim {

namespace {

constexpr uint64_t pages_per_block = 16;
constexpr uint32_t view_epoch = 1;
constexpr uint64_t events_max = 400'000;  // a run beyond this makes no progress
constexpr unsigned crashes_max = 4;
constexpr size_t trace_lines_max = 40;  // with the state of three hosts, a page

// Where neighbours are asked for together, some of them lie in two blocks of one home.
uint64_t pages_per_range_of(const Scenario& scenario) {
    return scenario.together_percent != 0 ? 2 * pages_per_block : pages_per_block;
}
uint64_t first_page_of(const Scenario& scenario) {
    return scenario.together_percent != 0 ? pages_per_block - 4 : 0;
}

std::vector<HostId> first_hosts(unsigned count) {
    std::vector<HostId> hosts;
    for (HostId host = 0; host < count; ++host) hosts.push_back(host);
    return hosts;
}

}  // namespace

Cluster::Cluster(uint64_t seed, const Scenario& scenario, Tracing tracing)
    : scenario_(scenario),
      tracing_(tracing),
      network_(Random(seed).split(1)),
      workload_(Random(seed).split(2)),
      faults_(Random(seed).split(3)),
      store_(Random(seed).split(4)),
      marks_(Random(seed).split(5)),
      ranges_(1, first_hosts(scenario_.host_count), pages_per_range_of(scenario_)),
      truth_(*this, coverage_) {
    for (unsigned index = 0; index < scenario_.page_count; ++index) {
        // Some pages share a range, some a stripe; some neighbours only a range.
        const uint64_t number = first_page_of(scenario_) + index * (workload_.chance(50) ? 1 : pages_per_block);
        pages_.push_back(PageId::of(1 + index % scenario_.volume_count, number));
    }
    std::ranges::sort(pages_);
    pages_.erase(std::unique(pages_.begin(), pages_.end()), pages_.end());
    hosts_.resize(scenario_.host_count);
    for (HostId id = 0; id < scenario_.host_count; ++id) {
        hosts_[id].id = id;
        hosts_[id].clients.resize(scenario_.clients_per_host);
        for (Client& client : hosts_[id].clients) client.remaining = scenario_.operations_per_client;
        boot(hosts_[id]);
    }
    if (scenario_.crash_interval != 0)
        schedule(faults_.between(1, 2 * scenario_.crash_interval), {.kind = Task::Kind::crash});
    if (scenario_.cut_interval != 0)
        schedule(faults_.between(1, 2 * scenario_.cut_interval), {.kind = Task::Kind::cut});
}

uint32_t Cluster::incarnation_of(HostId host) const {
    return hosts_[host].is_up || hosts_[host].keeps_memory ? hosts_[host].incarnation : 0;
}

uint64_t Cluster::stored_version_of(PageId page) const {
    const SimHost& home = hosts_[ranges_.find(page).home];
    const auto stored = home.store.find(page);
    return stored == home.store.end() ? 0 : stored->second.content.version;
}

protocol::Verifier Cluster::verifier_of(PageId page) const {
    const HostId home = ranges_.find(page).home;
    return protocol::verifier_of(incarnation_of(home), hosts_[home].loss_generation);
}

uint32_t Cluster::enter(Time delay, Task task) {
    if (free_slots_.empty()) {
        free_slots_.push_back(static_cast<uint32_t>(slots_.size()));
        slots_.emplace_back();
    }
    const uint32_t slot = free_slots_.back();
    free_slots_.pop_back();
    slots_[slot] = std::move(task);
    due_.push({now_ + delay, ++sequence_, slot});
    return slot;
}

void Cluster::run() {
    while (!due_.empty()) {
        const Due due = due_.top();
        due_.pop();
        now_ = due.time;
        Task task = std::move(slots_[due.slot]);
        free_slots_.push_back(due.slot);
        require(++event_count_ < events_max, "C4: no progress");
        if (is_dead(task)) {
            if (task.message.run != 0 || task.message.parts != 0) coverage_.reached(Sometimes::run_lost_with_link);
            continue;
        }
        trace(task);
        run_task(task);
    }
    check_end();
}

// What belonged to a crashed host or a broken link is gone.
bool Cluster::is_dead(const Task& task) const {
    if (task.epoch != 0 && (!hosts_[task.host].is_up || hosts_[task.host].epoch != task.epoch)) return true;
    const bool is_of_link = task.from != no_host && task.from != task.host && task.kind != Task::Kind::link_up;
    return is_of_link && (task.link_epoch != link_epoch_[task.from][task.host] || !link_is_up_[task.from][task.host]);
}

void Cluster::trace(const Task& task) {
    trace_hash_ = mix64(trace_hash_ ^ now_ ^ static_cast<uint64_t>(task.kind) << 56 ^ uint64_t{task.host} << 48 ^
                        task.message.tenure << 8 ^ static_cast<uint64_t>(task.message.kind) ^ task.number << 20);
    if (tracing_ == Tracing::off) return;
    static constexpr const char* names[] = {"start",      "leave_latch", "serve",           "retry",         "cancel",
                                            "message",    "home_read",   "store_flushed",   "loss_recorded", "marked",
                                            "evict_hint", "hello_done",  "preference_over", "crash",         "restart",
                                            "forget",     "cut",         "link_up"};
    char line[256];
    int size = std::snprintf(line, sizeof line, "%8llu host %d %-13s", static_cast<unsigned long long>(now_),
                             task.host == no_host ? -1 : task.host, names[static_cast<size_t>(task.kind)]);
    char* const rest = line + size;
    const size_t room = sizeof line - static_cast<size_t>(size);
    if (task.kind == Task::Kind::message || task.kind == Task::Kind::home_read) {
        const protocol::Message& message = task.message;
        size = std::snprintf(
            rest, room,
            " %-12s from %d page %x.%llx tenure %llx request %u flags %02x host %d hosts %llx sequence %u run %u parts "
            "%u%s%lld",
            protocol::to_string(message.kind), message.from, message.page.volume(),
            static_cast<unsigned long long>(message.page.number()), static_cast<unsigned long long>(message.tenure),
            message.request_id, message.flags, message.host == no_host ? -1 : message.host,
            static_cast<unsigned long long>(message.hosts), message.sequence, message.run, message.parts,
            task.has_content ? " version " : " -", static_cast<long long>(task.has_content ? task.content.version : 0));
    } else {
        static constexpr const char* kinds[] = {"", "read", "write", "write whole", "flush"};
        const Operation* operation = nullptr;
        if (task.host != no_host && task.client < hosts_[task.host].clients.size())
            operation = &hosts_[task.host].clients[task.client].operation;
        size = std::snprintf(rest, room, " from %d client %u %s %llu frame %d", task.from == no_host ? -1 : task.from,
                             task.client, operation ? kinds[static_cast<size_t>(operation->kind)] : "",
                             static_cast<unsigned long long>(task.number), static_cast<int>(task.frame));
    }
    if (tracing_ == Tracing::all) {
        std::puts(line);
        return;
    }
    trace_lines_.emplace_back(line);
    if (trace_lines_.size() > trace_lines_max) trace_lines_.pop_front();
}

void Cluster::run_task(Task& task) {
    SimHost* host = task.host == no_host ? nullptr : &hosts_[task.host];
    switch (task.kind) {
        case Task::Kind::start_operation: start_operation(*host, task.client); break;
        case Task::Kind::leave_latch: leave_latch(*host, task); break;
        case Task::Kind::serve: serve(*host, task); break;
        case Task::Kind::retry: access_or_wait(*host, task.client); break;
        case Task::Kind::cancel: cancel(*host, task); break;
        case Task::Kind::message: deliver(task); break;
        case Task::Kind::home_read: read_home_bytes(*host, task); break;
        case Task::Kind::store_flushed: finish_store_flush(*host, task); break;
        case Task::Kind::loss_recorded:
            ++host->loss_generation;
            host->losses.push_back({.first = task.page, .last = task.page, .generation = host->loss_generation});
            --host->losses_pending;
            step(*host, Event::loss_recorded_of(task.page, host->loss_generation));
            break;
        case Task::Kind::marked:
            host->marks.pages.insert(task.page);
            step(*host, Event::marked_of(task.page, false));
            break;
        case Task::Kind::evict_hint:
            evict_something(*host);
            if (scenario_.mark_delay_max != 0) clear_a_mark(*host);
            if (clients_are_busy()) schedule(workload_.between(1, 2 * scenario_.evict_interval), task);
            break;
        case Task::Kind::hello_done:
            open_volumes(*host, hosts_[task.from]);
            host->memory.reported |= protocol::set_of(task.from);
            recover_if_all_reported(*host);
            break;
        case Task::Kind::preference_over: {
            Frame& frame = host->memory.frames[task.frame];
            if (!frame.urged || frame.page != task.page) break;
            coverage_.reached(Sometimes::local_preference_spent);
            frame.urged = false;
            frame.busy = true;
            break;
        }
        case Task::Kind::crash: {
            SimHost& victim = hosts_[faults_.below(hosts_.size())];
            if (victim.is_up && ++crash_count_ <= crashes_max) crash(victim);
            if (clients_are_busy() && crash_count_ < crashes_max)
                schedule(faults_.between(1, 2 * scenario_.crash_interval), task);
            break;
        }
        case Task::Kind::restart: boot(*host); break;
        case Task::Kind::forget:
            if (!host->is_up) forget(*host);
            break;
        case Task::Kind::cut: {
            const auto a = static_cast<HostId>(faults_.below(hosts_.size()));
            const auto b = static_cast<HostId>(faults_.below(hosts_.size()));
            if (a != b && link_is_up_[a][b]) {
                coverage_.reached(Sometimes::link_cut);
                set_link_down(a, b);
                schedule(faults_.between(1, 300), {.kind = Task::Kind::link_up, .host = a, .from = b});
            }
            if (clients_are_busy()) schedule(faults_.between(1, 2 * scenario_.cut_interval), task);
            break;
        }
        case Task::Kind::link_up: link_up(task.host, task.from); break;
    }
}

void Cluster::recover_if_all_reported(SimHost& host) {
    if (host.memory.recovered || std::popcount(host.memory.reported) + 1u != scenario_.host_count) return;
    host.memory.recovered = true;
    const bool lacks_memory = record_doubtful_losses(host);
    if (scenario_.mark_delay_max != 0) mark_what_is_held(host);
    const bool has_memory = !lacks_memory && host.incarnation != host.epoch;
    host.memory.losses_before = protocol::LossRanges(host.losses);
    for (unsigned stripe = 0; stripe < stripes_per_host; ++stripe) {
        host.memory.stripes[stripe].home().for_each([&](PageId, const protocol::Claim& claim) {
            if (claim.stored_unknown && (claim.keepers & ~claim.holders()) != 0)
                coverage_.reached(Sometimes::stored_bytes_win);
        });
        Event event = Event::about(Event::Kind::recovered, PageId{});
        event.has_memory = has_memory;
        event.losses = &host.memory.losses_before;
        event.waiter = stripe;
        step(host, event);
    }
    protocol::FlushActions actions;
    host.memory.flush_home.on_recovered(actions);
    perform_flush(host, actions);
    for (SimHost& peer : hosts_)
        if (link_is_up_[host.id][peer.id] || peer.id == host.id) open_volumes(peer, host);
}

// An operator tells everyone who is up.
void Cluster::forget(SimHost& dead) {
    coverage_.reached(Sometimes::host_forgotten);
    dead.is_forgotten = true;
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
        host.memory.reported |= protocol::set_of(dead.id);
        host.may_lack_losses |= !host.memory.recovered;
        recover_if_all_reported(host);
    }
}

bool Cluster::clients_are_busy() const {
    return std::ranges::any_of(hosts_, [](const SimHost& host) {
        return std::ranges::any_of(host.clients, [](const Client& client) {
            return client.remaining > 0 || client.operation.kind != Operation::Kind::none;
        });
    });
}

void Cluster::boot(SimHost& host) {
    const bool adopts = std::exchange(host.keeps_memory, false) && !host.is_forgotten;
    HostMemory arena = std::exchange(host.memory, HostMemory(host.id));
    ++host.epoch;
    if (!adopts) host.incarnation = host.epoch;
    host.is_up = true;
    host.is_forgotten = false;
    for (const SimHost& peer : hosts_)
        if (peer.is_forgotten) {
            host.memory.reported |= protocol::set_of(peer.id);
            host.may_lack_losses = true;
        }
    for (unsigned stripe = 0; stripe < stripes_per_host; ++stripe) {
        host.memory.stripes.emplace_back(host.id, host.epoch, ranges_);
        if (scenario_.mark_delay_max != 0) host.memory.stripes.back().set_marks(host.marks);
    }
    if (!adopts) host.may_lack_losses = false;
    if (!adopts) host.left_bare.clear();
    host.memory_was_lost |= !adopts && host.epoch > 1;
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

// What the arena of a real host says: its frames, as they were recorded at the end of the last step. What was
// requested, ordered, asked or noted is gone.
void Cluster::adopt(SimHost& host, HostMemory&& arena) {
    coverage_.reached(Sometimes::memory_adopted);
    HostMemory& memory = host.memory;
    memory.home_bytes = std::move(arena.home_bytes);
    memory.met = std::move(arena.met);
    memory.frames = std::move(arena.frames);
    for (Frame& frame : memory.frames) {
        frame.used = frame.busy = frame.urged = false;
        frame.latches = 0;
        frame.access = Ownership::none;
        frame.dirty |= std::exchange(frame.writing, DirtyMask{0});
    }
    for (unsigned stripe = 0; stripe < stripes_per_host; ++stripe) {
        const protocol::Holder& before = arena.stripes[stripe].holder();
        memory.stripes[stripe].adopt_request_ids(before.last_request_id());
        before.for_each([&](PageId page, const protocol::Holding& holding) {
            if (holding.bare) host.left_bare.insert(page);
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

// While a home knew no claims, another host may have lost writes to its pages; or it lost its own memory. Nobody can
// say which pages that is about, but for those that are held.
bool Cluster::record_doubtful_losses(SimHost& host) {
    const bool lacks_losses = std::exchange(host.may_lack_losses, false);
    if (lacks_losses) coverage_.reached(Sometimes::losses_in_doubt);
    if (!std::exchange(host.memory_was_lost, false) && !lacks_losses) return false;
    std::vector<PageId> held;
    for (const protocol::Stripe& stripe : host.memory.stripes)
        stripe.home().for_each([&](PageId page, const protocol::Claim& claim) {
            if (claim.holders() != 0) held.push_back(page);
        });
    ++host.loss_generation;
    std::vector<protocol::LossRange> doubtful;
    if (scenario_.mark_delay_max == 0) doubtful.push_back({.first = {0}, .last = {UINT64_MAX}});
    for (const PageId page : host.marks.pages) doubtful.push_back({.first = page, .last = page});
    for (protocol::LossRange range : protocol::without(doubtful, std::move(held))) {
        range.generation = host.loss_generation;
        host.losses.push_back(range);
    }
    return true;
}

// Before a home serves: who holds a page goes on writing it.
void Cluster::mark_what_is_held(SimHost& host) const {
    for (const protocol::Stripe& stripe : host.memory.stripes)
        stripe.home().for_each([&](PageId page, const protocol::Claim& claim) {
            if (claim.holders() != 0) host.marks.pages.insert(page);
        });
    for (const auto& [page, bytes] : host.memory.home_bytes) host.marks.pages.insert(page);
}

void Cluster::clear_a_mark(SimHost& host) {
    if (host.marks.pages.empty()) return;
    auto page = host.marks.pages.begin();
    std::advance(page, static_cast<long>(marks_.below(host.marks.pages.size())));
    // What only this host may write it gives up, and what it has written comes home.
    const protocol::Claim* const claim = host.stripe_of(*page).home().find(*page);
    if (claim != nullptr && claim->owner == host.id) step(host, Event::evict_at_once(*page));
    const auto newer = host.memory.home_bytes.find(*page);
    const auto stored = host.store.find(*page);
    const bool is_stored = newer == host.memory.home_bytes.end() ||
                           (stored != host.store.end() && stored->second.position >= newer->second.position);
    if (!is_stored || !host.stripe_of(*page).home().has_everything(*page)) return;
    coverage_.reached(Sometimes::mark_cleared);
    host.marks.pages.erase(page);
}

void Cluster::say_what_home_has(const SimHost& host, Event& event) const {
    const auto newer = host.memory.home_bytes.find(event.page);
    const auto stored = host.store.find(event.page);
    if (newer != host.memory.home_bytes.end()) {
        event.stored_tenure = newer->second.position.tenure;
        event.stored_sequence = newer->second.position.sequence;
    } else if (stored != host.store.end()) {
        event.stored_tenure =
            scenario_.store_knows_tenures != 0 ? stored->second.position.tenure : protocol::unknown_tenure;
    }
}

void Cluster::crash(SimHost& host) {
    coverage_.reached(Sometimes::host_crashed);
    host.is_up = false;
    for (const SimHost& peer : hosts_)
        if (peer.id != host.id) set_link_down(host.id, peer.id);
    host.keeps_memory = faults_.chance(scenario_.adopt_percent);
    host.may_lack_losses |= host.losses_pending != 0;
    host.losses_pending = 0;
    // The store writes behind: what was not flushed may be there, or not.
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

void Cluster::set_link_down(HostId a, HostId b) {
    link_is_up_[a][b] = link_is_up_[b][a] = false;
    link_epoch_[a][b] = ++link_epoch_[b][a];
}

void Cluster::link_up(HostId a, HostId b) {
    if (!hosts_[a].is_up || !hosts_[b].is_up || link_is_up_[a][b]) return;
    link_is_up_[a][b] = link_is_up_[b][a] = true;
    link_epoch_[a][b] = ++link_epoch_[b][a];
    hello(a, b);
    hello(b, a);
}

// `host` meets `peer` over a new link: what it says now arrives before everything else it says on this link.
void Cluster::hello(HostId host_id, HostId peer_id) {
    SimHost& host = hosts_[host_id];
    const SimHost& peer = hosts_[peer_id];
    const Process previous = std::exchange(host.memory.met[peer_id], peer.process());
    if (!host.memory.recovered && previous.incarnation != 0 && previous.incarnation != peer.incarnation)
        host.may_lack_losses = true;
    host.memory.reported &= ~protocol::set_of(peer_id);  // it reports again over this link
    saying_hello_to_ = peer_id;
    hello_time_ = now_ + network_.between(1, scenario_.delay_max);
    for (unsigned stripe = 0; stripe < stripes_per_host; ++stripe) {
        Event event = Event::peer_up_of(peer_id, peer.process(), previous);
        event.waiter = stripe;
        step(host, event);
    }
    protocol::FlushActions actions;
    host.memory.flush_holder.on_peer_up(peer_id);
    host.memory.flush_home.on_peer_up(peer_id, peer.process(), previous, actions);
    host.memory.flush_requester.on_peer_up(peer_id, actions);
    perform_flush(host, actions);
    saying_hello_to_ = no_host;
    not_before_[host_id][peer_id] = hello_time_ + 1;
    schedule(hello_time_ - now_, {.kind = Task::Kind::hello_done,
                                  .host = peer_id,
                                  .from = host_id,
                                  .epoch = peer.epoch,
                                  .link_epoch = link_epoch_[host_id][peer_id]});
}

// Whoever opens a volume learns the verifier of each home, as soon as that home knows what it has lost.
void Cluster::open_volumes(SimHost& host, const SimHost& home) const {
    if (!home.memory.recovered) return;
    for (const PageId page : pages_) hear(host, home.id, page.volume(), home.verifier());
}

void Cluster::hear(SimHost& host, HostId home, VolumeId volume, protocol::Verifier verifier) {
    host.memory.flush_requester.heard(volume, home, verifier);
    host.memory.heard[home] = protocol::loss_generation_of(verifier);
}

void Cluster::transmit(HostId from, HostId to, protocol::Message message, const Content* content) {
    if (from != to && !link_is_up_[from][to]) return;
    message.from = from;
    message.view_epoch = view_epoch;
    message.map_epoch = ranges_.epoch();
    message.incarnation = hosts_[from].incarnation;
    message.loss_generation = hosts_[from].loss_generation;
    Task task{.kind = Task::Kind::message,
              .host = to,
              .from = from,
              .epoch = hosts_[to].epoch,
              .link_epoch = link_epoch_[from][to],
              .message = message};
    if (content != nullptr) {
        task.has_content = true;
        task.content = *content;
        if (content->zero) {
            coverage_.reached(Sometimes::zeros_sent);
            task.message.flags = static_cast<uint8_t>((message.flags & ~protocol::flag_payload) | protocol::flag_zero);
        }
    }
    if (protocol::is_joined(task.message)) coverage_.reached(Sometimes::joined_grant_sent);
    const bool gathers = scenario_.gather_max != 0 && from != to && saying_hello_to_ == no_host;
    if (gathers && join_last(task)) return;
    Time delay = from == to ? 0 : network_.between(1, scenario_.delay_max);
    if (from != to && network_.chance(scenario_.slow_percent)) delay *= 20;
    const Time waits = gathers ? network_.below(scenario_.gather_max) : 0;
    Time arrival = std::max(now_ + waits + delay, not_before_[from][to]);
    if (saying_hello_to_ == to) arrival = hello_time_;
    const protocol::Message sent = task.message;
    const uint32_t slot = enter(arrival - now_, std::move(task));
    if (!gathers) return;
    Gathering& gathering = gathering_[from][to];
    gathering = {.slot = slot, .link_epoch = link_epoch_[from][to], .until = now_ + waits};
    gathering.batch.begin(sent);
}

// As the link of a real host does: what has not left yet may stand for more.
bool Cluster::join_last(const Task& task) {
    Gathering& gathering = gathering_[task.from][task.host];
    const bool is_there = now_ <= gathering.until && gathering.link_epoch == task.link_epoch;
    if (!is_there) gathering.batch.end();
    const auto joined = gathering.batch.join(task.message);
    if (joined == protocol::Batch::Joined::no) return false;
    Task& last = slots_[gathering.slot];
    last.message = gathering.batch.message();
    if (joined == protocol::Batch::Joined::part)
        last.parts.push_back(gathering.batch.last_part());
    else if (!last.parts.empty())
        last.parts.back() = gathering.batch.last_part();
    return true;
}

void Cluster::deliver(const Task& task) {
    SimHost& host = hosts_[task.host];
    require(protocol::validate(task.message).has_value(), "an invalid message was sent");
    require(protocol::validate(task.message, task.parts).has_value(), "a message with invalid parts was sent");
    for (size_t index = 0; index <= task.parts.size(); ++index) {
        const protocol::Message run = protocol::run_of(task.message, task.parts, index);
        if (task.from != task.host) {
            const protocol::Link link{.self = host.id,
                                      .peer = task.from,
                                      .process = host.memory.met[task.from],
                                      .hosts = (protocol::HostSet{1} << scenario_.host_count) - 1,
                                      .view_epoch = view_epoch,
                                      .map_epoch = ranges_.epoch()};
            const Result<> admitted = protocol::admit(run, link, ranges_.find(run.page).home, last_page_number);
            require(admitted.has_value(), "a correct host's message is not admitted");
        }
        for (uint32_t page = 0; page <= run.run; ++page) deliver_page(host, task, protocol::part_of(run, page));
    }
    if (task.message.run != 0 || !task.parts.empty()) observe_batch(host, task);
}

void Cluster::deliver_page(SimHost& host, const Task& task, const protocol::Message& message) {
    if (protocol::is_from_home(message.kind))
        hear(host, task.from, message.page.volume(),
             protocol::verifier_of(message.incarnation, message.loss_generation));
    if (protocol::is_about_flush(message.kind)) {
        protocol::FlushActions actions;
        if (message.kind == protocol::MessageKind::flush_ask) return answer_flush_ask(host, message);
        if (message.kind == protocol::MessageKind::flushed)
            host.memory.flush_requester.on_message(message, actions);
        else
            host.memory.flush_home.on_message(message, actions);
        if (host.memory.flush_home.waits_for_copies()) coverage_.reached(Sometimes::flush_waited_for_a_copy);
        return perform_flush(host, actions);
    }
    Event event = Event::message_of(message);
    if (task.has_content) {
        // Straight into the lent frame, if it is still lent; or into one that the Holder then swaps in.
        const FrameId lent = host.stripe_of(message.page).lent_frame(message);
        event.frame = lent != no_frame && network_.chance(50) ? lent : host.memory.allocate();
        host.memory.frames[event.frame].content = task.content;
        host.memory.frames[event.frame].page = message.page;
    }
    if (message.kind == protocol::MessageKind::hello) {
        say_what_home_has(host, event);
    }
    event.no_space = (message.kind == protocol::MessageKind::get_exclusive ||
                      message.kind == protocol::MessageKind::get_exclusive_no_read) &&
                     store_is_full();
    event.store_failed = message.kind == protocol::MessageKind::evict && store_is_full();
    event.wants_copy = message.kind == protocol::MessageKind::evict && store_.chance(scenario_.wants_copy_percent);
    step(host, event);
}

}  // namespace tarn::sim
