// FakeDaemon: volumes that are names and sizes in a map, for tests of a daemon's clients.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/control.hpp"
#include "daemon/control/http_request.hpp"
#include "tests/support/fake_volume.hpp"

namespace tarn {

// Guards what a test changes while the server runs. (The socket orders the two already, which ThreadSanitizer cannot
// see: io_uring does the server's part inside the kernel.)
using FakeLock = std::lock_guard<std::mutex>;

class EntryVolume final : public FakeVolume {
  public:
    EntryVolume(VolumeEntry& entry, const std::atomic<bool>& flush_waits, Result<> flush_result, Result<> change_result,
                bool changes_all_the_same)
        : entry_(entry),
          flush_waits_(flush_waits),
          flush_result_(flush_result),
          change_result_(change_result),
          changes_all_the_same_(changes_all_the_same) {}
    VolumeId id() const override { return entry_.id; }
    std::optional<Attributes> try_attributes() override { return entry_.attributes; }
    std::optional<uint64_t> try_size() override { return entry_.attributes.size_bytes; }
    Task<Result<>> flush() override {
        while (flush_waits_) co_await Yield(*Loop::current());
        co_return flush_result_;
    }
    Task<Result<Attributes>> attributes() override { co_return entry_.attributes; }
    Task<Result<uint64_t>> size() override { co_return entry_.attributes.size_bytes; }
    Task<Result<Attributes>> change_attributes(AttributeChange change) override {
        if (change.size_bytes && (change_result_ || changes_all_the_same_))
            entry_.attributes.size_bytes = *change.size_bytes;
        if (!change_result_) co_return fail(change_result_.error());
        co_return entry_.attributes;
    }

  private:
    VolumeEntry& entry_;
    const std::atomic<bool>& flush_waits_;
    Result<> flush_result_;
    Result<> change_result_;
    bool changes_all_the_same_;
};

class FakeDaemon final : public Volumes, public Control {
  public:
    Task<Result<std::vector<VolumeEntry>>> list() override {
        const FakeLock lock(mutex_);
        std::vector<VolumeEntry> list;
        for (const auto& [name, entry] : entries) list.push_back(entry);
        co_return list;
    }
    Task<Result<VolumeEntry>> find(std::string name) override {
        const FakeLock lock(mutex_);
        const auto found = entries.find(name);
        if (found == entries.end()) co_return fail(Errc::not_found, 0, "catalog.find");
        co_return found->second;
    }
    using Volumes::open;
    Task<Result<std::shared_ptr<Volume>>> open(std::string name, Access access, std::shared_ptr<VolumeSession>,
                                               std::shared_ptr<SessionRecord>) override {
        const FakeLock lock(mutex_);
        const auto found = entries.find(name);
        if (found == entries.end()) co_return fail(Errc::not_found, 0, "catalog.open");
        if (access == Access::write && name == held_elsewhere) co_return fail(Errc::busy, 0, "held by host b");
        co_return std::shared_ptr<Volume>(std::make_shared<EntryVolume>(found->second, flush_waits, flush_result,
                                                                        change_result, changes_all_the_same));
    }
    Task<Result<VolumeEntry>> create(std::string name, bool shared, Attributes attributes) override {
        const FakeLock lock(mutex_);
        if (entries.contains(name)) co_return fail(Errc::exists, 0, "catalog.create");
        for (const auto& [other, entry] : entries)
            if (names_collide(other, name)) co_return fail(Errc::exists, 0, "catalog.create: names collide");
        if (attributes.size_bytes > space_bytes) co_return fail(Errc::no_space, 0, "catalog.create");
        const VolumeEntry entry{
            .name = name, .id = static_cast<VolumeId>(entries.size() + 1), .shared = shared, .attributes = attributes};
        entries.emplace(name, entry);
        co_return entry;
    }
    Task<Result<Removal>> remove(std::string name, bool force) override {
        const FakeLock lock(mutex_);
        if (name == held_elsewhere && !force) co_return Removal{.users = {"process 1234 (host b)"}};
        if (entries.erase(name) == 0) co_return fail(Errc::not_found, 0, "catalog.remove");
        co_return Removal{};
    }
    Task<Result<Space>> space() override {
        const FakeLock lock(mutex_);
        co_return Space{.total_bytes = space_bytes,
                        .free_bytes = space_bytes / 2,
                        .silent_hosts = silent_hosts,
                        .untold_hosts = untold_hosts};
    }

    Task<Result<NodeStatus>> status() override {
        const FakeLock lock(mutex_);
        co_return node;
    }
    Task<Usage> usage() override {
        const FakeLock lock(mutex_);
        co_return used;
    }
    bool serves_nbd() const override { return nbd; }
    Export export_of(const std::string& volume) override {
        Export exported;
        if (nbd) exported.uris.push_back("nbd://127.0.0.1:10809/" + percent_encode(volume));
        if (volume == "secret") exported.clients = {"psk:alice", "cert:bob"};
        exported.over_tcp = volume != "near";
        exported.read_only = volume == "secret";
        return exported;
    }
    Scrubber::Progress verify_status() override {
        const FakeLock lock(mutex_);
        return verified;
    }
    Result<> start_verify(std::optional<VolumeId> volume, uint64_t rate_bytes) override {
        const FakeLock lock(mutex_);
        if (verified.running) return fail(Errc::busy, 0, "verify: a pass is under way");
        verified.volume = volume;
        verify_rate_bytes = rate_bytes;
        return {};
    }
    void stop_verify() override {
        const FakeLock lock(mutex_);
        verified.running = false;
        verified.cancelled = true;
    }
    std::string name_of_volume(VolumeId volume) const override { return "#" + std::to_string(volume); }
    Task<Result<Forgotten>> forget_host(std::string name) override {
        const FakeLock lock(mutex_);
        for (PeerStatus& peer : node.peers) {
            if (peer.name != name) continue;
            if (peer.self) co_return fail(Errc::invalid, 0, "that is this host");
            if (peer.connected) co_return fail(Errc::busy, 0, "it is connected");
            peer.forgotten = true;
            co_return Forgotten{.told = {"b"}, .not_told = {"d"}};
        }
        co_return fail(Errc::not_found, 0, "no host of this cluster");
    }
    std::vector<Mount> mounts() override {
        const FakeLock lock(mutex_);
        return mounted;
    }
    Task<Result<>> mount(Mount mount, Caller caller) override {
        const FakeLock lock(mutex_);
        mounted_for = std::move(caller);
        for (const Mount& other : mounted)
            if (other.path == mount.path) co_return fail(Errc::busy, 0, "mount");
        mounted.push_back(mount);
        co_return Result<>{};
    }
    std::vector<Attachment> attachments() override {
        const FakeLock lock(mutex_);
        return attached;
    }
    Task<std::vector<std::string>> tell_size(VolumeId volume) override {
        const FakeLock lock(mutex_);
        told_size_of = volume;
        co_return untold_hosts;
    }
    Task<Result<Attachment>> attach(AttachOptions options, Caller) override {
        const FakeLock lock(mutex_);
        if (!entries.contains(options.volume)) co_return fail(Errc::not_found, 0, "attach");
        for (const Attachment& other : attached)
            if (other.volume == options.volume) co_return fail(Errc::busy, 0, "attach");
        attached_with = options;
        const auto index = static_cast<unsigned>(attached.size());
        attached.push_back({.volume = options.volume,
                            .device = "nbd" + std::to_string(index),
                            .index = index,
                            .read_only = options.read_only,
                            .size_bytes = uint64_t{1} << 30,
                            .connections = 2,
                            .is_kept = keeper_answers});
        co_return attached.back();
    }
    Task<Result<>> detach(std::string volume, bool force, Caller) override {
        const FakeLock lock(mutex_);
        if (devices_are_mounted && !force) co_return fail(Errc::busy, 0, "detach");
        if (std::erase_if(attached, [&](const Attachment& each) { return each.volume == volume; }) == 0)
            co_return fail(Errc::not_found, 0, "detach");
        co_return Result<>{};
    }
    Task<Result<Unmounting>> unmount(std::string path, bool force) override {
        const FakeLock lock(mutex_);
        if (!force && !mount_users.empty()) co_return Unmounting{.busy = true, .users = mount_users};
        if (std::erase_if(mounted, [&](const Mount& mount) { return mount.path == path; }) == 0)
            co_return fail(Errc::not_found, 0, "unmount");
        co_return Unmounting{};
    }

    // While a server runs, tests use the following members only inside this.
    void with(const std::function<void(FakeDaemon&)>& change) {
        const FakeLock lock(mutex_);
        change(*this);
    }

    std::map<std::string, VolumeEntry> entries;
    std::vector<std::string> silent_hosts;
    std::vector<std::string> untold_hosts;
    std::vector<Mount> mounted;
    std::vector<Attachment> attached;
    AttachOptions attached_with;
    VolumeId told_size_of = 0;
    std::vector<std::string> mount_users;
    bool devices_are_mounted = false;
    bool keeper_answers = true;
    Caller mounted_for;
    NodeStatus node;
    Usage used;
    bool nbd = true;
    Scrubber::Progress verified;
    uint64_t verify_rate_bytes = 0;
    std::atomic<bool> flush_waits{false};
    Result<> flush_result;
    Result<> change_result;             // of a volume's attributes
    bool changes_all_the_same = false;  // also where that is an error
    std::string held_elsewhere;
    uint64_t space_bytes = uint64_t{1} << 40;

  private:
    std::mutex mutex_;
};

}  // namespace tarn
