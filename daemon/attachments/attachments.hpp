// Attachments: the block devices of this host's kernel that are volumes of this daemon, from the request of a caller to
// their end. On the first shard.
//
// The kernel is given one end of some socket pairs, and the NBD server the other ones: no address, no key, and each
// connection, which is a hardware queue of the device, is served on the shard of that queue's CPU.
//
// A device outlives the daemon: a tarn-keeper has its sockets and its memory, which say to the byte what is in flight.
// The next daemon goes on with it, and the kernel sees no more than a pause. A stop leaves it, too: only a detach ends
// it, or who disconnects it in the kernel.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/attachments/attached_device.hpp"
#include "daemon/control/caller.hpp"
#include "daemon/control/control.hpp"
#include "daemon/keeper/keeper_watch.hpp"
#include "frontends/nbd/server.hpp"
#include "frontends/volumes/volumes.hpp"

namespace tarn {

class Attachments final : public VolumeClients {
  public:
    // shard_count: of the server's shards. keep_memory_again: for when the keeper has ended.
    Attachments(Volumes& volumes, nbd::Server& server, NbdKernel kernel, Keeper& keeper, Loop& loop, size_t shard_count,
                std::function<Result<>()> keep_memory_again);
    Attachments(const Attachments&) = delete;
    ~Attachments() override;

    // Goes on with the devices that the process before had. kept: what the keeper had of it. receipts: of the writes
    // that were finished when its memory was taken over; none: it was not, and what it had written is gone. Call it
    // first.
    void adopt(std::vector<Keeper::Kept> kept, std::optional<std::span<const uint64_t>> receipts);
    // Calls this once there is no device with which it could not go on: what the host holds is held for those, too. At
    // once, or when the last of them was ended by force.
    void when_none_is_left(std::function<void()> then);
    // The devices of this volume get its size, as it is now. Returns when the kernel knows it. Errors: of one of them.
    Task<Result<>> follow_size_of(VolumeId volume);
    // Ends the devices of this volume, as detach() does by force: another host takes it over.
    Task<Result<>> end_devices_of(VolumeId volume);
    // The clients of a volume are its devices and who has it over NBD.
    Task<std::vector<std::string>> clients_of(VolumeId volume) override { return server_.clients_of(volume); }
    Task<> end_clients_of(VolumeId volume) override;
    // Leaves the devices to the next process. Before the server stops: the kernel that changes a device may wait for
    // requests of it.
    Task<> stop();

    std::vector<Attachment> list() const;
    // See Control.
    Task<Result<Attachment>> attach(AttachOptions options, Caller caller);
    Task<Result<>> detach(std::string volume, bool force, Caller caller);

  private:
    using Device = AttachedDevice;
    // While one lives, the device is not forgotten.
    class Use {
      public:
        Use(Attachments& attachments, Device& device) : attachments_(attachments), device_(device) {
            ++device_.user_count;
        }
        Use(const Use&) = delete;
        ~Use() {
            --device_.user_count;
            attachments_.changed_.notify_all();
        }

      private:
        Attachments& attachments_;
        Device& device_;
    };

    static Result<> may_change_devices(const Caller& caller);
    Device* find(const std::string& volume_or_device);
    bool has(const std::string& volume) const;
    Task<Result<Attachment>> open_and_make_device(const AttachOptions& options);
    Task<Result<std::shared_ptr<Volume>>> open(const nbd::DeviceMemory& memory, bool is_resumed);
    Task<Result<Attachment>> make_device(const AttachOptions& options, nbd::DeviceMemory memory,
                                         std::shared_ptr<Volume> volume);
    Task<> serve_again(Device& device);
    void on_disconnected(Device& device);
    void serve(Device& device, std::shared_ptr<Volume> volume);
    Result<> serve_connection(Device& device, unsigned connection);
    void on_resized(Device& device);
    Task<> follow_size(Device& device, Result<>& result);
    Task<> follow_size_later(Device& device);
    Task<Result<>> tell_size(Device& device) const;
    void on_ended(Device& device, unsigned connection, nbd::DeviceConnection::End how);
    Task<> look_after(Device& device, unsigned connection, nbd::DeviceConnection::End how);
    Task<Result<>> replace_socket(Device& device, unsigned connection);
    void on_cut(const std::string& name);
    void end_cut(Device& device);
    Task<> see_whether_kept(Device& device);
    void see_to_keeping(Device& device);
    Task<> keep(Device& device);
    Task<Result<>> tell_keeper(Device& device);
    Task<> drop_from_keeper(std::string name);
    Task<Result<>> on_keeper_lost(std::function<Result<>()> keep_memory);
    Task<Result<>> end_device(Device& device);
    Task<Result<>> end_by_force(Device& device);
    void go_on_with(Device& device);
    Task<> forget(Device& device);

    Volumes& volumes_;
    nbd::Server& server_;
    const NbdKernel kernel_;
    Keeper& keeper_;
    Loop& loop_;
    const size_t shard_count_;
    std::vector<std::unique_ptr<Device>> devices_;
    std::vector<std::string> under_way_;  // volumes that are being attached
    Semaphore connecting_{1};             // see attachments_keeping.cpp
    unsigned lost_keepers_ = 0;
    std::vector<std::string> left_;  // devices that could not be adopted
    std::function<void()> none_is_left_ = [] {};
    bool stopping_ = false;
    Event changed_;
    Gate gate_;
    KeeperWatch keeper_watch_;
};

}  // namespace tarn
