// Server: the NBD listeners of one daemon, and its connections, spread over the shards.
//
// Everything here runs on the first shard, except what a connection does. Listen first, then serve(); stop() ends it:
// requests in flight are answered, nothing is left behind. The server outlives neither its loops nor its volumes.
//
// A connection begins on the shard that has the fewest. Where shards are joined to CPUs it then follows its client.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "frontends/nbd/connection.hpp"
#include "frontends/nbd/device_connection.hpp"
#include "frontends/volumes/volumes.hpp"
#include "utils/log_limit.hpp"
#include "utils/loop.hpp"
#include "utils/unique_fd.hpp"

namespace tarn::nbd {

class Server final {
  public:
    // The file descriptors that connections leave free for everything else, above all for links with other hosts; half
    // of the process's limit, if that is less.
    static constexpr size_t descriptors_left_min = 512;

    // The loops outlive the server and run until stop() returned. held_bytes_max: for requests in
    // work, of all connections together; each may need a little more (connection.hpp). landing: memory of the volumes'
    // for writes to come in, LandingBuffers::size_bytes for each shard, as far as there is some. clients: memory that
    // the next process finds, for a SessionBook.
    Server(std::vector<Loop*> shards, Volumes& volumes, size_t held_bytes_max, Settings settings = {},
           std::span<std::byte> landing = {}, std::span<std::byte> clients = {});
    Server(const Server&) = delete;
    ~Server();

    // A socket nobody listens on any more is replaced. Errors: busy (somebody does), invalid (the path), io.
    Result<> listen_unix(const std::string& path, mode_t mode = 0660);
    // host is an address or a name, empty for all; port 0 takes a free one. Returns the port. Errors: invalid, busy,
    // io.
    Result<uint16_t> listen_tcp(const std::string& host, uint16_t port);

    // On a socket that listens already, and that somebody else removes. Returns where that is. Errors: invalid (it does
    // not listen, or not for streams).
    struct Place {
        std::string path;  // of a Unix socket; empty: a host and port
        std::string host;
        uint16_t port = 0;
    };
    Result<Place> listen_on(UniqueFd socket);
    // How clients over TCP that come from now on are let in; until then all are, without TLS. From the first shard.
    void set_admission(Admission admission) { admission_ = std::make_shared<const Admission>(std::move(admission)); }
    const Admission& admission() const { return *admission_; }

    // Accepts until stop(). Spawn it on the first shard.
    Task<> serve();
    // From the first shard. Returns when no connection is left.
    Task<> stop();

    // Serves one connection of a device of this host's kernel, on a shard that is joined to this CPU. ended and resized
    // (see DeviceConnection), are called on the first shard, unless the server stops. Errors: cancelled (it stops).
    struct DeviceLink {
        UniqueFd socket;
        DeviceLog::Memory& memory;
        uint32_t first_receipt;
        std::shared_ptr<Volume> volume;
        Export exported;
        bool export_ended;  // its volume was deleted: everything is refused
        Client client;
        std::optional<unsigned> cpu;
        std::function<void(DeviceConnection::End)> ended;
        std::function<void()> resized;
    };
    Result<> adopt(DeviceLink link);

    // See VolumeClients. On the first shard.
    Task<std::vector<std::string>> clients_of(VolumeId volume);
    Task<> end_clients_of(VolumeId volume);

    // Of each shard, in their order; any thread.
    std::vector<size_t> connections_by_shard() const;
    // As many as the settings and the process's limit of open files allow.
    size_t connections_max() const { return connections_max_; }
    size_t connection_count() const { return connection_count_.load(std::memory_order_relaxed); }

  private:
    struct Listener {
        UniqueFd socket;
        std::string path;  // of a Unix socket that is ours to remove
        bool is_tcp = false;
    };
    struct Shard;

    Task<> accept_from(Listener& listener);
    Shard& next_for(std::optional<unsigned> cpu);
    bool may_enter(const Listener& listener, int socket);
    Task<> take_up(Shard& shard, UniqueFd socket, unsigned place, std::shared_ptr<const Admission> admission);
    Task<> take_device(Shard& shard, DeviceLink link);
    Task<> run_device(Shard& shard, DeviceLink link);
    static Task<> tell_ended(const DeviceLink& link, DeviceConnection::End how);
    static Task<> tell_resized(const DeviceLink& link);
    Task<> run_connection(Shard& shard, std::unique_ptr<Connection> connection);
    Task<> arrive(Shard& shard, std::unique_ptr<Connection> connection);
    Workspace* next_shard(unsigned cpu);
    Task<> hold_moves();
    void let_move() { held_.fetch_sub(1); }
    Task<> stop_shard(Shard& shard);
    static Task<std::vector<std::string>> clients_on(Shard& shard, VolumeId volume);
    static Task<> end_clients_on(Shard& shard, VolumeId volume);
    // Of those that are joined to this CPU, or of all; null: none is joined to it.
    Shard* least_loaded(std::optional<unsigned> cpu = {}) const;

    Loop& loop_;
    Volumes& volumes_;
    const Settings settings_;
    Sessions sessions_;
    Share share_;
    std::vector<std::unique_ptr<Shard>> shards_;
    std::vector<Listener> listeners_;
    std::shared_ptr<const Admission> admission_ = std::make_shared<const Admission>();
    const size_t connections_max_;
    Newcomers newcomers_;
    std::atomic<size_t> connection_count_{0};
    unsigned accepted_count_ = 0;
    // Connections between two shards, where nobody finds them; while moves are held, none sets out.
    std::atomic<size_t> moving_{0};
    std::atomic<size_t> held_{0};
    bool stopping_ = false;
    LogLimit refusals_{5, std::chrono::seconds(10)};
    Gate gate_;
};

}  // namespace tarn::nbd
