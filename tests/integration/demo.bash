#!/usr/bin/env bash
# The demonstration: three hosts on this machine share one volume through real clients. Cleans up after itself.
#
#   demo.bash [--keep]           --keep leaves the cluster running and says what to try next
#   demo.bash --end DIRECTORY    ends such a cluster, and removes all that it has
set -euo pipefail
unset TARN_CONTROL  # of another cluster, as of a demo that was kept
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [[ ${1:-} == --end ]]; then
    CLUSTER=${2:-}
    [[ -O $CLUSTER/state ]] || { echo "demo --end ${CLUSTER:-DIRECTORY}: no cluster of a demo of yours is there" >&2 && exit 1; }
    # shellcheck source=tests/integration/cluster.bash
    source "$here/cluster.bash"
    cluster_recall
    cluster_down
    echo "ended the cluster that was in $CLUSTER, and removed it"
    exit
fi
keep=
[[ ${1:-} == --keep ]] && keep=1
CLUSTER=$(mktemp -d /tmp/tarn-demo.XXXXXX)
HOST_MEMORY=256MiB
HOST_STORE=2GiB
HOSTS=()
# shellcheck source=tests/integration/cluster.bash
source "$here/cluster.bash"

finish() {
    local status=$?
    [[ -n ${nbdkit_pid:-} ]] && kill "$nbdkit_pid" 2> /dev/null
    if ((status != 0)); then
        echo
        echo "the demo failed; the daemons said last:" >&2
        tail -n 5 "$CLUSTER"/*/log >&2 || true
    elif [[ -n $keep ]]; then
        return
    fi
    cluster_down
}
trap finish EXIT
trap 'exit 130' INT TERM

results=()
step() { printf '\n\033[1m%s\033[0m\n' "$*"; }
passed() {
    printf '   ok  %s\n' "$*"
    results+=("$*")
}
sum() { sha256sum "$1" | cut -d' ' -f1; }
rate() { jq -r '[.jobs[] | .read.iops + .write.iops] | add | floor' "$1"; }

step "1. Three hosts: a, b and c"
cluster_make a b c
cluster_remember
if [[ $CLUSTER_NETWORK == namespaces ]]; then
    echo "   each in a network namespace of its own, joined by veth"
else
    echo "   network namespaces are not allowed here: the hosts use loopback addresses instead"
fi
cluster_start
on a status
passed "three tarnd, one cluster"

step "2. A shared volume"
on a create disk 256MiB --shared
on c list

step "3. An ext4 image, written through a's NBD export, read through b's mount"
truncate -s 256M "$CLUSTER/image"
mkdir "$CLUSTER/content"
cp -r "$here" "$CLUSTER/content/"
mke2fs -q -t ext4 -d "$CLUSTER/content" "$CLUSTER/image"
nbdcopy --flush "$CLUSTER/image" "$(uri a disk)"
for host in a b c; do host_mount "$host"; done
[[ $(sum "$CLUSTER/image") == "$(sum "$CLUSTER/b/mnt/disk")" ]]
passed "b reads what a wrote: SHA-256 $(sum "$CLUSTER/image" | head -c 16)…"

step "4. Bytes changed through c's mount, seen at once through a's NBD"
printf 'written on c' | dd of="$CLUSTER/c/mnt/disk" bs=1 seek=1000003 conv=notrunc status=none
seen=$(PATH=/usr/bin:$PATH nbdsh -u "$(uri a disk)" -c 'print(h.pread(12, 1000003).decode())')
[[ $seen == "written on c" ]]
passed "a reads over NBD: '$seen'"

step "5. SQLite on a file of the mount, one host after the other"
for host in a b c; do
    sqlite3 "file:$CLUSTER/$host/mnt/app.db?vfs=unix-none" \
        "create table if not exists visits(host text); insert into visits values ('$host');"
done
visits=$(sqlite3 "file:$CLUSTER/a/mnt/app.db?vfs=unix-none" \
    "pragma integrity_check; select group_concat(host, ',') from visits;" | tr '\n' ' ')
[[ $visits == "ok a,b,c " ]]
passed "SQLite: integrity $visits"

step "6. fio with verification"
on b create bench 128MiB --shared > /dev/null
fio --name=nbd --ioengine=nbd --uri="$(uri b bench)" --rw=randwrite --bs=4k --iodepth=16 --size=32M \
    --verify=crc32c --verify_fatal=1 --verify_state_save=0 > "$CLUSTER/fio-nbd.log"
fio --name=fuse --filename="$CLUSTER/c/mnt/bench" --ioengine=io_uring --direct=1 --rw=randwrite --bs=4k --iodepth=16 \
    --size=32M --verify=crc32c --verify_fatal=1 --verify_state_save=0 > "$CLUSTER/fio-fuse.log"
passed "fio verified 32 MiB over NBD on b and 32 MiB over FUSE on c"

back_with_every_byte() {
    local host
    host_start b
    within 20 connected b
    host_mount b
    for host in a b c; do
        [[ $(head -c 8M "$CLUSTER/$host/mnt/disk" | sha256sum | cut -d' ' -f1) == "$(sum "$CLUSTER/precious")" ]]
    done
}

step "7. SIGKILL, after a flush and without"
head -c 8M /dev/urandom > "$CLUSTER/precious"
nbdcopy --flush "$CLUSTER/precious" "$(uri b disk)"
host_kill b
umount -l "$CLUSTER/b/mnt"
echo "   b is dead, and its memory with it, as after a power cut"
back_with_every_byte
passed "every flushed byte is there, read through a, b and c"
head -c 8M /dev/urandom > "$CLUSTER/precious"
nbdcopy "$CLUSTER/precious" "$(uri b disk)"
host_crash b
umount -l "$CLUSTER/b/mnt"
echo "   b's tarnd is dead again, after writes that nobody flushed; the next one adopts its memory"
back_with_every_byte
passed "every byte is there, flushed or not"

step "8. Rates: 4 KiB random reads at queue depth 16 over NBD, beside nbdkit memory"
nbdkit --foreground --unix "$CLUSTER/nbdkit.sock" --pidfile "$CLUSTER/nbdkit.pid" memory 128M &
nbdkit_pid=$!
within 10 test -S "$CLUSTER/nbdkit.sock"
job=(--name=rate --rw=randread --bs=4k --iodepth=16 --size=64M --time_based --runtime=2 --output-format=json)
fio "${job[@]}" --ioengine=nbd --uri="$(uri b bench)" --output="$CLUSTER/warm.json"
fio "${job[@]}" --ioengine=nbd --uri="$(uri b bench)" --output="$CLUSTER/tarn.json"
fio "${job[@]}" --ioengine=nbd --uri="nbd+unix:///?socket=$CLUSTER/nbdkit.sock" --output="$CLUSTER/nbdkit.json"
fio "${job[@]}" --ioengine=io_uring --direct=1 --filename="$CLUSTER/b/mnt/bench" --output="$CLUSTER/fuse.json"
printf '   %-28s %10s IOPS\n' "tarn, NBD" "$(rate "$CLUSTER/tarn.json")" \
    "nbdkit memory, NBD" "$(rate "$CLUSTER/nbdkit.json")" "tarn, FUSE" "$(rate "$CLUSTER/fuse.json")"

step "What happened"
printf '   ✓ %s\n' "${results[@]}"

if [[ -n $keep ]]; then
    cat << END

The cluster is still running. Try:
   export TARN_CONTROL=$CLUSTER/a/control.sock PATH=$TARN_BUILD/daemon:\$PATH
   tarn status
   ls -l $CLUSTER/b/mnt
   nbdinfo '$(uri c disk)'
and end it with:
   $(realpath "$here/../..")/dev demo --end $CLUSTER
END
fi
