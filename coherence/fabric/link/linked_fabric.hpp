// LinkedFabric: the fabric over TCP sockets, on io_uring.
//
// Each pair of hosts has one link; the host with the higher id connects, the other accepts. Links are made in the
// background and made again when they break.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "coherence/fabric/fabric.hpp"
#include "coherence/fabric/link/authentication.hpp"
#include "coherence/fabric/link/link.hpp"
#include "coherence/fabric/link/strangers.hpp"
#include "utils/log_limit.hpp"
#include "utils/loop.hpp"

namespace tarn {

struct LinkedFabricConfiguration {
    struct Peer {
        HostId host;
        std::string address;  // "192.0.2.1:7420", "[2001:db8::1]:7420", or a name
    };
    HostId self = 0;
    protocol::Process process;
    std::array<uint8_t, 16> cluster{};
    std::string key;
    std::string listen;
    std::vector<Peer> peers;         // without this host
    std::vector<std::string> names;  // of all hosts, by id; none: they are known by their numbers
    // digest_of() the names of all hosts, to tell who was given another list; zeros: not told.
    std::array<uint8_t, 3> peers_digest{};
    std::vector<Loop*> shards;
    // See Link; 0: nobody is asked whether he is there.
    std::chrono::milliseconds listen_for = Link::listen_for_default;
};

class LinkedFabric final : public Fabric {
  public:
    // Errors: invalid (an address), io (the listening socket; the text of the log says which).
    static Result<std::unique_ptr<LinkedFabric>> create(LinkedFabricConfiguration configuration, Receiver& receiver);

    // Starts connecting and accepting; from then on the receiver is called. On the first shard.
    void start();
    // Ends all links; the tasks end with their loops. On the first shard.
    void stop();

    void send(HostId to, const protocol::Message& message, std::span<const std::byte> payload) override;
    void cork() override;
    void uncork() override;
    uint64_t received_count(protocol::MessageKind kind) const override;
    bool linked(HostId to) const override { return links_[to] && links_[to]->up(); }
    bool congested(HostId to) const override { return links_[to] && links_[to]->congested(); }
    bool answers(HostId to) const override { return links_[to] && links_[to]->answers(); }
    std::string why_not_linked(HostId host) const override { return linked(host) ? "" : troubles_[host]; }
    std::string name_of(HostId host) const override {
        return host < configuration_.names.size() ? configuration_.names[host] : std::to_string(host);
    }
    using Fabric::name_of;
    void disconnect(HostId from) override;
    void resume(HostId from) override { links_[from]->resume(); }
    Task<Result<std::string>> call(HostId to, CallKind kind, std::string request) override;

  private:
    struct Call;
    LinkedFabric(LinkedFabricConfiguration configuration, Receiver& receiver, UniqueFd listener);

    Task<> accept_all();
    Task<> meet(UniqueFd fd);
    // claimed: the host that the peer says it is, once it said so; no_host: it has said nothing that makes sense here.
    Task<Result<Introduction>> accept_introduction(int fd, HostId& claimed);
    Task<> pause(std::chrono::nanoseconds duration);
    Task<> keep_connected(Link& link, std::string address);
    Task<> ask_the_absent(Link& link, std::string address);
    Task<Result<>> compare_lists(std::string address);
    Introduction introduce_self() const;
    bool has_other_list(const Introduction& introduction) const;
    Task<Result<Introduction>> connect_introduction(int fd, HostId peer);
    Task<Result<>> compare_stores(int fd, HostId host);
    Task<Result<>> receive_exactly(Loop& loop, int fd, std::span<std::byte> into);
    Task<Result<>> send_exactly(Loop& loop, int fd, std::span<const std::byte> from);
    bool is_ours(const Introduction& introduction) const;
    bool accepts_link(const Introduction& introduction);

    LinkedFabricConfiguration configuration_;
    Receiver& receiver_;
    std::array<protocol::Incarnation, hosts_max> turned_away_{};  // said once of each process
    UniqueFd listener_;
    PerLoop<Link::Corked> corked_;
    std::array<std::unique_ptr<Link>, hosts_max> links_;
    std::array<std::string, hosts_max> troubles_;  // why the last attempt to link did not succeed
    bool stopping_ = false;
    std::vector<Timer*> pauses_;
    std::vector<int> handshakes_;  // their sockets
    Strangers strangers_;
    LogLimit refusals_{5, std::chrono::seconds(10)};  // lines about them
};

}  // namespace tarn
