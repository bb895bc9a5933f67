// Nodes: what the kernel's inode numbers stand for in one mount: volumes, and the directories their names imply.
//
// A volume name may contain slashes. Each prefix that ends before one is shown as a directory, which exists as long
// as a volume below it does; it cannot be made or removed by itself. Where a volume has the name of such a directory,
// the volume is shown. A node lives while the kernel counts lookups of it. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "frontends/volumes/volumes.hpp"

namespace tarn::fuse {

using NodeId = uint64_t;
inline constexpr NodeId root_node = 1;

// The catalog has volume id 0, so that no volume is taken for the root.
constexpr NodeId node_of_volume(VolumeId id) {
    return NodeId{id} + 1;
}
// Directories have numbers above all volumes, the same on every host.
NodeId node_of_directory(std::string_view path);

struct Node {
    std::string path;  // the volume's name; of a directory without a final slash; of the root empty
    bool directory = false;
};

class Nodes {
  public:
    // Counts a lookup.
    void remember(NodeId id, Node node);
    void forget(NodeId id, uint64_t lookups);
    // Empty when the kernel asks for what it was never told.
    std::optional<Node> find(NodeId id) const;
    size_t size() const;

  private:
    struct Counted {
        Node node;
        uint64_t lookups = 0;
    };
    mutable std::mutex mutex_;
    std::unordered_map<NodeId, Counted> nodes_;
};

// Name of an entry below a directory.
std::string join(std::string_view directory_path, std::string_view name);

struct Child {
    std::string name;
    const VolumeEntry* volume;  // none: a directory
};
// What a directory shows of the volumes, which are in the order of their names.
std::vector<Child> children(std::span<const VolumeEntry> volumes, std::string_view directory_path);
// Whether some volume lies below the path.
bool is_directory(std::span<const VolumeEntry> volumes, std::string_view path);

}  // namespace tarn::fuse
