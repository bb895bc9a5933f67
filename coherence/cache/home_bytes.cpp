// Home's bytes: what arrives from holders, what requesters get, and what may leave the memory. The way into the store
// is in home_storing.cpp.
//
// At most one frame per page has use_home; without one the store's bytes are home's. While such a frame is on its way
// into the store it stays the page's home frame (`storing`), so that two writes of one page never race on the device:
// newer bytes are copied into it, and it is written again.
#include <algorithm>
#include <cstring>
#include <memory>

#include "coherence/cache/cache.hpp"
#include "coherence/cache/flusher.hpp"
#include "tiers/nvme/device/page_buffer.hpp"
#include "utils/log.hpp"

namespace tarn {

using protocol::Action;
using protocol::Message;

namespace {

constexpr size_t run_pages_max = 64;  // read at once

}  // namespace

bool Cache::apply_copy(const Action& action) {
    bool freed = false;
    Frame& given = pool_->frame(action.frame);
    const auto label = [&](Frame& frame) {
        if (!frame.home_dirty)
            frame.home_mask = action.mask;
        else if (frame.home_mask != 0)
            frame.home_mask = action.mask == 0 ? DirtyMask{0} : static_cast<DirtyMask>(frame.home_mask | action.mask);
        frame.home_dirty = true;
        frame.home_tenure = action.tenure;
        frame.home_sequence = action.sequence;
    };
    Frame* home = homes_.find_exactly(action.page);
    // What the store lacks stays in its frame: a flush under way has noted that one.
    if (home && home != &given && (home->storing != Storing::no || home->home_dirty)) {
        std::memcpy(pool_->bytes(pool_->id_of(*home)), pool_->bytes(action.frame), page_size);
        home->zeroed.store(given.zeroed.load(std::memory_order_relaxed), std::memory_order_relaxed);
        if (!action.borrowed) freed |= held_frames_.release(action.frame);
    } else if (home != &given) {
        if (home) freed |= forget_home_bytes(*home);
        // A borrowed frame serves both its holder and home: home is at least as new as it believes to be.
        home = &given;
        home->page.store(action.page.value, std::memory_order_release);
        label(*home);  // before it counts as home's: the process may end here
        home->uses.fetch_or(use_home, std::memory_order_release);
        homes_.insert(*home);
        if (!action.borrowed) freed |= held_frames_.release(action.frame);
    }
    label(*home);
    ++home->home_version;
    if (home->storing == Storing::taken) home->storing = Storing::begun;
    home_dirty_frames_.add(pool_->id_of(*home));
    return freed;
}

// The last copy in any host's memory is about to go: would ours drop something older for it?
bool Cache::wants_copy(const Message& message) {
    if (message.kind != protocol::MessageKind::evict || homes_.find_exactly(message.page) ||
        pages_.index().find_exactly(message.page))
        return false;
    return pool_->free_count() > provider_.low_mark() || message.hosts < pages_.replacement().victim_age();
}

bool Cache::keep_copy(const Action& action) {
    if (action.borrowed) return false;
    if (!homes_.find_exactly(action.page)) {
        Frame& frame = pool_->frame(action.frame);
        frame.page.store(action.page.value, std::memory_order_release);
        frame.home_tenure = 0;  // as the store has it
        frame.uses.fetch_or(use_home, std::memory_order_release);
        homes_.insert(frame);
        counters_.last_copies_kept.fetch_add(1, std::memory_order_relaxed);
    }
    return held_frames_.release(action.frame);
}

bool Cache::forget_home_bytes(Frame& frame) {
    TARN_ASSERT(frame.storing == Storing::no);
    homes_.erase(frame);
    frame.home_dirty = false;
    home_dirty_frames_.remove(pool_->id_of(frame));
    return pool_->release(pool_->id_of(frame), use_home);
}

std::vector<uint64_t> Cache::pages_in_memory(VolumeId volume, uint64_t first, uint64_t end) {
    constexpr uint64_t looked_up_max = 4096;  // to walk over all that memory holds costs more
    std::vector<uint64_t> numbers;
    const auto is_zero = [](const Frame* frame) { return frame && frame->zeroed.load(std::memory_order_relaxed); };
    // Under one latch: newest bytes go to and fro between their owner and home.
    const auto is_in_memory = [&](PageId page, const protocol::Claim* claim) {
        if (claim && !claim->home_has_bytes())
            return claim->owner != self() || !is_zero(pages_.index().find_exactly(page));
        const Frame* const home = homes_.find_exactly(page);
        return home && home->home_dirty && !is_zero(home);
    };
    const auto add = [&](PageId page, const protocol::Claim* claim) {
        if (is_in_memory(page, claim)) numbers.push_back(page.number());
    };
    if (end - first <= looked_up_max) {
        for (uint64_t number = first; number < end; ++number) {
            const PageId page = PageId::of(volume, number);
            const Stripes::Turn turn(stripes_, page);
            add(page, turn.home().find(page));
        }
        return numbers;
    }
    const auto is_asked = [&](PageId page) {
        return page.volume() == volume && page.number() >= first && page.number() < end;
    };
    for (unsigned i = 0; i < Stripes::count; ++i) {
        const Stripes::Turn turn(stripes_, i);
        const protocol::Home& home = turn.home();
        home.for_each([&](PageId page, const protocol::Claim& claim) {
            if (is_asked(page)) add(page, &claim);
        });
        homes_.for_each(i, [&](const Frame& frame) {
            if (is_asked(frame.page_id()) && !home.find(frame.page_id())) add(frame.page_id(), nullptr);
        });
    }
    return numbers;
}

size_t Cache::claim_count(VolumeId volume) {
    size_t count = 0;
    stripes_.for_each([&](const Stripes::Turn& turn) {
        turn.home().for_each([&](PageId page, const protocol::Claim&) { count += page.volume() == volume; });
    });
    return count;
}

HomeStore::Found Cache::find(PageId page) {
    const Frame* source = homes_.find_exactly(page);
    if (!source) source = pages_.index().find_exactly(page);  // a reader's frame holds what home has
    if (source && !source->broken.load(std::memory_order_relaxed))
        return {.where = Found::Where::frame, .frame = pool_->id_of(*source)};
    return {.where = store_.present(page) ? Found::Where::store : Found::Where::zeros};
}

bool Cache::share(FrameId found) {
    Frame& frame = pool_->frame(found);
    if ((frame.uses.load(std::memory_order_relaxed) & use_holder) != 0) return false;
    frame.uses.fetch_or(use_holder, std::memory_order_relaxed);
    return true;
}

void Cache::copy(Found found, FrameId into) {
    if (found.where == Found::Where::frame)
        std::memcpy(pool_->bytes(into), pool_->bytes(found.frame), page_size);
    else
        std::memset(pool_->bytes(into), 0, page_size);
}

void Cache::record_losses(std::vector<PageId> pages, HostId lost_host) {
    losses_.add(std::move(pages), lost_host);
}

void Cache::mark(std::vector<PageId> pages) {
    marker_.add(std::move(pages));
}

// One message's worth each. Neighbours are read together.
void Cache::read(std::vector<HomeRead> reads) {
    std::sort(reads.begin(), reads.end(),
              [](const HomeRead& a, const HomeRead& b) { return a.message.page < b.message.page; });
    for (auto first = reads.begin(); first != reads.end();) {
        auto end = first + 1;
        while (end != reads.end() && end - first < static_cast<ptrdiff_t>(run_pages_max) &&
               end->message.page.value == (end - 1)->message.page.value + 1)
            ++end;
        Loop::current()->spawn(end - first == 1 ? read_home_page(*first) : read_home_run({first, end}));
        first = end;
    }
}

Task<> Cache::read_home_run(std::vector<HomeRead> reads) {
    const size_t bounced = static_cast<size_t>(
        std::count_if(reads.begin(), reads.end(), [](const HomeRead& read) { return read.frame == no_frame; }));
    const PageBuffer bounce = bounced ? make_page_buffer(bounced) : nullptr;
    std::vector<std::byte*> into;
    into.reserve(reads.size());
    std::byte* next = bounce.get();
    for (const HomeRead& read : reads) {
        into.push_back(read.frame != no_frame ? pool_->bytes(read.frame) : std::exchange(next, next + page_size));
    }
    counters_.store_reads.fetch_add(1, std::memory_order_relaxed);
    const Result<> done = co_await store_.read_run(*Loop::current(), reads.front().message.page, into);
    // One bad page must not take its neighbours with it.
    for (size_t i = 0; i < reads.size(); ++i)
        if (done)
            deliver_home_bytes(reads[i], into[i], false);
        else
            co_await read_home_page(reads[i]);
}

Task<> Cache::read_home_page(HomeRead read) {
    const PageBuffer bounce = read.frame == no_frame ? make_page_buffer(1) : nullptr;
    std::byte* const into = bounce ? bounce.get() : pool_->bytes(read.frame);
    counters_.store_reads.fetch_add(1, std::memory_order_relaxed);
    const Result<> done = co_await store_.read_run(*Loop::current(), read.message.page, std::span(&into, 1));
    deliver_home_bytes(read, into, !done);
}

void Cache::deliver_home_bytes(const HomeRead& read, const std::byte* bytes, bool failed) {
    Message message = read.message;
    if (failed)
        log::error("store: volume {} page {} cannot be read; accesses to it fail", message.page.volume(),
                   message.page.number());
    Stripes::Turn turn(stripes_, message.page);
    if (abandoned()) return;
    if (read.to != self()) {
        // A host that waits for a page that cannot be read is told so.
        message.flags |= failed ? protocol::flag_zero | protocol::flag_lost : protocol::flag_payload;
        const StripeLinks& links = turn.links();
        if (protocol::contains(links.up, read.to) && read.link == links.counts[read.to])
            peers_.send_bytes(read.to, message, {bytes, failed ? 0 : page_size});
        return;
    }
    message.flags |= protocol::flag_payload;
    FrameId frame = read.frame;
    if (frame == no_frame) {
        // None was free: into the Holder's, if it still waits for these very bytes.
        frame = turn.stripe().lent_frame(message);
        if (frame == no_frame) return;
        std::memcpy(pool_->bytes(frame), bytes, page_size);
    }
    pool_->frame(frame).zeroed.store(false, std::memory_order_relaxed);
    pool_->frame(frame).broken.store(failed, std::memory_order_relaxed);
    turn.step(protocol::Event::message_of(message, frame));
}

bool Cache::drop_clean(FrameId id, bool any) {
    Frame& frame = pool_->frame(id);
    const PageId page = frame.page_id();
    if ((frame.uses.load(std::memory_order_relaxed) & use_holder) == 0 || Pages::is_dirty(frame)) return false;
    if (home_of(page) == self()) return false;
    if (!any && describes_volumes(page)) return false;
    Stripes::Turn turn(stripes_, page);
    const protocol::Holding* const holding = turn.holder().find(page);
    if (abandoned() || holding == nullptr || holding->frame != id) return false;
    turn.step(protocol::Event::evict_at_once(page));
    return turn.result().frames_freed;
}

bool Cache::try_evict(FrameId id, std::vector<FrameId>& to_store) {
    Frame& frame = pool_->frame(id);
    const PageId page = frame.page_id();
    // Without the latch: nearly all frames may be such.
    if (membership_.any_store_failed() && (home_dirty_frames_.has(id) || pages_.dirty_frames().has(id)) &&
        membership_.store_failed_at(home_of(page)))
        return false;
    Stripes::Turn turn(stripes_, page);
    if (abandoned() || frame.page_id() != page) return false;
    if (page.volume() == catalog_volume && Pages::is_dirty(frame))
        return false;  // it goes with its group, or not at all
    // A home that is away cannot answer, and what was seen here meanwhile must be held when it is back (add_note).
    const HostId home = home_of(page);
    const bool is_away = home != self() && !(protocol::contains(turn.links().up, home) && fabric()->linked(home));
    // What is dirty goes with its bytes, and would only wait elsewhere.
    const bool would_wait = home != self() && !is_away && Pages::is_dirty(frame) && fabric()->congested(home);
    bool evicted = false;
    if (frame.cached.load(std::memory_order_relaxed) && !is_away && !would_wait) {
        turn.step(protocol::Event::about(protocol::Event::Kind::evict, page));
        evicted = !frame.cached.load(std::memory_order_relaxed);
    }
    const uint8_t uses = frame.uses.load(std::memory_order_acquire);
    if (uses == use_home && frame.page_id() == page && frame.storing == Storing::no) {
        evicted = true;
        if (frame.home_dirty) {
            frame.storing = Storing::begun;
            to_store.push_back(id);
        } else {
            turn.result().frames_freed |= forget_home_bytes(frame);
        }
    }
    return evicted;
}

}  // namespace tarn
