// Inbox: checks what comes from other hosts (links, accounts of stores, messages) and turns it into events.
#pragma once

#include <atomic>
#include <functional>
#include <span>

#include "coherence/adoption/home_start.hpp"
#include "coherence/executor/host_parts.hpp"
#include "coherence/flush/flusher.hpp"
#include "coherence/pages/writable_share.hpp"

namespace tarn {

class Inbox final : public Fabric::Receiver {
  public:
    struct Parts : HostParts {
        FrameSupply& supply;
        HeldFrames& held_frames;
        WritableShare& writable_share;
        HomeFrames& home;
        const Verifiers& verifiers;
        Flusher& flusher;
        HomeStart& home_start;
    };
    explicit Inbox(const Parts& parts) : parts_(parts) {}

    // Registers handlers for the calls of other hosts. Call it before any link can come up.
    void register_calls(CallHandlers& calls);
    // `ask` returns the next unassigned volume id: a peer that names a later one is not correct. Set before any link is
    // up.
    using AskNextVolumeId = std::function<Task<Result<VolumeId>>()>;
    void set_next_volume_id(AskNextVolumeId ask) { ask_next_volume_id_ = std::move(ask); }
    // Called once another host remembers a newer state of this host's store: it must end.
    void set_older_handler(std::function<void()> handler) { older_handler_ = std::move(handler); }

    // An operator vouches that this host, up to this incarnation, is dead: bytes that only it had are lost, nobody
    // waits for it any more, and it is linked again only as another process. Durable. On a shard. Errors: busy (it is
    // linked), io.
    Task<Result<>> forget_host(HostId host, Incarnation incarnation);

    LinkDecision decide_on_link(HostId host, Incarnation incarnation) override;
    StoreStanding own_standing() override { return parts_.store.standing(); }
    StoreStanding remembered_of(HostId host) override { return parts_.store.heard(host); }
    Result<> accepts_memory(HostId of, const StoreStanding& of_us) override;
    void on_standing(HostId host, const StoreStanding& standing) override;
    void on_link_up(HostId host, Process process) override;
    void on_link_down(HostId host) override;
    void on_greeted(HostId host) override;
    void on_batch(std::span<const PageId> pages, Batch& batch) override;
    Result<> on_message(const protocol::Message& message, std::byte* page) override;
    std::byte* lend_page(HostId from) override { return parts_.supply.lend(from); }
    void return_page(std::byte* page) override { parts_.supply.give(parts_.pool.id_of(page)); }

  private:
    void check_volume(HostId peer, VolumeId volume);
    Task<> verify_volume(HostId peer, VolumeId volume);
    Task<> remember_again(HostId host);
    Task<> remember_standing(HostId host, StoreStanding standing);
    Task<> end_as_older(StoreStanding remembered);
    Task<Result<std::string>> tell_verifier();
    Task<Result<std::string>> tell_settled_verifier();

    const Parts parts_;
    AskNextVolumeId ask_next_volume_id_;
    std::atomic<VolumeId> next_volume_id_{0};  // above every volume known to exist
    std::atomic<HostSet> under_suspicion_{0};  // of naming one that does not exist
    std::function<void()> older_handler_;
};

}  // namespace tarn
