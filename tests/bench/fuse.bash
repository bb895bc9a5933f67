#!/usr/bin/env bash
# FUSE, direct I/O: tarn's mount, pages in DRAM, beside the same over io_uring where the kernel has it, and libfuse's
# example passthrough_ll over a tmpfs: memory beside memory. (Over a disk's file system the example cannot write: it
# hands on O_DIRECT and a buffer that is not aligned.)
# shellcheck source=tests/bench/common.bash
source "$(dirname "${BASH_SOURCE[0]}")/common.bash"
bench_begin fuse "$@"

SIZE_MIB=256
OPERATIONS=("read 1" "write 1" "mixed 1" "read 32" "write 32" "mixed 32" "sequential-read 8" "sequential-write 8")
if [[ -n $QUICK ]]; then
    SIZE_MIB=16
    OPERATIONS=("read 1" "mixed 32" "sequential-write 8")
fi
SERVERS=(tarn passthrough)
declare -A NAME=([tarn]="tarn" [ring]="tarn over io_uring" [passthrough]="passthrough_ll")
declare -A PID FILE=([passthrough]=$WORK/mnt/file)

start_tarn $((SIZE_MIB * 2 + 64))MiB $((SIZE_MIB * 2 + 64))MiB
on solo create disk ${SIZE_MIB}MiB > /dev/null
host_mount solo
PID[tarn]=$TARN_PID
FILE[tarn]=$CLUSTER/solo/mnt/disk

if mount_with_rings "$WORK/ring"; then
    SERVERS=(tarn ring passthrough)
    PID[ring]=$TARN_PID
    FILE[ring]=$WORK/ring/disk
fi

start_passthrough "$SIZE_MIB"
PID[passthrough]=$PEER_PID

# The same bytes everywhere, and all of tarn's pages in its frames.
head -c ${SIZE_MIB}M /dev/urandom > "$WORK/bytes"
for server in "${SERVERS[@]}"; do
    dd if="$WORK/bytes" of="${FILE[$server]}" bs=1M conv=notrunc oflag=direct status=none
done

for ((round = 1; round <= ROUNDS; round++)); do
    echo "round $round of $ROUNDS"
    for operation in "${OPERATIONS[@]}"; do
        read -r kind depth <<< "$operation"
        for server in "${SERVERS[@]}"; do
            # shellcheck disable=SC2046
            run_fio "${PID[$server]}" --ioengine=io_uring --direct=1 --filename="${FILE[$server]}" \
                --size=${SIZE_MIB}M $(fio_options "$kind" "$depth")
            record "fio" "$(describe "$kind" "$depth")" "${NAME[$server]}"
        done
    done
done

for kind in read write; do
    for depth in 1 32; do goal "fio" "$(describe $kind $depth)" passthrough_ll - 1; done
done
bench_report
