#!/usr/bin/env bash
# The cache in one process: an access that hits beside a plain memcpy, and replacement beside other policies. Both
# programs repeat and interleave what they measure themselves.
# shellcheck source=tests/bench/common.bash
source "$(dirname "${BASH_SOURCE[0]}")/common.bash"
bench_begin cache "$@"

{
    echo
    echo "An access that hits, 4 KiB:"
    echo
    "$TARN_BUILD/tests/bench/hot_path"
    echo
    echo "Replacement: accesses that hit, and what a hit costs:"
    echo
    "$TARN_BUILD/tests/bench/replacement"
} > "$WORK/tables"
bench_report --text "$WORK/tables"
