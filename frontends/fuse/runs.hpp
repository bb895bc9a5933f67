// Where data or a hole of a file begins, for SEEK_DATA and SEEK_HOLE. It asks the volume for a part of the file at a
// time, and changes nothing.
#pragma once

#include <cstdint>

#include "frontends/volumes/volume.hpp"

namespace tarn::fuse {

// The start of the next run of the kind at or after the offset; the end of the file counts as a hole. Errors: ENXIO,
// there is none; those of the volume.
Task<Result<uint64_t>> find_run(Volume& volume, uint64_t offset_bytes, bool hole);

}  // namespace tarn::fuse
