#include "frontends/volumes/extents.hpp"

#include <algorithm>
#include <cstring>
#include <span>

namespace tarn {

namespace {

// Of one answer. The shard does nothing else while it looks at pages of slabs in use.
constexpr size_t runs_max = 2048;
constexpr uint64_t looked_at_max = uint64_t{1} << 18;

struct Question {
    VolumeId volume;
    uint32_t reserved;
    uint64_t first_page;
    uint64_t page_count;
};

// Runs of this host only. Pages of other homes come out as holes.
StoredRuns local_runs(Cache& cache, const Question& question) {
    const uint64_t end = question.first_page + question.page_count;
    StoredRuns stored{.runs = {}, .end_page = end};
    // Bytes that only DRAM has yet; first, since they may be in the store a moment later.
    std::vector<uint64_t> pages =
        cache.home_store().frames().pages_in_memory(question.volume, question.first_page, end);
    for (const PageRun& run : cache.store().extents(question.volume, question.first_page, question.page_count,
                                                    runs_max * 2, looked_at_max)) {
        stored.end_page = run.first + run.count;
        if (run.present) stored.runs.push_back({run.first, run.count});
    }
    std::sort(pages.begin(), pages.end());
    for (const uint64_t page : pages)
        if (page < stored.end_page) stored.runs.push_back({page, 1});
    return stored;
}

// Sorts, and joins what overlaps or touches.
void merge(std::vector<StoredRun>& runs) {
    std::ranges::sort(runs, {}, &StoredRun::first_page);
    size_t kept = 0;
    for (const StoredRun& run : runs) {
        if (kept > 0 && run.first_page <= runs[kept - 1].first_page + runs[kept - 1].page_count) {
            StoredRun& last = runs[kept - 1];
            last.page_count = std::max(last.page_count, run.first_page + run.page_count - last.first_page);
        } else {
            runs[kept++] = run;
        }
    }
    runs.resize(kept);
}

// Waits for the host while it cannot be reached, as a read of its pages does.
Task<Result<std::string>> ask(Cache& cache, HostId host, std::string request) {
    for (;;) {
        const uint64_t seen = cache.membership().changed().count();
        if (cache.abandoned()) co_return fail(Errc::cancelled, 0, "extents");
        Result<std::string> answer = co_await cache.fabric()->call(host, CallKind::stored_runs, request);
        if (answer) co_return answer;
        const bool is_away = answer.error().code == Errc::unavailable || answer.error().code == Errc::closed;
        if (!is_away || cache.membership().is_dead(host)) co_return answer;
        co_await cache.membership().changed().next(seen);
    }
}

}  // namespace

Result<std::string> answer_stored_runs(Cache& cache, const std::string& request) {
    const std::optional<Question> asked = unpack<Question>(request);
    if (!asked) return fail(Errc::protocol, 0, "extents.request");
    if (asked->reserved != 0) return fail(Errc::protocol, 0, "extents.request: of a later version");
    if (asked->volume > volume_id_max || asked->page_count == 0 || asked->page_count > page_number_mask ||
        asked->first_page > page_number_mask - asked->page_count)
        return fail(Errc::protocol, 0, "extents.request: no such pages");
    StoredRuns stored = local_runs(cache, *asked);
    merge(stored.runs);
    // At most runs_max runs; the answer then ends before the first that did not fit.
    if (stored.runs.size() > runs_max) {
        stored.end_page = stored.runs[runs_max].first_page;
        stored.runs.resize(runs_max);
    }
    std::string answer = pack(stored.end_page);
    for (const StoredRun& run : stored.runs) answer += pack(run);
    return answer;
}

Task<Result<StoredRuns>> stored_runs(Cache& cache, VolumeId volume, uint64_t first_page, uint64_t page_count) {
    const Question question{.volume = volume, .reserved = 0, .first_page = first_page, .page_count = page_count};
    StoredRuns all{.runs = {}, .end_page = first_page + page_count};
    const auto was_asked = [&](const StoredRun& run) {
        const uint64_t skipped = run.first_page - first_page;  // very many, if it lies before
        return skipped < page_count && run.page_count <= page_count - skipped;
    };
    const std::string request = pack(question);
    const HostSet homes = cache.membership().ranges().homes_of(volume, first_page, page_count);
    for (HostId host = 0; host < hosts_max; ++host) {
        if (!contains(homes, host)) continue;
        Result<std::string> answer;
        if (host == cache.self()) {
            CO_TRY_VOID(co_await cache.home_start().ended());
            answer = answer_stored_runs(cache, request);
        } else if (cache.fabric()) {
            answer = co_await ask(cache, host, request);
        }
        if (!answer) co_return fail(answer.error());
        uint64_t end_page = 0;
        if (answer->size() < sizeof end_page || (answer->size() - sizeof end_page) % sizeof(StoredRun) != 0)
            co_return fail(Errc::protocol, 0, "extents.answer");
        std::memcpy(&end_page, answer->data(), sizeof end_page);
        if (end_page <= first_page) co_return fail(Errc::protocol, 0, "extents.answer: covers nothing");
        all.end_page = std::min(all.end_page, end_page);
        const size_t before = all.runs.size();
        all.runs.resize(before + (answer->size() - sizeof end_page) / sizeof(StoredRun));
        if (all.runs.size() > before)
            std::memcpy(&all.runs[before], answer->data() + sizeof end_page, answer->size() - sizeof end_page);
        if (!std::ranges::all_of(std::span(all.runs).subspan(before), was_asked))
            co_return fail(Errc::protocol, 0, "extents.answer: pages that nobody asked for");
    }
    merge(all.runs);
    co_return all;
}

}  // namespace tarn
