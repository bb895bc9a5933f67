// Cluster: performs the actions of stripes and flush parts, as the executor of a real host does.
#include "tests/sim/cluster.hpp"
#include "tests/sim/failure.hpp"

namespace tarn::sim {

using protocol::Action;
using protocol::FlushAction;
using protocol::MessageKind;

void Cluster::step(SimHost& host, const Event& first) {
    HostMemory& memory = host.memory;
    memory.pending.push_back(first);
    while (!memory.pending.empty()) {
        const Event event = memory.pending.front();
        memory.pending.pop_front();
        observe(host, event);
        // Events about no page go to every stripe; the simulator names the stripe in `waiter`.
        const bool is_about_page = event.kind != Event::Kind::peer_up && event.kind != Event::Kind::recovered &&
                                   event.kind != Event::Kind::host_forgotten;
        protocol::Stripe& stripe = is_about_page ? host.stripe_of(event.page) : memory.stripes[event.waiter];
        actions_.clear();
        stripe.reserve();
        const Tenure at_hand = is_about_page ? order_at_hand(host, event.page) : 0;
        stripe.on(event, actions_);
        if (at_hand != 0 && order_at_hand(host, event.page) == at_hand)
            for (const Action& action : actions_)
                require(action.kind != Action::Kind::wake, "I7: a local operation goes before an order that waits");
        for (const Action& action : actions_) perform(host, action);
        if (is_about_page) check_page(host, event.page);
    }
    send_pending_grant(host);
}

// As the cache of a real host does: a grant waits for the bytes that come from the same step.
void Cluster::send(SimHost& host, HostId to, protocol::Message message, FrameId bytes) {
    protocol::PendingGrant& held = host.memory.pending_grant;
    if (protocol::PendingGrant::is_worth_holding(message, host.id)) {
        send_pending_grant(host);
        held.hold(to, message);
        return;
    }
    (void)held.join(to, message);
    if (bytes != no_frame && send_later(host, to, message, bytes)) return;
    transmit(host.id, to, message, bytes == no_frame ? nullptr : &host.memory.frames[bytes].content);
}

void Cluster::send_pending_grant(SimHost& host) {
    if (!host.memory.pending_grant.holds()) return;
    coverage_.reached(Sometimes::held_grant_sent_alone);
    const auto [to, message] = host.memory.pending_grant.release();
    transmit(host.id, to, message, nullptr);
}

void Cluster::perform(SimHost& host, const Action& action) {
    HostMemory& memory = host.memory;
    Frame* frame = action.frame == no_frame ? nullptr : &memory.frames[action.frame];
    if (frame != nullptr) require(frame->used && !frame->released, "an action names a free frame");
    protocol::FlushActions flush_actions;
    switch (action.kind) {
        case Action::Kind::nothing: break;
        case Action::Kind::send: send(host, action.to, action.message, action.frame); break;
        case Action::Kind::send_home_bytes:
            // Never to another link or incarnation than that for which it was ordered.
            schedule(store_.below(scenario_.store_delay_max), {.kind = Task::Kind::home_read,
                                                               .host = host.id,
                                                               .from = action.to,
                                                               .epoch = host.epoch,
                                                               .link_epoch = link_epoch_[host.id][action.to],
                                                               .message = action.message});
            break;
        case Action::Kind::wake: {
            const auto client = static_cast<uint32_t>(action.waiter >> 48);
            host.clients[client].operation.access_to(action.page).waits = false;
            frame->lost = action.lost;
            schedule(workload_.below(scenario_.latch_max + 1), {.kind = Task::Kind::serve,
                                                                .host = host.id,
                                                                .epoch = host.epoch,
                                                                .client = client,
                                                                .frame = action.frame,
                                                                .page = action.page});
            break;
        }
        case Action::Kind::fail: {
            const auto client = static_cast<uint32_t>(action.waiter >> 48);
            Access& access = host.clients[client].operation.access_to(action.page);
            require(access.want() != Want::shared, "a read fails for lack of space");
            coverage_.reached(Sometimes::no_space);
            fail_access(host, client, access);
            break;
        }
        case Action::Kind::written: memory.flush_holder.on_written(action.waiter, flush_actions); break;
        case Action::Kind::quiesce:
            if (frame->latches != 0 && action.recalled && scenario_.lease_writes != 0) {
                frame->recalled = true;
                frame->lease_writes = scenario_.lease_writes;
                frame->writes_since_recall = 0;
                frame->recalled_at = now_;
                schedule(scenario_.lease_time, {.kind = Task::Kind::lease_over,
                                                .host = host.id,
                                                .epoch = host.epoch,
                                                .frame = action.frame,
                                                .page = action.page});
                break;
            }
            frame->busy = true;
            if (frame->latches == 0)
                memory.pending.push_front(Event::quiesced_of(action.page, frame->dirty | frame->writing));
            break;
        case Action::Kind::set_access:
            require(frame->latches == 0 || action.ownership >= frame->access, "access is taken from a latched frame");
            frame->busy = frame->recalled = false;
            frame->page = action.page;
            frame->access = action.ownership;
            frame->lost = action.lost;
            if (action.ownership == Ownership::none)
                memory.bound.erase(action.page);
            else
                memory.bound[action.page] = action.frame;
            break;
        case Action::Kind::begin_writing:
            frame->writing |= frame->dirty;
            frame->dirty = 0;
            break;
        case Action::Kind::clear_writing: frame->writing = 0; break;
        case Action::Kind::clear_dirty: frame->dirty = frame->writing = 0; break;
        case Action::Kind::mark_dirty: frame->dirty = all_sectors; break;
        case Action::Kind::release_frame: memory.release(action.frame); break;
        case Action::Kind::apply_copy:
            require(memory.home_bytes[action.page].page_version < protocol::PageVersion{action.tenure, action.sequence},
                    "home's bytes go back");
            check_mask(host, action, frame->content);
            memory.home_bytes[action.page] = {frame->content, {action.tenure, action.sequence}};
            if (!action.borrowed) memory.release(action.frame);
            break;
        case Action::Kind::keep_copy:
            coverage_.reached(Sometimes::last_copy_kept);
            require(frame->content.version == home_version_of(action.page), "home is given other bytes than it has");
            if (!action.borrowed) memory.release(action.frame);
            break;
        case Action::Kind::holder_added: memory.flush_home.holder_added(action.page, action.to); break;
        case Action::Kind::holder_removed: memory.flush_home.holder_removed(action.page, action.to); break;
        case Action::Kind::copy_expected: memory.flush_home.copy_expected(action.page, action.tenure); break;
        case Action::Kind::copy_arrived:
            memory.flush_home.copy_arrived(action.page, action.tenure, flush_actions);
            break;
        case Action::Kind::refuse_peer: require(false, action.reason); break;
        case Action::Kind::record_loss:
            coverage_.reached(Sometimes::loss_recorded);
            ++host.losses_pending;
            schedule(store_.below(scenario_.store_delay_max),
                     {.kind = Task::Kind::loss_recorded, .host = host.id, .epoch = host.epoch, .page = action.page});
            break;
        case Action::Kind::mark:
            coverage_.reached(Sometimes::mark_awaited);
            schedule(marks_.below(scenario_.mark_delay_max),
                     {.kind = Task::Kind::marked, .host = host.id, .epoch = host.epoch, .page = action.page});
            break;
    }
    perform_flush(host, flush_actions);
}

void Cluster::read_home_bytes(SimHost& host, const Task& task) {
    Content content;
    const auto stored = host.store.find(task.message.page);
    if (stored != host.store.end()) content = stored->second.content;
    const auto newer = host.memory.home_bytes.find(task.message.page);
    if (newer != host.memory.home_bytes.end()) content = newer->second.content;
    protocol::Message message = task.message;
    message.flags |= protocol::flag_payload;
    transmit(host.id, task.from, message, &content);
}

void Cluster::perform_flush(SimHost& host, const protocol::FlushActions& actions) {
    for (const FlushAction& action : actions) {
        switch (action.kind) {
            case FlushAction::Kind::send: transmit(host.id, action.to, action.message, nullptr); break;
            case FlushAction::Kind::store_flush: start_store_flush(host, action.volume, action.ticket); break;
            case FlushAction::Kind::complete: complete_flush(host, action.waiter, action.lost); break;
        }
    }
}

void Cluster::answer_flush_ask(SimHost& host, const protocol::Message& ask) {
    HostMemory& memory = host.memory;
    const protocol::WaiterToken waiter = memory.flush_holder.on_ask(ask);
    std::vector<PageId> pages;
    for (const Frame& frame : memory.frames) {
        const bool concerns = frame.used && frame.page.volume() == ask.page.volume() &&
                              ranges_.find(frame.page).home == ask.from && (frame.dirty | frame.writing) != 0;
        if (!concerns) continue;
        pages.push_back(frame.page);
        if (frame.access == Ownership::shared) coverage_.reached(Sometimes::flush_asked_an_anchor);
    }
    for (const PageId page : pages) step(host, Event::about(Event::Kind::write_back, page, waiter));
    protocol::FlushActions actions;
    memory.flush_holder.begun(waiter, static_cast<uint32_t>(pages.size()), actions);
    perform_flush(host, actions);
}

void Cluster::start_store_flush(SimHost& host, VolumeId volume, uint64_t ticket) {
    Task task{.kind = Task::Kind::store_flushed,
              .host = host.id,
              .epoch = host.epoch,
              .number = ticket,
              .page = PageId::of(volume, 0)};
    for (const auto& [page, bytes] : host.memory.home_bytes)
        if (page.volume() == volume) task.bytes.emplace_back(page, bytes);
    schedule(store_.below(scenario_.store_delay_max), std::move(task));
}

void Cluster::finish_store_flush(SimHost& host, const Task& task) {
    if (scenario_.store_fails_percent != 0 && disturbances_.chance(scenario_.store_fails_percent)) fail_store(host);
    for (const auto& [page, bytes] : task.bytes) {
        // The device may have dropped any of it.
        if (host.store_failed && disturbances_.chance(50)) continue;
        Bytes& stored = host.store[page];
        if (stored.page_version < bytes.page_version) stored = bytes;
    }
    // Others may hear of it only when they come to the store themselves.
    if (host.store_failed && disturbances_.chance(50)) heed_store_failure(host);
    protocol::FlushActions actions;
    host.memory.flush_home.on_store_flushed(task.number, host.store_failed, host.verifier(), actions);
    perform_flush(host, actions);
}

// Counts the races that this event is one side of.
void Cluster::observe(const SimHost& host, const Event& event) {
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
        if (holding->evicting) coverage_.reached(Sometimes::eviction_met_an_order);
        if (holding->writing_back) coverage_.reached(Sometimes::write_back_met_a_move);
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
        host.stripe_of(event.page).home().for_each_order(*claim, [&](const protocol::Request& order) {
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

// What became of the pages of one message.
void Cluster::observe_batch(const SimHost& host, const Task& task) {
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
            held += protocol::contains(claim->holders(), task.from);
            resolves |= claim->resolving || host.memory.recovery.recovering();
            home.for_each_order(*claim, [&](const protocol::Request& order) {
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
