// KeeperWatch: notices what happens to the tarn-keeper while this process lives: it was killed, or somebody who found
// no tarnd has cut off a device there. On the first shard.
#pragma once

#include <functional>
#include <string>

#include "daemon/keeper/keeper.hpp"
#include "utils/loop.hpp"
#include "utils/sync.hpp"

namespace tarn {

class KeeperWatch {
  public:
    struct Notices {
        std::function<void(std::string name)> cut;
        // There is a new keeper, or none any more: what is to be kept has to be told again. Errors: the memory is not
        // kept.
        std::function<Task<Result<>>()> lost;
    };

    KeeperWatch(Keeper& keeper, Loop& loop, Notices notices)
        : keeper_(keeper), loop_(loop), notices_(std::move(notices)) {}
    KeeperWatch(const KeeperWatch&) = delete;

    // Once something is kept. Nothing happens where it watches already.
    void begin();
    Task<> stop();

  private:
    Task<bool> connect();
    Task<> watch();
    Task<bool> hear();

    Keeper& keeper_;
    Loop& loop_;
    const Notices notices_;
    UniqueFd connection_;
    bool watches_ = false;
    bool stopping_ = false;
    Gate gate_;
};

}  // namespace tarn
