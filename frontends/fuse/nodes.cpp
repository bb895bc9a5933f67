#include "frontends/fuse/nodes.hpp"

#include <algorithm>
#include <map>

namespace tarn::fuse {

namespace {

constexpr NodeId directory_bit = NodeId{1} << 62;

// The part of name below the directory; empty when it lies elsewhere.
std::string_view below(std::string_view name, std::string_view directory_path) {
    if (directory_path.empty()) return name;
    if (name.size() <= directory_path.size() || !name.starts_with(directory_path)) return {};
    if (name[directory_path.size()] != '/') return {};
    return name.substr(directory_path.size() + 1);
}

}  // namespace

NodeId node_of_directory(std::string_view path) {
    if (path.empty()) return root_node;
    uint64_t hash = 0;
    for (const char byte : path) hash = mix64(hash ^ static_cast<unsigned char>(byte));
    return directory_bit | (hash & (directory_bit - 1));
}

void Nodes::remember(NodeId id, Node node) {
    const std::lock_guard lock(mutex_);
    Counted& counted = nodes_[id];
    counted.node = std::move(node);
    ++counted.lookups;
}

void Nodes::forget(NodeId id, uint64_t lookups) {
    const std::lock_guard lock(mutex_);
    const auto found = nodes_.find(id);
    if (found == nodes_.end()) return;
    found->second.lookups -= std::min(lookups, found->second.lookups);
    if (found->second.lookups == 0) nodes_.erase(found);
}

std::optional<Node> Nodes::find(NodeId id) const {
    if (id == root_node) return Node{.path = {}, .directory = true};
    const std::lock_guard lock(mutex_);
    const auto found = nodes_.find(id);
    if (found == nodes_.end()) return {};
    return found->second.node;
}

size_t Nodes::size() const {
    const std::lock_guard lock(mutex_);
    return nodes_.size();
}

std::string join(std::string_view directory_path, std::string_view name) {
    std::string path(directory_path);
    if (!path.empty()) path += '/';
    return path.append(name);
}

std::vector<Child> children(std::span<const VolumeEntry> volumes, std::string_view directory_path) {
    std::map<std::string_view, const VolumeEntry*> found;
    for (const VolumeEntry& volume : volumes) {
        const std::string_view rest = below(volume.name, directory_path);
        if (rest.empty()) continue;
        const size_t slash = rest.find('/');
        if (slash == std::string_view::npos)
            found[rest] = &volume;
        else
            found.try_emplace(rest.substr(0, slash), nullptr);
    }
    std::vector<Child> list;
    for (const auto& [name, volume] : found) list.push_back({std::string(name), volume});
    return list;
}

bool is_directory(std::span<const VolumeEntry> volumes, std::string_view path) {
    return path.empty() ||
           std::ranges::any_of(volumes, [&](const VolumeEntry& volume) { return !below(volume.name, path).empty(); });
}

}  // namespace tarn::fuse
