// What space the stores of all hosts have, and what the volumes take of it.
#include <cstring>

#include "coherence/cache/with_timeout.hpp"
#include "daemon/catalog/catalog.hpp"

namespace tarn {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds usage_patience{500};
constexpr milliseconds space_patience{300};  // for all of them
constexpr size_t answer_size_max = size_t{1} << 20;

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
    co_return answer_usage();
}

std::string Catalog::answer_usage() const {
    std::string answer;
    for (const VolumeId volume : cache_.store().volumes()) {
        const UsedByVolume used{.volume = volume, .bytes = cache_.store().allocated_bytes(volume)};
        if (answer.size() + sizeof used > answer_size_max) break;
        answer += pack(used);
    }
    return answer;
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
    add(answer_usage());
    if (!cache_.fabric()) co_return usage;
    for (HostId host = 0; host < static_cast<HostId>(host_names_.size()); ++host) {
        if (host == cache_.self()) continue;
        Result<std::string> answer = fail(Errc::unavailable);
        if (!is_silent(host))
            answer = co_await with_timeout(usage_patience, cache_.fabric()->call(host, CallKind::usage));
        if (answer)
            add(*answer);
        else
            usage.silent_hosts.push_back(host_names_[host]);
    }
    co_return usage;
}

Task<Result<Space>> Catalog::space_of(HostId host) {
    CO_TRY(const std::string answer, co_await cache_.fabric()->call(host, CallKind::space));
    const std::optional<SpaceOfHost> space = unpack<SpaceOfHost>(answer);
    if (!space) co_return fail(Errc::protocol, 0, "catalog.space");
    co_return Space{
        .total_bytes = space->total_bytes, .free_bytes = space->free_bytes, .silent_hosts = {}, .untold_hosts = {}};
}

Task<Result<Space>> Catalog::space() {
    const StoreSpace own = cache_.store().space();
    Space space{.total_bytes = own.total_bytes, .free_bytes = own.free_bytes, .silent_hosts = {}, .untold_hosts = {}};
    const auto began = steady_clock::now();
    for (HostId host = 0; host < static_cast<HostId>(host_names_.size()); ++host) {
        if (host == cache_.self() || !cache_.fabric()) continue;
        const auto left = space_patience - std::chrono::duration_cast<milliseconds>(steady_clock::now() - began);
        Result<Space> answer = fail(Errc::unavailable);
        if (cache_.fabric()->answers(host))
            answer = co_await with_timeout(std::max(left, milliseconds(1)), space_of(host));
        const std::lock_guard guard(seen_mutex_);
        Space& told = spaces_[host];
        if (answer) told = *answer;
        if (!answer) (told.total_bytes == 0 ? space.untold_hosts : space.silent_hosts).push_back(host_names_[host]);
        space.total_bytes += told.total_bytes;
        space.free_bytes += told.free_bytes;
    }
    co_return space;
}

}  // namespace tarn
