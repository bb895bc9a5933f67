#include "coherence/fabric/link/linked_fabric.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cstring>

#include "coherence/fabric/transport/tcp/address.hpp"
#include "utils/log.hpp"
#include "utils/run_on.hpp"

namespace tarn {

using namespace std::chrono_literals;

namespace {

constexpr auto retry_min = 50ms;
constexpr auto retry_max = 1000ms;
constexpr unsigned handshake_seconds_max = 5;
// How long a peer that should connect is waited for before it is asked why it does not.
constexpr auto absent_wait_min = 2000ms;
constexpr auto absent_wait_max = 60'000ms;
constexpr const char* other_list =
    "fabric.handshake: its list of peers is not ours; all hosts must be given the same hosts in the same order";
// What the links' buffers keep: all of them, where there are not too many; and one, at least and at most.
constexpr size_t buffers_bytes_max = 4 << 20;
constexpr size_t buffer_bytes_min = 64 << 10;
constexpr size_t buffer_bytes_max = 2 << 20;

void set_up(int fd) {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    // A peer whose machine vanished is noticed even when we only wait for it.
    const int idle_seconds = 5;
    const int interval_seconds = 2;
    const int probes = 5;
    const unsigned unanswered_ms = 15'000;  // and when what we sent is not acknowledged
    ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_seconds, sizeof idle_seconds);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_seconds, sizeof interval_seconds);
    ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof unanswered_ms);
}

// A handshake under way, in a list of such; ends one that takes too long.
class Deadline {
  public:
    Deadline(Loop& loop, int fd, std::vector<int>& under_way) : timer_(loop), fd_(fd), under_way_(under_way) {
        under_way_.push_back(fd);
        gate_.spawn(watch(*this, fd));
    }
    Task<> end() {
        std::erase(under_way_, fd_);
        timer_.cancel();
        co_await gate_.close();
    }

  private:
    static Task<> watch(Deadline& self, int fd) {
        if (co_await self.timer_.sleep(std::chrono::seconds(handshake_seconds_max))) ::shutdown(fd, SHUT_RDWR);
    }
    Timer timer_;
    Gate gate_;
    int fd_;
    std::vector<int>& under_way_;
};

// A connection on its way to the shard of its link.
struct HandOver final : Loop::Posted {
    HandOver(Link& to, UniqueFd of, protocol::Process by) : link(to), fd(std::move(of)), process(by) { link.expect(); }
    void run() override {
        link.take_over(std::move(fd), process);
        delete this;
    }
    Link& link;
    UniqueFd fd;
    protocol::Process process;
};

void call_on_shard(Link& link, void (Link::*function)()) {
    struct Call final : Loop::Posted {
        Call(Link& to, void (Link::*what)()) : link(to), function(what) {}
        void run() override {
            (link.*function)();
            delete this;
        }
        Link& link;
        void (Link::*function)();
    };
    link.loop().post(*new Call(link, function));
}

}  // namespace

Result<std::unique_ptr<LinkedFabric>> LinkedFabric::create(LinkedFabricConfiguration configuration,
                                                           Receiver& receiver) {
    TRY(const SocketAddress address, resolve(configuration.listen));
    UniqueFd listener(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    if (!listener) return fail(Errc::io, errno, "fabric.listen: socket");
    ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(listener.get(), address.get(), address.size()) != 0) return fail(Errc::io, errno, "fabric.listen: bind");
    if (::listen(listener.get(), hosts_max * 2) != 0) return fail(Errc::io, errno, "fabric.listen");
    return std::unique_ptr<LinkedFabric>(new LinkedFabric(std::move(configuration), receiver, std::move(listener)));
}

LinkedFabric::LinkedFabric(LinkedFabricConfiguration configuration, Receiver& receiver, UniqueFd listener)
    : configuration_(std::move(configuration)),
      receiver_(receiver),
      listener_(std::move(listener)),
      corked_(configuration_.shards) {
    const size_t buffer_bytes = std::clamp(buffers_bytes_max / (2 * std::max<size_t>(configuration_.peers.size(), 1)),
                                           buffer_bytes_min, buffer_bytes_max);
    for (const auto& peer : configuration_.peers) {
        Loop& loop = *configuration_.shards[peer.host % configuration_.shards.size()];
        links_[peer.host] = std::make_unique<Link>(loop, peer.host, name_of(peer.host), receiver, calls_, buffer_bytes,
                                                   configuration_.listen_for, drained_, corked_);
    }
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
    here.spawn(accept_all());
    for (const auto& peer : configuration_.peers)
        here.spawn(peer.host < configuration_.self ? keep_connected(*links_[peer.host], peer.address)
                                                   : ask_the_absent(*links_[peer.host], peer.address));
}

void LinkedFabric::stop() {
    stopping_ = true;
    for (Timer* const pause : pauses_) pause->cancel();
    // Shut down as well: a step of theirs that has just ended must not be followed by another that waits.
    for (const int fd : handshakes_) {
        ::shutdown(fd, SHUT_RDWR);
        configuration_.shards.front()->cancel_fd(fd);
    }
    configuration_.shards.front()->cancel_fd(listener_.get());
    for (HostId host = 0; host < hosts_max; ++host)
        if (links_[host]) call_on_shard(*links_[host], &Link::end);
}

uint64_t LinkedFabric::received_count(protocol::MessageKind kind) const {
    uint64_t count = 0;
    for (const auto& link : links_)
        if (link) count += link->received_count(kind);
    return count;
}

void LinkedFabric::disconnect(HostId from) {
    call_on_shard(*links_[from], &Link::close);
}

void LinkedFabric::send(HostId to, const protocol::Message& message, std::span<const std::byte> payload) {
    TARN_ASSERT(to < hosts_max && links_[to]);
    links_[to]->send(message, payload);
}

Task<Result<std::string>> LinkedFabric::call(HostId to, CallKind kind, std::string request) {
    if (to >= hosts_max || !links_[to]) co_return fail(Errc::unavailable, 0, "fabric.call: no such host");
    co_return co_await links_[to]->call(kind, std::move(request));
}

Introduction LinkedFabric::introduce_self() const {
    return introduce(configuration_.self, configuration_.process, configuration_.cluster, configuration_.peers_digest);
}

// Then it takes its number, and ours, for somebody else's.
bool LinkedFabric::has_other_list(const Introduction& introduction) const {
    constexpr std::array<uint8_t, 3> not_told{};
    return introduction.magic == Introduction::magic_expected && introduction.cluster == configuration_.cluster &&
           introduction.peers != not_told && configuration_.peers_digest != not_told &&
           introduction.peers != configuration_.peers_digest;
}

bool LinkedFabric::is_ours(const Introduction& introduction) const {
    return introduction.magic == Introduction::magic_expected && introduction.cluster == configuration_.cluster &&
           introduction.host < hosts_max && links_[introduction.host] != nullptr;
}

bool LinkedFabric::accepts_link(const Introduction& introduction) {
    const Receiver::LinkDecision decision =
        receiver_.decide_on_link(introduction.host, introduction.process.incarnation);
    if (decision == Receiver::LinkDecision::accept) return true;
    if (decision == Receiver::LinkDecision::refuse &&
        std::exchange(turned_away_[introduction.host], introduction.process.incarnation) !=
            introduction.process.incarnation)
        log::warning(
            "fabric: host {} is back as it was when it was declared dead (incarnation {}) and is refused; "
            "restart its tarnd with --discard-memory",
            name_of(introduction.host), introduction.process.incarnation);
    return false;
}

Task<> LinkedFabric::pause(std::chrono::nanoseconds duration) {
    Timer timer(*Loop::current());
    pauses_.push_back(&timer);
    if (!stopping_) co_await timer.sleep(duration);
    std::erase(pauses_, &timer);
}

Task<> LinkedFabric::accept_all() {
    Loop& loop = *Loop::current();
    while (!stopping_) {
        const Result<size_t> accepted = co_await loop.accept(listener_.get());
        if (accepted) {
            UniqueFd fd(static_cast<int>(*accepted));
            if (!stopping_) loop.spawn(meet(std::move(fd)));
        } else if (accepted.error().code != Errc::cancelled) {
            co_await pause(100ms);  // out of descriptors, most likely
        }
    }
}

Task<> LinkedFabric::meet(UniqueFd fd) {
    set_up(fd.get());
    Deadline deadline(*Loop::current(), fd.get(), handshakes_);
    const std::string name = peer_name(fd.get());  // he may have left when it is asked for
    Strangers::Visit visit(strangers_, fd.get());
    HostId claimed = no_host;
    Result<Introduction> peer = co_await accept_introduction(fd.get(), claimed);
    if (!visit.has_place()) peer = fail(Errc::refused, 0, "fabric.handshake: it made room for others");
    visit.leave();
    co_await deadline.end();
    if (!peer) {
        // Whoever reaches the port may claim to be a host: it is shown only while that one has no link.
        if (claimed != no_host) troubles_[claimed] = log::explain(peer.error());
        if (peer.error().code == Errc::unavailable) co_return;  // that was said
        if (const std::optional<std::string> left_out = refusals_.admit())
            log::warning("fabric: refused a connection from {}: {}{}", name, log::describe(peer.error()), *left_out);
        co_return;
    }
    if (stopping_) co_return;
    Link& link = *links_[peer->host];
    troubles_[peer->host].clear();
    link.loop().post(*new HandOver(link, std::move(fd), peer->process));
}

Task<Result<Introduction>> LinkedFabric::accept_introduction(int fd, HostId& claimed) {
    Loop& loop = *Loop::current();
    Introduction peer;
    CO_TRY_VOID(co_await receive_exactly(loop, fd, std::as_writable_bytes(std::span(&peer, 1))));
    const Introduction own = introduce_self();
    if (has_other_list(peer)) {
        CO_TRY_VOID(co_await send_exactly(loop, fd, std::as_bytes(std::span(&own, 1))));  // so that it can say so, too
        co_return fail(Errc::refused, 0, other_list);
    }
    const bool is_known = peer.magic == Introduction::magic_expected && peer.host < hosts_max && links_[peer.host];
    if (is_known && peer.peers == configuration_.peers_digest && peer.cluster != configuration_.cluster) {
        claimed = peer.host;
        co_return fail(Errc::refused, 0, "fabric.handshake: it is of another cluster; all need the same cluster UUID");
    }
    if (!is_ours(peer)) co_return fail(Errc::refused, 0, "fabric.handshake: not a host of this cluster");
    // It only wondered why we do not connect.
    if (peer.host < configuration_.self) co_return fail(Errc::unavailable, 0, "fabric.handshake: the wrong way round");
    claimed = peer.host;
    if (!accepts_link(peer)) co_return fail(Errc::unavailable, 0, "fabric.handshake: that process was declared dead");
    const Proof proof = prove(configuration_.key, Direction::accepting, peer, own);
    CO_TRY_VOID(co_await send_exactly(loop, fd, std::as_bytes(std::span(&own, 1))));
    CO_TRY_VOID(co_await send_exactly(loop, fd, proof));
    Proof theirs{};
    if (const Result<> proved = co_await receive_exactly(loop, fd, theirs); !proved)
        co_return fail(proved.error().code == Errc::closed
                           ? Error{Errc::closed, 0,
                                   "fabric.handshake: it hung up when we had proved our key; is its "
                                   "key the same? Its log says why"}
                           : proved.error());
    if (!equal(theirs, prove(configuration_.key, Direction::connecting, peer, own)))
        co_return fail(Errc::refused, 0, "fabric.handshake: wrong key");
    CO_TRY_VOID(co_await compare_stores(fd, peer.host));
    co_return peer;
}

Task<> LinkedFabric::keep_connected(Link& link, std::string address) {
    Loop& loop = *Loop::current();
    std::chrono::nanoseconds retry = retry_min;
    std::string said;
    while (!stopping_) {
        Result<Introduction> peer = fail(Errc::unavailable);
        UniqueFd fd;
        if (const Result<SocketAddress> to = resolve(address); !to) {
            peer = fail(to.error());
        } else {
            fd = UniqueFd(::socket(to->family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
            set_up(fd.get());
            Deadline deadline(loop, fd.get(), handshakes_);
            const Result<size_t> connected = co_await loop.connect(fd.get(), to->get(), to->size());
            if (connected)
                peer = co_await connect_introduction(fd.get(), link.peer());
            else
                peer = fail(connected.error().code, connected.error().sys_errno, "fabric.connect");
            co_await deadline.end();
        }
        if (stopping_) co_return;
        if (peer) {
            retry = retry_min;
            said.clear();
            troubles_[link.peer()].clear();
            link.loop().post(*new HandOver(link, std::move(fd), peer->process));
            co_await run_on(loop, link.loop(), link.idle());
            continue;
        }
        std::string reason = log::describe(peer.error());
        troubles_[link.peer()] = log::explain(peer.error());
        if (reason != said) log::warning("fabric: no link with host {} at {}: {}", link.name(), address, reason);
        said = std::move(reason);
        co_await pause(retry);
        retry = std::min<std::chrono::nanoseconds>(retry * 2, retry_max);
    }
}

// Of two hosts that both take themselves for the first none connects. So who waits for a peer asks, now and then.
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

// Refused: the host that answers there was given another list.
Task<Result<>> LinkedFabric::compare_lists(std::string address) {
    Loop& loop = *Loop::current();
    CO_TRY(const SocketAddress to, resolve(address));
    const UniqueFd fd(::socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    set_up(fd.get());
    Deadline deadline(loop, fd.get(), handshakes_);
    Introduction peer;
    const Introduction own = introduce_self();
    Result<> done;
    if (const Result<size_t> connected = co_await loop.connect(fd.get(), to.get(), to.size()); !connected)
        done = fail(connected.error());
    if (done) done = co_await send_exactly(loop, fd.get(), std::as_bytes(std::span(&own, 1)));
    if (done) done = co_await receive_exactly(loop, fd.get(), std::as_writable_bytes(std::span(&peer, 1)));
    co_await deadline.end();
    if (done && has_other_list(peer)) done = fail(Errc::refused, 0, other_list);
    co_return done;
}

Task<Result<Introduction>> LinkedFabric::connect_introduction(int fd, HostId host) {
    Loop& loop = *Loop::current();
    const Introduction own = introduce_self();
    CO_TRY_VOID(co_await send_exactly(loop, fd, std::as_bytes(std::span(&own, 1))));
    Introduction peer;
    Proof theirs{};
    CO_TRY_VOID(co_await receive_exactly(loop, fd, std::as_writable_bytes(std::span(&peer, 1))));
    if (has_other_list(peer)) co_return fail(Errc::refused, 0, other_list);
    CO_TRY_VOID(co_await receive_exactly(loop, fd, theirs));
    if (!is_ours(peer) || peer.host != host)
        co_return fail(Errc::refused, 0, "fabric.handshake: another host answers there");
    if (!equal(theirs, prove(configuration_.key, Direction::accepting, own, peer)))
        co_return fail(Errc::refused, 0, "fabric.handshake: wrong key");
    if (!accepts_link(peer)) co_return fail(Errc::refused, 0, "fabric.handshake: that process was declared dead");
    const Proof proof = prove(configuration_.key, Direction::connecting, own, peer);
    CO_TRY_VOID(co_await send_exactly(loop, fd, proof));
    CO_TRY_VOID(co_await compare_stores(fd, host));
    co_return peer;
}

// Both must agree before there is a link: with the link each gives up what it holds of an earlier process of the other.
Task<Result<>> LinkedFabric::compare_stores(int fd, HostId host) {
    Loop& loop = *Loop::current();
    const auto wire = [](const StoreStanding& standing) {
        return Account::Standing{.nonce = standing.nonce, .position = standing.position, .epoch = standing.epoch};
    };
    const auto standing_of = [](const Account::Standing& on_wire) {
        return StoreStanding{.epoch = on_wire.epoch, .nonce = on_wire.nonce, .position = on_wire.position};
    };
    const Account ours{.own = wire(receiver_.own_standing()), .of_you = wire(receiver_.remembered_of(host))};
    CO_TRY_VOID(co_await send_exactly(loop, fd, std::as_bytes(std::span(&ours, 1))));
    Account theirs;
    CO_TRY_VOID(co_await receive_exactly(loop, fd, std::as_writable_bytes(std::span(&theirs, 1))));
    if (theirs.own.reserved != 0 || theirs.of_you.reserved != 0)
        co_return fail(Errc::protocol, 0, "fabric.handshake: account of a later version");
    const Result<> accepted = receiver_.accepts_memory(host, standing_of(theirs.of_you));
    const Verdict verdict = accepted ? Verdict::agreed : Verdict::mine_is_older;
    CO_TRY_VOID(co_await send_exactly(loop, fd, std::as_bytes(std::span(&verdict, 1))));
    Verdict answer{};
    CO_TRY_VOID(co_await receive_exactly(loop, fd, std::as_writable_bytes(std::span(&answer, 1))));
    CO_TRY_VOID(accepted);
    if (answer != Verdict::agreed)
        co_return fail(Errc::refused, 0, "fabric.handshake: its store is older than this host remembers it");
    receiver_.on_standing(host, standing_of(theirs.own));
    co_return Result<>{};
}

Task<Result<>> LinkedFabric::receive_exactly(Loop& loop, int fd, std::span<std::byte> into) {
    while (!into.empty()) {
        CO_TRY(const size_t received, co_await loop.receive(fd, into));
        if (received == 0)
            co_return fail(Errc::closed, 0, "fabric.handshake: the other side hung up; its log says why");
        into = into.subspan(received);
    }
    co_return Result<>{};
}

Task<Result<>> LinkedFabric::send_exactly(Loop& loop, int fd, std::span<const std::byte> from) {
    while (!from.empty()) {
        CO_TRY(const size_t sent, co_await loop.send(fd, from));
        from = from.subspan(sent);
    }
    co_return Result<>{};
}

}  // namespace tarn
