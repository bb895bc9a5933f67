#!/usr/bin/env bash
# Pages of another host, over TCP loopback. Read one after the other by a process that is itself a host, beside redis
# GET by the same loop; and read in sequence through NBD, cold, beside nbdkit's nbd plugin in front of a remote memory.
# shellcheck source=tests/bench/common.bash
source "$(dirname "${BASH_SOURCE[0]}")/common.bash"
bench_begin remote "$@"

# Not in namespaces: everyone uses the same loopback.
network_make() { return 1; }
HOST_FABRIC=tcp

VOLUMES=8     # of the sequential part, each read once per round
VOLUME_MIB=64 # one range, with one home
DISK_MIB=512 # several ranges, so that either host is the home of some
if [[ -n $QUICK ]]; then VOLUMES=1 VOLUME_MIB=8 DISK_MIB=128; fi

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
port_answers() { (: < "/dev/tcp/127.0.0.1/$1") 2> /dev/null; }
volume_id() { on home show "$1" --json | jq '.volumes[0].id'; }

# The first host is the home; the second one, the reader, is a tarnd or remote_load.
HOST_MEMORY=$((DISK_MIB + VOLUMES * VOLUME_MIB * 2 + 256))MiB
HOST_STORE=$((DISK_MIB + VOLUMES * VOLUME_MIB * 3 + 256))MiB
cluster_make home reader
cluster_start

head -c ${DISK_MIB}M /dev/urandom > "$WORK/disk"
head -c ${VOLUME_MIB}M "$WORK/disk" > "$WORK/bytes"
on home create disk ${DISK_MIB}MiB > /dev/null
nbdcopy "$WORK/disk" "$(uri home disk)"
disks=()
for ((i = 0; ${#disks[@]} < VOLUMES; i++)); do
    on home create "part$i" ${VOLUME_MIB}MiB > /dev/null
    # Ranges lie round-robin on the two hosts; these volumes have one, on the home.
    (($(volume_id "part$i") % 2 == 0)) || continue
    nbdcopy "$WORK/bytes" "$(uri home "part$i")"
    disks+=("part$i")
done
DISK_ID=$(volume_id disk)
host_stop reader

REDIS_PORT=$(free_port)
start_peer redis-server --port "$REDIS_PORT" --bind 127.0.0.1 --save "" --appendonly no --dir "$WORK"
REDIS_PID=$PEER_PID
within 10 port_answers "$REDIS_PORT"

# read_randomly CASE MEMORY
read_randomly() {
    echo "$1"
    "$TARN_BUILD/tests/bench/remote_load" --store "$CLUSTER/reader/store" --cluster "$CLUSTER_UUID" \
        --key-file "$CLUSTER/key" --listen "$(address_of reader)" --peer "$(address_of home)" \
        --peer-pid "$(pid_of home)" --volume "$DISK_ID" --bytes "$WORK/disk" --redis-port "$REDIS_PORT" \
        --redis-pid "$REDIS_PID" --rounds "$ROUNDS" --memory "$2" --case "$1" >> "$RESULTS" 2> "$WORK/remote_load.log"
    grep p50 "$WORK/remote_load.log"
}
read_randomly "4 KiB remote read" $((DISK_MIB << 20))
read_randomly "4 KiB remote read, memory is full" $((DISK_MIB << 16))

MEMORY_PORT=$(free_port)
start_peer nbdkit --foreground --exit-with-parent --port "$MEMORY_PORT" --ipaddr 127.0.0.1 memory "${VOLUME_MIB}M"
MEMORY_PID=$PEER_PID
within 10 port_answers "$MEMORY_PORT"
start_peer nbdkit --foreground --exit-with-parent --unix "$WORK/nbdkit.sock" nbd "uri=nbd://127.0.0.1:$MEMORY_PORT"
NBDKIT_PID=$PEER_PID
within 10 test -S "$WORK/nbdkit.sock"
nbdcopy "$WORK/bytes" "nbd+unix:///?socket=$WORK/nbdkit.sock"

# read_once SERVER-PIDS SOCKET EXPORT DEPTH
read_once() {
    local pids=$1 before=0 after=0 pid said
    for pid in $pids; do before=$((before + $(cpu_us_of "$pid"))); done
    said=$("$LOAD" --unix "$2" --export "$3" --depth "$4" --block 131072 --once 1)
    for pid in $pids; do after=$((after + $(cpu_us_of "$pid"))); done
    IOPS=$(jq .iops <<< "$said")
    CPU_US=$(jq "$((after - before)) / .ops" <<< "$said")
}

for ((round = 1; round <= ROUNDS; round++)); do
    for depth in 1 8; do
        echo "round $round of $ROUNDS, depth $depth"
        if [[ -e $CLUSTER/reader/pid ]]; then host_stop reader; fi
        host_start reader
        within 20 connected reader
        for disk in "${disks[@]}"; do
            read_once "$(pid_of reader) $(pid_of home)" "$CLUSTER/reader/nbd.sock" "$disk" $depth
            record "In sequence, cold, through NBD" "$(describe sequential-read $depth)" tarn
            read_once "$NBDKIT_PID $MEMORY_PID" "$WORK/nbdkit.sock" "" $depth
            record "In sequence, cold, through NBD" "$(describe sequential-read $depth)" "nbdkit nbd"
        done
    done
done

for how in blocking io_uring; do goal "Synchronous, in one process" "4 KiB remote read" "redis GET, $how" 1 -; done
for depth in 1 8; do goal "In sequence, cold, through NBD" "$(describe sequential-read $depth)" "nbdkit nbd" 0.7 -; done
bench_report
