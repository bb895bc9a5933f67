#!/usr/bin/env bash
# What a transport costs, without the protocol above it: two processes ask and answer over shared memory and TCP, as
# links do, beside a Unix socket and memcpy.
# shellcheck source=tests/bench/common.bash
source "$(dirname "${BASH_SOURCE[0]}")/common.bash"
bench_begin fabric "$@"

FABRIC_LOAD=$TARN_BUILD/tests/bench/fabric_load
mapfile -t CPUS < <(taskset -pc $$ | sed 's/.*: //' | tr ',' '\n' | while IFS=- read -r first last; do seq "$first" "${last:-$first}"; done)
ONE=${CPUS[0]},${CPUS[0]}
TWO=${CPUS[0]},${CPUS[1]:-${CPUS[0]}}

# ask TABLE CASE SERVER OPTIONS...
ask() {
    local said
    said=$("$FABRIC_LOAD" --seconds "$SECONDS_EACH" "${@:4}")
    IOPS=$(jq .iops <<< "$said")
    CPU_US=$(jq .server_cpu_us_per_op <<< "$said")
    record "$1" "$2" "$3"
}

SMALL="64-byte request and reply"
PAGE="4 KiB page fetched"
BULK="In bulk, 4 KiB at a time"
for ((round = 1; round <= ROUNDS; round++)); do
    echo "round $round of $ROUNDS"
    ask "$SMALL" "both look without an end, two CPUs" tarn --over rings --cpus "$TWO"
    ask "$SMALL" "both look without an end, two CPUs" "Unix socket" --over unix --cpus "$TWO"
    for over in shm tcp; do
        for placement in "one CPU" "two CPUs" "any CPU"; do
            case $placement in
                one*) where=(--cpus "$ONE") ;;
                two*) where=(--cpus "$TWO") ;;
                *) where=() ;;
            esac
            ask "$SMALL" "$over, $placement" tarn --over $over "${where[@]}"
            ask "$SMALL" "$over, $placement" "Unix socket" --over unix "${where[@]}"
        done
        ask "$PAGE" "$over, two CPUs" tarn --over $over --reply 4160 --cpus "$TWO"
        ask "$PAGE" "$over, two CPUs" "Unix socket" --over unix --reply 4160 --cpus "$TWO"
        ask "$BULK" "$over, two CPUs" tarn --over $over --reply 4096 --bulk 1 --cpus "$TWO"
        ask "$BULK" "$over, two CPUs" memcpy --over memory --reply 4096 --bulk 1 --cpus "$TWO"
    done
done

goal "$SMALL" "both look without an end, two CPUs" "Unix socket" 9 -
goal "$SMALL" "shm, one CPU" "Unix socket" 0.7 -
for placement in "two CPUs" "any CPU"; do goal "$SMALL" "shm, $placement" "Unix socket" 1 -; done
goal "$BULK" "shm, two CPUs" memcpy 0.7 -
bench_report
