#!/usr/bin/env bash
# NVMe tier: 4 KiB requests to a volume many times the memory, beside fio's io_uring engine on a file of the same size
# in the same file system (O_DIRECT). Three ways down, each longer than the one before: the store alone, a volume in
# one process (cache, protocol and eviction, no client), and tarnd with an NBD client.
# shellcheck source=tests/bench/common.bash
source "$(dirname "${BASH_SOURCE[0]}")/common.bash"
bench_begin store "$@"

SIZE_MIB=4096
OPERATIONS=("read 1" "read 32" "write 32" "mixed 32")
if [[ -n $QUICK ]]; then
    SIZE_MIB=256
    OPERATIONS=("read 32")
fi
TIER=("$TARN_BUILD/tests/bench/store_load" --path "$WORK/tier" --size $((SIZE_MIB << 20)))

# run_tier LAYER OPTIONS...
run_tier() {
    local layer=$1 said
    shift
    said=$("${TIER[@]}" --layer "$layer" --seconds "$SECONDS_EACH" "$@")
    IOPS=$(jq .iops <<< "$said")
    CPU_US=$(jq .cpu_us_per_op <<< "$said")
}

start_tarn 64MiB $((SIZE_MIB + 256))MiB
on solo create disk ${SIZE_MIB}MiB > /dev/null

# Written with direct I/O: no page of it is in the page cache.
fio --name=fill --filename="$WORK/raw" --size=${SIZE_MIB}M --rw=write --bs=1M --direct=1 --ioengine=io_uring \
    --iodepth=4 --output=/dev/null
nbdcopy --flush "$WORK/raw" "$(uri solo disk)"
"${TIER[@]}" --fill 1

for ((round = 1; round <= ROUNDS; round++)); do
    echo "round $round of $ROUNDS"
    for operation in "${OPERATIONS[@]}"; do
        read -r kind depth <<< "$operation"
        case=$(describe "$kind" "$depth")
        read -ra options <<< "$(load_options "$kind" "$depth")"
        run_tier store "${options[@]}"
        record "The store alone" "$case" tarn
        # shellcheck disable=SC2046
        run_fio 0 --ioengine=io_uring --direct=1 --filename="$WORK/raw" --size=${SIZE_MIB}M \
            $(fio_options "$kind" "$depth")
        for table in "The store alone" "A volume in one process" "tarnd and an NBD client"; do
            record "$table" "$case" "raw file"
        done
        run_tier cache "${options[@]}"
        record "A volume in one process" "$case" tarn
        run_load "$TARN_PID" --unix "$CLUSTER/solo/nbd.sock" --export disk "${options[@]}"
        record "tarnd and an NBD client" "$case" tarn
    done
done

for table in "A volume in one process" "tarnd and an NBD client"; do
    goal "$table" "$(describe read 32)" "raw file" 0.8 -
done
bench_report
