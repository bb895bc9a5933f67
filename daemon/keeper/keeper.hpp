// Keeper: hands descriptors to a process that keeps them while no tarnd runs, each under a name. The service manager
// (systemd's descriptor store) keeps the memory, where there is one; a tarn-keeper, which tarnd starts itself, keeps
// the rest. The service manager closes what it has when the service is stopped, so for a stop a tarn-keeper takes the
// memory, too. Threads may use one at once, but for take().
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/keeper/keeper_protocol.hpp"
#include "daemon/keeper/passed_descriptors.hpp"
#include "utils/result.hpp"
#include "utils/unique_fd.hpp"

namespace tarn {

class Keeper {
  public:
    static constexpr const char* memory_name = "arena";

    struct Kept {
        std::string name;
        UniqueFd fd;
    };

    // Where the tarn-keeper of the daemon with this control socket listens.
    static std::string socket_of(const std::string& control) { return control + ".keeper"; }
    // socket: the path of tarn-keeper's socket. patience: for each of its answers.
    explicit Keeper(std::string socket, std::chrono::seconds patience = std::chrono::seconds(5))
        : socket_(std::move(socket)), patience_(patience) {}

    // What earlier processes left; most of the time there is nothing. Once per process. Errors: io, refused (whoever
    // listens there is not of our user), closed (it hung up), protocol.
    Result<std::vector<Kept>> take(PassedDescriptors& passed);
    // The memory outlives this process from here on. Errors: io, refused, not_found (no tarn-keeper beside tarnd), and
    // those of listen_unix.
    Result<> keep_memory(int fd) const;
    // Before a stop, which may end before everything is durable: the memory outlives that, too.
    void keep_memory_beyond_stop(int fd) const;
    // Whether that is with a tarn-keeper, and not with the service manager.
    static bool keeps_memory_itself();
    // The memory is not needed any more.
    void drop_memory() const;

    // The same, of anything else. A name may have a dot and more behind it. Blocks for moments only.
    Result<> keep(const std::string& name, int fd) const;
    // With all whose names begin with this one and a dot.
    void drop(const std::string& name) const;
    // Errors: not_found (there is no tarn-keeper), io, refused.
    Result<bool> has(const std::string& name) const;
    // A connection on which it says who is cut off from here on; it hangs up when it ends. Does not wait for its first
    // answer, "done", which a keeper that hangs gives once it goes on. For KeeperWatch. Errors: as has().
    Result<UniqueFd> watch() const;
    // For who finds no tarnd: sockets are shut down first, for all who have them. A keeper that hangs does nothing when
    // it goes on, if the caller has given up by then. Errors: not_found (there is no tarn-keeper), io, refused.
    Result<> cut(const std::string& name) const;

  private:
    Result<UniqueFd> connect() const;
    Result<UniqueFd> connect_or_start() const;
    Result<> start() const;
    Result<> keep_once(const std::string& name, int fd) const;
    Result<std::vector<Kept>> take_from_process() const;
    Result<> tell(keeper::Word word, const std::string& name) const;

    std::string socket_;
    std::chrono::seconds patience_;
    mutable std::mutex starting_;
};

}  // namespace tarn
