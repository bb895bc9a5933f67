// LinkedFabric: the fabric as links to all other hosts. Hosts meet over one transport; before a link comes up it moves
// to a better one that both have, or stays (docs/fabric.md).
//
// Each pair of hosts has one link; the host with the higher id connects, the other accepts. Links are made in the
// background and made again when they break. Made by the daemon; called by the cache and the catalog as a Fabric.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "coherence/fabric/fabric.hpp"
#include "coherence/fabric/link/handshake.hpp"
#include "coherence/fabric/link/link.hpp"
#include "coherence/fabric/link/linked_fabric_configuration.hpp"
#include "coherence/fabric/link/strangers.hpp"
#include "coherence/fabric/transport/transport.hpp"
#include "utils/log_limit.hpp"
#include "utils/loop.hpp"

namespace tarn {

class LinkedFabric : public Fabric {
  public:
    LinkedFabric(LinkedFabricConfiguration configuration, std::unique_ptr<Transport> transport, Receiver& receiver);

    // Before start(): links move to it where both hosts have it. The best comes first.
    void add_upgrade(std::unique_ptr<Transport> transport);
    bool can_move() const { return !upgrades_.empty(); }
    // Starts connecting and accepting; from then on the receiver is called. On the first shard.
    void start();
    // Ends all links; the tasks end with their loops. On the first shard.
    void stop();

    void send(HostId to, const protocol::Message& message, std::span<const std::byte> payload) override;
    void cork() override;
    void uncork() override;
    uint64_t received_count(protocol::MessageKind kind) const override;
    bool linked(HostId to) const override { return links_[to] && links_[to]->up(); }
    // Of another host.
    LinkStatus link_status(HostId of) const { return links_[of]->status(); }
    bool congested(HostId to) const override { return links_[to] && links_[to]->congested(); }
    // That are on this shard, whether they are up or not.
    size_t links_on(const Loop& shard) const;
    bool answers(HostId to) const override { return links_[to] && links_[to]->answers(); }
    std::string why_not_linked(HostId host) const override { return linked(host) ? "" : troubles_[host]; }
    std::string name_of(HostId host) const override { return configuration_.name_of(host); }
    using Fabric::name_of;
    void disconnect(HostId from) override;
    void resume(HostId from) override { links_[from]->resume(); }
    Task<Result<std::string>> call(HostId to, CallKind kind, std::string request) override;

  private:
    Task<> accept_all(Transport& transport);
    Task<> meet(std::unique_ptr<Connection> connection);
    void hand_over(Link& link, std::unique_ptr<Connection> connection, Process process);
    Loop& shard_for(const Link& link, const Connection& connection) const;
    Task<> pause(std::chrono::nanoseconds duration);
    struct Linked {
        std::unique_ptr<Connection> connection;
        Process process;
    };
    Task<> keep_connected(Link& link, std::string address);
    Task<Result<Linked>> link_with(HostId host, std::string address);
    Task<Result<Linked>> move(HostId host, const std::vector<Offer>& offers);
    Task<> ask_the_absent(Link& link, std::string address);
    Task<Result<>> compare_lists(std::string address);

    const LinkedFabricConfiguration configuration_;
    const std::unique_ptr<Transport> transport_;
    std::vector<std::unique_ptr<Transport>> upgrades_;
    Handshake handshake_;
    PerLoop<Link::Corked> corked_;
    std::array<std::unique_ptr<Link>, hosts_max> links_;
    std::array<std::string, hosts_max> troubles_;  // why the last attempt to link failed
    std::array<std::string, hosts_max> stays_;     // why a link did not move, as last logged
    bool stopping_ = false;
    std::vector<Timer*> pauses_;
    std::vector<Connection*> handshakes_;  // under way
    Strangers strangers_;
    LogLimit refusals_{5, std::chrono::seconds(10)};  // log lines about refused connections
};

}  // namespace tarn
