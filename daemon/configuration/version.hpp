// The version that tarn and tarnd name; the build passes it from meson.build.
#pragma once

namespace tarn {

inline constexpr const char* version = TARN_VERSION;

}  // namespace tarn
