#!/usr/bin/env bash
# Where a request is served: clients that the scheduler places, that stay on one CPU, that wander, that are many, and a
# CPU that somebody else keeps busy; with idle CPUs that halt at once, and with CPUs that poll. Over NBD tarnd beside
# nbdkit's memory plugin and the leanest server that can be written, which also runs on its client's CPU; over FUSE
# tarn's mounts over io_uring and over the device beside libfuse's passthrough_ll.
# shellcheck source=tests/bench/common.bash
source "$(dirname "${BASH_SOURCE[0]}")/common.bash"
bench_begin placement "$@"

SIZE_MIB=256
if [[ -n $QUICK ]]; then SIZE_MIB=16; fi
SERVERS=(tarn off nbdkit lean)
declare -A NAME=([tarn]="tarn" [off]="tarn, pin = off" [nbdkit]="nbdkit memory" [lean]="leanest server"
    [joined]="leanest, on its client's CPU")
declare -A PID SOCKET FILE
for server in off nbdkit lean joined; do SOCKET[$server]=$WORK/$server.sock; done
read -ra CPUS <<< "$(python3 -c 'import os; print(*sorted(os.sched_getaffinity(0)))')"
FIRST=${CPUS[0]}

start_tarn $((SIZE_MIB * 2 + 64))MiB $((SIZE_MIB * 2 + 64))MiB
PID[tarn]=$TARN_PID
SOCKET[tarn]=$CLUSTER/solo/nbd.sock
tarn init --store "$WORK/off.store" --size $((SIZE_MIB * 2 + 64))MiB --memory $((SIZE_MIB * 2 + 64))MiB --host off \
    --config "$WORK/off.toml" --nbd-unix "${SOCKET[off]}" > /dev/null
sed -i '1i pin = "off"' "$WORK/off.toml"
start_peer tarnd --config "$WORK/off.toml" --control "$WORK/off.control"
PID[off]=$PEER_PID
start_peer nbdkit --foreground --exit-with-parent --unix "${SOCKET[nbdkit]}" memory "${SIZE_MIB}M"
PID[nbdkit]=$PEER_PID
start_peer "$TARN_BUILD/tests/bench/lean_server" "${SOCKET[lean]}" "$SIZE_MIB"
PID[lean]=$PEER_PID
start_peer taskset -c "$FIRST" "$TARN_BUILD/tests/bench/lean_server" "${SOCKET[joined]}" "$SIZE_MIB"
PID[joined]=$PEER_PID

head -c ${SIZE_MIB}M /dev/urandom > "$WORK/disk"
within 20 test -S "$WORK/off.control"
on solo create disk ${SIZE_MIB}MiB > /dev/null
tarn --control "$WORK/off.control" create disk ${SIZE_MIB}MiB > /dev/null
for server in "${!NAME[@]}"; do
    within 10 test -S "${SOCKET[$server]}"
    nbdcopy "$WORK/disk" "nbd+unix:///disk?socket=${SOCKET[$server]}"
done

MOUNTED=()
if mount_with_rings "$WORK/ring"; then
    mkdir "$WORK/device"
    MOUNTS+=("$WORK/device")
    on solo mount "$WORK/device" > /dev/null
    start_passthrough "$SIZE_MIB"
    cp "$WORK/disk" "$WORK/tmpfs/disk"
    MOUNTED=(ring device passthrough)
    NAME+=([ring]="tarn" [device]="tarn over /dev/fuse" [passthrough]="passthrough_ll")
    PID+=([ring]=$TARN_PID [device]=$TARN_PID [passthrough]=$PEER_PID)
    FILE+=([ring]=$WORK/ring/disk [device]=$WORK/device/disk [passthrough]=$WORK/mnt/disk)
fi

# load SERVER DEPTH [PREFIX...]: the cheap load, begun by the prefix.
load() {
    if [[ -v FILE[$1] ]]; then
        "${@:3}" "$TARN_BUILD/tests/bench/file_load" "${FILE[$1]}" "$2" "$SECONDS_EACH" "${PID[$1]}"
        return
    fi
    # shellcheck disable=SC2046
    "${@:3}" "$LOAD" --seconds "$SECONDS_EACH" --server-pid "${PID[$1]}" --unix "${SOCKET[$1]}" --export disk \
        $(load_options read "$2")
}
# Sets IOPS and CPU_US from what some loads said, all of which ran at once.
figures_of() {
    IOPS=$(jq -s 'map(.iops) | add' "$@")
    CPU_US=$(jq -s '(map(.server_cpu_us_per_op * .ops) | max) / (map(.ops) | add)' "$@")
}
# measure SERVER DEPTH [PREFIX...]
measure() {
    load "$@" > "$WORK/said"
    figures_of "$WORK/said"
}
# And how much more the luckiest client gets than the unluckiest: SHARE.
measure_many() {
    local i clients=() said=()
    for ((i = 0; i < $3; i++)); do
        load "$1" "$2" > "$WORK/said.$i" &
        clients+=($!)
        said+=("$WORK/said.$i")
    done
    wait "${clients[@]}"
    figures_of "${said[@]}"
    SHARE=$(jq -s 'map(.iops) | max / min' "${said[@]}")
}
# measure_fio SERVER DEPTH [OPTIONS...]: fio, which costs the client more for each request than the server.
measure_fio() {
    if [[ -v FILE[$1] ]]; then
        run_fio "${PID[$1]}" --ioengine=io_uring --direct=1 --filename="${FILE[$1]}" --rw=randread --bs=4k --iodepth="$2" \
            "${@:3}"
    else
        run_fio "${PID[$1]}" --ioengine=nbd --uri="nbd+unix:///disk?socket=${SOCKET[$1]}" --rw=randread --bs=4k \
            --iodepth="$2" "${@:3}"
    fi
}
# The client goes to the next CPU every 100 ms, as long as it is there.
measure_wanderer() {
    local client load i
    load "$1" "$2" > "$WORK/said" &
    client=$!
    for ((i = 0; ; i++)); do
        kill -0 "$client" 2> /dev/null || break
        if load=$(pgrep -P "$client"); then
            taskset -acp "${CPUS[i % ${#CPUS[@]}]}" "$load" > /dev/null 2>&1 || true
        fi
        read -r -t 0.1 <> <(:) || true
    done
    wait "$client"
    figures_of "$WORK/said"
}
measure_beside_hog() {
    local hog
    taskset -c "$FIRST" sh -c 'while :; do :; done' &
    hog=$!
    measure "$1" "$2"
    kill "$hog"
    wait "$hog" || true
}

# all_servers TABLE CASE HOW DEPTH MORE...: over NBD, and the limit beside them.
all_servers() {
    local server
    for server in "${SERVERS[@]}"; do
        "$3" "$server" "$4" "${@:5}"
        record "NBD. $1" "$2, depth $4" "${NAME[$server]}"
        if [[ "$server $2" == "tarn eight clients" ]]; then
            figure "NBD. $1: eight clients, depth $4, the most that one gets to the least" "$SHARE" "" 1.3
        fi
    done
    if [[ $2 == fio ]]; then
        measure_fio joined "$4" --cpus_allowed="$FIRST"
    else
        IOPS=${LIMIT[$4]% *} CPU_US=${LIMIT[$4]#* }
    fi
    record "NBD. $1" "$2, depth $4" "${NAME[joined]}"
}
# The same over FUSE.
all_mounts() {
    local server
    for server in "${MOUNTED[@]}"; do
        "$3" "$server" "$4" "${@:5}"
        record "FUSE. $1" "$2, depth $4" "${NAME[$server]}"
    done
}

HALTS="Idle CPUs halt at once"
POLLS="Idle CPUs poll for $IDLE_POLL_US µs"
TABLES=("$HALTS" "$POLLS")
DEPTHS=(1 32)
[[ -w $HALT_POLL ]] || TABLES=("Idle CPUs do what the machine makes them do")
if [[ -n $QUICK ]]; then TABLES=("${TABLES[0]}") DEPTHS=(1); fi
declare -A LIMIT
for ((round = 1; round <= ROUNDS; round++)); do
    echo "round $round of $ROUNDS"
    for table in "${TABLES[@]}"; do
        if [[ $table == "$POLLS" ]]; then idle_polls; elif [[ -w $HALT_POLL ]]; then echo 0 > "$HALT_POLL"; fi
        for depth in "${DEPTHS[@]}"; do
            measure joined "$depth" taskset -c "$FIRST"
            LIMIT[$depth]="$IOPS $CPU_US"
            for all in all_servers all_mounts; do
                "$all" "$table" "a client" measure "$depth"
                "$all" "$table" "fio" measure_fio "$depth"
                "$all" "$table" "a client on one CPU" measure "$depth" taskset -c "$FIRST"
                "$all" "$table" "a client that wanders" measure_wanderer "$depth"
                "$all" "$table" "a client, and a CPU that is busy" measure_beside_hog "$depth"
                "$all" "$table" "two clients" measure_many "$depth" 2
                "$all" "$table" "eight clients" measure_many "$depth" 8
            done
        done
    done
done

goal "NBD. ${TABLES[0]}" "a client, depth 1" "nbdkit memory" 1.25 0.7
goal "NBD. ${TABLES[0]}" "a client, depth 1" "${NAME[joined]}" 0.7 -
goal "NBD. ${TABLES[0]}" "a client, and a CPU that is busy, depth 1" "${NAME[off]}" 0.9 -
goal "FUSE. ${TABLES[0]}" "a client, depth 1" "passthrough_ll" 2.5 0.4
if [[ -z $QUICK ]]; then
    goal "NBD. ${TABLES[0]}" "a client, depth 32" "nbdkit memory" 2.3 0.4
    goal "FUSE. ${TABLES[0]}" "a client, depth 32" "passthrough_ll" 1.2 0.5
    for depth in 1 32; do goal "NBD. ${TABLES[-1]}" "a client, depth $depth" "${NAME[off]}" 1 -; done
fi
bench_report
