// LinksToKill: the links of one process that is killed right after a message of the caller's choice: that message may
// have left, and nothing after it.
#pragma once

#include <functional>
#include <utility>

#include "coherence/fabric/link/linked_fabric.hpp"

namespace tarn::hosts_sim {

// Whoever hears of a new link is asked nothing else meanwhile.
class Ears final : public Fabric::Receiver {
  public:
    // cut: breaks the connection with a host.
    Ears(Fabric::Receiver& of, std::function<void(HostId)> cut) : of_(of), cut_(std::move(cut)) {}

    bool is_greeting() const { return is_greeting_; }
    // No link comes up any more: who says nothing over a link that does seems to hold nothing.
    void close() { is_closed_ = true; }

    LinkDecision decide_on_link(HostId host, Incarnation incarnation) override {
        return is_closed_ ? LinkDecision::retry : of_.decide_on_link(host, incarnation);
    }
    StoreStanding own_standing() override { return of_.own_standing(); }
    StoreStanding remembered_of(HostId host) override { return of_.remembered_of(host); }
    Result<> accepts_memory(HostId of, const StoreStanding& of_us) override { return of_.accepts_memory(of, of_us); }
    void on_standing(HostId host, const StoreStanding& standing) override { of_.on_standing(host, standing); }
    void on_link_up(HostId host, Process process) override {
        if (is_closed_) return cut_(host);
        is_greeting_ = true;
        of_.on_link_up(host, process);
        is_greeting_ = false;
    }
    void on_link_down(HostId host) override { of_.on_link_down(host); }
    void on_greeted(HostId host) override { of_.on_greeted(host); }
    void on_batch(std::span<const PageId> pages, Batch& batch) override { of_.on_batch(pages, batch); }
    Result<> on_message(const protocol::Message& message, std::byte* page) override {
        return of_.on_message(message, page);
    }
    std::byte* lend_page(HostId from) override { return of_.lend_page(from); }
    void return_page(std::byte* page) override { of_.return_page(page); }

  private:
    Fabric::Receiver& of_;
    const std::function<void(HostId)> cut_;
    bool is_greeting_ = false;
    bool is_closed_ = false;
};

class LinksToKill final : public LinkedFabric {
  public:
    using LinkedFabric::LinkedFabric;

    void send(HostId to, const protocol::Message& message, std::span<const std::byte> payload) override {
        if (is_killed_) return;
        LinkedFabric::send(to, message, payload);
        // Not while it says what it holds: the links themselves say when that is over.
        if (left_ > 1)
            --left_;
        else if (left_ == 1 && may_kill())
            kill();
    }
    void kill_after(unsigned messages) { left_ = messages; }
    void kill() {
        if (!std::exchange(is_killed_, true)) on_kill();
    }
    bool is_killed() const { return is_killed_; }

    std::function<bool()> may_kill;
    std::function<void()> on_kill;

  private:
    unsigned left_ = 0;
    bool is_killed_ = false;
};

}  // namespace tarn::hosts_sim
