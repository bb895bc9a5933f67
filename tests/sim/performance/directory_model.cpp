#include "tests/sim/performance/directory_model.hpp"

#include <algorithm>
#include <utility>

#include "utils/assert.hpp"

namespace tarn::sim_performance {

using protocol::Ownership;

namespace {

// Tells that a request is over. The next request waits for this; nobody waits for tarn's `done`.
constexpr MessageKind finished_kind = MessageKind::report;

}  // namespace

DirectoryModel::DirectoryModel(Machine& machine, const ModelOptions& options)
    : machine_(machine),
      options_(options),
      entries_(options.page_count),
      held_(options.page_count * machine.host_count()),
      operations_(machine.host_count()) {
    machine.set_receiver([this](HostId to, const Message& message) { receive(to, message); });
}

// A host needs no message to itself.
void DirectoryModel::post(HostId from, HostId to, Message message) {
    message.from = from;
    if (from != to) return machine_.send(from, to, message);
    machine_.at(machine_.now(), [this, to, message] { receive(to, message); });
}

void DirectoryModel::receive(HostId to, const Message& message) {
    const uint64_t page = message.page.number();
    switch (message.kind) {
        case MessageKind::get_shared:
        case MessageKind::get_exclusive: at_home(message); break;
        case finished_kind: done(message); break;
        case MessageKind::grant: on_grant(to, message); break;
        case MessageKind::refused: on_refused(to, message); break;
        case MessageKind::data:
        case MessageKind::acknowledge: {
            Held& mine = held(to, page);
            if (mine.request != message.request_id) break;
            mine.heard |= set_of(message.from);
            mine.has_bytes |= message.kind == MessageKind::data;
            advance(to, page);
            break;
        }
        default:
            held(to, page).orders.push_back(message);
            advance(to, page);
            break;
    }
}

// --- home ---

void DirectoryModel::at_home(const Message& request) {
    Entry& entry = entries_[request.page.number()];
    if (options_.queue != ModelOptions::Queue::chain && std::exchange(entry.busy, true)) {
        if (options_.queue == ModelOptions::Queue::fifo) return entry.queue.push_back(request);
        Message busy = request;
        busy.kind = MessageKind::refused;
        return post(home_of(request.page.number()), request.from, busy);
    }
    order(request);
}

void DirectoryModel::done(const Message& message) {
    Entry& entry = entries_[message.page.number()];
    entry.busy = !entry.queue.empty();
    if (!entry.busy) return;
    const Message next = entry.queue.front();
    entry.queue.pop_front();
    order(next);
}

void DirectoryModel::order(const Message& request) {
    Entry& entry = entries_[request.page.number()];
    const HostId home = home_of(request.page.number());
    const bool is_read = request.kind == MessageKind::get_shared;
    MessageKind kind{};
    HostId source = no_host;
    HostSet holders = 0;  // who must answer the requester
    bool needs_bytes = true;
    if (is_read && entry.owner == no_host) {
        kind = MessageKind::copy;
        source = entry.source;
        holders = set_of(source);
        entry.readers |= set_of(request.from);
    } else if (is_read) {
        const bool steals = options_.on_read == ModelOptions::OnRead::steal;
        kind = steals ? MessageKind::move : MessageKind::move_shared;
        source = entry.owner;
        holders = set_of(source);
        ++entry.tenure;
        entry.readers = set_of(request.from) | (steals ? 0 : set_of(source));
        entry.source = steals ? request.from : source;
        entry.owner = no_host;
    } else {
        kind = entry.owner != no_host ? MessageKind::move : MessageKind::drop;
        needs_bytes = !contains(entry.readers, request.from);
        source = !needs_bytes ? no_host : entry.owner != no_host ? entry.owner : entry.source;
        holders = (entry.readers | set_of(entry.owner)) & ~set_of(request.from);
        ++entry.tenure;
        entry.owner = entry.source = request.from;
        entry.readers = 0;
    }
    Message grant = request;
    grant.kind = MessageKind::grant;
    grant.tenure = entry.tenure;
    grant.hosts = holders;
    grant.host = source;
    grant.sequence = static_cast<uint32_t>(kind);  // for a requester that asks the holders itself
    grant.flags = needs_bytes ? protocol::flag_bytes : 0;
    if (needs_bytes && source == no_host) grant.flags |= protocol::flag_payload;
    post(home, request.from, grant);
    if (options_.resolves == ModelOptions::Resolves::home)
        for_each_host(holders,
                      [&](HostId holder) { tell(holder, kind, request, entry.tenure, holder == source, home); });
}

void DirectoryModel::tell(HostId to, MessageKind kind, const Message& request, Tenure tenure, bool with_bytes,
                          HostId from) {
    Message order;
    order.kind = kind;
    order.page = request.page;
    order.tenure = tenure;
    order.host = request.from;
    order.request_id = request.request_id;
    order.flags = with_bytes ? protocol::flag_bytes : 0;
    post(from, to, order);
}

// --- holders ---

bool DirectoryModel::suffices(const Held& held, const Operation& operation) {
    return held.ownership == Ownership::exclusive ||
           (held.ownership == Ownership::shared && operation.kind == Operation::Kind::read);
}

void DirectoryModel::start(HostId host, unsigned client, const Operation& operation) {
    if (client >= operations_[host].size()) operations_[host].resize(client + 1);
    operations_[host][client] = operation;
    Held& mine = held(host, operation.page);
    if (suffices(mine, operation) && mine.orders.empty()) return access(host, client, true);
    machine_.at(machine_.now() + machine_.costs().message_cpu, [this, host, client, page = operation.page] {
        held(host, page).waiters.push_back(client);
        advance(host, page);
    });
}

void DirectoryModel::access(HostId host, unsigned client, bool was_hit) {
    const Operation& operation = operations_[host][client];
    const bool writes = operation.kind != Operation::Kind::read;
    const Time ends = held(host, operation.page).latch.enter(machine_.now(), machine_.costs().access, writes);
    machine_.at(ends, [this, host, client, was_hit, page = operation.page] {
        --held(host, page).latch.inside;
        advance(host, page);
        finished(host, client, was_hit);
    });
}

void DirectoryModel::request(HostId host, uint64_t page) {
    Held& mine = held(host, page);
    const bool writes = std::ranges::any_of(
        mine.waiters, [&](unsigned client) { return operations_[host][client].kind != Operation::Kind::read; });
    mine.request = ++last_request_;
    mine.asked = writes ? MessageKind::get_exclusive : MessageKind::get_shared;
    mine.granted = 0;
    mine.has_bytes = false;
    mine.heard = 0;
    Message message;
    message.kind = mine.asked;
    message.page = PageId::of(0, page);
    message.request_id = mine.request;
    post(host, home_of(page), message);
}

void DirectoryModel::on_grant(HostId host, const Message& grant) {
    Held& mine = held(host, grant.page.number());
    TARN_ASSERT(mine.request == grant.request_id);
    mine.granted = grant.tenure;
    mine.needs_bytes = grant.has(protocol::flag_bytes);
    mine.has_bytes |= grant.has(protocol::flag_payload);
    mine.ackers = grant.hosts;
    if (options_.resolves == ModelOptions::Resolves::requester) {
        Message request = grant;
        request.from = host;
        for_each_host(grant.hosts, [&](HostId holder) {
            tell(holder, static_cast<MessageKind>(grant.sequence), request, grant.tenure, holder == grant.host, host);
        });
    }
    advance(host, grant.page.number());
}

// Refused by home, which is busy; or by a reader that lost the page before it could copy it: then this host's own turn
// as a reader is over, too.
void DirectoryModel::on_refused(HostId host, const Message& refused) {
    const uint64_t page = refused.page.number();
    Held& mine = held(host, page);
    if (mine.request != refused.request_id) return;
    if (mine.granted != 0) {
        mine.tenure = mine.granted;
        mine.request = 0;
        return advance(host, page);
    }
    machine_.at(machine_.now() + options_.back_off + machine_.costs().message_cpu, [this, host, page] {
        Message again;
        again.kind = held(host, page).asked;
        again.page = PageId::of(0, page);
        again.request_id = held(host, page).request;
        post(host, home_of(page), again);
    });
}

// True if the order was served, or refused.
bool DirectoryModel::serve(HostId host, uint64_t page, const Message& order) {
    Held& mine = held(host, page);
    Message answer;
    answer.page = order.page;
    answer.tenure = order.tenure;
    answer.request_id = order.request_id;
    answer.kind = order.has(protocol::flag_bytes) ? MessageKind::data : MessageKind::acknowledge;
    answer.flags = order.has(protocol::flag_bytes) ? protocol::flag_payload : 0;
    if (order.kind == MessageKind::copy) {
        if (mine.tenure < order.tenure) return false;
        if (mine.tenure > order.tenure || mine.ownership != Ownership::shared) {
            answer.kind = MessageKind::refused;
            answer.flags = 0;
        }
    } else {
        if (mine.tenure + 1 != order.tenure || mine.latch.inside != 0) return false;
        const bool stays = order.kind == MessageKind::move_shared;
        mine.ownership = stays ? Ownership::shared : Ownership::none;
        if (stays) mine.tenure = order.tenure;
    }
    post(host, order.host, answer);
    return true;
}

void DirectoryModel::complete(HostId host, uint64_t page) {
    Held& mine = held(host, page);
    if (options_.queue != ModelOptions::Queue::chain) {
        Message done;
        done.kind = finished_kind;
        done.page = PageId::of(0, page);
        post(host, home_of(page), done);
    }
    mine.request = 0;
    mine.tenure = mine.granted;
    mine.ownership = mine.asked == MessageKind::get_shared ? Ownership::shared : Ownership::exclusive;
    std::vector<unsigned> waiters = std::exchange(mine.waiters, {});
    for (const unsigned client : waiters) {
        if (suffices(mine, operations_[host][client]))
            access(host, client, false);
        else
            held(host, page).waiters.push_back(client);
    }
}

void DirectoryModel::advance(HostId host, uint64_t page) {
    Held& mine = held(host, page);
    if (mine.request != 0 && mine.complete()) complete(host, page);
    for (size_t i = 0; i < mine.orders.size();) {
        const Message order = mine.orders[i];
        if (!serve(host, page, order)) {
            ++i;
            continue;
        }
        mine.orders.erase(mine.orders.begin() + static_cast<std::ptrdiff_t>(i));
        i = 0;
    }
    if (mine.request != 0 || mine.waiters.empty()) return;
    if (!mine.orders.empty() && mine.ownership != Ownership::none) return;  // they come first
    std::vector<unsigned> waiters = std::exchange(mine.waiters, {});
    for (const unsigned client : waiters) {
        if (suffices(mine, operations_[host][client]))
            access(host, client, true);
        else
            mine.waiters.push_back(client);
    }
    if (!mine.waiters.empty()) request(host, page);
}

}  // namespace tarn::sim_performance
