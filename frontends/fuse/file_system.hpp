// FileSystem: the operations of one mount, each a task on the shard that read the request.
//
// Every volume is a file, opened with direct I/O: the kernel keeps no page, no size and no name (all timeouts are 0),
// so what one host writes every other host reads at once. Directories are those that volume names imply (nodes.hpp).
// Locks are refused, never local. Each operation replies exactly once. Thread-safe.
#pragma once

#include <sys/stat.h>

#include <memory>
#include <string>
#include <vector>

#include "frontends/fuse/handles.hpp"
#include "frontends/fuse/library.hpp"
#include "frontends/fuse/nodes.hpp"
#include "frontends/volumes/volumes.hpp"
#include "utils/task.hpp"

namespace tarn::fuse {

inline constexpr size_t transfer_size_max = 1024 * 1024;  // of one read or write

// One open file; the kernel has its address.
struct OpenFile {
    std::shared_ptr<Volume> volume;
    pid_t opener = 0;
};

// One open directory: what it showed when it was opened or rewound, so that a cursor stays right under changes.
struct OpenDirectory {
    struct Entry {
        std::string name;
        NodeId id;
        mode_t type;
    };
    std::string path;
    std::vector<Entry> entries;
};

// The bytes of one request, kept while an operation needs them.
using RequestBytes = std::shared_ptr<const void>;

class FileSystem {
  public:
    FileSystem(Volumes& volumes, mode_t directory_mode);

    // When the mount is over and no operation in flight: lets go of the volumes that are still open.
    void close_all();
    std::vector<pid_t> openers();

    // Names (names.cpp).
    Task<> lookup(fuse_req_t request, NodeId parent, std::string name);
    Task<> forget(fuse_req_t request, NodeId id, uint64_t lookups);
    Task<> create(fuse_req_t request, NodeId parent, std::string name, mode_t mode, fuse_file_info info);
    Task<> unlink(fuse_req_t request, NodeId parent, std::string name);
    Task<> open_directory(fuse_req_t request, NodeId id, fuse_file_info info);
    Task<> read_directory(fuse_req_t request, NodeId id, size_t size_bytes, off_t cursor, fuse_file_info info);
    Task<> release_directory(fuse_req_t request, fuse_file_info info);
    Task<> flush_everything(fuse_req_t request);
    Task<> report_space(fuse_req_t request);

    // Attributes (attributes.cpp).
    Task<> get_attributes(fuse_req_t request, NodeId id, OpenFile* file);
    Task<> set_attributes(fuse_req_t request, NodeId id, struct stat attributes, int which, OpenFile* file);

    // Contents (contents.cpp).
    Task<> open(fuse_req_t request, NodeId id, fuse_file_info info);
    Task<> release(fuse_req_t request, OpenFile* file);
    Task<> read(fuse_req_t request, OpenFile* file, uint64_t offset_bytes, size_t size_bytes);
    Task<> write(fuse_req_t request, RequestBytes keep, OpenFile* file, uint64_t offset_bytes,
                 std::span<const std::byte> bytes, int flags);
    Task<> flush(fuse_req_t request, OpenFile* file);
    Task<> allocate(fuse_req_t request, OpenFile* file, int mode, uint64_t offset_bytes, uint64_t size_bytes);
    Task<> seek(fuse_req_t request, OpenFile* file, uint64_t offset_bytes, int whence);

  private:
    struct stat directory_stat(NodeId id) const;
    struct stat file_stat(NodeId id, const Attributes& attributes, bool has_name = true) const;
    // Of a file that may have lost its name: as somebody has it open here; null: nobody has.
    std::shared_ptr<Volume> open_here(NodeId id);
    Result<std::string> path_below(NodeId parent, const std::string& name) const;
    Task<Result<fuse_entry_param>> entry_at(std::string path);
    fuse_entry_param remember_file(const VolumeEntry& entry);
    Task<Result<VolumeEntry>> entry_of(NodeId id) const;
    Task<Result<VolumeEntry>> glance(NodeId id) const;
    Task<Result<Attributes>> glance_at(Volume& volume) const;
    Task<Result<std::shared_ptr<Volume>>> open_volume(VolumeEntry entry);
    Task<Result<std::shared_ptr<Volume>>> open_node(NodeId id);
    Task<Result<>> fill(OpenDirectory& directory);
    Task<Result<Attributes>> change(NodeId id, AttributeChange change, OpenFile* file);
    static Task<Result<size_t>> read_whole(Volume& volume, uint64_t offset_bytes, std::span<std::byte> into);
    Task<Result<uint64_t>> find_run(Volume& volume, uint64_t offset_bytes, bool hole);

    Volumes& volumes_;
    const mode_t directory_mode_;
    const uid_t user_;
    const gid_t group_;
    const int64_t mounted_ns_;
    Nodes nodes_;
    Handles<OpenFile> files_;
    Handles<OpenDirectory> directories_;
};

}  // namespace tarn::fuse
