#!/usr/bin/env bash
# NVMe tier: 4 KiB requests to a volume many times the memory, beside fio's io_uring engine on a file of the same size
# in the same file system (O_DIRECT). Three ways down, each longer than the one before: the store alone, a volume in
# one process (cache, protocol and eviction, no client), and tarnd with an NBD client.
#
# Then what it takes to make writes durable, beside fio's threads that write and fdatasync on their own; pg_test_fsync
# on a file of the mount and on one of the file system beneath; and how long a store takes to open after a crash that
# left its journal full.
# shellcheck source=tests/bench/common.bash
source "$(dirname "${BASH_SOURCE[0]}")/common.bash"
bench_begin store "$@"

SIZE_MIB=4096
SUSTAINED_SECONDS=$(jq -n "5 * $SECONDS_EACH")
BURST_SECONDS=$(jq -n "[1, $SECONDS_EACH] | min") # about what the journal takes
OPERATIONS=("read 1" "read 32" "write 32" "mixed 32")
if [[ -n $QUICK ]]; then
    SIZE_MIB=256
    OPERATIONS=("read 32")
    SUSTAINED_SECONDS=$SECONDS_EACH
fi
STORE_MIB=$((4 * SIZE_MIB))
RECOVERY=$TARN_BUILD/tests/bench/recovery_load
PG_TEST_FSYNC=$(find /usr/lib/postgresql -name pg_test_fsync | head -n 1)
TIER=("$TARN_BUILD/tests/bench/store_load" --path "$WORK/tier" --size $((SIZE_MIB << 20)))

# The store is measured on one thread, a volume on as many as tarnd has: one for each CPU.
declare -A THREADS=([store]=1 [cache]=$(nproc))

# run_tier LAYER OPTIONS...
run_tier() {
    local layer=$1 said
    shift
    said=$("${TIER[@]}" --layer "$layer" --threads "${THREADS[$layer]}" --seconds "$SECONDS_EACH" "$@")
    IOPS=$(jq .iops <<< "$said")
    CPU_US=$(jq .cpu_us_per_op <<< "$said")
}

# fio_threads COUNT BLOCK-KIB FDATASYNC-EVERY DIRECT
fio_threads() {
    run_fio 0 --ioengine=psync --thread --numjobs="$1" --group_reporting --filename="$WORK/raw" --size=${SIZE_MIB}M \
        --rw=randwrite --bs="$2k" --fdatasync="$3" --direct="$4"
}

LAYERS=("the store alone" "a volume in one process")
declare -A LAYER=(["the store alone"]=store ["a volume in one process"]=cache)
# durable TABLE WRITERS OPTIONS...
durable() {
    local layer
    for layer in "${LAYERS[@]}"; do
        SECONDS_EACH=$BURST_SECONDS run_tier "${LAYER[$layer]}" --depth "$2" --read-percent 0 "${@:3}"
        record "$1" "$layer" tarn
        SECONDS_EACH=$SUSTAINED_SECONDS run_tier "${LAYER[$layer]}" --depth "$2" --read-percent 0 --sustained 1 "${@:3}"
        record "$1" "$layer, sustained" tarn
    done
}
record_peer() {
    local layer
    for layer in "${LAYERS[@]}"; do
        record "$1" "$layer" "$2"
        record "$1" "$layer, sustained" "$2"
    done
}

# pg_test_fsync FILE SERVER TABLE...: one write of 8 KiB and the named way to make it durable; so long for each.
SYNCS="pg_test_fsync, 8 KiB, through the mount"
RING_SYNCS="$SYNCS over io_uring"
sync_tables=("$SYNCS")
pg_test_fsync() {
    CPU_US=-
    "$PG_TEST_FSYNC" --secs-per-test="$PG_SECONDS" --filename="$1" > "$WORK/pg_test_fsync"
    local method rate table
    # The first table of its output has one write for each.
    while read -r method rate; do
        IOPS=$rate
        for table in "${@:3}"; do record "$table" "$method" "$2"; done
    done < <(awk '/using one/ { on = 1 } /using two/ { exit } on && $3 == "ops/sec" { print $1, $2 }' "$WORK/pg_test_fsync")
}

start_tarn 64MiB $((SIZE_MIB + SIZE_MIB / 8 + 256))MiB
on solo create disk ${SIZE_MIB}MiB > /dev/null

# Written with direct I/O: no page of it is in the page cache.
fio --name=fill --filename="$WORK/raw" --size=${SIZE_MIB}M --rw=write --bs=1M --direct=1 --ioengine=io_uring \
    --iodepth=4 --output=/dev/null
nbdcopy --flush "$WORK/raw" "$(uri solo disk)"
"${TIER[@]}" --fill 1 --store-size $((STORE_MIB << 20))

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

ONE="One writer, each write durable by itself (FUA)"
MANY="32 writers, each write flushed"
SOME="One writer, a flush after every 64 writes"
ROUND="128 KiB at once"
for ((round = 1; round <= ROUNDS; round++)); do
    durable "$ONE" 1 --fua 1
    durable "$MANY" 32 --flush-every 1
    durable "$SOME" 1 --flush-every 64
    for direct in 0 1; do
        how=("" ", O_DIRECT")
        fio_threads 1 4 1 $direct
        record_peer "$ONE" "pwrite, fdatasync${how[direct]}"
        fio_threads 32 4 1 $direct
        record_peer "$MANY" "32 threads${how[direct]}"
        fio_threads 1 128 1 $direct
        IOPS=$(jq -n "$IOPS * 32") CPU_US=$(jq -n "$CPU_US / 32")
        record_peer "$MANY" "$ROUND${how[direct]}"
        fio_threads 1 4 64 $direct
        record_peer "$SOME" "ext4${how[direct]}"
    done
done

if [[ -z $QUICK ]]; then
    PG_SECONDS=1
    host_mount solo
    if mount_with_rings "$WORK/ring"; then sync_tables+=("$RING_SYNCS"); fi
    for ((round = 1; round <= ROUNDS && round <= 3; round++)); do
        pg_test_fsync "$CLUSTER/solo/mnt/synced" tarn "$SYNCS"
        if ((${#sync_tables[@]} > 1)); then pg_test_fsync "$WORK/ring/synced" tarn "$RING_SYNCS"; fi
        pg_test_fsync "$WORK/synced" ext4 "${sync_tables[@]}"
    done
    for kind in pages sectors; do
        "$RECOVERY" --path "$WORK/crashed" --fill "$kind"
        for ((round = 1; round <= ROUNDS && round <= 3; round++)); do
            said=$("$RECOVERY" --path "$WORK/crashed")
            figure "Opening a store after a crash, its journal of 1 GiB full of $kind" "$(jq .seconds <<< "$said")" s 10
        done
        rm "$WORK/crashed"
    done
fi

goal "A volume in one process" "$(describe read 32)" "raw file" 0.8 -
goal "The store alone" "$(describe read 32)" "raw file" 0.9 1.5
for layer in "${LAYERS[@]}"; do
    goal "$ONE" "$layer" "pwrite, fdatasync" 0.83 -
    goal "$MANY" "$layer" "32 threads" 1.5 -
    goal "$MANY" "$layer" "$ROUND" 0.6 -
    goal "$SOME" "$layer" "ext4" 1.5 -
done
for method in open_datasync fdatasync fsync; do
    for table in "${sync_tables[@]}"; do goal "$table" "$method" ext4 0.8 -; done
done
bench_report
