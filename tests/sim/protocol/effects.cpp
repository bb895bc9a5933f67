// SimCluster: the executor's effects, as a model.
#include <utility>

#include "tests/sim/protocol/sim_cluster.hpp"
#include "tests/sim/support/failure.hpp"

namespace tarn::sim {

using protocol::Action;
using protocol::FlushAction;
using protocol::MessageKind;

// The executor's effects in a simulated host, and the checks of each step.
class SimCluster::Effects final : public Frames,
                                  public HomeStore,
                                  public Outbox,
                                  public FlushBooks,
                                  public Accesses,
                                  public StepObserver {
  public:
    Effects(SimCluster& cluster, SimHost& host) : cluster_(cluster), host_(host) {}

    // Frames
    Quiet quiesce(PageId, FrameId id, bool recalled) override {
        Frame& frame = frame_of(id);
        const Scenario& scenario = cluster_.scenario_;
        if (frame.latches != 0 && recalled && scenario.lease_writes != 0) {
            frame.recalled = true;
            frame.lease_writes = scenario.lease_writes;
            frame.writes_since_recall = 0;
            frame.recalled_at = cluster_.now_;
            return Quiet::leased;
        }
        frame.busy = true;
        return frame.latches == 0 ? Quiet::now : Quiet::later;
    }
    DirtyMask unwritten_of(FrameId id) override { return frame_of(id).dirty | frame_of(id).writing; }
    void set_access(PageId page, FrameId id, Ownership ownership, uint32_t lost) override {
        Frame& frame = frame_of(id);
        require(frame.latches == 0 || ownership >= frame.access, "access is taken from a latched frame");
        frame.busy = frame.recalled = false;
        frame.page = page;
        frame.access = ownership;
        frame.lost = lost;
        if (ownership == Ownership::none)
            memory().bound.erase(page);
        else
            memory().bound[page] = id;
    }
    void begin_writing(FrameId id) override {
        Frame& frame = frame_of(id);
        frame.writing |= frame.dirty;
        frame.dirty = 0;
    }
    void clear_writing(FrameId id) override {
        require(frame_of(id).writing != 0, "what came home was not on its way");
        frame_of(id).writing = 0;
    }
    void clear_dirty(FrameId id) override { frame_of(id).dirty = frame_of(id).writing = 0; }
    void mark_dirty(FrameId id) override { frame_of(id).dirty = all_sectors; }
    bool release(FrameId id) override {
        (void)frame_of(id);
        memory().release(id);
        return true;
    }
    uint32_t age_of(FrameId) override { return 0; }
    void keep_lease(PageId page, FrameId id) override {
        cluster_.schedule(
            cluster_.scenario_.lease_time,
            {.kind = Task::Kind::lease_over, .host = host_.id, .epoch = host_.epoch, .frame = id, .page = page});
    }
    void freed() override {}

    // HomeStore
    bool apply_copy(const Action& action) override {
        const Frame& frame = frame_of(action.frame);
        sim::Bytes& home = memory().home_bytes[action.page];
        const protocol::PageVersion version{action.tenure, action.sequence};
        require(home.page_version < version, "home's bytes go back");
        cluster_.check_mask(host_, action, frame.content);
        home = {frame.content, version};
        if (!action.borrowed) memory().release(action.frame);
        return true;
    }
    bool keep_copy(const Action& action) override {
        cluster_.coverage_.reached(Sometimes::last_copy_kept);
        require(frame_of(action.frame).content.version == cluster_.home_version_of(action.page),
                "home is given other bytes than it has");
        if (!action.borrowed) memory().release(action.frame);
        return true;
    }
    // Bytes in memory are sometimes available at once.
    HomeStore::Found find(PageId page) override {
        const auto newest = memory().home_bytes.find(page);
        if (newest == memory().home_bytes.end() || !cluster_.store_.chance(50))
            return {.where = HomeStore::Found::Where::store};
        cluster_.coverage_.reached(Sometimes::home_bytes_at_hand);
        const Content content = newest->second.content;
        home_frame_ = memory().allocate();
        memory().frames[home_frame_].content = content;
        return {.where = HomeStore::Found::Where::frame, .frame = home_frame_};
    }
    bool share(FrameId) override {
        if (!cluster_.store_.chance(50)) return false;
        home_frame_ = no_frame;
        return true;
    }
    void copy(HomeStore::Found found, FrameId into) override {
        require(frame_of(into).sends == 0, "I9: bytes come into a buffer that is being sent");
        frame_of(into).content = frame_of(found.frame).content;
        memory().release(std::exchange(home_frame_, no_frame));
    }
    FrameId take_free_frame() override { return cluster_.store_.chance(50) ? memory().allocate() : no_frame; }
    void read(std::vector<HomeRead> reads) override {
        // Only over the link, and to the incarnation, for which it was ordered.
        for (const HomeRead& each : reads)
            cluster_.schedule(cluster_.store_.below(cluster_.scenario_.store_delay_max),
                              {.kind = Task::Kind::home_read,
                               .host = host_.id,
                               .from = each.to,
                               .epoch = host_.epoch,
                               .link_epoch = link_epoch_to(each.to),
                               .frame = each.frame,
                               .message = each.message});
    }
    void record_losses(std::vector<PageId> pages, HostId) override {
        for (const PageId page : pages) {
            cluster_.coverage_.reached(Sometimes::loss_recorded);
            ++host_.losses_pending;
            cluster_.schedule(
                cluster_.store_.below(cluster_.scenario_.store_delay_max),
                {.kind = Task::Kind::loss_recorded, .host = host_.id, .epoch = host_.epoch, .page = page});
        }
    }
    void mark(std::vector<PageId> pages) override {
        for (const PageId page : pages) {
            cluster_.coverage_.reached(Sometimes::mark_awaited);
            cluster_.schedule(cluster_.marks_.below(cluster_.scenario_.mark_delay_max),
                              {.kind = Task::Kind::marked, .host = host_.id, .epoch = host_.epoch, .page = page});
        }
    }

    // Outbox
    void send(HostId to, const protocol::Message& message, FrameId id) override {
        if (protocol::PendingGrant::is_worth_holding(message, host_.id) && !protocol::is_joined(message))
            cluster_.coverage_.reached(Sometimes::held_grant_sent_alone);
        if (id == no_frame) return cluster_.transmit(host_.id, to, message, nullptr);
        if (!cluster_.send_later(host_, to, message, id))
            cluster_.transmit(host_.id, to, message, &frame_of(id).content);
        if (id == home_frame_) memory().release(std::exchange(home_frame_, no_frame));
    }

    // FlushBooks
    void book(const Action& action, protocol::FlushActions& actions) override {
        tarn::book(memory().flush_home, action, actions);
    }
    void on_written(protocol::WaiterToken waiter, protocol::FlushActions& actions) override {
        memory().flush_holder.on_written(waiter, actions);
    }
    void run(protocol::FlushActions actions) override { cluster_.perform_flush(host_, actions); }

    // Accesses
    bool wake(const Action& action, bool) override {
        const auto client = static_cast<uint32_t>(action.waiter >> 48);
        host_.clients[client].operation.access_to(action.page).waits = false;
        frame_of(action.frame).lost = action.lost;
        cluster_.schedule(cluster_.workload_.below(cluster_.scenario_.latch_max + 1), {.kind = Task::Kind::serve,
                                                                                       .host = host_.id,
                                                                                       .epoch = host_.epoch,
                                                                                       .client = client,
                                                                                       .frame = action.frame,
                                                                                       .page = action.page});
        return false;
    }
    void refuse(const Action& action) override {
        const auto client = static_cast<uint32_t>(action.waiter >> 48);
        Access& access = host_.clients[client].operation.access_to(action.page);
        require(access.want() != Want::shared, "a read fails for lack of space");
        cluster_.coverage_.reached(Sometimes::no_space);
        cluster_.fail_access(host_, client, access);
    }
    void resume(protocol::WaiterToken) override { require(false, "nothing goes on within a step"); }

    // StepObserver
    void on_event(const Event& event) override {
        cluster_.observe(host_, event);
        order_ = is_about_page(event) ? order_at_hand(host_, event.page) : 0;
    }
    void on_decided(const Event& event, const protocol::Actions& actions) override {
        for (const Action& action : actions)
            require(action.kind != Action::Kind::mark_dirty || frame_of(action.frame).dirty == all_sectors,
                    "D2: the process may be killed here, and home lacks a page that is on record and clean");
        if (order_ == 0 || order_at_hand(host_, event.page) != order_) return;
        for (const Action& action : actions)
            require(action.kind != Action::Kind::wake, "I7: a local operation goes before an order that waits");
    }
    void on_performed(const Event& event) override {
        if (is_about_page(event)) cluster_.check_page(host_, event.page);
    }

  private:
    HostMemory& memory() { return host_.memory; }
    // Before this host's side of a link is up, what it begins is not for that link.
    uint32_t link_epoch_to(HostId to) const {
        const uint32_t epoch = cluster_.link_epoch_[host_.id][to];
        return cluster_.link_is_up_[host_.id][to] ? epoch : epoch - 1;
    }
    Frame& frame_of(FrameId id) {
        Frame& frame = memory().frames[id];
        require(frame.used && !frame.released, "an action names a free frame");
        return frame;
    }

    SimCluster& cluster_;
    SimHost& host_;
    FrameId home_frame_ = no_frame;  // found by find(), until it is shared, copied or sent
    Tenure order_ = 0;               // order_at_hand() when the event came
};

// Events about no page go to every stripe; the simulator names the stripe in `waiter`.
bool SimCluster::is_about_page(const Event& event) {
    return event.kind != Event::Kind::peer_up && event.kind != Event::Kind::peer_greeted &&
           event.kind != Event::Kind::recovered && event.kind != Event::Kind::host_forgotten;
}

void SimCluster::step(SimHost& host, const Event& event) {
    static constexpr StripeLinks every_link{.up = ~HostSet{0}};  // transmit() knows those that are down
    Effects effects(*this, host);
    const Executor executor(host.id, {effects, effects, effects, effects, effects});
    protocol::Stripe& stripe = is_about_page(event) ? host.stripe_of(event.page) : host.memory.stripes[event.waiter];
    StepResult result;
    executor.step(stripe, every_link, scratch_, event, result, effects);
    require(result.refused.empty(), result.refused);
    executor.finish(result);
}

void SimCluster::read_home_bytes(SimHost& host, const Task& task) {
    Content content;
    const auto stored = host.store.find(task.message.page);
    if (stored != host.store.end()) content = stored->second.content;
    const auto newer = host.memory.home_bytes.find(task.message.page);
    if (newer != host.memory.home_bytes.end()) content = newer->second.content;
    protocol::Message message = task.message;
    message.flags |= protocol::flag_payload;
    if (task.frame == no_frame) return transmit(host.id, task.from, message, &content);
    host.memory.frames[task.frame].content = content;
    stamp(host.id, message);
    step(host, Event::message_of(message, task.frame));
}

void SimCluster::perform_flush(SimHost& host, const protocol::FlushActions& actions) {
    for (const FlushAction& action : actions) {
        switch (action.kind) {
            case FlushAction::Kind::send: transmit(host.id, action.to, action.message, nullptr); break;
            case FlushAction::Kind::store_flush: start_store_flush(host, action.volume, action.ticket); break;
            case FlushAction::Kind::complete: complete_flush(host, action.waiter, action.lost); break;
        }
    }
}

void SimCluster::answer_flush_ask(SimHost& host, const protocol::Message& ask) {
    HostMemory& memory = host.memory;
    const protocol::WaiterToken waiter = memory.flush_holder.on_ask(ask);
    std::vector<PageId> pages;
    for (const Frame& frame : memory.frames) {
        const bool concerns = frame.used && frame.page.volume() == ask.page.volume() &&
                              ranges_.home_of(frame.page) == ask.from && (frame.dirty | frame.writing) != 0;
        if (!concerns) continue;
        pages.push_back(frame.page);
        if (frame.access == Ownership::shared) coverage_.reached(Sometimes::flush_asked_an_anchor);
    }
    for (const PageId page : pages) step(host, Event::about(Event::Kind::write_back, page, waiter));
    protocol::FlushActions actions;
    memory.flush_holder.begun(waiter, static_cast<uint32_t>(pages.size()), actions);
    perform_flush(host, actions);
}

void SimCluster::start_store_flush(SimHost& host, VolumeId volume, uint64_t ticket) {
    Task task{.kind = Task::Kind::store_flushed,
              .host = host.id,
              .epoch = host.epoch,
              .number = ticket,
              .page = PageId::of(volume, 0)};
    for (const auto& [page, bytes] : host.memory.home_bytes)
        if (page.volume() == volume) task.bytes.emplace_back(page, bytes);
    schedule(store_.below(scenario_.store_delay_max), std::move(task));
}

void SimCluster::finish_store_flush(SimHost& host, const Task& task) {
    if (scenario_.store_fails_percent != 0 && disturbances_.chance(scenario_.store_fails_percent)) fail_store(host);
    for (const auto& [page, bytes] : task.bytes) {
        // The device may have dropped any of these writes.
        if (host.store_failed && disturbances_.chance(50)) continue;
        Bytes& stored = host.store[page];
        if (stored.page_version < bytes.page_version) stored = bytes;
    }
    // Others may hear of the failure only when they use the store themselves.
    if (host.store_failed && disturbances_.chance(50)) check_store_failure(host);
    protocol::FlushActions actions;
    host.memory.flush_home.on_store_flushed(task.number, host.store_failed, host.verifier(), actions);
    perform_flush(host, actions);
}

// Counts the races that this event is one side of.
void SimCluster::observe(const SimHost& host, const Event& event) {
    if (event.kind != Event::Kind::message) return;
    const protocol::Message& message = event.message;
    const protocol::Holding* holding = host.stripe_of(event.page).holder().find(event.page);
    const protocol::Claim* claim = host.stripe_of(event.page).home().find(event.page);
    const bool is_order = message.kind == MessageKind::drop || message.kind == MessageKind::move ||
                          message.kind == MessageKind::move_shared;
    if (holding != nullptr && is_order) {
        const bool waits = holding->awaited.request_id != 0;
        if (waits && holding->frame != no_frame) coverage_.reached(Sometimes::upgrade_lost_to_another);
        if (waits && holding->frame == no_frame)
            coverage_.reached(holding->awaited.granted == 0 ? Sometimes::order_before_grant
                                                            : Sometimes::order_before_bytes);
        if (holding->custody == protocol::Custody::evicting) coverage_.reached(Sometimes::eviction_met_an_order);
        if (holding->writing_back()) coverage_.reached(Sometimes::write_back_met_a_move);
    }
    if (holding != nullptr) {
        if (message.kind == MessageKind::copy && holding->kept_frame != no_frame &&
            holding->kept_order == message.tenure + 1)
            coverage_.reached(Sometimes::copy_after_drop);
        if (message.kind == MessageKind::recall && holding->awaited.request_id != 0)
            coverage_.reached(Sometimes::recalled_while_waiting);
        if (message.kind == MessageKind::confirm && message.tenure > holding->tenure)
            coverage_.reached(holding->ownership == Ownership::exclusive ? Sometimes::home_restarted_with_owner
                                                                         : Sometimes::home_restarted_with_readers);
    }
    if (protocol::is_joined(message)) {
        if (holding != nullptr && !holding->successors.empty()) coverage_.reached(Sometimes::joined_grant_met_an_order);
        if (holding == nullptr || holding->awaited.request_id != message.request_id)
            coverage_.reached(Sometimes::joined_grant_of_an_undone_request);
    }
    const bool asks = message.kind == MessageKind::get_shared || message.kind == MessageKind::get_exclusive ||
                      message.kind == MessageKind::get_exclusive_no_read;
    if (asks && claim != nullptr)
        host.stripe_of(event.page).home().requests().for_each(claim->orders, [&](const protocol::Request& order) {
            if (order.requester == message.from && order.request_id == message.request_id)
                coverage_.reached(Sometimes::request_repeated);
        });
    if (message.kind == MessageKind::refused) coverage_.reached(Sometimes::eviction_refused);
    if (message.kind == MessageKind::recall) coverage_.reached(Sometimes::page_recalled);
    if (message.kind == MessageKind::report && message.has_bytes()) coverage_.reached(Sometimes::kept_bytes_reported);
    if (message.kind == MessageKind::home_copy && claim != nullptr && !claim->copies.empty() &&
        message.tenure > claim->applied.tenure + 1)
        coverage_.reached(Sometimes::home_copy_out_of_order);
}

// The fates of the pages of one message.
void SimCluster::observe_batch(const SimHost& host, const Task& task) {
    coverage_.reached(task.parts.empty() ? Sometimes::run_sent : Sometimes::batch_sent);
    unsigned granted = 0;
    unsigned owned = 0;
    unsigned held = 0;
    unsigned count = 0;
    bool resolves = false;
    for (size_t index = 0; index <= task.parts.size(); ++index) {
        const protocol::Message run = protocol::run_of(task.message, task.parts, index);
        for (uint32_t i = 0; i <= run.run; ++i, ++count) {
            const protocol::Message part = protocol::part_of(run, i);
            const protocol::Home& home = host.stripe_of(part.page).home();
            const protocol::Claim* const claim = home.find(part.page);
            if (claim == nullptr) continue;
            held += contains(claim->holders(), task.from);
            resolves |= claim->resolving || host.memory.recovery.recovering();
            home.requests().for_each(claim->orders, [&](const protocol::Request& order) {
                if (order.requester != task.from || order.request_id != part.request_id) return;
                ++granted;
                owned += order.keeper != no_host && order.keeper != host.id;
            });
        }
    }
    switch (task.message.kind) {
        case MessageKind::get_shared:
        case MessageKind::get_exclusive:
        case MessageKind::get_exclusive_no_read:
            if (granted > 0 && granted < count) {
                coverage_.reached(Sometimes::run_partly_granted);
                if (resolves) coverage_.reached(Sometimes::run_granted_while_resolving);
            }
            if (owned > 0 && owned < granted) coverage_.reached(Sometimes::run_met_an_owner);
            break;
        case MessageKind::evict:
            if (held > 0 && held < count) coverage_.reached(Sometimes::evictions_partly_refused);
            break;
        default: break;
    }
}

}  // namespace tarn::sim
