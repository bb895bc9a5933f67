// CachedVolume: the writes of a file, at an offset or at its end (O_APPEND).
//
// Bytes past the end appear in the same moment as the size that covers them: their pages and the attribute page are
// latched together (Growth), up to append_at_once bytes at a time. So nobody reads zeros where an append is under way.
// A write that begins past the end leaves zeros before it (zero_past_end). Bytes within the size are written where they
// are, page by page, each at a moment at which the volume has not been cut since the write began (AttributeCheck).
// Bytes that a truncation has cut off meanwhile are dropped, as if the write had come first.
//
// Usually this host has all the pages, or keeps them once they are fetched. If other hosts keep taking them away, the
// write holds each page until it has all of them (grow_holding): in the order of their numbers, the attribute page
// last, so that no two hosts wait for each other. Nothing else holds a page while it waits for one.
#include <sched.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>

#include "coherence/pages/page_access.hpp"
#include "frontends/volumes/attribute_page.hpp"
#include "frontends/volumes/cached_volume.hpp"
#include "utils/with_timeout.hpp"

namespace tarn {

namespace {

// Times move in steps, as a local file system's do: a stream of writes dirties the attribute page once a tick.
constexpr int64_t tick_ns = 4'000'000;

// Tries, before a write is made as if it grew the volume.
constexpr unsigned checked_tries_max = 8;
// Writes that hold pages, in all volumes together: the frames that are held must not be all there are.
constexpr VolumeId holders_max = 4;
constexpr std::chrono::milliseconds holding_timeout{1000};

int64_t tick() {
    return realtime_ns() / tick_ns * tick_ns;
}

// Brings a page here, to be written, and changes nothing.
struct Touch final : PageUpdate {
    bool apply(std::byte*) override { return false; }
};

// What the attributes must be for a write to be made. suffices(page): of what this host has at hand.
template <class Suffices>
class AttributeCheck final : public WriteCheck {
  public:
    AttributeCheck(Cache& cache, VolumeId volume, LossView& view, Suffices suffices)
        : cache_(cache), volume_(volume), view_(view), suffices_(std::move(suffices)) {}
    bool holds() override {
        const std::optional<AttributePage> now = try_load_front(cache_, volume_, view_);
        return now && suffices_(*now);
    }

  private:
    Cache& cache_;
    VolumeId volume_;
    LossView& view_;
    Suffices suffices_;
};

// What was held is let go, however it ends.
struct Held {
    Held(Cache& cache, Loop& loop, LossView& view, PageId page) : request(cache.accesses(), loop, view) {
        request.add_hold(page);
    }
    Held(const Held&) = delete;
    ~Held() { request.release_held(); }
    PageRequest request;
};

}  // namespace

// The update of the attribute page that writes the bytes, too. Nothing is changed unless all is.
class Growth final : public PageUpdate {
  public:
    enum class Outcome : uint8_t { not_tried, done, too_large, zeroing, gap, pages_missing };

    // No offset: at the end.
    Growth(Cache& cache, Session& session, std::optional<uint64_t> offset, std::span<const std::byte> from)
        : offset_bytes(offset), bytes(from), cache_(cache), session_(session) {
        size = sizeof(AttributePage);
    }

    bool apply(std::byte* page_bytes) override {
        seen = AttributePage::load(page_bytes);
        at = offset_bytes.value_or(seen.size_bytes);
        outcome = Outcome::too_large;
        if (at > volume_size_max || bytes.size() > volume_size_max - at) return false;
        const uint64_t end = at + bytes.size();
        outcome = Outcome::zeroing;
        if (seen.zeroes_before(end)) return false;
        outcome = Outcome::gap;
        if (seen.size_bytes < std::min(at, zeros_from)) return false;
        outcome = Outcome::pages_missing;
        remember_verifiers(end);
        if (!bytes.empty() && !cache_.pages().try_write_within(session_.volume, at, bytes, session_.losses, quiet))
            return false;
        outcome = Outcome::done;
        const int64_t now = tick();
        if (seen.size_bytes >= end && seen.modified_ns >= now) return false;
        seen.size_bytes = std::max(seen.size_bytes, end);
        seen.modified_ns = std::max(seen.modified_ns, now);
        seen.changed_ns = std::max(seen.changed_ns, now);
        seen.store(page_bytes);
        return true;
    }
    // Of a home, as it was before.
    protocol::Verifier began(HostId home) const {
        return std::ranges::find(verifiers_, home, &Verifier::home)->verifier;
    }

    std::optional<uint64_t> offset_bytes;
    std::span<const std::byte> bytes;
    Outcome outcome = Outcome::not_tried;
    uint64_t at = 0;
    uint64_t zeros_from = UINT64_MAX;  // of the bytes before `at` that lie past the end
    AttributePage seen;
    std::vector<Pages::QuietFrame> quiet;

  private:
    struct Verifier {
        HostId home;
        protocol::Verifier verifier;
    };
    // The bytes are fewer than a range: two homes at most.
    void remember_verifiers(uint64_t end) {
        const std::array<PageId, 3> pages = {attribute_page_of(session_.volume),
                                             PageId::of(session_.volume, at / page_size),
                                             PageId::of(session_.volume, (end - (bytes.empty() ? 0 : 1)) / page_size)};
        for (size_t i = 0; i < pages.size(); ++i) {
            const HostId home = cache_.home_of(pages[i]);
            verifiers_[i] = {home, cache_.verifiers().present(home)};
        }
    }

    Cache& cache_;
    Session& session_;
    std::array<Verifier, 3> verifiers_{};
};

Task<Result<>> CachedVolume::write_growing(uint64_t offset_bytes, std::span<const std::byte> from) {
    const int64_t now = tick();
    AttributePage seen;
    AttributeCheck inside(cache_, id(), session_.losses, [&](const AttributePage& page) {
        seen = page;
        return offset_bytes + from.size() <= page.size_bytes;
    });
    if (from.empty() || !try_write_checked(offset_bytes, from, &inside)) {
        CO_TRY_VOID(co_await write_file(offset_bytes, from));
        seen = try_attribute_page().value_or(seen);
    }
    if (seen.modified_ns >= now) co_return Result<>{};
    co_return co_await touch(now);
}

Task<Result<>> CachedVolume::touch(int64_t now_ns) {
    CO_TRY_VOID(co_await update_attributes([&](AttributePage& page) {
        if (page.modified_ns >= now_ns) return false;
        page.modified_ns = now_ns;
        page.changed_ns = std::max(page.changed_ns, now_ns);
        return true;
    }));
    co_return Result<>{};
}

// An empty write grows the volume to that offset.
Task<Result<>> CachedVolume::write_file(uint64_t offset_bytes, std::span<const std::byte> from) {
    const uint64_t end = offset_bytes + from.size();
    uint64_t at = offset_bytes;
    for (bool done = false; !done;) {
        CO_TRY(const AttributePage now, co_await attribute_page());
        if (now.zeroes_before(end)) {
            CO_TRY_VOID(co_await zeroing_over());
            continue;
        }
        // A page that the end lies in is written once.
        const uint64_t inside_end = end <= now.size_bytes ? end : now.size_bytes / page_size * page_size;
        const std::span<const std::byte> rest = from.subspan(at - offset_bytes);
        if (at < inside_end) {
            CO_TRY_VOID(co_await write_inside(at, rest.first(inside_end - at), now.truncations));
            at = inside_end;
        } else {
            const uint64_t part_end = std::min(end, at - at % page_size + append_at_once);
            Growth growth(cache_, session_, at, rest.first(part_end - at));
            CO_TRY_VOID(co_await grow(growth));
            at = part_end;
        }
        done = at >= end;
    }
    co_return Result<>{};
}

// Bytes within the size that the volume had after this many truncations.
Task<Result<>> CachedVolume::write_inside(uint64_t offset_bytes, std::span<const std::byte> from,
                                          uint64_t truncations) {
    AttributeCheck check(cache_, id(), session_.losses,
                         [&](const AttributePage& page) { return page.truncations == truncations; });
    if (try_write_checked(offset_bytes, from, &check)) co_return Result<>{};
    std::vector<PageRequest::Run> left = {{.offset_bytes = offset_bytes, .size_bytes = from.size()}};
    for (unsigned tries = 1;; ++tries) {
        PageRequest request(cache_.accesses(), *Loop::current(), session_.losses);
        request.check_with(check);
        for (const auto& [at, size] : left)
            request.add(PageAccess::Kind::write, id(), at, size, nullptr, from.data() + (at - offset_bytes));
        const Result<> written = co_await perform(request);
        for (const auto& [at, size] : left) note_written(at, size, [&](HostId home) { return request.began(home); });
        if (!written) co_return written;
        if (request.refused().empty() && request.in_doubt().empty()) co_return Result<>{};
        CO_TRY(const AttributePage then, co_await attribute_page());
        if (then.truncations != truncations) co_return co_await settle_cut(offset_bytes, from, truncations, request);
        left = std::move(request.refused());
        if (left.empty()) co_return Result<>{};
        if (tries < checked_tries_max) continue;
        // The attributes are wanted elsewhere all the time.
        for (const auto& [at, size] : left) {
            Growth growth(cache_, session_, at, from.subspan(at - offset_bytes, size));
            CO_TRY_VOID(co_await grow(growth));
        }
        co_return Result<>{};
    }
}

// The volume was cut under a write. If all that stays of the write had been written by then, the write came first, and
// what is missing of it is left out. Else it comes last: what is missing is written now, and what was cut of it once
// more. A page in doubt tells by what it holds: the write's bytes, if they came after the cut.
Task<Result<>> CachedVolume::settle_cut(uint64_t offset_bytes, std::span<const std::byte> from, uint64_t truncations,
                                        PageRequest& request) {
    CO_TRY(AttributePage now, co_await whole_attribute_page());
    const uint64_t end = offset_bytes + from.size();
    const std::optional<uint64_t> known = now.least_cut_since(truncations);
    if (!known) co_return co_await write_file(offset_bytes, from);  // cut very often meanwhile: all of it comes last
    const uint64_t least = std::clamp(*known, offset_bytes, end);
    while (now.zeroes_before(end)) {
        CO_TRY_VOID(co_await zeroing_over());
        CO_TRY(now, co_await attribute_page());
    }
    const auto part = [&](const PageRequest::Run& run) {
        return from.subspan(run.offset_bytes - offset_bytes, run.size_bytes);
    };
    std::vector<PageRequest::Run> standing;
    const auto held = std::make_unique<std::array<std::byte, page_size>>();
    for (const PageRequest::Run& run : request.in_doubt()) {
        const std::span<std::byte> bytes = std::span(*held).first(run.size_bytes);
        CO_TRY_VOID(co_await read(run.offset_bytes, bytes));
        if (std::ranges::equal(bytes, part(run))) standing.push_back(run);
    }
    const auto stays = [&](const PageRequest::Run& run) { return run.offset_bytes < least; };
    if (standing.empty() && std::ranges::none_of(request.refused(), stays)) co_return Result<>{};
    std::vector<PageRequest::Run> missing;
    std::ranges::copy_if(request.refused(), std::back_inserter(missing), stays);
    for (uint64_t at = least; at < end;) {
        const uint64_t next = std::min(end, (at / page_size + 1) * page_size);
        missing.push_back({.offset_bytes = at, .size_bytes = next - at});
        at = next;
    }
    const auto stands = [&](const PageRequest::Run& run) {
        return std::ranges::any_of(standing, [&](const PageRequest::Run& each) {
            return each.offset_bytes / page_size == run.offset_bytes / page_size;
        });
    };
    for (const PageRequest::Run& run : missing) {
        CO_TRY(now, co_await attribute_page());
        if (stands(run) && run.offset_bytes + run.size_bytes <= now.size_bytes) continue;
        CO_TRY_VOID(co_await write_file(run.offset_bytes, part(run)));
    }
    co_return Result<>{};
}

Task<Result<uint64_t>> CachedVolume::append(std::span<const std::byte> from) {
    std::optional<uint64_t> first;
    for (size_t done = 0; !first || done < from.size();) {
        Growth growth(cache_, session_, std::nullopt, from.subspan(done, std::min(from.size() - done, append_at_once)));
        CO_TRY_VOID(co_await grow(growth));
        if (!first) first = growth.at;
        done += growth.bytes.size();
    }
    co_return *first;
}

bool CachedVolume::try_grow(Growth& growth) {
    growth.outcome = Growth::Outcome::not_tried;
    (void)cache_.pages().try_update(attribute_page_of(id()), growth, session_.losses);
    cache_.pages().report_quiet(growth.quiet);
    growth.quiet.clear();
    return growth.outcome != Growth::Outcome::not_tried && growth.outcome != Growth::Outcome::pages_missing;
}

Task<Result<>> CachedVolume::grow(Growth& growth) {
    for (;;) {
        if (!try_grow(growth)) {
            CO_TRY_VOID(co_await bring_here(growth));
            if (!try_grow(growth)) CO_TRY_VOID(co_await grow_holding(growth));
        }
        switch (growth.outcome) {
            case Growth::Outcome::done: {
                const auto began = [&](HostId home) { return growth.began(home); };
                note_written(attribute_page_of(id()).number() * page_size, sizeof(AttributePage), began);
                if (!growth.bytes.empty()) note_written(growth.at, growth.bytes.size(), began);
                co_return Result<>{};
            }
            case Growth::Outcome::too_large: co_return fail(Errc::invalid, EFBIG, "volume.grow");
            case Growth::Outcome::zeroing: CO_TRY_VOID(co_await zeroing_over()); break;
            case Growth::Outcome::gap: {
                CO_TRY(growth.zeros_from, co_await zero_past_end(growth.at));
                break;
            }
            case Growth::Outcome::not_tried:
            case Growth::Outcome::pages_missing: break;  // the end is elsewhere by now
        }
    }
}

// Pages of the write, as far as is known where it will be.
Task<Result<>> CachedVolume::place(Growth& growth) {
    if (growth.offset_bytes) {
        growth.at = *growth.offset_bytes;
    } else {
        CO_TRY(const AttributePage now, co_await attribute_page());
        growth.at = now.size_bytes;
    }
    if (growth.at > volume_size_max || growth.bytes.size() > volume_size_max - growth.at)
        co_return fail(Errc::invalid, EFBIG, "volume.grow");
    co_return Result<>{};
}

Task<Result<>> CachedVolume::bring_here(Growth& growth) {
    CO_TRY_VOID(co_await place(growth));
    Touch touch;
    PageRequest request(cache_.accesses(), *Loop::current(), session_.losses);
    for (uint64_t page = growth.at / page_size; page < page_after(growth.at + growth.bytes.size()); ++page)
        request.add_update(PageId::of(id(), page), touch);
    request.add_update(attribute_page_of(id()), touch);
    co_return co_await perform(request);
}

Task<Result<>> CachedVolume::grow_holding(Growth& growth) {
    CO_TRY(const VolumeTurns::Turn turn,
           co_await with_timeout(fail_after(), context_.holding_turns.take(id() % holders_max)));
    CO_TRY_VOID(co_await place(growth));
    const uint64_t first = growth.at / page_size;
    const uint64_t end = page_after(growth.at + growth.bytes.size());
    std::vector<PageId> pages;
    for (uint64_t page = first; page < end; ++page) pages.push_back(PageId::of(id(), page));
    pages.push_back(attribute_page_of(id()));
    std::vector<std::unique_ptr<Held>> held;
    for (const PageId page : pages) {
        held.push_back(std::make_unique<Held>(cache_, *Loop::current(), session_.losses, page));
        // A home that has just gone away is not waited for with pages and a turn in hand, which others need:
        // bring_here() does that.
        const Result<> brought = co_await held.back()->request.with_timeout(holding_timeout);
        if (!brought && brought.error().code == Errc::unavailable) co_return Result<>{};
        CO_TRY_VOID(brought);
    }
    // To read it the usual way could be to wait for it, behind hosts that wait for us to let it go.
    if (!cache_.pages().may_use(attribute_page_of(id()), session_.losses))
        co_return fail(Errc::io, EIO, "volume.grow: writes of the size were lost");
    // Nobody takes them away. But a thread may be inside one of them, for microseconds.
    while (!try_grow(growth)) {
        const bool is_elsewhere = growth.outcome == Growth::Outcome::pages_missing &&
                                  (growth.at / page_size < first || page_after(growth.at + growth.bytes.size()) > end);
        if (is_elsewhere) break;
        ::sched_yield();
    }
    co_return Result<>{};
}

}  // namespace tarn
