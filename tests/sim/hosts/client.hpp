// Client: one client of a volume on one host: it does one thing after the other, in one session until something fails.
#pragma once

#include "tests/sim/hosts/world.hpp"

namespace tarn::hosts_sim {

class Client {
  public:
    Client(World& world, HostId host, unsigned number, VolumeId volume)
        : world_(world), host_(*world.hosts[host]), number_(number), volume_(volume) {}
    Client(const Client&) = delete;
    virtual ~Client() = default;

    // So many operations, on some shard of its host.
    void go_on(unsigned count);
    // Reads what there is, once, and flushes.
    void look_at_all();
    bool busy() const { return busy_; }
    // Whether the last flush of look_at_all() succeeded.
    bool is_flushed() const { return is_flushed_; }
    HostId host() const { return host_.id(); }

  protected:
    // Whether the operation succeeded.
    virtual Task<bool> step(CachedVolume& volume) = 0;
    virtual Task<bool> look(CachedVolume& volume) = 0;
    // A session has begun that counts the losses of all homes from now on.
    virtual void on_session() {}

    // Somebody hears the answer of what began in this life of the host.
    bool hears() const { return host_.is_alive(life_); }

    World& world_;
    SimHost& host_;
    const unsigned number_;
    const VolumeId volume_;
    unsigned session_ = 0;

  private:
    void begin(Task<> task);
    Task<> work();
    Task<> read_all();
    void begin_session();
    void open_session(CachedVolume& volume);

    unsigned left_ = 0;  // operations
    uint64_t life_ = 0;
    bool busy_ = false;
    bool is_flushed_ = false;
};

}  // namespace tarn::hosts_sim
