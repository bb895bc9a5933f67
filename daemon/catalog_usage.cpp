// What the volumes take in the stores of all hosts.
#include <cstring>

#include "coherence/cache/within.hpp"
#include "daemon/catalog.hpp"

namespace tarn {

namespace {

constexpr std::chrono::milliseconds usage_patience{500};
constexpr size_t answer_size_max = size_t{1} << 20;

struct UsedByVolume {
    uint64_t volume = 0;
    uint64_t bytes = 0;
};

}  // namespace

std::string Catalog::answer_usage() const {
    std::string answer;
    for (const VolumeId volume : cache_.store().volumes()) {
        const UsedByVolume used{.volume = volume, .bytes = cache_.store().allocated_bytes(volume)};
        if (answer.size() + sizeof used > answer_size_max) break;
        answer.append(reinterpret_cast<const char*>(&used), sizeof used);
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
            answer = co_await within(usage_patience, cache_.fabric()->call(host, std::string(usage_call)));
        if (answer)
            add(*answer);
        else
            usage.silent_hosts.push_back(host_names_[host]);
    }
    co_return usage;
}

}  // namespace tarn
