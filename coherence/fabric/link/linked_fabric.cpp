#include "coherence/fabric/link/linked_fabric.hpp"

#include <algorithm>

#include "utils/clock.hpp"
#include "utils/log.hpp"

namespace tarn {

using namespace std::chrono_literals;

namespace {

constexpr auto retry_min = 50ms;
constexpr auto retry_max = 1000ms;
constexpr auto handshake_max = 5s;
constexpr auto move_max = 1s;  // while the other side waits
// How long to wait for a peer that should connect, before asking it why it does not.
constexpr auto absent_wait_min = 2000ms;
constexpr auto absent_wait_max = 60'000ms;
// The capacity that links' buffers keep: in all, unless there are too many links; and each, at least and at most.
constexpr size_t buffers_bytes_max = 4 << 20;
constexpr size_t buffer_bytes_min = 64 << 10;
constexpr size_t buffer_bytes_max = 2 << 20;

// Lists a handshake under way, and ends it if it takes too long.
class Deadline {
  public:
    Deadline(Loop& loop, Connection& connection, std::vector<Connection*>& under_way,
             std::chrono::seconds limit = handshake_max)
        : timer_(loop), connection_(connection), under_way_(under_way) {
        under_way_.push_back(&connection);
        gate_.spawn(watch(*this, limit));
    }
    Task<> end() {
        std::erase(under_way_, &connection_);
        timer_.cancel();
        co_await gate_.close();
    }

  private:
    static Task<> watch(Deadline& self, std::chrono::seconds limit) {
        if (co_await self.timer_.sleep(limit)) self.connection_.shut_down();
    }
    Timer timer_;
    Gate gate_;
    Connection& connection_;
    std::vector<Connection*>& under_way_;
};

// Wherever that is by then.
template <class Function>
void call_on_shard(Link& link, Function function) {
    struct Call final : Loop::Posted {
        Call(Link& of, Function what) : link(of), function(std::move(what)) {}
        void run() override {
            if (&link.loop() != Loop::current()) return link.loop().post(*this);
            function();
            delete this;
        }
        Link& link;
        Function function;
    };
    link.loop().post(*new Call(link, std::move(function)));
}

}  // namespace

LinkedFabric::LinkedFabric(LinkedFabricConfiguration configuration, std::unique_ptr<Transport> transport,
                           Receiver& receiver)
    : configuration_(std::move(configuration)),
      transport_(std::move(transport)),
      handshake_(configuration_, receiver),
      corked_(configuration_.shards) {
    const size_t buffer_bytes = std::clamp(buffers_bytes_max / (2 * std::max<size_t>(configuration_.peers.size(), 1)),
                                           buffer_bytes_min, buffer_bytes_max);
    for (const auto& peer : configuration_.peers) {
        Loop& loop = *configuration_.shards[peer.host % configuration_.shards.size()];
        links_[peer.host] = std::make_unique<Link>(loop, peer.host, name_of(peer.host), receiver, calls_, buffer_bytes,
                                                   configuration_.listen_for, drained_, corked_);
    }
}

void LinkedFabric::add_upgrade(std::unique_ptr<Transport> transport) {
    handshake_.offer({.kind = transport->kind(), .text = transport->offer()});
    upgrades_.push_back(std::move(transport));
}

void LinkedFabric::cork() {
    if (Link::Corked* const corked = corked_.here()) ++corked->depth;
}

void LinkedFabric::uncork() {
    Link::Corked* const corked = corked_.here();
    if (!corked || --corked->depth > 0) return;
    for (Link* const link : corked->links) link->uncork();
    corked->links.clear();
}

void LinkedFabric::start() {
    Loop& here = *configuration_.shards.front();
    here.spawn(accept_all(*transport_));
    for (const auto& upgrade : upgrades_) here.spawn(accept_all(*upgrade));
    for (const auto& peer : configuration_.peers)
        here.spawn(peer.host < configuration_.self ? keep_connected(*links_[peer.host], peer.address)
                                                   : ask_the_absent(*links_[peer.host], peer.address));
}

void LinkedFabric::stop() {
    stopping_ = true;
    for (Timer* const pause : pauses_) pause->cancel();
    // Shut down, too: after a step that has just ended, another one must not wait.
    for (Connection* const connection : handshakes_) {
        connection->shut_down();
        connection->cancel();
    }
    transport_->stop();
    for (const auto& upgrade : upgrades_) upgrade->stop();
    for (HostId host = 0; host < hosts_max; ++host)
        if (Link* const link = links_[host].get()) call_on_shard(*link, [link] { link->end(); });
}

size_t LinkedFabric::links_on(const Loop& shard) const {
    return static_cast<size_t>(
        std::ranges::count_if(links_, [&](const auto& link) { return link && &link->loop() == &shard; }));
}

uint64_t LinkedFabric::received_count(protocol::MessageKind kind) const {
    uint64_t count = 0;
    for (const auto& link : links_)
        if (link) count += link->received_count(kind);
    return count;
}

void LinkedFabric::disconnect(HostId from) {
    call_on_shard(*links_[from], [&link = *links_[from]] { link.close(); });
}

void LinkedFabric::send(HostId to, const protocol::Message& message, std::span<const std::byte> payload) {
    TARN_ASSERT(to < hosts_max && links_[to]);
    links_[to]->send(message, payload);
}

Task<Result<std::string>> LinkedFabric::call(HostId to, CallKind kind, std::string request) {
    if (to >= hosts_max || !links_[to]) co_return fail(Errc::unavailable, 0, "fabric.call: no such host");
    co_return co_await links_[to]->call(kind, std::move(request));
}

Task<> LinkedFabric::pause(std::chrono::nanoseconds duration) {
    Timer timer(*Loop::current());
    pauses_.push_back(&timer);
    if (!stopping_) co_await timer.sleep(duration);
    std::erase(pauses_, &timer);
}

Task<> LinkedFabric::accept_all(Transport& transport) {
    Loop& loop = *Loop::current();
    while (!stopping_) {
        Result<std::unique_ptr<Connection>> accepted = co_await transport.accept();
        if (accepted) {
            if (!stopping_) loop.spawn(meet(std::move(*accepted)));
        } else if (accepted.error().code != Errc::cancelled) {
            co_await pause(100ms);  // out of descriptors, most likely
        }
    }
}

Task<> LinkedFabric::meet(std::unique_ptr<Connection> connection) {
    Deadline deadline(*Loop::current(), *connection, handshakes_);
    const std::string name = connection->peer_name();  // read now: the peer may be gone later
    Strangers::Visit visit(strangers_, *connection);
    HostId claimed = no_host;
    Result<Handshake::Met> met = co_await handshake_.accept(*connection, claimed);
    if (!visit.has_place()) met = fail(Errc::refused, 0, "fabric.handshake: it made room for others");
    visit.leave();
    co_await deadline.end();
    if (!met) {
        // Anybody who reaches the port may claim to be a host: the error is shown only while that host has no link.
        if (claimed != no_host) troubles_[claimed] = log::explain(met.error());
        if (met.error().code == Errc::unavailable || stopping_) co_return;  // already logged, or no news
        if (const std::optional<std::string> left_out = refusals_.admit())
            log::warning("fabric: refused a connection from {}: {}{}", name, log::describe(met.error()), *left_out);
        co_return;
    }
    if (!stopping_ && !met->has_moved) hand_over(*links_[met->peer.host], std::move(connection), met->peer.process);
}

void LinkedFabric::hand_over(Link& link, std::unique_ptr<Connection> connection, Process process) {
    troubles_[link.peer()].clear();
    Loop& shard = shard_for(link, *connection);
    link.take_over(std::move(connection), process, shard);
}

// Where the kernel takes in what the peer sends, so that nothing has to cross CPUs. Of several shards there, each gets
// its part of the peers. Over shared memory both ends choose the same one, as each wakes the other.
Loop& LinkedFabric::shard_for(const Link& link, const Connection& connection) const {
    if (connection.kind() == TransportKind::shm)
        return *configuration_.shards[(configuration_.self + link.peer()) % configuration_.shards.size()];
    const std::optional<unsigned> cpu = connection.incoming_cpu();
    std::vector<Loop*> there;
    for (Loop* const shard : configuration_.shards)
        if (cpu && shard->cpus().contains(*cpu)) there.push_back(shard);
    return there.empty() ? link.loop() : *there[link.peer() % there.size()];
}

Task<> LinkedFabric::keep_connected(Link& link, std::string address) {
    std::chrono::nanoseconds retry = retry_min;
    std::string said;
    while (!stopping_) {
        Result<Linked> linked = co_await link_with(link.peer(), address);
        if (stopping_) co_return;
        if (linked) {
            said.clear();
            const uint64_t began_ns = monotonic_ns();
            hand_over(link, std::move(linked->connection), linked->process);
            co_await link.idle();
            // One that breaks at once, again and again, is no better than none.
            if (std::chrono::nanoseconds(monotonic_ns() - began_ns) > retry_max) {
                retry = retry_min;
                continue;
            }
        } else {
            std::string reason = log::describe(linked.error());
            troubles_[link.peer()] = log::explain(linked.error());
            if (reason != said) log::warning("fabric: no link with host {} at {}: {}", link.name(), address, reason);
            said = std::move(reason);
        }
        co_await pause(retry);
        retry = std::min<std::chrono::nanoseconds>(retry * 2, retry_max);
    }
}

// Over the best transport that both have.
Task<Result<LinkedFabric::Linked>> LinkedFabric::link_with(HostId host, std::string address) {
    std::unique_ptr<Connection> connection = transport_->open(address);
    Deadline deadline(*Loop::current(), *connection, handshakes_);
    Result<Handshake::Met> met = fail(Errc::unavailable);
    Result<Linked> moved = fail(Errc::unsupported);
    if (const Result<> connected = co_await connection->connect(); !connected)
        met = fail(connected.error());
    else
        met = co_await handshake_.connect(*connection, host);
    if (met && !met->offers.empty()) {
        moved = co_await move(host, met->offers);
        const Decision decision = moved ? Decision::has_moved : Decision::stays;
        if (const Result<> told = co_await Handshake::decide(*connection, decision); !told && !moved)
            met = fail(told.error());
    }
    co_await deadline.end();
    if (moved) co_return std::move(*moved);
    CO_TRY_VOID(met);
    co_return Linked{.connection = std::move(connection), .process = met->peer.process};
}

// Errors: unsupported (they have none in common); as Handshake::connect().
Task<Result<LinkedFabric::Linked>> LinkedFabric::move(HostId host, const std::vector<Offer>& offers) {
    std::string reason;
    Result<Linked> moved = fail(Errc::unsupported);
    for (const auto& upgrade : upgrades_) {
        const auto offer = std::ranges::find(offers, upgrade->kind(), &Offer::kind);
        if (offer == offers.end()) continue;
        const std::optional<std::string> address = upgrade->address_in(offer->text);
        if (!address) continue;
        std::unique_ptr<Connection> connection = upgrade->open(*address);
        Deadline deadline(*Loop::current(), *connection, handshakes_, move_max);
        Result<> done = co_await connection->connect();
        if (done) {
            const Result<Handshake::Met> met = co_await handshake_.connect(*connection, host);
            if (met) moved = Linked{.connection = std::move(connection), .process = met->peer.process};
            done = met ? Result<>() : fail(met.error());
        }
        co_await deadline.end();
        if (moved) break;
        reason = std::string(tarn::name_of(upgrade->kind())) + ": " + log::describe(done.error());
    }
    if (!stopping_ && std::exchange(stays_[host], reason) != reason && !reason.empty())
        log::warning("fabric: the link with host {} stays on {}; over {}", name_of(host),
                     tarn::name_of(transport_->kind()), reason);
    co_return moved;
}

// If each of two hosts believes that the other must connect, none does. So a host that waits for a peer also asks it.
Task<> LinkedFabric::ask_the_absent(Link& link, std::string address) {
    std::chrono::nanoseconds wait = absent_wait_min;
    bool said = false;
    while (!stopping_) {
        co_await pause(wait);
        wait = std::min<std::chrono::nanoseconds>(wait * 2, absent_wait_max);
        if (stopping_ || link.up()) continue;
        const Result<> compared = co_await compare_lists(address);
        if (!compared && !link.up()) troubles_[link.peer()] = log::explain(compared.error());
        if (!compared && compared.error().code == Errc::refused && !std::exchange(said, true))
            log::warning("fabric: no link with host {} at {}: {}", link.name(), address,
                         log::describe(compared.error()));
    }
}

Task<Result<>> LinkedFabric::compare_lists(std::string address) {
    const std::unique_ptr<Connection> connection = transport_->open(address);
    Deadline deadline(*Loop::current(), *connection, handshakes_);
    Result<> done = co_await connection->connect();
    if (done) done = co_await handshake_.compare_lists(*connection);
    co_await deadline.end();
    co_return done;
}

}  // namespace tarn
