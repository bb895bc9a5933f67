// Volumes: the cluster's volumes by name, as a front end sees them. Implemented by daemon/catalog.
//
// Any shard may call; a task stays on the shard that awaits it. Errors beside those of the calls: unavailable when a
// change needs the registrar and it is away.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "coherence/flush/session_record.hpp"
#include "frontends/volumes/volume.hpp"
#include "utils/result.hpp"
#include "utils/task.hpp"

namespace tarn {

inline constexpr size_t volume_name_size_max = 255;

struct VolumeEntry {
    std::string name;
    VolumeId id = 0;
    bool shared = false;  // any number of hosts may write; else one at a time
    std::string holder;   // of an exclusive volume: the host that holds it, where that is known
    Attributes attributes{};
    // A host that did not answer when it was asked for the attributes: they are as they were last seen here, if they
    // were. Empty: they are as they are.
    std::string silent_host;
    bool attributes_seen = true;
};

enum class Access : uint8_t { read, write };

// Space of the whole cluster, in bytes.
struct Space {
    uint64_t total_bytes = 0;
    uint64_t free_bytes = 0;
    std::vector<std::string> silent_hosts;  // theirs is as this host was last told
    std::vector<std::string> untold_hosts;  // silent, too, and never told: theirs is not in it
};

// What the hosts' stores have set aside for each volume.
struct Usage {
    std::map<VolumeId, uint64_t> bytes;
    std::vector<std::string> silent_hosts;  // their part is not in it
    uint64_t of(VolumeId id) const {
        const auto found = bytes.find(id);
        return found == bytes.end() ? 0 : found->second;
    }
};

// What became of the wish to remove a volume.
struct Removal {
    std::vector<std::string> users;  // who keeps it from being removed; empty: its name is gone
};

// A volume without a name that is still there.
struct Deletion {
    std::string name;  // that it had
    VolumeId id = 0;
    // Why: hosts on which files of it are open, or that do not answer. Empty: it is under way, or nobody could say.
    std::vector<std::string> in_use_on;
    std::vector<std::string> silent_hosts;
};

class Volumes {
  public:
    virtual ~Volumes() = default;

    // In the order of their names. Waits for no host longer than some seconds: what it should have said is marked.
    virtual Task<Result<std::vector<VolumeEntry>>> list() = 0;
    // The same without the attributes, which other hosts may have to be asked for.
    virtual Task<Result<std::vector<VolumeEntry>>> names() { return list(); }
    // Errors: not_found; unavailable, after some seconds, when a host that has to be asked does not answer.
    virtual Task<Result<VolumeEntry>> find(std::string name) = 0;
    // As find(), for who only wants to know: when a host that has to be asked does not answer, attributes are at once
    // as this host saw them last. Those that it never saw are waited for, unless that was in vain a moment ago.
    // Errors: as find().
    virtual Task<Result<VolumeEntry>> glance(std::string name) { return find(std::move(name)); }
    // The same of the attributes of a volume that is open. task: what asks for them.
    virtual Task<Result<Attributes>> glance_at(VolumeId /*volume*/, Task<Result<Attributes>> task) { return task; }
    // For an administrator, who would rather hear which host does not answer than wait for it: gives up, with
    // unavailable. task: reads or changes the attributes of a volume that is open.
    virtual Task<Result<Attributes>> unless_silent(VolumeId /*volume*/, Task<Result<Attributes>> task) { return task; }
    // Errors: not_found; unavailable as for find(); busy when it is exclusive, access is write and another host holds
    // it. The volume stays open, and the access held, while anybody keeps the pointer.
    // session: of an earlier handle of the same client, which goes on; null: one begins. One of another volume (of the
    // same name, made since) is none. record: where a session that begins is written down, or goes on from; null:
    // the session ends with this process.
    virtual Task<Result<std::shared_ptr<Volume>>> open(std::string name, Access access,
                                                       std::shared_ptr<VolumeSession> session,
                                                       std::shared_ptr<SessionRecord> record) = 0;
    Task<Result<std::shared_ptr<Volume>>> open(std::string name, Access access) {
        return open(std::move(name), access, nullptr, nullptr);
    }
    // As open(), for a block device: in a session that may go on into a later process, as a hold of it does.
    // is_resumed: the process before had it open. Errors: busy also when another host has held it since.
    virtual Task<Result<std::shared_ptr<Volume>>> open_recorded(std::string name, Access access,
                                                                SessionRecord& /*record*/, bool /*is_resumed*/) {
        return open(std::move(name), access);
    }
    // A block device of this host may write to the volume, whether it is open by now or not: what the host holds of it
    // stays held until the device lets go, also beyond this process. On the first shard.
    virtual void keep_held(VolumeId /*volume*/) {}
    virtual void let_go(VolumeId /*volume*/) {}
    // Errors: exists (or a name that collides does), invalid (see valid_volume_name; size 0 is valid only for shared
    // volumes), no_space.
    virtual Task<Result<VolumeEntry>> create(std::string name, bool shared, Attributes attributes) = 0;
    // The name goes at once; bytes and space when nobody has the volume open any more, on any host. Who uses it over
    // NBD keeps it from being removed; or loses it, with force. Errors: not_found.
    virtual Task<Result<Removal>> remove(std::string name, bool force) = 0;
    // Has the host that holds an exclusive volume let go of it: its block devices and NBD clients of the volume lose
    // it. Errors: not_found; unavailable (the holder does not answer: it may still write); busy (it has the volume open
    // as a file).
    virtual Task<Result<>> take_over(std::string /*name*/) { co_return Result<>{}; }
    // Who uses it over NBD, on the hosts that answer.
    virtual Task<std::vector<std::string>> users_of(VolumeId /*volume*/) { co_return std::vector<std::string>{}; }
    // What was removed and is not gone yet.
    virtual Task<std::vector<Deletion>> deletions() { co_return std::vector<Deletion>{}; }
    // At once, whoever is away.
    virtual Task<Result<Space>> space() = 0;
    // Of all volumes; waits for no host longer than a moment.
    virtual Task<Usage> usage() { co_return Usage{}; }
};

// A front end whose clients lose a volume when it is removed. On its first shard.
class VolumeClients {
  public:
    virtual ~VolumeClients() = default;
    // Who uses it.
    virtual Task<std::vector<std::string>> clients_of(VolumeId volume) = 0;
    // Their requests fail from now on, and they are disconnected; returns when all have been told.
    virtual Task<> end_clients_of(VolumeId volume) = 0;
};

// 1 to 255 bytes of UTF-8 without NUL and control characters; parts between slashes are neither empty, "." nor "..".
bool valid_volume_name(std::string_view name);
// Whether one is a directory on the way to the other, as a/b is to a/b/c: a file system cannot show both.
constexpr bool names_collide(std::string_view a, std::string_view b) {
    const std::string_view shorter = a.size() < b.size() ? a : b;
    const std::string_view longer = a.size() < b.size() ? b : a;
    return shorter.size() < longer.size() && longer.starts_with(shorter) && longer[shorter.size()] == '/';
}

}  // namespace tarn
