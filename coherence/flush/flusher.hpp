// Flusher: performs FLUSH (D1) on this host, as the requester, as a home, and as a holder.
//
// The three pure parts (protocol/flush.hpp) share one lock, taken last. Their actions are performed outside it.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "coherence/executor/host_parts.hpp"
#include "coherence/flush/session_record.hpp"
#include "coherence/home_store/home_writer.hpp"
#include "coherence/pages/loss_view.hpp"
#include "coherence/pages/verifiers.hpp"
#include "coherence/protocol/flush.hpp"

namespace tarn {

// What a session reads from a page that lost writes.
enum class OnLoss : uint8_t {
    fail,    // an error, if the session may have seen what was lost
    revert,  // the bytes that the page's home has
};

// A client's session, for the books of FLUSH: the homes whose verifiers are noted for its writes since its last flush
// (all that the hot path looks at), and the losses that lie before it. Its owner opens and closes it here.
struct Session {
    VolumeId volume = 0;
    OnLoss on_loss = OnLoss::fail;
    LossView losses;
    SessionRecord* record = nullptr;  // if it is to outlive the process
    protocol::SessionId id = 0;       // given by open_session()
    std::atomic<HostSet> noted{0};
};

class Flusher final : public FlushBooks, public WaitingFlushes {
  public:
    struct Parts : HostParts {
        HomeWriter& writer;
        Verifiers& verifiers;
    };
    explicit Flusher(const Parts& parts);

    // D1 for the volume. homes: every home of one of its pages, at least one. limit: the longest wait for a host, 0:
    // until it answers. Errors: io when something may be lost, or a host took too long.
    Task<Result<>> flush(Session& session, HostSet homes, std::chrono::milliseconds limit);
    // D1 for these pages only, all homed here: needs no message and no other page. Errors: as flush().
    Task<Result<>> flush_pages(Session& session, std::vector<PageId> pages, Atomicity atomicity);
    // Call it after a write to these pages of one home, before the reply. began: the home's verifier
    // (Verifiers::present) before the write.
    void wrote(Session& session, HostId home, PageId first, PageId last, protocol::Verifier began) {
        const bool is_noted = contains(session.noted.load(std::memory_order_relaxed), home);
        if (!is_noted || began != parts_.verifiers.present(home)) note_write(session, home, first, last, began);
    }
    // Call it before a session opens, so that no earlier loss is held against it. Waits only a moment for homes that
    // are unreachable, not settled or hang.
    Task<> hear_from_homes();
    // Whether a session that opens now counts the losses of every home from now on.
    bool all_are_heard() const;
    void open_session(Session& session);
    // A session uses a page of this home that it has not heard of: its losses count from what this host last heard.
    void count_from_now(LossView& losses, HostId home) const;
    void close_session(Session& session);
    // As if the session began now: no earlier loss is held against it. Only for a session whose reads ignore losses.
    void renew_session(Session& session);

    // Called under a stripe's latch.
    void book(const protocol::Action& action, protocol::FlushActions& actions) override;
    void on_written(protocol::WaiterToken waiter, protocol::FlushActions& actions) override;
    // Called outside any latch.
    void run(protocol::FlushActions actions) override;
    // A message of this host, or one of another host that accepts() let through.
    void on_message(const protocol::Message& message);
    bool accepts(const protocol::Message& message);
    void on_peer_up(HostId host, Process process, Process previous);
    void on_recovered();
    void check_store_failure() override;
    void on_store_failed() override;
    void on_host_forgotten(HostId host);
    // Each message of a home tells the verifier under which it serves now.
    void heard(HostId home, protocol::Verifier verifier);
    void abandon();

  private:
    struct Wait;
    template <class Change>
    void act(Change&& change);
    // Asks the page's stripe to write the page's dirty bytes home; answered by on_written().
    void write_back(PageId page, protocol::WaiterToken waiter);
    void begin(Session& session);  // with nothing noted
    void go_on(Session& session);  // with what its record says
    void save(const Session& session, HostSet homes) const;
    void note_write(Session& session, HostId home, PageId first, PageId last, protocol::Verifier began);
    // Tells the books of one volume what this host last heard from each home.
    void tell_verifiers(VolumeId volume);
    Task<Result<>> learn_verifiers(HostSet homes);
    bool is_heard(HostId home) const;
    Task<> ask_homes();
    void give_up(Wait& wait, Errc code);
    // Returns whether the home answered.
    Task<bool> ask_verifier(HostId home, CallKind kind);
    struct Hearing;
    static Task<> hear_from(Flusher& self, HostId home, std::shared_ptr<Hearing> hearing);
    Task<> answer_ask(protocol::Message ask, protocol::WaiterToken waiter);
    Task<> store_flush(VolumeId volume, uint64_t ticket);

    const Parts parts_;
    std::atomic<bool> store_failure_told_{false};
    SpinLock lock_;
    protocol::FlushHome home_;
    protocol::FlushHolder holder_;
    protocol::FlushRequester requester_;
    std::vector<Session*> sessions_;
    protocol::SessionId last_session_ = 0;
    std::vector<Wait*> waits_;
    std::atomic<HostSet> settled_{0};  // homes that said so in their last answer
};

}  // namespace tarn
