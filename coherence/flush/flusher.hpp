// Flusher: performs FLUSH (D1) on this host: as the requester, as a home, and as a holder that is asked.
//
// The three pure parts (protocol/flush.hpp) share one lock, taken last. What they ask for is done outside of it.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "coherence/fabric/peers.hpp"
#include "coherence/home_store/home_writer.hpp"
#include "coherence/pages/loss_view.hpp"
#include "coherence/pages/verifiers.hpp"
#include "coherence/protocol/flush.hpp"

namespace tarn {

// What a session's reads of a page that lost writes get.
enum class OnLoss : uint8_t {
    fail,    // an error, if the session may have seen what was lost
    revert,  // what the page's home has
};

// A client's session, as the books of FLUSH know it: which homes have the verifier of its writes noted since its last
// flush (the hot path's only look at it), and which losses lie before it. Whoever owns it opens and closes it here.
struct Session {
    VolumeId volume = 0;
    OnLoss on_loss = OnLoss::fail;
    LossView losses;
    protocol::SessionId id = 0;  // given by open_session()
    std::atomic<HostSet> noted{0};
};

class Flusher final : public FlushBooks, public WaitingFlushes {
  public:
    struct Parts {
        Membership& membership;
        Store& store;
        FramePool& pool;
        Pages& pages;
        Stripes& stripes;
        Peers& peers;
        HomeWriter& writer;
        Verifiers& verifiers;
    };
    explicit Flusher(const Parts& parts);

    // D1 for the volume. homes: every host that is home of a page of it. limit: how long a host is waited for, 0: until
    // it answers. Errors: io when something may be lost, or a host took too long.
    Task<Result<>> flush(Session& session, HostSet homes, std::chrono::milliseconds limit);
    // D1 for these pages alone, all of them homed here: neither messages nor other pages. Errors: as flush().
    Task<Result<>> flush_pages(Session& session, std::vector<PageId> pages, Atomicity atomicity);
    // After a write to these pages of one home, before its reply. began: its verifier (Verifiers::present) before the
    // write.
    void wrote(Session& session, HostId home, PageId first, PageId last, protocol::Verifier began) {
        const bool is_noted = contains(session.noted.load(std::memory_order_relaxed), home);
        if (!is_noted || began != parts_.verifiers.present(home)) note_write(session, home, first, last, began);
    }
    // Before a session opens, so that no loss from before is held against it. Homes that are away or not settled, or
    // hang, are waited for a moment only.
    Task<> hear_from_homes();
    void open_session(Session& session);
    // A session that has not heard of this home uses a page of it now: it counts from what this host last heard.
    void count_from_now(LossView& losses, HostId home) const;
    void close_session(Session& session);
    // As if the session began now: no loss from before is held against it. Only of one whose reads heed no losses.
    void renew_session(Session& session);

    // Under a stripe's latch.
    void book(const protocol::Action& action, protocol::FlushActions& actions) override;
    void on_written(protocol::WaiterToken waiter, protocol::FlushActions& actions) override;
    // Outside of any latch.
    void run(protocol::FlushActions actions) override;
    // Of this host, or of another one from which accepts() took it.
    void on_message(const protocol::Message& message);
    bool accepts(const protocol::Message& message);
    void on_peer_up(HostId host, Process process, Process previous);
    void on_recovered();
    void heed_store_failure() override;
    void on_store_failed() override;
    void on_host_forgotten(HostId host);
    // With each message of a home: under which verifier it serves now.
    void heard(HostId home, protocol::Verifier verifier);
    void abandon();

  private:
    struct Wait;
    // Asks the page's stripe to write the page's dirty bytes home; answered by on_written().
    void write_back(PageId page, protocol::WaiterToken waiter);
    void begin(Session& session);  // with nothing noted
    void note_write(Session& session, HostId home, PageId first, PageId last, protocol::Verifier began);
    // What this host last heard from each home, for the books of one volume.
    void tell_verifiers(VolumeId volume);
    Task<Result<>> learn_verifiers(HostSet homes);
    bool is_heard(HostId home) const;
    bool all_are_heard() const;
    Task<> ask_homes();
    Task<Result<>> learn_verifier(HostId home);
    static Task<> watch(Flusher& self, Wait& wait, Timer& timer, std::chrono::milliseconds limit);
    void give_up(Wait& wait, Errc code);
    // Whether it answered.
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
    std::atomic<HostSet> settled_{0};  // homes that said so when they were last asked
};

}  // namespace tarn
