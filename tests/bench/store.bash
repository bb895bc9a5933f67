#!/usr/bin/env bash
# NVMe tier: 4 KiB requests to a volume many times the memory, through NBD and the cache, beside fio's io_uring engine
# on a file of the same size in the same file system (O_DIRECT). tarn's figures have all that its clients pay: the
# socket, the protocol, the eviction of a page for each page that comes in.
# shellcheck source=tests/bench/common.bash
source "$(dirname "${BASH_SOURCE[0]}")/common.bash"
bench_begin store "$@"

SIZE_MIB=4096
OPERATIONS=("read 1" "read 32" "write 32" "mixed 32")
if [[ -n $QUICK ]]; then
    SIZE_MIB=256
    OPERATIONS=("read 32")
fi

start_tarn 64MiB $((SIZE_MIB + 256))MiB
on solo create disk ${SIZE_MIB}MiB > /dev/null

# Written with direct I/O: no page of it is in the page cache.
fio --name=fill --filename="$WORK/raw" --size=${SIZE_MIB}M --rw=write --bs=1M --direct=1 --ioengine=io_uring \
    --iodepth=4 --output=/dev/null
nbdcopy --flush "$WORK/raw" "$(uri solo disk)"

for ((round = 1; round <= ROUNDS; round++)); do
    echo "round $round of $ROUNDS"
    for operation in "${OPERATIONS[@]}"; do
        read -r kind depth <<< "$operation"
        # shellcheck disable=SC2046
        run_load "$TARN_PID" --unix "$CLUSTER/solo/nbd.sock" --export disk $(load_options "$kind" "$depth")
        record "cold pages" "$(describe "$kind" "$depth")" tarn
        # shellcheck disable=SC2046
        run_fio 0 --ioengine=io_uring --direct=1 --filename="$WORK/raw" --size=${SIZE_MIB}M \
            $(fio_options "$kind" "$depth")
        record "cold pages" "$(describe "$kind" "$depth")" "raw file"
    done
done

goal "cold pages" "$(describe read 32)" "raw file" 0.8 -
bench_report
