# What tests/bench/attach.bash runs in a virtual machine: counts what a server of a block device does for each request.
# A line per case and server: case, server, and for each request system calls of the server's threads, waits of those,
# and bytes that the kernel copies in them for each byte of the request.
#
# It is a line of machine.py exec, behind guest.bash.

SIZE_MIB=64
TRACING=/sys/kernel/tracing
CALLS=$TRACING/events/raw_syscalls/sys_enter

mount -t tracefs tracefs $TRACING
# How much is copied out of Unix sockets and into them, and in whose thread.
echo 'p:copies/out skb_copy_datagram_iter bytes=%cx:u32' > $TRACING/kprobe_events
echo 'p:copies/in skb_copy_datagram_from_iter bytes=%cx:u32' >> $TRACING/kprobe_events

# counters on|off: an empty table for each counter, or none.
counters() {
    local sign='' trigger
    [[ $1 = on ]] || sign='!'
    for trigger in "$CALLS hist:keys=common_pid" "$TRACING/events/copies/in hist:keys=common_pid:vals=bytes" \
        "$TRACING/events/copies/out hist:keys=common_pid:vals=bytes"; do
        echo "$sign${trigger#* }" > "${trigger%% *}/trigger"
    done
}
# sum_of EVENT FIELD PID: of the process's threads.
sum_of() {
    awk -v field="$2:" -v threads="$(find "/proc/$3/task" -mindepth 1 -maxdepth 1 -printf '%f ')" '
        BEGIN { split(threads, list, " "); for (i in list) of_server[list[i]] }
        /common_pid:/ {
            for (i = 1; i < NF; i++) {
                if ($i == "common_pid:") thread = $(i + 1)
                if ($i == field) count = $(i + 1)
            }
            if (thread in of_server) sum += count
        }
        END { print sum + 0 }' "$1/hist"
}
waits_of() { cat /proc/"$1"/task/*/status | awk '/^voluntary_ctxt_switches/ { sum += $2 } END { print sum }'; }
# requests and sectors that a device has answered.
answered() { awk '{ print $1 + $5, ($3 + $7) * 512 }' "/sys/block/$1/stat"; }

# count SERVER PID DEVICE CASE FIO-OPTIONS...
count() {
    local -r server=$1 pid=$2 device=$3 case=$4
    local waits before after
    read -ra before <<< "$(answered "$device")"
    waits=$(waits_of "$pid")
    counters on
    fio --name=count --filename="/dev/$device" --direct=1 --ioengine=io_uring --size=${SIZE_MIB}m --norandommap \
        --output-format=terse "${@:5}" > /dev/null
    read -ra after <<< "$(answered "$device")"
    awk -v OFS='\t' -v name="$case" -v server="$server" -v requests=$((after[0] - before[0])) \
        -v bytes=$((after[1] - before[1])) -v calls="$(sum_of $CALLS hitcount "$pid")" \
        -v waits=$(($(waits_of "$pid") - waits)) \
        -v copied=$(($(sum_of $TRACING/events/copies/in bytes "$pid") + $(sum_of $TRACING/events/copies/out bytes "$pid"))) \
        'BEGIN { print name, server, calls / requests, waits / requests, copied / bytes }'
    counters off
}

modprobe nbd
tarn_init
tarnd_start
tarn create disk ${SIZE_MIB}MiB
tarn attach disk > /dev/null
nbdkit --unix /run/nbdkit.sock --pidfile /run/nbdkit.pid memory ${SIZE_MIB}M
within 10 test -s /run/nbdkit.pid
nbd-client -unix /run/nbdkit.sock /dev/nbd1 -b 4096 -C 2 > /dev/null 2>&1
for device in nbd0 nbd1; do dd if=/dev/urandom of=/dev/$device bs=1M count=$SIZE_MIB oflag=direct status=none; done

while read -r name options; do
    for server in "tarn $(< /run/tarnd.pid) nbd0" "nbdkit $(< /run/nbdkit.pid) nbd1"; do
        # shellcheck disable=SC2086
        count $server "${name//_/ }" $options
    done
done << 'CASES'
4_KiB_read,_depth_1 --rw=randread --bs=4k --iodepth=1 --number_ios=2000
4_KiB_write,_depth_1 --rw=randwrite --bs=4k --iodepth=1 --number_ios=2000
4_KiB_read,_depth_32 --rw=randread --bs=4k --iodepth=32 --number_ios=8000
4_KiB_write,_depth_32 --rw=randwrite --bs=4k --iodepth=32 --number_ios=8000
128_KiB_sequential_read,_depth_8 --rw=read --bs=128k --iodepth=8
128_KiB_sequential_write,_depth_8 --rw=write --bs=128k --iodepth=8
CASES
