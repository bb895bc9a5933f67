#include "coherence/pages/frame_supply.hpp"

#include "coherence/pages/page_provider.hpp"

namespace tarn {

// While pages cannot leave, reads can use only the part of the reserve that other hosts' bytes have left; half of it
// stays for messages, whose bytes are refused.
size_t FrameSupply::reserve_count() const {
    return membership_.any_store_failed() ? lending_reserve_count() / 2 : provider_.reserve_count();
}

// Others' bytes may take all frames but these: if the store fails, these are not dirty.
size_t FrameSupply::lending_reserve_count() const {
    return provider_.reserve_count() / 4;
}

FrameId FrameSupply::take() {
    if (anyone_waits()) return no_frame;  // they were first
    const FrameId id = take_at_once();
    replacement_.count_fill();
    if (pool_.free_count() < provider_.low_mark()) provider_.kick();
    return id;
}

void FrameSupply::give(FrameId id) {
    pool_.release(id, use_holder);
    freed();
}

void FrameSupply::wait(FrameWaiter& waiter) {
    waiting_.append(waiter);
    freed();  // one may have come free before we were in the queue
    provider_.kick();
}

void FrameSupply::freed() {
    if (starved_links_.load(std::memory_order_seq_cst) != 0) {
        const HostSet starved = starved_links_.exchange(0, std::memory_order_seq_cst);
        for_each_host(starved, [&](HostId host) { peers_.fabric()->resume(host); });
    }
    waiting_.serve([&](FrameWaiter& waiter) {
        waiter.frame = take_at_once();
        if (waiter.frame == no_frame) return false;
        replacement_.count_fill();
        return true;
    });
}

std::byte* FrameSupply::lend(HostId from) {
    const size_t leave = membership_.any_store_failed() ? 0 : lending_reserve_count();
    FrameId frame = pool_.try_take(use_holder, leave);
    if (frame == no_frame) {
        starved_links_.fetch_or(set_of(from), std::memory_order_seq_cst);
        frame = pool_.try_take(use_holder, leave);  // one may have come free before we said so
    }
    if (pool_.free_count() < provider_.low_mark()) provider_.kick();
    return frame == no_frame ? nullptr : pool_.bytes(frame);
}

}  // namespace tarn
