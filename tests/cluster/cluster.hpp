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
#include "tests/support/scratch_directory.hpp"
#include "utils/run_on.hpp"

namespace tarn::three_hosts {

constexpr size_t host_count = 3;
constexpr size_t frame_count = 512;
constexpr VolumeId volume_id = 5;
constexpr VolumeId next_volume_id = 8192;
constexpr uint64_t volume_bytes = uint64_t{256} << 20;  // covered by flushes; no test sets a size

class Host {
  public:
    // A test's layer on top of the cache. Made before any link comes up, destroyed before the cache.
    struct OnTop {
        virtual ~OnTop() = default;
        // Called once the cache is abandoned: waits until nothing of the layer is under way.
        virtual Task<> end() = 0;
    };

    Host(HostId id, const std::string& directory, std::vector<std::string> addresses, std::string key);
    ~Host() {
        if (loop) stop();
    }

    void start();
    // Like SIGKILL: nothing is flushed.
    void stop();
    // From now on the device ends in the middle.
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
    // Call it before the host starts for the first time.
    virtual void prepare(Host&) {}

    template <class T>
    T on(HostId host, Task<T> task) {
        return driver_->run_until_done(run_on(*hosts_[host]->loop, std::move(task)));
    }

    // Waits until this many others are linked.
    static Task<bool> knows_links(Host& host, size_t count);
    // Waits until the host serves its pages, and knows all others.
    static Task<bool> joined(Host& host);

    // The offset of the first page of a volume whose home is this host.
    uint64_t homed_at(HostId home, VolumeId volume = volume_id) const;

    ScratchDirectory directory_;
    std::vector<std::string> addresses_;
    std::unique_ptr<Loop> driver_;
    std::vector<std::unique_ptr<Host>> hosts_;
};

// By a session for each call.
Task<Result<>> write(Host& host, uint64_t offset, std::span<const std::byte> from);
// Reads without a session: earlier losses do not matter.
Task<Result<>> read(Host& host, uint64_t offset, std::span<std::byte> into);
Task<Result<>> flush(Host& host);

// Waits until the host has no page of the volume in memory any more.
Task<Result<>> evict_all(Host& host, VolumeId volume = volume_id);

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
