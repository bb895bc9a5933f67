// Flush: the pure parts (docs/coherence.md, "Flush and the write verifier"). They span stripes, so a host has one of
// each, under a lock that is taken last (for the books, under a stripe's latch) and never held during a step.
//
// Three of them handle a flush of a volume:
//   FlushRequester  on the host that received it: asks every home of the volume, answers when all have.
//   FlushHome       on each home: asks every host that has bytes home lacks, waits for their answers and for the bytes
//                   then on their way, then for the store.
//   FlushHolder     on each asked host: answers when the write-backs that the executor began are all applied.
//
// The flush succeeds only if the write verifier of each home is still the one under which the writes were made: a home
// that has lost accepted writes cannot acknowledge them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "coherence/membership/host_set.hpp"
#include "coherence/protocol/event.hpp"
#include "coherence/protocol/message.hpp"

namespace tarn::protocol {

class Digest;

using Verifier = uint64_t;  // of a home: Process::first_intact (upper half) · loss generation; 0: none
constexpr Verifier verifier_of(Incarnation first_intact, uint32_t loss_generation) {
    return Verifier{first_intact} << 32 | loss_generation;
}
constexpr uint32_t loss_generation_of(Verifier verifier) {
    return static_cast<uint32_t>(verifier);
}
// Of two verifiers of a home with the same first_intact.
constexpr bool is_older(Verifier verifier, Verifier than) {
    return verifier >> 32 == than >> 32 && verifier < than;
}

struct FlushAction {
    enum class Kind : uint8_t {
        send,         // to, message; to this host itself: give it to the other part here
        store_flush,  // volume, ticket: write home's newer bytes of the volume into the store, flush the device once,
                      // then FlushHome::on_store_flushed. Tickets that wait together may share one
        complete,     // waiter, lost: the flush is done; lost: report an error, some write may be gone
    };
    Kind kind{};
    HostId to = no_host;
    bool lost = false;
    VolumeId volume = 0;
    uint64_t ticket = 0;
    WaiterToken waiter = 0;
    Message message{};
};
using FlushActions = std::vector<FlushAction>;

// A message about a flush, or an ask, of this volume.
inline Message& send_of_flush(FlushActions& actions, HostId to, MessageKind kind, HostId from, VolumeId volume,
                              RequestId id) {
    const Message message{.kind = kind, .from = from, .request_id = id, .page = PageId::of(volume, 0)};
    return actions.emplace_back(FlushAction{.kind = FlushAction::Kind::send, .to = to, .message = message}).message;
}

// A host with more flushes under way than its clients could wait for is refused: this bounds the memory here.
inline constexpr size_t flushes_of_a_host_max = 4096;

class FlushHome {
  public:
    explicit FlushHome(HostId self) : self_(self) {}

    // False: end the link that brought this message, instead of giving it to on_message().
    bool accepts(const Message& message) const;

    // The books: the actions of the same names, in the order in which a stripe gave them.
    void holder_added(PageId page, HostId host) { ++volume_of(page.volume()).holder_counts[host]; }
    void holder_removed(PageId page, HostId host);
    // copy_arrived may let flushes go on: their actions are appended.
    void copy_expected(PageId page, Tenure tenure);
    void copy_arrived(PageId page, Tenure tenure, FlushActions& actions);

    // flush and flush_answer.
    void on_message(const Message& message, FlushActions& actions);
    // verifier: the home's present one, as any message would carry it.
    void on_store_flushed(uint64_t ticket, bool failed, Verifier verifier, FlushActions& actions);
    // The store failed, for good: every flush under way fails now, rather than wait for bytes that nothing could store.
    void on_store_failed(Verifier verifier, FlushActions& actions);
    // The same for a flush that comes later, instead of on_message().
    void refuse(const Message& flush, Verifier verifier, FlushActions& actions) const;
    // Every stripe has had its event `recovered`: only now a home that started without its arena knows whom to ask.
    void on_recovered(FlushActions& actions);
    // A new link. If another process than `previous` is at the other end, the flushes that `previous` asked for are
    // dropped. If it is of a new incarnation, or the host was forgotten (no process), it lost its bytes: its unanswered
    // asks count as answered. Otherwise they are repeated.
    void on_peer_up(HostId host, Process process, Process previous, FlushActions& actions);

    size_t flush_count() const { return flushes_.size(); }
    size_t outstanding_copy_count() const;
    bool waits_for_copies() const;  // a flush has all answers, but not all copies
    void digest(Digest& digest) const;

  private:
    struct OutstandingCopy {
        PageId page;
        Tenure tenure;
        uint64_t ticket;
    };
    struct Volume {
        VolumeId volume = 0;
        uint32_t holder_counts[hosts_max] = {};
        std::vector<OutstandingCopy> copies;
    };
    struct Flush {
        uint64_t ticket = 0;
        VolumeId volume = 0;
        HostId requester = no_host;
        RequestId request_id = 0;
        Verifier noted = 0;
        Verifier known = 0;
        RequestId ask_id = 0;  // 0: not begun
        HostSet unanswered = 0;
        uint64_t copies_until = 0;  // waits for outstanding copies with at most this ticket
        bool in_store = false;
    };

    Volume& volume_of(VolumeId volume);
    const Volume* find_volume(VolumeId volume) const;
    void on_flush(const Message& message, FlushActions& actions);
    void start(Flush& flush, FlushActions& actions);
    void on_answer(HostId host, RequestId ask_id, FlushActions& actions);
    void answer(const Flush& flush, bool lost, Verifier verifier, FlushActions& actions) const;
    void ask(const Flush& flush, HostId host, FlushActions& actions) const;
    void start_store_flush_if_ready(Flush& flush, FlushActions& actions);

    HostId self_;
    bool recovering_ = true;
    uint64_t last_ticket_ = 0;
    RequestId last_ask_id_ = 0;
    std::vector<Volume> volumes_;
    std::vector<Flush> flushes_;
};

class FlushHolder {
  public:
    explicit FlushHolder(HostId self) : self_(self) {}

    // False: end the link that brought this ask, instead of giving it to on_ask().
    bool accepts(const Message& ask) const;
    // flush_ask. Returns the waiter under which the executor delivers a `write_back` event for each page of the volume
    // homed at the asker that has dirty or writing sectors here, evicting frames included; then it calls begun().
    WaiterToken on_ask(const Message& ask);
    void begun(WaiterToken waiter, uint32_t write_back_count, FlushActions& actions);
    // Answers the action `written`. May come before begun().
    void on_written(WaiterToken waiter, FlushActions& actions);
    // Drops the asks of the host's earlier link, which it repeats; also those of a forgotten host.
    void on_peer_up(HostId host) {
        std::erase_if(asks_, [&](const Ask& ask) { return ask.home == host; });
    }

    size_t ask_count() const { return asks_.size(); }
    void digest(Digest& digest) const;

  private:
    struct Ask {
        WaiterToken waiter = 0;
        HostId home = no_host;
        VolumeId volume = 0;
        RequestId ask_id = 0;
        int64_t missing = 0;  // may be negative before begun()
        bool has_begun = false;
    };
    void answer_if_complete(WaiterToken waiter, FlushActions& actions);

    HostId self_;
    WaiterToken last_waiter_ = 0;
    std::vector<Ask> asks_;
};

// A client of one volume across its reconnects (docs/contract.md). The executor gives each a new number.
using SessionId = uint64_t;

class FlushRequester {
  public:
    explicit FlushRequester(HostId self) : self_(self) {}

    // A session begins with nothing noted: an earlier loss is not its own. Once a write of it is lost, all its flushes
    // fail until it is closed; those of other sessions do not.
    void open(SessionId session, VolumeId volume);
    void close(SessionId session);

    // Call it with the verifier of each message that a home sends about a volume (is_from_home), but not for hello or
    // other messages of that host: a restarted home knows its losses only when it has recovered, and until then writes
    // made under the old verifier must not be noted under the new one. For this host's own home, call it before wrote()
    // and start().
    void heard(VolumeId volume, HostId home, Verifier verifier);
    // A write to these pages of this home is done, and its reply follows. began: the home's verifier that was known
    // before the first of its bytes changed. A later loss may include this write, so it is noted under that verifier,
    // not under the present one.
    void wrote(SessionId session, HostId home, PageId first, PageId last, Verifier began);
    // The verifier of the first write since the last success, 0: none; and a session that goes on with one so noted.
    Verifier noted(SessionId session, HostId home) const;
    void restore(SessionId session, HostId home, Verifier noted);
    // Whether the pages of all writes since the last success are known, because they are few.
    bool knows_pages(SessionId session, HostId home) const;
    // How often wrote() was called.
    uint64_t write_count(SessionId session, HostId home) const;
    // These pages (sorted) were made durable separately at this home, with the first `writes` writes. True: nothing is
    // noted any more.
    bool flushed_pages(SessionId session, HostId home, std::span<const PageId> pages, uint64_t writes);

    // Whether this home was heard from at all. A host that opens a volume hears from each home before it takes the
    // first request: a flush counts from the verifier that was known when it came.
    bool knows(VolumeId volume, HostId home) const { return known(volume, home) != 0; }
    Verifier known(VolumeId volume, HostId home) const;  // 0: never heard

    // Whether a flush of the session would fail at this home, by its last verifier.
    bool lost_a_write(SessionId session, HostId home) const;

    // Every home of the volume, all of them known (RangeMap::homes_of), this host included if it is one.
    void start(SessionId session, HostSet homes, WaiterToken waiter, FlushActions& actions);
    // flushed.
    void on_message(const Message& message, FlushActions& actions);
    // Unanswered flushes are sent again.
    void on_peer_up(HostId host, FlushActions& actions);
    // Fails all flushes that wait for this host, because it was forgotten. What they were to cover stays noted for the
    // next flush.
    void give_up_on(HostId host, FlushActions& actions);
    // The same for one flush, for whatever reason; without effect if it is over.
    void give_up(WaiterToken waiter, FlushActions& actions);

    size_t flush_count() const { return flushes_.size(); }
    void digest(Digest& digest) const;

  private:
    struct Known {
        VolumeId volume = 0;
        HostId home = no_host;
        Verifier verifier = 0;
    };
    struct Written {
        PageId first;
        PageId last;
        uint64_t write = 0;  // its number
    };
    static constexpr size_t written_max = 64;
    struct Note {
        HostId home = no_host;
        Verifier noted = 0;            // verifier of the writes since the last success; 0: none
        bool mixed = false;            // they had several verifiers
        uint64_t writes = 0;           // counts wrote(), so that a flush clears only what it covered
        std::vector<Written> written;  // since the last success, if they are few
        bool many = false;
    };
    struct Session {
        SessionId id = 0;
        VolumeId volume = 0;
        std::vector<Note> notes;
    };
    struct Part {
        HostId home = no_host;
        Verifier noted = 0;
        Verifier known = 0;
        uint64_t writes = 0;
    };
    struct Flush {
        RequestId request_id = 0;
        SessionId session = 0;
        VolumeId volume = 0;
        WaiterToken waiter = 0;
        HostSet unanswered = 0;
        bool lost = false;
        std::vector<Part> parts;
    };

    Session* find_session(SessionId session);
    static Note& note_of(Session& session, HostId home);
    const Note* find_note(SessionId session, HostId home) const;
    void send(const Flush& flush, const Part& part, FlushActions& actions) const;
    static void end(const Flush& flush, bool lost, FlushActions& actions);
    template <class Predicate>
    void fail_if(Predicate&& is_meant, FlushActions& actions);

    HostId self_;
    RequestId last_request_id_ = 0;
    std::vector<Known> known_;
    std::vector<Session> sessions_;
    std::vector<Flush> flushes_;
};

}  // namespace tarn::protocol
