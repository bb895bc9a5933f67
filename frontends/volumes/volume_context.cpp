#include "frontends/volumes/volume_context.hpp"

#include "frontends/volumes/extents.hpp"

namespace tarn {

void VolumeContext::answer_calls(CallHandlers& calls) {
    calls.set(CallKind::stored_runs,
              [this](HostId, std::string request) { return tell_stored_runs(std::move(request)); });
    calls.set(CallKind::zeroing_over,
              [this](HostId, std::string request) { return tell_zeroing_over(std::move(request)); });
}

Task<Result<std::string>> VolumeContext::tell_stored_runs(std::string request) {
    CO_TRY_VOID(co_await cache_.recovered());
    co_return answer_stored_runs(cache_, request);
}

// Once this host zeroes nothing of the volume.
Task<Result<std::string>> VolumeContext::tell_zeroing_over(std::string request) {
    const std::optional<VolumeId> volume = unpack<VolumeId>(request);
    if (!volume) co_return fail(Errc::protocol, 0, "zeroing.request");
    co_await cutting_turns_.idle(*volume);
    co_return std::string();
}

}  // namespace tarn
