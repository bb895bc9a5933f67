// Replacement policies that tarn's own is compared with: the textbook ones, and DEX's cooling buckets.
//
// A policy knows slots, the places of a cache, by number. Each is guarded as a cache with several threads would need
// it: exact LRU and 2Q change a list with every hit, so they hold a lock.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "tiers/dram/replacement.hpp"
#include "utils/spinlock.hpp"

namespace tarn::bench {

using Slot = uint32_t;
using Page = uint32_t;
inline constexpr Slot no_slot = ~Slot{0};

class Policy {
  public:
    virtual ~Policy() = default;
    virtual void on_hit(Slot slot) = 0;
    // The slot was free, or a victim, and has this page now.
    virtual void on_fill(Slot slot, Page page) = 0;
    // Appends at least one slot to give up; all of them are given up.
    virtual void pick(std::vector<Slot>& victims) = 0;
};

// tarn's: the very class that tarnd uses. The slots are the pool's frames, all of them taken.
class EpochSampling final : public Policy {
  public:
    explicit EpochSampling(FramePool& pool) : pool_(pool), replacement_(pool) {}
    void on_hit(Slot slot) override { replacement_.touch(pool_.frame(slot)); }
    void on_fill(Slot slot, Page) override {
        replacement_.count_fill();
        replacement_.touch(pool_.frame(slot));
    }
    void pick(std::vector<Slot>& victims) override {
        while (victims.empty())
            replacement_.pick(batch, replacement_.threshold_of(1), [&](FrameId id) {
                victims.push_back(id);
                return true;
            });
    }

  private:
    static constexpr size_t batch = 64;
    FramePool& pool_;
    Replacement replacement_;
};

// A doubly linked list of slots, newest first, in two arrays.
class SlotList {
  public:
    explicit SlotList(size_t slot_count) : links_(slot_count + 1) { links_[end()] = {end(), end()}; }
    bool empty() const { return links_[end()].next == end(); }
    size_t size() const { return size_; }
    Slot oldest() const { return links_[end()].previous; }
    void push_front(Slot slot) {
        const Slot first = links_[end()].next;
        links_[slot] = {.previous = end(), .next = first};
        links_[first].previous = slot;
        links_[end()].next = slot;
        ++size_;
    }
    void remove(Slot slot) {
        const auto [previous, next] = links_[slot];
        links_[previous].next = next;
        links_[next].previous = previous;
        --size_;
    }

  private:
    struct Link {
        Slot previous;
        Slot next;
    };
    Slot end() const { return static_cast<Slot>(links_.size() - 1); }
    std::vector<Link> links_;
    size_t size_ = 0;
};

class ExactLru final : public Policy {
  public:
    explicit ExactLru(size_t slot_count) : list_(slot_count) {}
    void on_hit(Slot slot) override {
        const std::lock_guard guard(lock_);
        list_.remove(slot);
        list_.push_front(slot);
    }
    void on_fill(Slot slot, Page) override { list_.push_front(slot); }
    void pick(std::vector<Slot>& victims) override {
        victims.push_back(list_.oldest());
        list_.remove(victims.back());
    }

  private:
    SpinLock lock_;
    SlotList list_;
};

class Clock final : public Policy {
  public:
    explicit Clock(size_t slot_count) : used_(slot_count) {}
    void on_hit(Slot slot) override {
        if (!used_[slot].load(std::memory_order_relaxed)) used_[slot].store(true, std::memory_order_relaxed);
    }
    void on_fill(Slot, Page) override {}  // it has to be hit once to be spared
    void pick(std::vector<Slot>& victims) override {
        for (;; hand_ = (hand_ + 1) % used_.size()) {
            if (used_[hand_].exchange(false, std::memory_order_relaxed)) continue;
            victims.push_back(static_cast<Slot>(hand_));
            hand_ = (hand_ + 1) % used_.size();
            return;
        }
    }

  private:
    std::vector<std::atomic<bool>> used_;
    size_t hand_ = 0;
};

// 2Q (Johnson and Shasha): pages seen once wait in a queue of a quarter; those seen again after they left it are kept
// by LRU.
class TwoQueues final : public Policy {
  public:
    explicit TwoQueues(size_t slot_count)
        : once_(slot_count),
          kept_(slot_count),
          once_max_(slot_count / 4),
          gone_max_(slot_count / 2),
          slots_(slot_count) {}
    void on_hit(Slot slot) override {
        const std::lock_guard guard(lock_);
        if (!slots_[slot].kept) return;
        kept_.remove(slot);
        kept_.push_front(slot);
    }
    void on_fill(Slot slot, Page page) override {
        const auto found = gone_.find(page);
        slots_[slot] = {.page = page, .kept = found != gone_.end()};
        if (found == gone_.end()) return once_.push_front(slot);
        gone_order_.erase(found->second);
        gone_.erase(found);
        kept_.push_front(slot);
    }
    void pick(std::vector<Slot>& victims) override {
        if (once_.size() > once_max_ || kept_.empty()) {
            const Slot slot = once_.oldest();
            once_.remove(slot);
            gone_order_.push_front(slots_[slot].page);
            gone_[slots_[slot].page] = gone_order_.begin();
            if (gone_.size() > gone_max_) {
                gone_.erase(gone_order_.back());
                gone_order_.pop_back();
            }
            victims.push_back(slot);
        } else {
            victims.push_back(kept_.oldest());
            kept_.remove(victims.back());
        }
    }

  private:
    struct State {
        Page page = 0;
        bool kept = false;
    };
    SpinLock lock_;
    SlotList once_;
    SlotList kept_;
    size_t once_max_;
    size_t gone_max_;
    std::vector<State> slots_;
    std::list<Page> gone_order_;
    std::unordered_map<Page, std::list<Page>::iterator> gone_;
};

// DEX's cooling map: a tenth of the slots cool in small FIFO buckets; random hot ones are put there, a hit takes one
// out again, and the oldest of a bucket is given up. Admission is lazy: a page that comes in begins by cooling.
class CoolingBuckets final : public Policy {
  public:
    explicit CoolingBuckets(size_t slot_count)
        : buckets_(std::max<size_t>(1, slot_count / 10 / bucket_size)), slots_(slot_count, State::free) {}
    void on_hit(Slot slot) override {
        if (slots_[slot] == State::hot) return;
        const std::lock_guard guard(lock_);
        Bucket& bucket = bucket_of(slot);
        for (size_t i = 0; i < bucket.count; ++i)
            if (bucket.slots[i] == slot) remove(bucket, i);
        slots_[slot] = State::hot;
    }
    void on_fill(Slot slot, Page) override { cool(slot); }
    void pick(std::vector<Slot>& victims) override {
        while (victims.empty()) {
            // A hot one cools for each page that comes in, or old favourites would stay for ever.
            const auto random_slot = static_cast<Slot>(mix64(random_++) % slots_.size());
            if (slots_[random_slot] == State::hot) cool(random_slot);
            for (const Slot slot : shifted_out_) {
                if (slots_[slot] != State::shifted_out) continue;  // a hit came first
                slots_[slot] = State::free;
                victims.push_back(slot);
            }
            shifted_out_.clear();
        }
    }

  private:
    static constexpr size_t bucket_size = 6;
    enum class State : uint8_t { free, hot, cooling, shifted_out };
    struct Bucket {
        std::array<Slot, bucket_size> slots{};  // newest first
        size_t count = 0;
    };
    Bucket& bucket_of(Slot slot) { return buckets_[mix64(slot) % buckets_.size()]; }
    static void remove(Bucket& bucket, size_t index) {
        for (size_t i = index + 1; i < bucket.count; ++i) bucket.slots[i - 1] = bucket.slots[i];
        --bucket.count;
    }
    void cool(Slot slot) {
        Bucket& bucket = bucket_of(slot);
        if (bucket.count == bucket_size) {
            --bucket.count;
            shifted_out_.push_back(bucket.slots[bucket.count]);
            slots_[shifted_out_.back()] = State::shifted_out;
        }
        for (size_t i = bucket.count; i > 0; --i) bucket.slots[i] = bucket.slots[i - 1];
        bucket.slots[0] = slot;
        ++bucket.count;
        slots_[slot] = State::cooling;
    }

    SpinLock lock_;
    std::vector<Bucket> buckets_;
    std::vector<State> slots_;
    std::vector<Slot> shifted_out_;  // not yet given up
    uint64_t random_ = 0;
};

}  // namespace tarn::bench
