// AttachedDevice: one block device, as the kernel and the keeper have it. For Attachments, which says what it serves.
//
// A keeper that answers has its sockets and its memory before the kernel has the device: whenever this process is
// killed then, the next one finds all that it needs to go on, or that there is no device of that number.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/attachments/block_device.hpp"
#include "daemon/attachments/nbd_driver.hpp"
#include "daemon/control/control.hpp"
#include "daemon/keeper/keeper.hpp"
#include "frontends/nbd/device_memory.hpp"
#include "frontends/nbd/wire.hpp"
#include "frontends/volumes/volume.hpp"
#include "utils/interrupt.hpp"

namespace tarn {

inline uint64_t in_whole_blocks(uint64_t size_bytes, uint32_t block_size_bytes) {
    return size_bytes / block_size_bytes * block_size_bytes;
}

// What changes the kernel's devices, and what says how they are.
struct NbdKernel {
    NbdDriver& driver;
    BlockDevices devices;
};

struct AttachedDevice {
    // One that is to be made. about: without its index, name and size.
    AttachedDevice(const NbdKernel& of, Attachment attachment, nbd::DeviceMemory device_memory);
    // One of the process before; none, where its memory is not as this program makes it, or the device of that number
    // is another one by now. Errors: invalid, io (of a device that is there).
    static Result<std::optional<AttachedDevice>> adopt(const NbdKernel& kernel, std::vector<Keeper::Kept>& kept,
                                                       size_t memory);
    // Of what the keeper has: whether it is the memory of a device.
    static bool is_memory(const std::string& name);

    bool is_there() const;
    // It was told this size. A process that is killed as it tells one leaves a kernel that alone knows of it.
    bool has_size(uint64_t size_bytes) const;
    nbd::Export exported() const;
    std::string memory_name() const { return about.device; }
    unsigned cpu_of(unsigned connection) const;

    // These block: on a thread of their own.

    // Makes the device, of the lowest number that is free. Errors: those of NbdDriver; no_space; busy (the kernel does
    // not get to read all of its connections); unsupported (the kernel is too old); io (it does not do what it says).
    Result<> connect(const Keeper& keeper, uint64_t size_bytes);
    // ours: its sockets, or copies of them.
    Result<> keep(const Keeper& keeper, std::span<const UniqueFd> ours) const;
    // Gives the kernel another socket in place of one that it has given up, and returns our end. None: the keeper has
    // the device no more, somebody has ended it. Errors: those of NbdDriver and Keeper.
    // has_keeper: about.is_kept before the thread began.
    Result<std::optional<UniqueFd>> replace_socket(const Keeper& keeper, bool has_keeper, unsigned connection) const;
    Result<> tell_size(uint64_t size_bytes) const;
    // It ends; also if it has already.
    Result<> disconnect() const;

    // For a thread: the loop may meanwhile give the device others. Does not block. Errors: io.
    Result<std::vector<UniqueFd>> copies_of_sockets() const;
    // What the kernel waits for on them fails. Does not block.
    void shut_down_sockets() const;

    const NbdKernel& kernel;
    Attachment about;
    nbd::DeviceMemory memory;
    std::vector<UniqueFd> sockets;  // our ends
    std::shared_ptr<Volume> volume;
    std::vector<bool> is_served;        // by connection
    std::vector<bool> is_looked_after;  // the same, while the kernel may be given another one
    size_t user_count = 0;              // see Attachments::Use
    unsigned replaced_count = 0;        // of its connections
    unsigned told_count = 0;            // how often the keeper was told of all of it
    bool is_resizing = false;
    bool follows_soon = false;   // a task will ask for the size
    bool lacks_size = false;     // it was asked for in vain
    bool follows_later = false;  // and a task will ask again
    bool is_opening = false;
    bool is_being_kept = false;  // a task sees to it that the keeper has it
    bool is_cut = false;         // who detached it told the keeper, and the kernel has it still
    bool is_lost = false;        // its volume is not there any more, or another host's
    bool is_deleted = false;     // its volume is, or is about to be
    bool is_ending = false;
    // Raised when the kernel has it no more: what waits for it to be of use ends.
    struct Ends final : Interrupt {};
    std::unique_ptr<Ends> ends = std::make_unique<Ends>();

  private:
    NbdDriver::Device as_told(uint64_t size_bytes) const;
    std::string socket_name(size_t connection) const;
    Result<> connect_once(const Keeper& keeper);
    void note_cpus() const;
    Result<> connect_as(unsigned index, const Keeper& keeper, std::span<const int> kernels);
    Result<> undo(const Keeper& keeper) const;
};

}  // namespace tarn
