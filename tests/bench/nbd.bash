#!/usr/bin/env bash
# NBD, pages in DRAM: tarnd beside nbdkit's memory plugin, the leanest server that can be written, and
# qemu-storage-daemon over a file, all on Unix sockets; the first two also over TCP, within TLS.
# shellcheck source=tests/bench/common.bash
source "$(dirname "${BASH_SOURCE[0]}")/common.bash"
bench_begin nbd "$@"

SIZE_MIB=256
OPERATIONS=("read 1" "write 1" "mixed 1" "read 32" "write 32" "mixed 32" "sequential-read 8" "sequential-write 8")
if [[ -n $QUICK ]]; then
    SIZE_MIB=16
    OPERATIONS=("read 1" "mixed 32" "sequential-write 8")
fi
AS_SET=("read 1" "write 1" "read 32" "write 32" "sequential-read 8" "sequential-write 8")
[[ -z $QUICK && -n $HALT_POLL_BEFORE && -w $HALT_POLL ]] || AS_SET=()
TABLE_AS_SET="Cheap load, idle CPUs poll for $((${HALT_POLL_BEFORE:-0} / 1000)) µs, as this machine is set"
SERVERS=(tarn nbdkit lean qemu)
declare -A NAME=([tarn]="tarn" [nbdkit]="nbdkit memory" [lean]="leanest server" [qemu]="qemu-storage-daemon")
declare -A PID SOCKET=([nbdkit]=$WORK/nbdkit.sock [lean]=$WORK/lean.sock [qemu]=$WORK/qemu.sock)

KEYS=$WORK/keys.psk
(umask 077 && echo "bench:$(head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n')" > "$KEYS")
start_tarn $((SIZE_MIB * 2 + 64))MiB $((SIZE_MIB * 2 + 64))MiB \
    'tcp = "0.0.0.0:10809"' 'tls = "require"' "tls_psk_file = \"$KEYS\""
on solo create disk ${SIZE_MIB}MiB > /dev/null
PID[tarn]=$TARN_PID
SOCKET[tarn]=$CLUSTER/solo/nbd.sock

start_peer nbdkit --foreground --exit-with-parent --unix "${SOCKET[nbdkit]}" memory "${SIZE_MIB}M"
PID[nbdkit]=$PEER_PID
beside_solo nbdkit --pidfile "$WORK/nbdkit-tls.pid" --port 10810 --tls=require --tls-psk="$KEYS" memory "${SIZE_MIB}M"
within 10 test -s "$WORK/nbdkit-tls.pid"
PID[nbdkit-tls]=$(< "$WORK/nbdkit-tls.pid")
PEERS+=("${PID[nbdkit-tls]}")
start_peer "$TARN_BUILD/tests/bench/lean_server" "${SOCKET[lean]}" "$SIZE_MIB"
PID[lean]=$PEER_PID

head -c ${SIZE_MIB}M /dev/urandom > "$WORK/disk"
start_peer qemu-storage-daemon \
    --blockdev "driver=file,node-name=disk,filename=$WORK/disk,cache.direct=on,aio=io_uring" \
    --nbd-server "addr.type=unix,addr.path=${SOCKET[qemu]}" \
    --export type=nbd,id=disk,node-name=disk,name=disk,writable=on
PID[qemu]=$PEER_PID

# The same bytes everywhere, and all of tarn's pages in its frames.
for server in "${SERVERS[@]}"; do
    within 10 test -S "${SOCKET[$server]}"
    nbdcopy "$WORK/disk" "nbd+unix:///disk?socket=${SOCKET[$server]}"
done
ADDRESS=$(address_of solo)
ADDRESS=${ADDRESS%:*}
declare -A TLS_URI=(
    [tarn]="nbds://bench@$ADDRESS:10809/disk?tls-psk-file=$KEYS"
    [nbdkit]="nbds://bench@$ADDRESS:10810/disk?tls-psk-file=$KEYS"
)
# A kernel without TLS has no such file.
sealed_by_kernel() { awk '$1 == "TlsTxSw" { print $2 }' /proc/net/tls_stat 2> /dev/null || true; }
SEALED_BEFORE=$(sealed_by_kernel)
beside_solo nbdinfo --size "${TLS_URI[tarn]}" > /dev/null
TLS_OF=GnuTLS
[[ $(sealed_by_kernel) == "$SEALED_BEFORE" ]] || TLS_OF="the kernel's"

for ((round = 1; round <= ROUNDS; round++)); do
    echo "round $round of $ROUNDS"
    for operation in "${OPERATIONS[@]}"; do
        read -r kind depth <<< "$operation"
        for server in "${SERVERS[@]}"; do
            # shellcheck disable=SC2046
            run_load "${PID[$server]}" --unix "${SOCKET[$server]}" --export disk $(load_options "$kind" "$depth")
            record "Cheap load" "$(describe "$kind" "$depth")" "${NAME[$server]}"
        done
        for server in "${SERVERS[@]}"; do
            # shellcheck disable=SC2046
            run_fio "${PID[$server]}" --ioengine=nbd --uri="nbd+unix:///disk?socket=${SOCKET[$server]}" \
                --size=${SIZE_MIB}M $(fio_options "$kind" "$depth")
            record "fio" "$(describe "$kind" "$depth")" "${NAME[$server]}"
        done
    done
    for kind in write read; do
        for server in tarn nbdkit; do
            pid=${PID[tarn]}
            [[ $server == tarn ]] || pid=${PID[nbdkit-tls]}
            from=$WORK/disk to=${TLS_URI[$server]}
            [[ $kind == write ]] || from=${TLS_URI[$server]} to=null:
            run_copy "$pid" "$from" "$to"
            record "nbdcopy over TCP, within TLS ($TLS_OF for what tarn sends)" "256 KiB $kind, four connections" \
                "${NAME[$server]}"
        done
    done
    # What the machine makes of it when its idle CPUs halt as they are set to.
    idle_as_before
    for operation in "${AS_SET[@]}"; do
        read -r kind depth <<< "$operation"
        for server in tarn nbdkit lean; do
            # shellcheck disable=SC2046
            run_load "${PID[$server]}" --unix "${SOCKET[$server]}" --export disk $(load_options "$kind" "$depth")
            record "$TABLE_AS_SET" "$(describe "$kind" "$depth")" "${NAME[$server]}"
        done
    done
    idle_polls
done

for kind in read write; do
    goal "Cheap load" "$(describe $kind 1)" "nbdkit memory" 1.3 0.6
    goal "Cheap load" "$(describe $kind 32)" "nbdkit memory" 2 0.5
    goal "Cheap load" "$(describe $kind 32)" "leanest server" 0.9 -
    goal "Cheap load" "$(describe sequential-$kind 8)" "nbdkit memory" 1.3 -
    goal "Cheap load" "$(describe sequential-$kind 8)" "leanest server" 0.9 -
done
bench_report
