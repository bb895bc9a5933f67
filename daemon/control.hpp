// Control: what an administrator may ask of the daemon beside its volumes. Implemented by daemon/node.
//
// Any call may be made from the shard that serves the control socket; a task stays on the shard that awaits it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "frontends/volumes.hpp"
#include "utils/result.hpp"
#include "utils/task.hpp"

namespace tarn {

struct PeerStatus {
    std::string name;
    std::string address;
    bool self = false;
    bool connected = false;
};

struct NodeStatus {
    std::string host;
    std::string cluster;  // UUID
    uint64_t uptime_s = 0;
    uint64_t memory_bytes = 0;  // of the frame pool
    uint64_t cached_bytes = 0;
    uint64_t dirty_bytes = 0;            // not yet durable
    Space store;                         // of this host
    uint64_t store_allocated_bytes = 0;  // slabs that volumes have
    uint64_t store_stored_bytes = 0;     // pages that were written
    uint64_t store_bad_pages = 0;        // reads that met a wrong checksum, since the start
    std::string store_failure;           // empty: none
    std::string fabric;                  // "none", "tcp"
    std::vector<PeerStatus> peers;       // in the order of their host ids, this host included; empty when it is alone
};

struct Mount {
    std::string path;
    bool read_only = false;
};

// How a client may reach a volume.
struct Export {
    std::string volume;
    std::vector<std::string> uris;
};

class Control {
  public:
    virtual ~Control() = default;

    virtual Task<Result<NodeStatus>> status() = 0;
    // nbd://HOST:PORT/NAME and nbd+unix:///NAME?socket=PATH, with NAME percent-encoded.
    virtual std::vector<std::string> export_uris(const std::string& volume) = 0;

    virtual Task<Result<std::vector<Mount>>> mounts() = 0;
    // Mounts the volumes as files of a directory. Errors: not_found (no such directory), busy (something is mounted
    // there), refused (permissions), unsupported.
    virtual Task<Result<>> mount(Mount mount) = 0;
    // Errors: not_found, busy (files are open; force detaches it all the same).
    virtual Task<Result<>> unmount(std::string path, bool force) = 0;
};

}  // namespace tarn
