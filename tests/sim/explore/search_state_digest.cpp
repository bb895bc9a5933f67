// SearchState: its parts that decide what happens next, and the states that behave alike.
#include <algorithm>
#include <span>

#include "tests/sim/explore/canonical.hpp"
#include "tests/sim/explore/search_state.hpp"
#include "tests/sim/support/failure.hpp"

namespace tarn::sim {

using protocol::Digest;
using protocol::Message;
using protocol::MessageKind;

namespace {

// The hosts that are not the page's home may change places.
constexpr std::array<Canonical::Names, 2> ways{Canonical::Names{0, 1, 2}, Canonical::Names{0, 2, 1}};

// Allocated once.
struct Scratch {
    Canonical canonical;
    std::array<Digest, 64> messages;
    Digest log;
};
Scratch scratch;

void add_version(Digest& digest, uint8_t version, uint8_t garbage) {
    version == garbage ? digest.add('-') : digest.version(version);
}

}  // namespace

SearchState::Hosts::Slot& SearchState::Hosts::Slot::operator=(const Slot& other) {
    if (stamp == other.stamp) return *this;
    host = other.host;
    stamp = other.stamp;
    digest = other.digest;
    digest_stamp = other.digest_stamp;
    return *this;
}

const Digest& SearchState::Hosts::digest(HostId id) const {
    const Slot& slot = slots_[id];
    if (slot.digest_stamp != slot.stamp) record_host(id, slot.host, slot.digest);
    slot.digest_stamp = slot.stamp;
    return slot.digest;
}

void SearchState::record_host(HostId id, const Host& host, Digest& digest) {
    digest.clear();
    digest.add(host.is_up, !host.recovery.recovering(), host.loss_due, host.is_busy,
               host.is_busy ? host.operation : What{}, host.incarnation, host.loss_generation);
    digest.hosts(host.recovery.reported());
    if (host.is_busy && host.operation == What::flush) add_version(digest, host.cover, garbage);
    // Which frame is which, but not its place.
    if (host.bound != no_frame) digest.add(host.frames[host.bound].access);
    const protocol::Holding* holding = host.stripe.holder().find(page);
    const auto add_frame = [&](FrameId frame_id) {
        if (frame_id == no_frame) return digest.add('-');
        const Frame& frame = host.frames[frame_id];
        add_version(digest, frame.version, garbage);
        digest.add(frame.dirty, frame.writing, frame.access);
    };
    add_frame(host.bound);
    if (holding != nullptr) {
        add_frame(holding->frame);
        add_frame(holding->kept_frame);
        if (holding->awaited.request_id != 0) add_frame(holding->awaited.landing);
    }
    for (const Woken& woken : host.woken) digest.add(woken.operation);
    digest.add('|');
    host.stripe.holder().digest(page, digest);
    host.flush_holder.digest(digest);
    digest.add('|');
    host.flush_requester.digest(digest);
    if (id != 0) return;
    for (const StoreFlush& each : host.store_flushes) {
        digest.ticket(id, each.ticket);
        add_version(digest, each.bytes.version, garbage);
        digest.version(each.bytes.page_version);
    }
    digest.add('|');
    for (const Bytes& bytes : {host.home_bytes, host.stored}) {
        add_version(digest, bytes.version, garbage);
        digest.version(bytes.page_version);
    }
    host.stripe.home().digest(page, digest);
    host.flush_home.digest(digest);
}

void SearchState::record_message(const InFlight& each, Digest& digest) {
    digest.clear();
    const Message& message = each.message;
    digest.host(each.from);
    digest.host(each.to);
    digest.add(each.of_hello, each.ends_hello);
    if (each.ends_hello) return;
    digest.add(message.kind, message.flags, message.dirty, message.sequence);
    digest.host(message.host);
    if (protocol::is_from_home(message.kind)) digest.add(message.incarnation, message.loss_generation);
    add_version(digest, each.version, garbage);
    switch (message.kind) {
        case MessageKind::flush:
            digest.flush(each.from, message.request_id);
            return digest.add(message.hosts, message.tenure);
        case MessageKind::flushed: digest.flush(each.to, message.request_id); return digest.add(message.hosts);
        case MessageKind::flush_ask:
        case MessageKind::flush_answer: return digest.ask(0, message.request_id);
        // Requests are not about a tenure, and `done` is known by its request.
        case MessageKind::get_shared:
        case MessageKind::get_exclusive:
        case MessageKind::get_exclusive_no_read:
        case MessageKind::done: break;
        case MessageKind::report:
        case MessageKind::recall:
        case MessageKind::hello:
            digest.tenure(message.hosts);
            digest.tenure(message.tenure);
            break;
        default:
            digest.hosts(message.hosts);
            digest.tenure(message.tenure);
            break;
    }
    // Orders carry their requester's ids, answers those of their receiver, requests those of their sender.
    const bool is_order = message.host != no_host && message.kind != MessageKind::grant;
    const HostId requester = protocol::is_for_home(message.kind) ? each.from : is_order ? message.host : each.to;
    digest.request(requester, message.request_id);
}

// The writes that may be read, or found to be lost. Of several writes whose bytes nobody has, and that will be lost, or
// not, together, the last stands for all.
void SearchState::record_log(const Canonical& known, Digest& digest) const {
    digest.clear();
    const bool may_lose = crashed_ > 0 || crashes_left_ > 0;
    const auto are_alike = [&](const Write& one, const Write& other) {
        if (one.noted != other.noted) return false;
        if (crashes_left_ == 0) return may_be_lost(one) == may_be_lost(other);
        return one.writer == other.writer && one.writer_incarnation == other.writer_incarnation &&
               one.home_incarnation == other.home_incarnation;
    };
    for (size_t index = 0; index < log_.size(); ++index) {
        const Write& write = log_[index];
        const bool is_last = index + 1 == log_.size();
        // Nothing before a flushed one may be read any more, nor without a crash before the last.
        if (write.version < flushed_ || (!may_lose && !is_last)) continue;
        if (!is_last && !known.knows(Canonical::Sort::version, write.version) && are_alike(write, log_[index + 1]))
            continue;
        digest.version(write.version);
        if (!may_lose) continue;
        digest.add(write.noted, may_be_lost(write));
        if (crashes_left_ == 0) continue;
        digest.host(write.writer);
        digest.add(write.writer_incarnation, write.home_incarnation);
    }
    digest.add('|');
    digest.version(flushed_);
}

uint64_t SearchState::digest() const {
    auto& [canonical, messages, log] = scratch;
    size_t message_count = 0;
    canonical.clear();
    for (HostId id = 0; id < world_hosts; ++id) {
        canonical.learn(hosts_.digest(id).words());
    }
    for (const InFlight& each : network_) {
        if (is_spent(each)) continue;
        require(message_count < messages.size(), "more messages than a world has room for");
        record_message(each, messages[message_count]);
        canonical.learn(messages[message_count++].words());
    }
    record_log(canonical, log);
    canonical.learn(log.words());
    canonical.rank();

    uint64_t least = ~uint64_t{0};
    // But a home that restarts makes the first of several readers the anchor: until then the hosts are not alike.
    const bool may_swap = crashes_left_ == 0 && !hosts_[0].recovery.recovering();
    for (const Canonical::Names& names : std::span(ways).first(may_swap ? 2 : 1)) {
        uint64_t hash = crashed_;
        for (HostId id = 0; id < world_hosts; ++id) {
            hash = Digest::mix(hash, canonical.hash(hosts_.digest(names[id]), names));
            uint64_t met = 0;
            for (HostId peer = 0; peer < world_hosts; ++peer) met = met << 8 | hosts_[names[id]].met[names[peer]];
            hash = Digest::mix(hash, met);
        }
        // The network is a set: its messages are added up.
        uint64_t sum = 0;
        for (size_t index = 0; index < message_count; ++index) sum += mix64(canonical.hash(messages[index], names));
        hash = Digest::mix(hash, sum);
        least = std::min(least, mix64(Digest::mix(hash, canonical.hash(log, names))));
    }
    return least;
}

}  // namespace tarn::sim
