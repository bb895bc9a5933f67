// Tests of the catalogs of three hosts in one process.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <optional>

#include "daemon/catalog/catalog.hpp"
#include "frontends/volumes/attribute_page.hpp"
#include "tests/cluster/cluster.hpp"
#include "utils/with_timeout.hpp"

namespace tarn::three_hosts {

inline constexpr HostId registrar = 0;
inline constexpr Attributes one_page{.size_bytes = page_size};

// The NBD clients of one host.
class Clients final : public VolumeClients {
  public:
    Task<std::vector<std::string>> clients_of(VolumeId) override { co_return users(); }
    Task<> end_clients_of(VolumeId) override {
        set_users({});
        co_return;
    }
    void set_users(std::vector<std::string> users) {
        const std::lock_guard guard(mutex_);
        users_ = std::move(users);
    }
    std::vector<std::string> users() {
        const std::lock_guard guard(mutex_);
        return users_;
    }

  private:
    std::mutex mutex_;
    std::vector<std::string> users_;
};

struct CatalogOnTop final : Host::OnTop {
    explicit CatalogOnTop(Host& host) : catalog(*host.volumes, {host.loop.get(), host.other.get()}, {"a", "b", "c"}) {
        catalog.answer_calls(host.fabric->calls());
        catalog.set_clients(&clients);
    }
    Task<> end() override { return catalog.end_removals(); }
    Clients clients;
    Catalog catalog;
};

// Blocks both loops of a host, as long as this lives: the host is linked and hangs.
class Stopped {
  public:
    explicit Stopped(Host& host) {
        host.loop->post(holds_[0]);
        host.other->post(holds_[1]);
    }
    ~Stopped() {
        for (Hold& hold : holds_) {
            hold.ends = true;
            hold.ends.notify_all();
        }
        for (Hold& hold : holds_) hold.ended.wait(false);
    }

  private:
    struct Hold final : Loop::Posted {
        void run() override {
            ends.wait(false);
            ended = true;
            ended.notify_all();
        }
        std::atomic<bool> ends{false};
        std::atomic<bool> ended{false};
    };
    std::array<Hold, 2> holds_;
};

class CatalogTest : public Cluster {
  protected:
    void SetUp() override {
        Cluster::SetUp();
        for (HostId host = 0; host < host_count; ++host) ASSERT_TRUE(on(host, joined(*hosts_[host])));
    }
    void prepare(Host& host) override {
        host.make_on_top = [](Host& made) { return std::make_unique<CatalogOnTop>(made); };
    }
    CatalogOnTop& top(HostId host) { return static_cast<CatalogOnTop&>(*hosts_[host]->on_top); }
    Catalog& catalog(HostId host) { return top(host).catalog; }

    // Waits until the other host answers.
    static Task<bool> heard_of(Host& host, HostId other) {
        while (!host.fabric->answers(other)) co_await Yield(*Loop::current());
        co_return true;
    }
    void stop(HostId host) {
        hosts_[host]->stop();
        for (HostId other = 0; other < host_count; ++other)
            if (other != host) on(other, knows_links(*hosts_[other], host_count - 2));
    }

    Result<VolumeEntry> create(HostId host, const std::string& name, bool shared = true) {
        return on(host, catalog(host).create(name, shared, one_page));
    }
    // A new volume of 4 GiB whose attribute page has this home.
    VolumeEntry described_at(HostId home) {
        for (unsigned i = 0;; ++i) {
            const auto made =
                on(0, catalog(0).create(fmt::format("file {}", i), true, {.size_bytes = uint64_t{1} << 32}));
            EXPECT_TRUE(made);
            if (!made || hosts_[0]->cache->home_of(attribute_page_of(made->id)) == home)
                return made.value_or(VolumeEntry());
        }
    }
    static Task<> create_on(Loop& loop, Catalog& catalog, std::string name, Result<VolumeEntry>& result) {
        result = co_await run_on(loop, catalog.create(std::move(name), true, one_page));
    }
    Task<bool> all_create(std::string name, std::vector<Result<VolumeEntry>>& results) {
        Gate gate;
        for (HostId host = 0; host < host_count; ++host)
            gate.spawn(create_on(*hosts_[host]->loop, catalog(host), name, results[host]));
        co_await gate.close();
        co_return true;
    }
    Result<std::shared_ptr<Volume>> open(HostId host, const std::string& name, Access access = Access::write) {
        return on(host, catalog(host).open(name, access));
    }
    static Task<bool> drop(std::shared_ptr<Volume> volume) {
        volume.reset();
        co_return true;
    }
    static Task<bool> settled(Catalog& catalog) {
        co_await catalog.settle();
        co_return true;
    }
    // The test does not hold it any more.
    static std::shared_ptr<Volume> take(Result<std::shared_ptr<Volume>>& opened) {
        return std::exchange(*opened, nullptr);
    }
    void close(HostId host, std::shared_ptr<Volume> volume) {
        on(host, drop(std::move(volume)));
        on(host, settled(catalog(host)));
    }
    std::vector<std::string> names(HostId host) {
        const auto entries = on(host, catalog(host).names());
        EXPECT_TRUE(entries);
        std::vector<std::string> names;
        for (const VolumeEntry& entry : entries.value_or(std::vector<VolumeEntry>())) names.push_back(entry.name);
        return names;
    }
    // Waits until the deletion waits for these hosts.
    static Task<Deletion> waiting_for(Catalog& catalog, std::vector<std::string> hosts) {
        for (;;) {
            const std::vector<Deletion> deletions = co_await catalog.deletions();
            if (deletions.size() == 1 && deletions.front().in_use_on == hosts) co_return deletions.front();
            co_await Yield(*Loop::current());
        }
    }
    // Waits until nothing is being removed any more; nothing more can be.
    static Task<bool> removals_ended(Catalog& catalog) {
        co_await catalog.end_removals();
        co_return true;
    }
    static Task<bool> cleaned_up(Catalog& catalog) {
        co_await catalog.clean_up();
        co_return true;
    }
    static Task<Result<>> fill(std::shared_ptr<Volume> volume) {
        const std::vector<std::byte> bytes(page_size, std::byte{7});
        if (!volume->try_write(0, bytes)) CO_TRY_VOID(co_await volume->write(0, bytes));
        co_return co_await volume->flush();
    }
    // Whether a host has space for the volume. A flush frees slabs.
    bool stores(VolumeId volume) {
        for (HostId host = 0; host < host_count; ++host)
            EXPECT_TRUE(on(host, hosts_[host]->store->flush(*hosts_[host]->loop)));
        return std::ranges::any_of(hosts_, [&](const auto& host) {
            const std::vector<VolumeId> volumes = host->store->volumes();
            return std::ranges::find(volumes, volume) != volumes.end();
        });
    }
};

}  // namespace tarn::three_hosts
