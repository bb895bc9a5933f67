#include "coherence/home_store/piece_marker.hpp"

#include <algorithm>
#include <utility>

#include "utils/clock.hpp"
#include "utils/log.hpp"

namespace tarn {

namespace {

using std::chrono::milliseconds;

constexpr size_t pieces_per_sweep = 512;
constexpr size_t pieces_per_turn = 16;

}  // namespace

void PieceMarker::add(std::vector<PageId> pages) {
    {
        const std::lock_guard guard(mutex_);
        pending_.insert(pending_.end(), pages.begin(), pages.end());
        if (std::exchange(running_, true)) return;
    }
    Loop::current()->spawn(mark());
}

Task<> PieceMarker::mark() {
    for (;;) {
        std::vector<PageId> pages;
        {
            const std::lock_guard guard(mutex_);
            pages.swap(pending_);
            running_ = !pages.empty();
        }
        if (pages.empty()) co_return;
        const Result<> marked = co_await parts_.store.mark(*Loop::current(), pages);
        parts_.flushes.check_store_failure();
        for (const PageId page : pages) parts_.stripes.step(protocol::Event::marked_of(page, !marked));
    }
}

std::vector<protocol::LossRange> PieceMarker::possibly_lost() const {
    const std::optional<std::vector<PageId>> pieces = parts_.store.marked_pieces();
    if (!pieces) return {{.first = {0}, .last = {UINT64_MAX}}};
    std::vector<protocol::LossRange> ranges;
    for (const PageId piece : *pieces) {
        const PageId last{piece.value + piece_pages - 1};
        if (!ranges.empty() && ranges.back().last.value + 1 == piece.value && piece.number() != 0)
            ranges.back().last = last;
        else
            ranges.push_back({.first = piece, .last = last});
    }
    return ranges;
}

bool PieceMarker::lacks_any(std::span<const PageId> pages) const {
    return !parts_.store.marked_pieces() || !std::ranges::all_of(pages, [&](PageId page) { return has(page); });
}

Task<PieceMarker::Sweep> PieceMarker::sweep(milliseconds rest) {
    std::vector<PageId> pieces = parts_.store.marked_pieces().value_or(std::vector<PageId>{});
    Sweep found{.any_marked = !pieces.empty()};
    std::erase_if(rests_, [&](const auto& each) { return !std::ranges::binary_search(pieces, each.first); });
    // From where the last sweep ended, once around.
    std::ranges::rotate(pieces, std::ranges::upper_bound(pieces, swept_));
    if (pieces.size() > pieces_per_sweep) pieces.resize(pieces_per_sweep);
    bool cleared = false;
    for (size_t i = 0; i < pieces.size() && !parts_.stripes.abandoned() && !parts_.membership.recovering(); ++i) {
        swept_ = pieces[i];
        const PieceRest now = rest_of(swept_, false);
        const uint64_t now_ns = monotonic_ns();
        const auto [at, is_new] = rests_.try_emplace(swept_, Rest{now.changes, now_ns});
        Rest& seen = at->second;
        found.any_changed |= is_new || seen.changes != now.changes;
        if (!now.is_stored || seen.changes != now.changes) seen = {now.changes, now_ns};
        const bool has_rested = now_ns - seen.since_ns >= static_cast<uint64_t>(rest.count()) * 1'000'000;
        if (now.is_stored && has_rested) cleared |= unmark(swept_);
        if (i % pieces_per_turn == pieces_per_turn - 1) co_await Yield(*Loop::current());
    }
    if (cleared && !parts_.stripes.abandoned()) (void)co_await parts_.store.write_marks(*Loop::current());
    found.any_changed |= cleared;
    co_return found;
}

Task<> PieceMarker::forget(VolumeId volume) {
    bool cleared = false;
    for (const PageId piece : parts_.store.marked_pieces().value_or(std::vector<PageId>{}))
        if (piece.volume() == volume) cleared |= unmark(piece);
    if (cleared) (void)co_await parts_.store.write_marks(*Loop::current());
}

// A piece is at rest only if it is durable in the store, and cannot be changed unseen.
PieceRest PieceMarker::rest_of(PageId piece, bool gives_up) {
    constexpr uint64_t block_pages = uint64_t{1} << FrameIndex::block_bits;  // they share a stripe
    static_assert(piece_pages % block_pages == 0);
    PieceRest rest;
    for (uint64_t first = 0; first < piece_pages && rest.is_stored; first += block_pages) {
        Stripes::Turn turn(parts_.stripes, PageId{piece.value + first});
        const protocol::Home& home = turn.home();
        for (uint64_t i = first; i < first + block_pages; ++i) {
            const PageId page{piece.value + i};
            if (const Frame* const frame = parts_.home.index().find_exactly(page)) {
                rest.changes += frame->home_version;
                rest.is_stored &= !frame->home_dirty;
            }
            if (home.has_everything(page)) continue;
            const protocol::Claim* const claim = home.find(page);
            const Frame* const own =
                claim && claim->owner == parts_.membership.self() ? parts_.pages.index().find_exactly(page) : nullptr;
            if (own && !Pages::is_dirty(*own)) {
                if (gives_up) turn.step(protocol::Event::evict_at_once(page));
                rest.is_free &= home.has_everything(page);
                // It may have been written until this moment, and those bytes are home's now.
                const Frame* const left = parts_.home.index().find_exactly(page);
                rest.is_stored &= !left || !left->home_dirty;
            } else {
                rest.is_stored = false;
            }
        }
    }
    return rest;
}

// From begin_unmark() on, a writer has to ask for the mark; so a piece that is free then stays free, or keeps its mark.
bool PieceMarker::unmark(PageId piece) {
    if (!parts_.store.begin_unmark(piece)) return false;
    const PieceRest rest = rest_of(piece, true);
    const bool clears = rest.is_stored && rest.is_free;
    parts_.store.end_unmark(piece, clears);
    return clears;
}

Task<> MarkSweeper::run() {
    for (milliseconds pause = times_.every; co_await pause_.sleep(pause);) {
        const uint64_t marks = marker_.more_is_marked().count();
        const PieceMarker::Sweep found = co_await marker_.sweep(times_.rest);
        pause = found.any_changed ? times_.every : std::min(pause * 2, times_.every_max);
        if (found.any_marked) continue;
        co_await marker_.more_is_marked().next(marks);
        pause = times_.every;
    }
}

Task<> MarkSweeper::close() {
    pause_.cancel();
    marker_.more_is_marked().announce();
    co_await gate_.close();
}

}  // namespace tarn
