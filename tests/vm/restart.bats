# A block device whose tarnd is killed, stopped or away: the kernel notices no more than a pause.

load vm.bash

setup_file() {
    vm_start
    vm 'tarn_init && tarnd_start && tarn create disk 256MiB && modprobe nbd'
}
teardown_file() { vm_stop; }

# Each test has a tarnd, and the volume attached as nbd0.
setup() {
    vm 'tarn attached > /tmp/attached || tarnd_start; [ -e /sys/block/nbd0/pid ] || tarn attach disk'
}

# Verified writes and reads of /dev/nbd0 while LINE runs; prints the longest wait of a request, in ms.
under_load() {
    vm 'fio --name=v --filename=/dev/nbd0 --size=64m --rw=randrw --bs=4k-64k --ioengine=io_uring --direct=1 --iodepth=16 \
            --verify=crc32c --verify_backlog=64 --time_based --runtime=600 --output=/tmp/fio.json --output-format=json &
        fio=$!
        '"$1"'
        within 60 served 500
        kill -INT $fio; wait $fio || [ $? = 128 ]
        sed -i "0,/^{/{/^{/!d}" /tmp/fio.json  # what it says of the signal
        jq -e ".jobs[0].error == 0" /tmp/fio.json > /tmp/verdict
        jq "[.jobs[0] | .read, .write | .clat_ns.max] | max / 1000000 | floor" /tmp/fio.json'
}

@test "kill -9 under verified load is a pause" {
    vm ': > /tmp/tarnd.log; dmesg -C'
    run under_load 'for i in 1 2 3 4; do within 60 served 500; tarnd_end -9; tarnd_start; done'
    assert_success
    echo "longest wait: ${lines[-1]} ms" >&3
    run vm 'dmesg | grep nbd0'
    assert_failure
    assert_output ""
    run vm 'grep -c "nbd0 is volume disk, as before" /tmp/tarnd.log'
    assert_output 4
}

@test "so is a stop and a start; between the two requests wait" {
    [[ -n ${TARN_FULL-} ]] || skip "takes long here: ./dev test vm --full"
    run under_load 'for i in 1 2; do within 60 served 500; tarnd_end -TERM; tarnd_start; done'
    assert_success
    vm 'tarnd_end -TERM; pidof tarn-keeper
        dd if=/dev/nbd0 of=/tmp/read bs=4k count=16 iflag=direct status=none & dd=$!
        tarnd_start; wait $dd; [ "$(stat -c %s /tmp/read)" = 65536 ]'
}

@test "what was written and flushed is there after a kill, on the file system, too" {
    vm 'mkfs.ext4 -q /dev/nbd0 && mount /dev/nbd0 /mnt && cp -r /usr/share/zoneinfo /mnt/ && sync -f /mnt
        tarnd_end -9; (cd /usr/share && find zoneinfo -type f | xargs md5sum) > /tmp/sums
        tarnd_start; echo 3 > /proc/sys/vm/drop_caches; cd /mnt; md5sum --quiet -c /tmp/sums; cd /
        umount /mnt; fsck.ext4 -fn /dev/nbd0'
}

@test "a device is detached without a tarnd" {
    vm 'tarnd_end -9; timeout 20 tarn detach disk; fails [ -e /sys/block/nbd0/pid ]; tarnd_start; no_attachments'
}

@test "an idle one is detached while tarnd hangs, who lets go of it then" {
    vm 'kill -STOP "$(cat /run/tarnd.pid)"; timeout 20 tarn detach disk; fails [ -e /sys/block/nbd0/pid ]
        [[ $(blockdev --getsize64 /dev/nbd0) = 0 ]]
        kill -CONT "$(cat /run/tarnd.pid)"; within 20 no_attachments; tarn attach disk'
}

@test "one that is mounted in a container alone is in use, too" {
    [[ -n ${TARN_FULL-} ]] || skip "takes long here: ./dev test vm --full"
    vm 'mkfs.ext4 -q /dev/nbd0; unshare --mount sh -c "mount /dev/nbd0 /mnt && exec tail -f /dev/null" > /dev/null 2>&1 & echo $! > /tmp/container
        within 20 mounted_by $(cat /tmp/container); tarnd_end -9'
    run vm 'tarn detach disk'
    assert_failure 4
    # The file system is not done with it before its requests are answered.
    vm 'kill $(cat /tmp/container); tarnd_start; within 20 tarn detach disk'
}

@test "one that is in use, with its sockets full, is detached without a tarnd by force alone" {
    [[ -n ${TARN_FULL-} ]] || skip "takes long here: ./dev test vm --full"
    vm 'mkfs.ext4 -q /dev/nbd0; mount /dev/nbd0 /mnt; tarnd_end -9
        dd if=/dev/zero of=/mnt/full bs=1M count=32 oflag=direct status=none & dd=$!
        within 20 waits_for_the_device $dd
        fails timeout 20 tarn detach disk
        timeout 10 tarn detach --force disk
        fails wait $dd; umount /mnt; fails [ -e /sys/block/nbd0/pid ]'
}

@test "one that is in use, with writes under way, is detached by force while tarnd hangs, and leaves nothing" {
    vm 'mkfs.ext4 -q /dev/nbd0; mount /dev/nbd0 /mnt
        dd if=/dev/zero of=/mnt/full bs=1M count=64 oflag=direct status=none & dd=$!
        within 20 served 16; kill -STOP "$(cat /run/tarnd.pid)"; within 20 waits_for_the_device $dd
        timeout 10 tarn detach --force disk
        if wait $dd; then exit 1; fi
        kill -CONT "$(cat /run/tarnd.pid)"; within 20 no_attachments; fails dd if=/mnt/full of=/dev/null bs=4k count=1 iflag=direct
        umount /mnt; [[ ! -e /sys/block/nbd0/pid ]]; [[ $(blockdev --getsize64 /dev/nbd0) = 0 ]]; tarn attach disk'
}

# The first socket of the device: the keeper has those of the device, too, and no other of tarnd's. To shut down tarnd's
# end is what a kernel that gives a connection up looks like to tarnd, and what a tarnd that ends it to the kernel.
@test "a connection that breaks is replaced by a new one, which serves, and outlives tarnd" {
    vm ': > /tmp/tarnd.log; dmesg -C
        python3 - "$(cat /run/tarnd.pid)" "$(pidof tarn-keeper)" << "END"
import ctypes, os, socket, sys
def sockets(pid):
    links = {os.readlink(f"/proc/{pid}/fd/{fd}"): int(fd) for fd in os.listdir(f"/proc/{pid}/fd")}
    return {link: fd for link, fd in links.items() if link.startswith("socket:")}
tarnd, keeper = map(int, sys.argv[1:])
ours = sockets(tarnd)
first = min(ours[link] for link in ours.keys() & sockets(keeper).keys())
pidfd_getfd = 438
fd = ctypes.CDLL(None, use_errno=True).syscall(pidfd_getfd, os.pidfd_open(tarnd), first, 0)
socket.socket(fileno=fd).shutdown(socket.SHUT_RDWR)
END
        within 20 grep "the kernel had given up connection" /tmp/tarnd.log; dmesg | grep "nbd0: reconnected socket"
        head -c 4M /dev/urandom > /tmp/bytes; dd if=/tmp/bytes of=/dev/nbd0 bs=64k oflag=direct status=none'
    local -r read_by_each_cpu='for cpu in 0 1; do
            taskset -c $cpu dd if=/dev/nbd0 bs=64k count=64 iflag=direct status=none | cmp - /tmp/bytes
        done
        tarn --json status | jq -c "[.shards[] | [.nbd_connections, .requests >= 64]]"'
    run vm "$read_by_each_cpu"
    assert_output '[[1,true],[1,true]]'
    vm 'tarnd_end -9; tarnd_start'
    run vm "$read_by_each_cpu"
    assert_output '[[1,true],[1,true]]'
    run vm 'dmesg | grep "I/O error"; grep "error" /tmp/tarnd.log'
    assert_output ""
}

@test "a keeper that is killed has a successor, and then the daemon may be killed, too" {
    vm 'keeper=$(pidof tarn-keeper); kill -9 $keeper; within 20 another_keeper_than $keeper
        within 20 grep "another one keeps the device" /tmp/tarnd.log
        head -c 4M /dev/urandom > /tmp/bytes; dd if=/tmp/bytes of=/dev/nbd0 bs=1M oflag=direct status=none
        tarnd_end -9; tarnd_start; cmp -n 4194304 /tmp/bytes /dev/nbd0'
}

@test "a device whose keeper and daemon are gone is ended by force, and before that its volume has no other" {
    vm 'kill -STOP "$(cat /run/tarnd.pid)"; kill -9 "$(pidof tarn-keeper)"; tarnd_end -9; tarnd_start; no_attachments'
    run vm 'tarn attach disk'
    assert_failure 4
    assert_output --partial "tarn detach --force ends"
    run vm 'tarn detach disk'
    assert_failure 3
    vm 'tarn detach --force disk; fails [ -e /sys/block/nbd0/pid ]'
}

@test "who disconnects it in the kernel ends it, too" {
    vm 'nbd-client -d /dev/nbd0; within 10 no_attachments; tarn attach disk
        tarnd_end -9; nbd-client -d /dev/nbd0; tarnd_start; within 10 no_attachments'
}

@test "a daemon that stops with a device attached and never comes back leaves nothing that detach does not end" {
    vm 'tarnd_end -TERM; tarn detach disk; within 10 no_keeper; fails [ -e /sys/block/nbd0/pid ]'
}
