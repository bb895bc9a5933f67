// Control: what an administrator may ask of the daemon, apart from its volumes. Implemented by Node.
//
// Called on the shard that serves the control socket, the first one.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control/caller.hpp"
#include "tiers/nvme/scrubber.hpp"
#include "utils/result.hpp"
#include "utils/task.hpp"

namespace tarn {

using Json = nlohmann::ordered_json;

struct PeerStatus {
    std::string name;
    std::string address;
    bool self = false;
    bool connected = false;
    bool answers = false;  // it was heard lately
    std::string trouble;   // why there is no link with it, as of the last attempt; empty: there is, or it is not known
    bool forgotten = false;  // declared dead, and not back since
    Json link;               // to it; null: it is this host
};

// What status answers, apart from the peers, in the order of its keys.
struct NodeStatus {
    Json facts = Json::object();
    std::vector<PeerStatus> peers;  // in the order of their host ids, this host included; empty when it is alone
};

struct Mount {
    std::string path;
    bool read_only = false;
};

// A block device of this host's kernel that is a volume.
struct Attachment {
    std::string volume;
    std::string device;  // nbd0, which is /dev/nbd0
    unsigned index = 0;
    bool read_only = false;
    uint64_t size_bytes = 0;
    unsigned connections = 0;
    bool is_kept = false;  // the next tarnd can go on with it, should this one be killed
};

struct AttachOptions {
    static constexpr unsigned connections_max = 8;

    std::string volume;
    bool read_only = false;
    bool take_over = false;  // from the host that holds it, if one does
    uint32_t block_size_bytes = 4096;
    unsigned connections = 0;  // 0: one for each CPU, up to 8
};

// What NBD clients are told of a volume on this host, and who they may be.
struct Export {
    std::vector<std::string> uris;  // nbd[s]://HOST:PORT/NAME and nbd+unix:///NAME?socket=PATH, NAME percent-encoded
    bool over_tcp = false;
    bool read_only = false;
    std::optional<std::vector<std::string>> clients;  // over TCP; none: everybody who is let in
};

// What became of the wish to unmount.
struct Unmounting {
    bool busy = false;               // it is still mounted
    std::vector<std::string> users;  // who uses it, where that is known: "cat (process 1234)"
};

// Who knows by now that a host was declared dead, by name.
struct Forgotten {
    std::vector<std::string> told;
    std::vector<std::string> not_told;  // they will be when they are connected again
};

class Control {
  public:
    virtual ~Control() = default;

    virtual Task<Result<NodeStatus>> status() = 0;
    virtual bool serves_nbd() const = 0;
    virtual Export export_of(const std::string& volume) = 0;

    // The pass under way; if there is none, the last one.
    virtual Scrubber::Progress verify_status() = 0;
    // volume: none means all of them. rate_bytes: per second; 0 means as configured. Errors: busy (a pass is under
    // way).
    virtual Result<> start_verify(std::optional<VolumeId> volume, uint64_t rate_bytes) = 0;
    // The pass under way ends early; without one, nothing happens.
    virtual void stop_verify() = 0;
    // As it was last seen here; "#ID" if it never was.
    virtual std::string name_of_volume(VolumeId volume) const = 0;

    // Declares a host of the cluster dead. Errors: not_found, invalid (this host itself), busy (this host, or one that
    // answers it, is connected to that host), io.
    virtual Task<Result<Forgotten>> forget_host(std::string name) = 0;

    virtual std::vector<Mount> mounts() = 0;
    // Mounts the volumes on a directory, as files; which directories the caller may name, mount_point.hpp says. Errors:
    // not_found (no such directory), invalid (not a directory, or a symbolic link), busy (something is mounted there,
    // or the directory is not empty), refused (permissions), io.
    virtual Task<Result<>> mount(Mount mount, Caller caller) = 0;
    // A mount in use stays and its users are named; with force it goes, and their requests fail from then on. Errors:
    // not_found, io.
    virtual Task<Result<Unmounting>> unmount(std::string path, bool force) = 0;

    virtual std::vector<Attachment> attachments() = 0;
    // A volume has another size: block devices of it get it, on all hosts, before this returns. Returns the hosts that
    // did not say so; their devices get it with their next request.
    virtual Task<std::vector<std::string>> tell_size(VolumeId volume) = 0;
    // Makes a volume a block device. Only root may. Errors: refused, unsupported (no nbd driver), not_found (no such
    // volume), no_space (no device is free), busy (attached already, held by another host, or the device is in use),
    // invalid, unavailable, io.
    virtual Task<Result<Attachment>> attach(AttachOptions options, Caller caller) = 0;
    // By the name of the volume or of the device. One that is mounted stays; with force it goes, and its requests fail
    // from then on. Errors: refused, not_found, busy, io.
    virtual Task<Result<>> detach(std::string volume, bool force, Caller caller) = 0;
};

}  // namespace tarn
