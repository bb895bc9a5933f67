// What space the stores of all hosts have, what the volumes take of it, and what volumes left behind here that are not
// in the catalog any more.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "daemon/catalog/catalog.hpp"
#include "utils/log.hpp"

namespace tarn {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds usage_timeout{500};
constexpr milliseconds space_timeout{300};

struct UsedByVolume {
    uint64_t volume = 0;
    uint64_t bytes = 0;
};

struct SpaceOfHost {
    uint64_t total_bytes = 0;
    uint64_t free_bytes = 0;
};

}  // namespace

Task<Result<std::string>> Catalog::tell_space() const {
    const StoreSpace space = cache_.store().space();
    co_return pack(SpaceOfHost{.total_bytes = space.total_bytes, .free_bytes = space.free_bytes});
}

Task<Result<std::string>> Catalog::tell_usage() const {
    std::string answer;
    for (const VolumeId volume : cache_.store().volumes()) {
        const UsedByVolume used{.volume = volume, .bytes = cache_.store().allocated_bytes(volume)};
        if (answer.size() + sizeof used > answer_size_max) break;
        answer += pack(used);
    }
    co_return answer;
}

// Hosts that have been silent for a while are not asked.
Task<std::vector<HostAnswer>> Catalog::ask_others(CallKind kind, milliseconds timeout) {
    std::vector<HostId> asked;
    std::vector<HostAnswer> silent;
    for (HostId host = 0; host < static_cast<HostId>(host_names_.size()); ++host) {
        if (host == cache_.self()) continue;
        if (is_silent(host))
            silent.push_back({.host = host, .said = fail(Errc::unavailable)});
        else
            asked.push_back(host);
    }
    std::vector<HostAnswer> answers = co_await call_all(*cache_.fabric(), std::move(asked), kind, {}, timeout);
    std::ranges::move(silent, std::back_inserter(answers));
    std::ranges::sort(answers, {}, &HostAnswer::host);
    co_return answers;
}

Task<Usage> Catalog::usage() {
    Usage usage;
    const auto add = [&usage](std::string_view answer) {
        for (; answer.size() >= sizeof(UsedByVolume); answer.remove_prefix(sizeof(UsedByVolume))) {
            UsedByVolume used;
            std::memcpy(&used, answer.data(), sizeof used);
            usage.bytes[static_cast<VolumeId>(used.volume)] += used.bytes;
        }
    };
    add(*co_await tell_usage());
    if (!cache_.fabric()) co_return usage;
    for (const HostAnswer& answer : co_await ask_others(CallKind::usage, usage_timeout)) {
        if (answer.said)
            add(*answer.said);
        else
            usage.silent_hosts.push_back(host_names_[answer.host]);
    }
    co_return usage;
}

Task<Result<Space>> Catalog::space() {
    const StoreSpace own = cache_.store().space();
    Space space{.total_bytes = own.total_bytes, .free_bytes = own.free_bytes, .silent_hosts = {}, .untold_hosts = {}};
    if (!cache_.fabric()) co_return space;
    const std::vector<HostAnswer> answers = co_await ask_others(CallKind::space, space_timeout);
    const std::lock_guard guard(seen_mutex_);
    for (const HostAnswer& answer : answers) {
        StoreSpace& told = spaces_[answer.host];
        const auto said = answer.said ? unpack<SpaceOfHost>(*answer.said) : std::nullopt;
        if (said)
            told = {.total_bytes = said->total_bytes, .free_bytes = said->free_bytes};
        else
            (told.total_bytes == 0 ? space.untold_hosts : space.silent_hosts).push_back(host_names_[answer.host]);
        space.total_bytes += told.total_bytes;
        space.free_bytes += told.free_bytes;
    }
    co_return space;
}

Task<> Catalog::clean_up() {
    const std::vector<VolumeId> stored = cache_.store().volumes();
    for (bool is_first = true; !cache_.abandoned(); is_first = false) {
        const uint64_t seen = cache_.membership().changed().count();
        const Result<> dropped = co_await drop_orphans(stored);
        if (is_first && is_registrar()) co_await registrar_.resume_removals();
        if (dropped || cache_.abandoned()) co_return;
        if (dropped.error().code != Errc::unavailable) {
            log::warning("catalog: orphans were not dropped: {}", log::describe(dropped.error()));
            co_return;
        }
        if (is_first)
            log::info(
                "catalog: some hosts are away; the space of volumes that were deleted meanwhile is freed here once "
                "they "
                "are back");
        co_await cache_.membership().changed().next(seen);  // the catalog, or a part of it, is with a host that is away
    }
}

Task<Result<>> Catalog::drop_orphans(std::vector<VolumeId> stored) {
    CO_TRY(const std::vector<CatalogRecord> records, co_await table_.list_all());
    CO_TRY(const CatalogHeader header, co_await table_.header());
    for (const VolumeId id : stored) {
        const bool named =
            std::any_of(records.begin(), records.end(), [&](const CatalogRecord& record) { return record.id == id; });
        if (id == catalog_volume || id >= header.next_id || named) continue;
        CO_TRY_VOID(co_await cache_.store().drop_volume(*Loop::current(), id));
    }
    co_return Result<>{};
}

}  // namespace tarn
