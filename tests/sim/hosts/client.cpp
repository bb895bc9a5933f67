#include "tests/sim/hosts/client.hpp"

namespace tarn::hosts_sim {

void Client::begin(Task<> task) {
    busy_ = true;
    life_ = host_.life();
    host_.spawn(world_.random().below(2), std::move(task));
}

void Client::go_on(unsigned count) {
    left_ = count;
    begin(work());
}

void Client::look_at_all() {
    begin(read_all());
}

// One that opens while a home cannot be reached has used nothing of it yet, so later losses may lie before it, too.
void Client::begin_session() {
    session_ = ++world_.last_session;
    if (host_.cache->flusher().all_are_heard()) on_session();
}

void Client::open_session(CachedVolume& volume) {
    begin_session();
    if (world_.random().chance(world_.timeout_percent))
        volume.wait_at_most(
            std::chrono::milliseconds(world_.random().between(2, world_.random().chance(50) ? 20 : 500)));
}

Task<> Client::work() {
    while (left_ > 0 && hears()) {
        co_await host_.cache->flusher().hear_from_homes();
        CachedVolume volume(*host_.volumes, volume_);
        open_session(volume);
        for (bool goes_on = true; goes_on && left_ > 0 && hears();) {
            --left_;
            ++world_.counts.operations;
            const bool good = co_await step(volume);
            if (!good) ++world_.counts.failed_operations;
            // Who was told of an error may go on as if nothing had happened.
            goes_on = good || world_.random().chance(50);
            if (world_.random().chance(20)) co_await Yield(*Loop::current());
        }
    }
    busy_ = false;
}

Task<> Client::read_all() {
    co_await host_.cache->flusher().hear_from_homes();
    CachedVolume volume(*host_.volumes, volume_);
    begin_session();
    is_flushed_ = co_await look(volume);
    busy_ = false;
}

}  // namespace tarn::hosts_sim
