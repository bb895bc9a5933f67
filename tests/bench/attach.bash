#!/usr/bin/env bash
# Block devices of the kernel: what tarnd does for each request of an attached device, beside nbdkit's memory plugin
# behind nbd-client, in a virtual machine. That is emulated: it counts, and says nothing about time. Counts need no
# rounds: --rounds and --seconds change nothing.
# shellcheck source=tests/bench/common.bash
source "$(dirname "${BASH_SOURCE[0]}")/common.bash"
bench_begin attach "$@"

VM=$BENCH_SOURCE/../vm/machine.py
"$VM" start "$WORK/machine" --qemu > "$WORK/machine.log"
PEERS+=("$(< "$WORK/machine/pid")")
"$VM" exec "$WORK/machine" "set -euo pipefail; . /vm/guest.bash; $(< "$BENCH_SOURCE/attach_in_machine.bash")" > "$WORK/counts"
"$VM" stop "$WORK/machine"

{
    echo
    echo "For each request: system calls of the server, how often one of its threads waits, and how many bytes the"
    echo "kernel copies in them for each byte of the request:"
    echo
    echo "| | tarn | | | nbdkit memory | | |"
    echo "|---|---|---|---|---|---|---|"
    echo "| | system calls | waits | copied | system calls | waits | copied |"
    awk -F '\t' '$2 == "tarn" { tarn = sprintf("%.2f | %.2f | × %.2f", $3, $4, $5) }
        $2 == "nbdkit" { printf "| %s | %s | %.2f | %.2f | × %.2f |\n", $1, tarn, $3, $4, $5 }' "$WORK/counts"
} > "$WORK/tables"
bench_report --text "$WORK/tables"
