#include "daemon/keeper/left_memory.hpp"

#include <utility>

namespace tarn {

Result<std::unique_ptr<Arena>> take_last_memory(std::vector<Keeper::Kept>& kept, const std::array<uint8_t, 16>& store) {
    const auto rank = [&](const Arena& arena) {
        return std::pair(arena.header().store == store, arena.header().epoch.load(std::memory_order_relaxed));
    };
    Result<std::unique_ptr<Arena>> last{nullptr};
    for (Keeper::Kept& each : kept) {
        if (each.name != Keeper::memory_name) continue;
        Result<std::unique_ptr<Arena>> arena = Arena::adopt(std::move(each.fd));
        const bool has_last = last && *last;
        if (arena ? !has_last || rank(**arena) > rank(**last) : !has_last) last = std::move(arena);
    }
    std::erase_if(kept, [](const Keeper::Kept& each) { return each.name == Keeper::memory_name; });
    return last;
}

}  // namespace tarn
