# A block device whose tarnd is killed, stopped or away: the kernel notices no more than a pause. (Under load by several
# CPUs: several_cpus.bats.)

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

@test "a stop and a start under verified load are a pause; between the two requests wait" {
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
    run vm 'kill -STOP "$(cat /run/tarnd.pid)"; timeout 20 tarn detach disk > /tmp/said
        echo /sys/block/nbd0/p*d; blockdev --getsize64 /dev/nbd0; kill -CONT "$(cat /run/tarnd.pid)"'
    assert_output $'/sys/block/nbd0/p*d\n0'
    vm 'within 20 no_attachments; tarn attach disk'
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
    vm 'mkfs.ext4 -q /dev/nbd0; mount /dev/nbd0 /mnt; served 0
        dd if=/dev/zero of=/mnt/full bs=4k count=16384 oflag=direct status=none & dd=$!
        within 20 served 16; kill -STOP "$(cat /run/tarnd.pid)"; within 20 waits_for_the_device $dd
        timeout 10 tarn detach --force disk
        if wait $dd; then exit 1; fi
        kill -CONT "$(cat /run/tarnd.pid)"; within 20 no_attachments; fails dd if=/mnt/full of=/dev/null bs=4k count=1 iflag=direct
        umount /mnt; [[ ! -e /sys/block/nbd0/pid ]]; [[ $(blockdev --getsize64 /dev/nbd0) = 0 ]]; tarn attach disk'
}

@test "a keeper that is killed has a successor, and then the daemon may be killed, too" {
    vm 'keeper=$(pidof tarn-keeper); kill -9 $keeper; within 20 another_keeper_than $keeper
        within 20 grep "tarn-keeper has it now" /tmp/tarnd.log
        head -c 4M /dev/urandom > /tmp/bytes; dd if=/tmp/bytes of=/dev/nbd0 bs=1M oflag=direct status=none
        tarnd_end -9; tarnd_start; cmp -n 4194304 /tmp/bytes /dev/nbd0'
}

@test "a device whose keeper and daemon are gone is ended by force, and before that its volume has no other" {
    vm 'kill -STOP "$(cat /run/tarnd.pid)"; kill -9 "$(pidof tarn-keeper)"; tarnd_end -9; tarnd_start; no_attachments'
    run vm 'tarn attach disk'
    assert_failure 4
    assert_output --partial "tarn detach --force ends"
    run vm 'tarn attached'
    assert_success
    assert_output --regexp '/dev/nbd0 .* not served +disk'
    assert_output --partial "warning: this tarnd does not serve /dev/nbd0: if no other one does, its requests wait, and so would umount, unless it was ended already; "
    run vm 'tarn detach disk'
    assert_failure 3
    assert_output --partial "try: tarn detach --force nbd0, if no other tarnd of this machine serves it"
    vm 'tarn detach --force disk; fails [ -e /sys/block/nbd0/pid ]'
}

@test "who disconnects it in the kernel ends it, too" {
    vm 'nbd-client -d /dev/nbd0; within 10 no_attachments; tarn attach disk
        tarnd_end -9; nbd-client -d /dev/nbd0; tarnd_start; within 10 no_attachments'
}

@test "a daemon that stops with a device attached and never comes back leaves nothing that detach does not end" {
    vm 'tarnd_end -TERM; tarn detach disk; within 10 no_keeper; fails [ -e /sys/block/nbd0/pid ]'
}
