// Three hosts in one process, for tests: each with two loops on threads of their own, a real store in a file and real
// sockets to its peers, and a pool far smaller than the volume that all of them share.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "coherence/fabric/link/linked_fabric.hpp"
#include "frontends/volumes/cached_volume.hpp"
#include "utils/run_on.hpp"

namespace tarn::three_hosts {

constexpr size_t host_count = 3;
constexpr size_t frame_count = 512;
constexpr VolumeId volume_id = 5;
constexpr VolumeId next_volume_id = 8192;
constexpr uint64_t volume_bytes = uint64_t{256} << 20;  // what flushes cover; nobody sets a size

class Host {
  public:
    // What a test puts on top of the cache. Made before any link comes up; it goes before the cache does.
    struct OnTop {
        virtual ~OnTop() = default;
        // Once the cache is abandoned: until nothing of it is under way.
        virtual Task<> end() = 0;
    };

    Host(HostId id, const std::string& directory, std::vector<std::string> addresses, std::string key);
    ~Host() {
        if (loop) stop();
    }

    void start();
    // As SIGKILL: nothing is flushed.
    void stop();
    // The device ends in the middle, from now on.
    void lose_store() const { std::filesystem::resize_file(path_, 4096); }

    std::unique_ptr<Loop> loop;
    std::unique_ptr<Loop> other;
    std::unique_ptr<Store> store;
    std::unique_ptr<Cache> cache;
    std::unique_ptr<VolumeContext> volumes;
    std::unique_ptr<LinkedFabric> fabric;
    std::function<std::unique_ptr<OnTop>(Host&)> make_on_top;
    std::unique_ptr<OnTop> on_top;

  private:
    StoreIdentity identity() const { return {.cluster = {}, .host = id_}; }

    HostId id_;
    std::string path_;
    std::vector<std::string> addresses_;
    std::string key_;
    std::vector<std::thread> threads_;
};

class Cluster : public testing::Test {
  protected:
    void SetUp() override;
    // Before the host starts for the first time.
    virtual void prepare(Host&) {}
    void TearDown() override {
        hosts_.clear();
        std::filesystem::remove_all(directory_);
    }

    template <class T>
    T on(HostId host, Task<T> task) {
        return driver_->run_until_done(run_on(*hosts_[host]->loop, std::move(task)));
    }

    // Where in the volume the first range is that lies on this host.
    uint64_t homed_at(HostId home) const;

    std::string directory_;
    std::vector<std::string> addresses_;
    std::unique_ptr<Loop> driver_;
    std::vector<std::unique_ptr<Host>> hosts_;
};

// By sessions that last as long as the call.
Task<Result<>> write(Host& host, uint64_t offset, std::span<const std::byte> from);
// What there is, whatever was lost before: it is nobody's session.
Task<Result<>> read(Host& host, uint64_t offset, std::span<std::byte> into);
Task<Result<>> flush(Host& host);

// Until the host has none of its clean pages in memory any more.
Task<Result<>> evict_all(Host& host);

// A session that lives as long as the test wants, on one host.
struct TestSession {
    static Task<std::unique_ptr<CachedVolume>> open(Host& host) {
        co_await host.cache->flusher().hear_from_homes();
        co_return std::make_unique<CachedVolume>(*host.volumes, volume_id);
    }
    static Task<Result<>> read(CachedVolume& volume, uint64_t offset, std::span<std::byte> into) {
        if (volume.try_read(offset, into)) co_return Result<>{};
        co_return co_await volume.read(offset, into);
    }
    static Task<Result<>> write(CachedVolume& volume, uint64_t offset, std::span<const std::byte> from) {
        if (volume.try_write(offset, from)) co_return Result<>{};
        co_return co_await volume.write(offset, from);
    }
};

}  // namespace tarn::three_hosts
