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
    // nbd://HOST:PORT/NAME and nbd+unix:///NAME?socket=PATH, with NAME percent-encoded.
    virtual std::vector<std::string> export_uris(const std::string& volume) = 0;

    // The pass under way; if there is none, the last one.
    virtual Scrubber::Progress verify_status() = 0;
    // volume: none means all of them. rate_bytes: per second; 0 means as configured. Errors: busy (a pass is under
    // way).
    virtual Result<> start_verify(std::optional<VolumeId> volume, uint64_t rate_bytes) = 0;
    // The pass under way ends early; without one, nothing happens.
    virtual void stop_verify() = 0;

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
};

}  // namespace tarn
