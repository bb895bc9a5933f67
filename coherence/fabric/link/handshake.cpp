#include "coherence/fabric/link/handshake.hpp"

#include <utility>

#include "utils/log.hpp"

namespace tarn {

namespace {

using LinkDecision = Fabric::Receiver::LinkDecision;

constexpr const char* other_list =
    "fabric.handshake: its list of peers is not ours; all hosts must be given the same hosts in the same order";

Task<Result<>> send_all(Connection& connection, std::span<const std::byte> from) {
    while (!from.empty()) {
        CO_TRY(const size_t sent, co_await connection.send(from));
        from = from.subspan(sent);
    }
    co_return Result<>{};
}

Task<Result<>> receive_all(Connection& connection, std::span<std::byte> into) {
    while (!into.empty()) {
        CO_TRY(const size_t received, co_await connection.receive(into));
        if (received == 0)
            co_return fail(Errc::closed, 0, "fabric.handshake: the other side hung up; its log says why");
        into = into.subspan(received);
    }
    co_return Result<>{};
}

template <class T>
Task<Result<>> say(Connection& connection, const T& value) {
    return send_all(connection, std::as_bytes(std::span(&value, 1)));
}

template <class T>
Task<Result<>> hear(Connection& connection, T& value) {
    return receive_all(connection, std::as_writable_bytes(std::span(&value, 1)));
}

}  // namespace

Introduction Handshake::introduce_self() const {
    return introduce(configuration_.self, configuration_.process, configuration_.cluster, configuration_.peers_digest);
}

// True: the peer's list differs, so the ids in it may mean other hosts than ours.
bool Handshake::has_other_list(const Introduction& introduction) const {
    constexpr std::array<uint8_t, 3> not_told{};
    return introduction.magic == Introduction::magic_expected && introduction.cluster == configuration_.cluster &&
           introduction.peers != not_told && configuration_.peers_digest != not_told &&
           introduction.peers != configuration_.peers_digest;
}

bool Handshake::is_of_cluster(const Introduction& introduction) const {
    return introduction.magic == Introduction::magic_expected && introduction.cluster == configuration_.cluster &&
           configuration_.has_peer(introduction.host);
}

Fabric::Receiver::LinkDecision Handshake::decide_on(const Introduction& introduction) {
    const LinkDecision decision = receiver_.decide_on_link(introduction.host, introduction.process.incarnation);
    if (decision == LinkDecision::refuse &&
        std::exchange(turned_away_[introduction.host], introduction.process.incarnation) !=
            introduction.process.incarnation)
        log::warning(
            "fabric: host {} is back as it was when it was declared dead (incarnation {}) and is refused; "
            "restart its tarnd with --discard-memory",
            configuration_.name_of(introduction.host), introduction.process.incarnation);
    return decision;
}

Task<Result<Handshake::Met>> Handshake::accept(Connection& connection, HostId& claimed) {
    Introduction peer;
    CO_TRY_VOID(co_await hear(connection, peer));
    const Introduction own = introduce_self();
    if (has_other_list(peer)) {
        CO_TRY_VOID(co_await say(connection, own));  // so that the peer can log it, too
        co_return fail(Errc::refused, 0, other_list);
    }
    const bool is_known = peer.magic == Introduction::magic_expected && configuration_.has_peer(peer.host);
    if (is_known && peer.peers == configuration_.peers_digest && peer.cluster != configuration_.cluster) {
        claimed = peer.host;
        co_return fail(Errc::refused, 0, "fabric.handshake: it is of another cluster; all need the same cluster UUID");
    }
    if (!is_of_cluster(peer)) co_return fail(Errc::refused, 0, "fabric.handshake: not a host of this cluster");
    // The peer only asked why we do not connect.
    if (peer.host < configuration_.self) co_return fail(Errc::unavailable, 0, "fabric.handshake: the wrong way round");
    claimed = peer.host;
    const Proof proof = prove(configuration_.key, Direction::accepting, peer, own);
    CO_TRY_VOID(co_await say(connection, own));
    CO_TRY_VOID(co_await say(connection, proof));
    Proof theirs{};
    if (const Result<> proved = co_await hear(connection, theirs); !proved)
        co_return fail(proved.error().code == Errc::closed
                           ? Error{Errc::closed, 0,
                                   "fabric.handshake: it hung up when we had proved our key; is its "
                                   "key the same? Its log says why"}
                           : proved.error());
    if (!equal(theirs, prove(configuration_.key, Direction::connecting, peer, own)))
        co_return fail(Errc::refused, 0, "fabric.handshake: wrong key");
    Met met{.peer = peer};
    CO_TRY(const bool both_offer, co_await compare_stores(connection, peer));
    if (!both_offer) co_return met;
    CO_TRY(met.offers, co_await exchange_offers(connection));
    Decision decision{};
    CO_TRY_VOID(co_await hear(connection, decision));
    if (decision != Decision::stays && decision != Decision::has_moved)
        co_return fail(Errc::protocol, 0, "fabric.handshake: an unknown decision");
    met.has_moved = decision == Decision::has_moved;
    co_return met;
}

Task<Result<Handshake::Met>> Handshake::connect(Connection& connection, HostId host) {
    const Introduction own = introduce_self();
    CO_TRY_VOID(co_await say(connection, own));
    Introduction peer;
    Proof theirs{};
    CO_TRY_VOID(co_await hear(connection, peer));
    if (has_other_list(peer)) co_return fail(Errc::refused, 0, other_list);
    CO_TRY_VOID(co_await hear(connection, theirs));
    if (!is_of_cluster(peer) || peer.host != host)
        co_return fail(Errc::refused, 0, "fabric.handshake: another host answers there");
    if (!equal(theirs, prove(configuration_.key, Direction::accepting, own, peer)))
        co_return fail(Errc::refused, 0, "fabric.handshake: wrong key");
    const Proof proof = prove(configuration_.key, Direction::connecting, own, peer);
    CO_TRY_VOID(co_await say(connection, proof));
    Met met{.peer = peer};
    CO_TRY(const bool both_offer, co_await compare_stores(connection, peer));
    if (!both_offer) co_return met;
    CO_TRY(met.offers, co_await exchange_offers(connection));
    if (met.offers.empty()) CO_TRY_VOID(co_await decide(connection, Decision::stays));
    co_return met;
}

Task<Result<>> Handshake::decide(Connection& connection, Decision decision) {
    co_return co_await say(connection, decision);
}

Task<Result<std::vector<Offer>>> Handshake::exchange_offers(Connection& connection) const {
    const std::string own = encode(offers_);
    const auto own_size = static_cast<uint16_t>(own.size());
    CO_TRY_VOID(co_await say(connection, own_size));
    CO_TRY_VOID(co_await send_all(connection, std::as_bytes(std::span(own))));
    uint16_t size = 0;
    CO_TRY_VOID(co_await hear(connection, size));
    if (size > offers_size_max) co_return fail(Errc::protocol, 0, "fabric.handshake: too many offers");
    std::string theirs(size, '\0');
    CO_TRY_VOID(co_await receive_all(connection, std::as_writable_bytes(std::span(theirs))));
    co_return decode_offers(theirs);
}

Task<Result<>> Handshake::compare_lists(Connection& connection) {
    const Introduction own = introduce_self();
    CO_TRY_VOID(co_await say(connection, own));
    Introduction peer;
    CO_TRY_VOID(co_await hear(connection, peer));
    if (has_other_list(peer)) co_return fail(Errc::refused, 0, other_list);
    co_return Result<>{};
}

// Both must agree before the link comes up: on the link each drops what it holds of an earlier process of the other.
Task<Result<bool>> Handshake::compare_stores(Connection& connection, const Introduction& peer) {
    const LinkDecision decision = decide_on(peer);
    const auto wire = [](const StoreStanding& standing) {
        return Account::Standing{.nonce = standing.nonce, .position = standing.position, .epoch = standing.epoch};
    };
    const auto standing_of = [](const Account::Standing& on_wire) {
        return StoreStanding{.epoch = on_wire.epoch, .nonce = on_wire.nonce, .position = on_wire.position};
    };
    Account ours{.own = wire(receiver_.own_standing()), .of_you = wire(receiver_.remembered_of(peer.host))};
    const bool we_offer = !offers_.empty() && connection.kind() == TransportKind::tcp;
    if (we_offer) ours.own.flags = Account::has_offers;
    if (decision == LinkDecision::refuse) ours.own.flags = Account::you_are_dead;
    CO_TRY_VOID(co_await say(connection, ours));
    Account theirs;
    CO_TRY_VOID(co_await hear(connection, theirs));
    if (theirs.own.flags == Account::you_are_dead)
        co_return fail(Errc::refused, 0,
                       "fabric.handshake: it was told that this host is dead (tarn host forget); restart this host's "
                       "tarnd with --discard-memory");
    if ((theirs.own.flags & ~Account::has_offers) != 0 || theirs.of_you.flags != 0)
        co_return fail(Errc::protocol, 0, "fabric.handshake: account of a later version");
    if (decision != LinkDecision::accept)
        co_return fail(Errc::unavailable, 0, "fabric.handshake: that process was declared dead");
    const Result<> accepted = receiver_.accepts_memory(peer.host, standing_of(theirs.of_you));
    const Verdict verdict = accepted ? Verdict::agreed : Verdict::mine_is_older;
    CO_TRY_VOID(co_await say(connection, verdict));
    Verdict answer{};
    CO_TRY_VOID(co_await hear(connection, answer));
    CO_TRY_VOID(accepted);
    if (answer != Verdict::agreed)
        co_return fail(Errc::refused, 0, "fabric.handshake: its store is older than this host remembers it");
    receiver_.on_standing(peer.host, standing_of(theirs.own));
    const bool both_offer = we_offer && theirs.own.flags == Account::has_offers;
    co_return both_offer;
}

}  // namespace tarn
