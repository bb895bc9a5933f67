// Sessions: which connections belong to one client, and what is remembered of a client without a connection.
//
// A client of an export is one session over all its connections (docs/contract.md, D4): a write that it made over one
// may be lost, and then a flush over any other must not succeed. Who it is: on a Unix socket the process that
// connected, by its id and the time it started; over TCP the address without its port, or the name that it proved
// within TLS. A session ends when its last connection says that it disconnects. One that merely breaks is remembered,
// since its client may come back and go on: for ten minutes, or until the process is gone. So it is when tarnd itself
// ends without having made everything durable: its client finds its session again at the next one (SessionBook).
//
// A client that has come back sends again what was not answered. What it had sent before may still wait, even unread,
// on the connection that broke, and must not land after what it writes from now on: so its requests come after the end
// of that one.
//
// Any thread.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "frontends/nbd/client.hpp"
#include "frontends/nbd/session_book.hpp"
#include "frontends/volumes/volume.hpp"
#include "utils/broadcast.hpp"

namespace tarn::nbd {

class Sessions {
  public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::minutes remembered_for{10};
    // How many clients without a connection are remembered; beyond that the one that left first is forgotten.
    static constexpr size_t remembered_max = 4096;
    // A client that has hung up and does not take its answers holds up no more than that.
    static constexpr std::chrono::seconds broken_wait_max{30};

    // book: what an earlier process has left, and where the next one will find what this one knows.
    explicit Sessions(SessionBook book = SessionBook());

    // The client's session at this volume; null: it has none yet, or only its record.
    std::shared_ptr<VolumeSession> find(const Client& client, VolumeId volume, Clock::time_point now);
    // For a session that is to be made: its record, which an earlier process may have begun. Null: the client has a
    // session already; or no page is left, and the new one ends with this process.
    std::shared_ptr<SessionRecord> record_of(const Client& client, VolumeId volume, Clock::time_point now);
    // The session is not made after all. A record that an earlier process had begun stays.
    void give_up(const Client& client, VolumeId volume);
    // This process ends, but the sessions do not.
    void keep_all() { book_.keep_all(); }
    // A connection over this socket joins the session, or leaves it before it closes the socket. said: the client said
    // that it disconnects, and will not come back. Returns the client's session: if it is not this one, another
    // connection was first, and nothing is changed.
    std::shared_ptr<VolumeSession> joined(const Client& client, VolumeId volume,
                                          const std::shared_ptr<VolumeSession>& session, int socket);
    void left(const Client& client, VolumeId volume, int socket, bool said, Clock::time_point now);
    // For one that has joined: waits until those have left that joined before it and that the client has hung up, as
    // far as that is seen by now. False: they have not within broken_wait_max.
    Task<bool> wait_for_broken_ones(const Client& client, VolumeId volume, int socket);

    size_t size() const;

  private:
    struct Known {
        std::shared_ptr<SessionRecord> record;  // of the session, if there is one
        bool is_left = false;                   // it was begun by an earlier process
        std::shared_ptr<VolumeSession> session;
        std::vector<int> sockets;   // of its connections, in the order in which they joined
        Clock::time_point left_at;  // the last of them
    };
    using Place = std::map<std::pair<Client, VolumeId>, Known>::iterator;
    void forget(Place known);
    void forget_old(Clock::time_point now);
    bool follows_broken_one(const Client& client, VolumeId volume, int socket) const;

    mutable std::mutex mutex_;
    SessionBook book_;
    Broadcast left_;
    std::map<std::pair<Client, VolumeId>, Known> known_;
};

}  // namespace tarn::nbd
