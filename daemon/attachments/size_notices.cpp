#include "daemon/attachments/size_notices.hpp"

#include "coherence/fabric/call_all.hpp"
#include "utils/run_on.hpp"
#include "utils/with_timeout.hpp"

namespace tarn {

namespace {
// A kernel may let requests end before it changes a device.
constexpr std::chrono::seconds told_within{5};
}  // namespace

SizeNotices::SizeNotices(Loop& loop, Fabric& fabric, HostId self, std::vector<HostId> peers)
    : self_(self), fabric_(&fabric), peers_(std::move(peers)) {
    fabric.calls().set(CallKind::resized,
                       [this, &loop](HostId, std::string request) { return run_on(loop, hear(std::move(request))); });
}

Task<Result<std::string>> SizeNotices::hear(std::string request) {
    const std::optional<VolumeId> volume = unpack<VolumeId>(request);
    if (!volume || *volume == 0 || *volume > volume_id_max) co_return fail(Errc::protocol, 0, "resized: volume");
    CO_TRY_VOID(co_await tell_here(*volume));
    co_return std::string();
}

Task<Result<>> SizeNotices::tell_here(VolumeId volume) {
    if (follow_) co_return co_await follow_(volume);
    co_return Result<>{};
}

Task<std::vector<HostId>> SizeNotices::tell(VolumeId volume) {
    std::vector<HostAnswer> answers;
    if (fabric_) answers = co_await call_all(*fabric_, peers_, CallKind::resized, pack(volume), told_within);
    std::vector<HostId> silent;
    for (const HostAnswer& answer : answers)
        if (!answer.said) silent.push_back(answer.host);
    if (!co_await with_timeout(told_within, tell_here(volume))) silent.push_back(self_);
    co_return silent;
}

}  // namespace tarn
