#include "frontends/volumes/volume_context.hpp"

#include "frontends/volumes/extents.hpp"

namespace tarn {

namespace {

Task<Result<std::string>> tell_stored_runs(Cache& cache, std::string request) {
    CO_TRY_VOID(co_await cache.home_start().ended());
    co_return answer_stored_runs(cache, request);
}

// Once this host zeroes nothing of the volume.
Task<Result<std::string>> tell_zeroing_over(VolumeTurns& cutting, std::string request) {
    const std::optional<VolumeId> volume = unpack<VolumeId>(request);
    if (!volume) co_return fail(Errc::protocol, 0, "zeroing.request");
    co_await cutting.idle(*volume);
    co_return std::string();
}

}  // namespace

void VolumeContext::answer_calls(CallHandlers& calls) {
    calls.set(CallKind::stored_runs,
              [this](HostId, std::string request) { return tell_stored_runs(cache, std::move(request)); });
    calls.set(CallKind::zeroing_over,
              [this](HostId, std::string request) { return tell_zeroing_over(cutting_turns, std::move(request)); });
}

}  // namespace tarn
