// Node: one host of the cluster, put together: store, cache, fabric, catalog, front ends, control socket.
//
// The only place that constructs the others and connects them. Everything below gets what it needs through its
// constructor; nothing is global.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "coherence/cache/cache.hpp"
#include "coherence/fabric/link/linked_fabric.hpp"
#include "daemon/attachments/attachments.hpp"
#include "daemon/attachments/size_notices.hpp"
#include "daemon/catalog/catalog.hpp"
#include "daemon/configuration/configuration.hpp"
#include "daemon/control/control.hpp"
#include "daemon/control/control_server.hpp"
#include "daemon/keeper/keeper.hpp"
#include "daemon/mounts/mounts.hpp"
#include "daemon/process/dead_hosts.hpp"
#include "daemon/process/shards.hpp"
#include "daemon/process/shutdown_barrier.hpp"
#include "daemon/process/signals.hpp"
#include "daemon/process/standings.hpp"
#include "frontends/nbd/server.hpp"
#include "tiers/nvme/idle_checkpointer.hpp"
#include "tiers/nvme/scrubber.hpp"
#include "tiers/nvme/store.hpp"
#include "utils/loop.hpp"

namespace tarn {

class Node final : public Control {
  public:
    Node(Configuration configuration, const StartOptions& options);
    ~Node() override;

    // Runs until SIGTERM or SIGINT, and then flushes. Returns the process's exit code.
    int run(Signals& signals);

    // Control
    Task<Result<NodeStatus>> status() override;
    Export export_of(const std::string& volume) override;
    bool serves_nbd() const override { return !configuration_.nbd_unix.empty() || configuration_.nbd_tcp; }
    Scrubber::Progress verify_status() override { return scrubber_->progress(); }
    Result<> start_verify(std::optional<VolumeId> volume, uint64_t rate_bytes) override;
    void stop_verify() override { scrubber_->cancel(); }
    std::string name_of_volume(VolumeId volume) const override { return catalog_->name_of(volume); }
    Task<Result<Forgotten>> forget_host(std::string name) override;
    std::vector<Mount> mounts() override { return mounts_->list(); }
    Task<Result<>> mount(Mount mount, Caller caller) override {
        return mounts_->mount(std::move(mount), std::move(caller));
    }
    Task<Result<Unmounting>> unmount(std::string path, bool force) override {
        return mounts_->unmount(std::move(path), force);
    }
    std::vector<Attachment> attachments() override { return attachments_->list(); }
    Task<std::vector<std::string>> tell_size(VolumeId volume) override;
    Task<Result<Attachment>> attach(AttachOptions options, Caller caller) override {
        return attachments_->attach(std::move(options), std::move(caller));
    }
    Task<Result<>> detach(std::string volume, bool force, Caller caller) override {
        return attachments_->detach(std::move(volume), force, std::move(caller));
    }

  private:
    Result<> check_places() const;
    Json shard_statuses() const;
    Json link_status(HostId host) const;
    std::vector<std::string> names_of(const std::vector<HostId>& hosts) const;
    Task<Result<>> start();
    Task<Result<>> await_control_socket();
    Result<std::unique_ptr<Arena>> memory_left_behind();
    Task<> stop();
    Task<> serve(Signals& signals);
    Task<> scrub_on_schedule();
    Task<> register_arena();
    Result<> start_fabric();
    Result<> start_front_ends();
    Result<> start_nbd();
    Result<> listen_for_nbd();
    Result<> admit_clients();
    nbd::Admission admission(std::shared_ptr<const nbd::TlsCredentials> credentials) const;
    void say_who_is_not_let_in(const nbd::TlsCredentials& credentials) const;
    Task<> read_anew();
    Task<> warn_of_missing_volumes();

    Configuration configuration_;
    StartOptions options_;
    PassedDescriptors passed_;
    Keeper keeper_;
    NetlinkDriver nbd_driver_;
    std::vector<Keeper::Kept> kept_;  // what the process before left, beside its memory
    bool memory_was_lost_ = false;    // of the process before, and with it what was not durable
    bool memory_is_kept_ = false;
    bool stopped_clean_ = false;
    std::atomic<bool> store_is_older_{false};  // than what another host remembers: nothing of it may be served
    uint64_t started_ns_;
    std::unique_ptr<Shards> shards_;
    // The last goes first, when no loop runs any more.
    std::unique_ptr<Store> store_;
    std::unique_ptr<IdleCheckpointer> idle_checkpointer_;
    std::unique_ptr<Scrubber> scrubber_;
    std::unique_ptr<Timer> scrub_schedule_;
    std::unique_ptr<Cache> cache_;
    std::unique_ptr<VolumeContext> volumes_;
    std::unique_ptr<MarkSweeper> mark_sweeper_;
    std::unique_ptr<LinkedFabric> fabric_;
    std::unique_ptr<Standings> standings_;
    std::unique_ptr<DeadHosts> dead_hosts_;
    std::unique_ptr<ShutdownBarrier> shutdown_barrier_;
    std::unique_ptr<SizeNotices> size_notices_;
    Gate telling_;
    std::unique_ptr<Catalog> catalog_;
    std::unique_ptr<nbd::Server> nbd_;
    std::unique_ptr<Attachments> attachments_;
    std::unique_ptr<Mounts> mounts_;
    std::unique_ptr<ControlApi> api_;
    std::unique_ptr<ControlServer> control_;
};

}  // namespace tarn
