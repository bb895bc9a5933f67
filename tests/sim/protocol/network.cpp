// SimCluster: links that come and go, and messages, which are delayed, reordered and joined.
#include <algorithm>

#include "coherence/protocol/admission.hpp"
#include "coherence/protocol/lent_frame.hpp"
#include "tests/sim/protocol/sim_cluster.hpp"
#include "tests/sim/support/failure.hpp"

namespace tarn::sim {

namespace {
constexpr uint32_t view_epoch = 1;
}

void SimCluster::set_link_down(HostId a, HostId b) {
    for (const auto [from, to] : {std::pair(a, b), std::pair(b, a)}) {
        is_stuck_[from][to] = false;
        if (!stuck_[from][to].empty()) coverage_.reached(Sometimes::stuck_messages_lost);
        stuck_[from][to].clear();
    }
    link_is_up_[a][b] = link_is_up_[b][a] = false;
    link_epoch_[a][b] = ++link_epoch_[b][a];
}

void SimCluster::link_up(HostId a, HostId b) {
    if (!hosts_[a].is_up || !hosts_[b].is_up || link_is_up_[a][b] || link_is_up_[b][a]) return;
    link_epoch_[a][b] = ++link_epoch_[b][a];
    if (scenario_.late_side_max != 0) {
        if (disturbances_.chance(50)) std::swap(a, b);
        link_is_up_[a][b] = true;
        const Time later = disturbances_.between(1, scenario_.late_side_max);
        hello(a, b, later);
        return schedule(later, {.kind = Task::Kind::side_up,
                                .host = b,
                                .from = a,
                                .epoch = hosts_[b].epoch,
                                .link_epoch = link_epoch_[a][b]});
    }
    link_is_up_[a][b] = link_is_up_[b][a] = true;
    hello(a, b, 0);
    hello(b, a, 0);
}

// Until now it sent nothing over the link, nor did it take in anything.
void SimCluster::side_up(HostId host, HostId peer) {
    link_is_up_[host][peer] = true;
    hello(host, peer, 0);
}

void SimCluster::step_all(SimHost& host, Event event) {
    for (unsigned stripe = 0; stripe < stripes_per_host; ++stripe) {
        event.waiter = stripe;
        step(host, event);
    }
}

// `host` meets `peer` over a new link: these messages arrive before all its others on this link, and not before the
// other side is up, in so much time.
void SimCluster::hello(HostId host_id, HostId peer_id, Time until_up) {
    SimHost& host = hosts_[host_id];
    const SimHost& peer = hosts_[peer_id];
    const Process previous = std::exchange(host.memory.met[peer_id], peer.process());
    if (previous != peer.process()) host.memory.failed_stores &= ~set_of(peer_id);
    if (host.memory.recovery.recovering() && has_lost_memory(previous, peer.process())) host.begin_unrecorded_losses();
    host.memory.recovery.on_returned(peer_id);
    host.memory.recovery.on_link_up(peer_id);
    saying_hello_to_ = peer_id;
    hello_time_ = now_ + until_up + network_.between(1, scenario_.delay_max);
    step_all(host, Event::peer_up_of(peer_id, peer.process(), previous));
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

// A host that opens a volume learns the verifier of each home, once that home knows what it has lost.
void SimCluster::open_volumes(SimHost& host, const SimHost& home) const {
    if (home.memory.recovery.recovering()) return;
    for (const PageId page : pages_) hear(host, home.id, page.volume(), home.verifier());
}

void SimCluster::hear(SimHost& host, HostId home, VolumeId volume, protocol::Verifier verifier) {
    host.memory.flush_requester.heard(volume, home, verifier);
    host.memory.heard[home] = protocol::loss_generation_of(verifier);
}

void SimCluster::stamp(HostId from, protocol::Message& message) const {
    message.from = from;
    message.view_epoch = view_epoch;
    message.map_epoch = ranges_.epoch();
    message.incarnation = hosts_[from].incarnation;
    message.loss_generation = hosts_[from].loss_generation;
}

void SimCluster::transmit(HostId from, HostId to, protocol::Message message, const Content* content) {
    stamp(from, message);
    carry(from, to, message, content);
}

// A transport may take the bytes from the frame long after it got the message; it sends them over the link of that
// moment or not at all. Until then the executor pins the frame. True: this message is such a case.
bool SimCluster::send_later(SimHost& host, HostId to, protocol::Message message, FrameId id) {
    if (scenario_.late_sends_percent == 0 || !link_is_up_[host.id][to] || saying_hello_to_ != no_host) return false;
    if (!disturbances_.chance(scenario_.late_sends_percent)) return false;
    coverage_.reached(Sometimes::bytes_sent_late);
    stamp(host.id, message);
    Frame& frame = host.memory.frames[id];
    ++frame.sends;
    schedule(disturbances_.between(1, scenario_.late_sends_max), {.kind = Task::Kind::leave,
                                                                  .host = host.id,
                                                                  .from = to,
                                                                  .epoch = host.epoch,
                                                                  .link_epoch = link_epoch_[host.id][to],
                                                                  .frame = id,
                                                                  .page = message.page,
                                                                  .message = message,
                                                                  .content = frame.content});
    return true;
}

// The bytes leave now, or their link is gone.
void SimCluster::finish_send(const Task& task, bool leaves) {
    HostMemory& memory = hosts_[task.host].memory;
    Frame& frame = memory.frames[task.frame];
    require(frame.used && frame.sends > 0 && frame.content == task.content,
            "I9: a buffer was written or used again before its bytes were sent");
    if (leaves) carry(task.host, task.from, task.message, &frame.content);
    --frame.sends;
    if (frame.released) {
        coverage_.reached(Sometimes::frame_freed_when_sent);
        memory.release(task.frame);
    }
}

void SimCluster::carry(HostId from, HostId to, const protocol::Message& message, const Content* content) {
    if (from != to && !link_is_up_[from][to]) {
        if (link_is_up_[to][from]) coverage_.reached(Sometimes::lost_before_its_side_was_up);
        return;
    }
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

// Like the link of a real host: a message that has not left may be joined with later ones.
bool SimCluster::join_last(const Task& task) {
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

void SimCluster::deliver(const Task& task) {
    SimHost& host = hosts_[task.host];
    require(protocol::validate(task.message).has_value(), "an invalid message was sent");
    require(protocol::validate(task.message, task.parts).has_value(), "a message with invalid parts was sent");
    for (size_t index = 0; index <= task.parts.size(); ++index) {
        const protocol::Message run = protocol::run_of(task.message, task.parts, index);
        if (task.from != task.host) {
            const protocol::Link link{.self = host.id,
                                      .peer = task.from,
                                      .process = host.memory.met[task.from],
                                      .hosts = (HostSet{1} << scenario_.host_count) - 1,
                                      .view_epoch = view_epoch,
                                      .map_epoch = ranges_.epoch()};
            const Result<> admitted = protocol::admit(run, link, ranges_.home_of(run.page), last_page_number);
            require(admitted.has_value(), "a correct host's message is not admitted");
        }
        for (uint32_t page = 0; page <= run.run; ++page) deliver_page(host, task, protocol::part_of(run, page));
    }
    if (task.message.run != 0 || !task.parts.empty()) observe_batch(host, task);
}

void SimCluster::tell_flush_home(SimHost& host, const protocol::Message& message, protocol::FlushActions& actions) {
    const size_t count = host.memory.flush_home.flush_count();
    host.memory.flush_home.on_message(message, actions);
    if (message.kind == protocol::MessageKind::flush && host.memory.flush_home.flush_count() == count)
        coverage_.reached(Sometimes::flush_repeated);
}

// Handles failed stores, of the page's home or of another host.
void SimCluster::note_failed_stores(SimHost& host, Event& event) {
    using protocol::MessageKind;
    const protocol::Message& message = event.message;
    const bool is_answer = message.kind == MessageKind::no_space || message.kind == MessageKind::refused;
    if (is_answer && message.has(protocol::flag_lost) && hosts_[message.from].store_failed)
        host.memory.failed_stores |= set_of(message.from);
    const bool brings_bytes = message.kind == MessageKind::evict || message.kind == MessageKind::write_back;
    const bool asks_to_write =
        message.kind == MessageKind::get_exclusive || message.kind == MessageKind::get_exclusive_no_read;
    if (!host.store_failed || !(brings_bytes || asks_to_write)) return;
    event.store_failed = true;
    if (brings_bytes && event.frame != no_frame) coverage_.reached(Sometimes::bytes_refused_by_failed_store);
    // Otherwise the flush that asked for it would wait for ever.
    if (message.kind == MessageKind::write_back) check_store_failure(host);
}

void SimCluster::deliver_page(SimHost& host, const Task& task, const protocol::Message& message) {
    if (protocol::is_from_home(message.kind))
        hear(host, task.from, message.page.volume(),
             protocol::verifier_of(message.incarnation, message.loss_generation));
    if (protocol::is_about_flush(message.kind)) {
        protocol::FlushActions actions;
        if (message.kind == protocol::MessageKind::flush_ask) return answer_flush_ask(host, message);
        if (message.kind == protocol::MessageKind::flushed)
            host.memory.flush_requester.on_message(message, actions);
        else if (message.kind == protocol::MessageKind::flush && host.store_failed)
            host.memory.flush_home.refuse(message, host.verifier(), actions);
        else
            tell_flush_home(host, message, actions);
        if (host.memory.flush_home.waits_for_copies()) coverage_.reached(Sometimes::flush_waited_for_a_copy);
        return perform_flush(host, actions);
    }
    Event event = Event::message_of(message);
    if (task.has_content) {
        // Straight into the lent frame, if it is still lent; or into one that the Holder then swaps in.
        const FrameId lent = protocol::lent_frame(host.stripe_of(message.page).holder().find(message.page), message);
        event.frame = lent != no_frame && network_.chance(50) ? lent : host.memory.allocate();
        require(host.memory.frames[event.frame].sends == 0, "I9: bytes come into a buffer that is being sent");
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
    note_failed_stores(host, event);
    event.wants_copy = message.kind == protocol::MessageKind::evict && store_.chance(scenario_.wants_copy_percent);
    step(host, event);
}

}  // namespace tarn::sim
