// FileSystem: the operations of one mount, each a task on the shard that read the request.
//
// Every volume is a file, opened with direct I/O: the kernel keeps no page, no size and no name (all timeouts are 0),
// so what one host writes every other host reads at once. Directories are those that volume names imply (nodes.hpp).
// Locks are refused, never local. Each operation replies once, or leaves an error to its caller. Thread-safe.
#pragma once

#include <sys/stat.h>

#include <memory>
#include <string>
#include <vector>

#include "frontends/fuse/errors.hpp"
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
    Task<Answer> lookup(fuse_req_t request, NodeId parent, std::string name);
    Task<Answer> forget(fuse_req_t request, NodeId id, uint64_t lookups);
    Task<Answer> create(fuse_req_t request, NodeId parent, std::string name, mode_t mode, fuse_file_info info);
    Task<Answer> unlink(NodeId parent, std::string name);
    Task<Answer> open_directory(fuse_req_t request, NodeId id, fuse_file_info info);
    Task<Answer> read_directory(fuse_req_t request, size_t size_bytes, off_t cursor, fuse_file_info info);
    Task<Answer> release_directory(fuse_file_info info);
    Task<Answer> flush_everything();
    Task<Answer> report_space(fuse_req_t request);

    // Attributes (attributes.cpp).
    Task<Answer> get_attributes(fuse_req_t request, NodeId id, OpenFile* file);
    Task<Answer> set_attributes(fuse_req_t request, NodeId id, struct stat attributes, int which, OpenFile* file);

    // Contents (contents.cpp).
    Task<Answer> open(fuse_req_t request, NodeId id);
    Task<Answer> release(OpenFile* file);
    Task<Answer> read(fuse_req_t request, OpenFile* file, uint64_t offset_bytes, size_t size_bytes);
    Task<Answer> write(fuse_req_t request, RequestBytes keep, OpenFile* file, uint64_t offset_bytes,
                       std::span<const std::byte> bytes, int flags);
    Task<Answer> flush(OpenFile* file);
    Task<Answer> allocate(OpenFile* file, int mode, uint64_t offset_bytes, uint64_t size_bytes);
    Task<Answer> seek(fuse_req_t request, OpenFile* file, uint64_t offset_bytes, int whence);

  private:
    struct stat directory_stat(NodeId id) const;
    struct stat file_stat(NodeId id, const Attributes& attributes, bool has_name = true) const;
    // Of a file that may have lost its name: as somebody has it open here; null: nobody has.
    std::shared_ptr<Volume> open_here(NodeId id);
    Result<std::string> path_below(NodeId parent, const std::string& name) const;
    Task<Result<fuse_entry_param>> entry_at(std::string path);
    fuse_entry_param remember_file(const VolumeEntry& entry);
    // The volume that a node stands for, if it still has the name; find: as Volumes finds it.
    using Find = Task<Result<VolumeEntry>> (Volumes::*)(std::string);
    Task<Result<VolumeEntry>> entry_of(NodeId id, Find find = &Volumes::find) const;
    Task<Result<Attributes>> glance_at(Volume& volume) const;
    Task<Result<std::shared_ptr<Volume>>> open_volume(VolumeEntry entry);
    Task<Result<std::shared_ptr<Volume>>> open_node(NodeId id);
    Task<Result<>> fill(OpenDirectory& directory);
    Task<Result<Attributes>> change(NodeId id, AttributeChange change, OpenFile* file);
    static Task<Result<size_t>> read_whole(Volume& volume, uint64_t offset_bytes, std::span<std::byte> into);

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
