#!/usr/bin/env bash
# All benches, one after the other, with the same options.
set -euo pipefail
for bench in placement nbd attach fuse store cache remote fabric; do "$(dirname "${BASH_SOURCE[0]}")/$bench.bash" "$@"; done
