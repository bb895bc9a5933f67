# tarn attach: volumes as block devices of the kernel that tarnd serves without a client.

load vm.bash

setup_file() {
    vm_start
    vm 'tarn_init && tarnd_start && tarn create disk 256MiB && modprobe nbd'
}
teardown_file() { vm_stop; }

@test "a file system lives on it; while it is mounted it is not detached, but by force" {
    vm 'tarn attach disk && mkfs.ext4 -q /dev/nbd0 && mount /dev/nbd0 /mnt'
    vm 'fio --name=v --directory=/mnt --size=16m --rw=randwrite --bs=4k --ioengine=io_uring --direct=1 --iodepth=8 \
            --verify=crc32c --do_verify=1 --output-format=terse > /dev/null'
    run vm 'tarn detach disk'
    assert_failure 4
    assert_output --partial "/dev/nbd0 is mounted on /mnt; try: umount /mnt; --force"
    vm 'umount /mnt && tarn detach /dev/nbd0 && tarn attach disk && fsck.ext4 -fn /dev/nbd0 && mount /dev/nbd0 /mnt'
    run vm 'tarn detach --force disk && fails touch /mnt/there'
    assert_success
    assert_output --partial "/dev/nbd0 is still mounted on /mnt"
    run vm 'tarn attach disk'
    assert_failure 4
    assert_output --partial "try: umount /mnt, which has /dev/nbd0 still"
    vm 'umount /mnt'
    run vm 'tarn attached --json | jq -c .attachments'
    assert_output '[]'
}

@test "a device that a program has open is not detached under it, but by force" {
    vm 'tarn attach disk; tail -f /dev/null 7< /dev/nbd0 > /dev/null 2>&1 & echo $! > /tmp/opener; within 10 eval "[[ -e /proc/$!/fd/7 ]]"'
    run vm 'tarn detach disk'
    assert_failure 4
    assert_output --regexp "/dev/nbd0 is open in (tail|bash) \(process [0-9]+\)"
    vm 'kill $(cat /tmp/opener); tarn detach disk; tarn attach disk; exec 7< /dev/nbd0; tarn detach --force disk'
}

@test "a read-only device refuses writes, and one with small blocks takes small ones" {
    vm 'tarn attach --read-only disk && [ "$(blockdev --getro /dev/nbd0)" = 1 ]'
    run vm 'dd if=/dev/zero of=/dev/nbd0 bs=4k count=1 oflag=direct'
    assert_failure
    vm 'tarn detach disk && tarn attach --block-size 512 disk && dd if=/dev/zero of=/dev/nbd0 bs=512 count=1 oflag=direct'
    vm 'tarn detach disk'
}

@test "partitions are there for blocks of the size that they were made with, and for no other" {
    vm 'tarn attach --block-size 512 disk; blkdiscard /dev/nbd0
        printf "%s\n" "label: gpt" "size=8MiB" "size=32MiB" | sfdisk -q /dev/nbd0
        head -c 1M /dev/urandom > /tmp/bytes; dd if=/tmp/bytes of=/dev/nbd0p2 bs=64k oflag=direct status=none; tarn detach disk'
    local -r partitions='true < /dev/nbd0; blockdev --getss /dev/nbd0; cd /sys/block/nbd0; echo nbd0p*'
    run vm "tarn attach disk > /tmp/said; $partitions"
    assert_output $'4096\nnbd0p*'
    vm 'tarn detach disk'
    run vm "tarn attach --block-size 512 disk > /tmp/said; $partitions; cat nbd0p2/start nbd0p2/size"
    assert_output $'512\nnbd0p1 nbd0p2\n18432\n65536'
    vm 'cmp -n 1048576 /tmp/bytes /dev/nbd0p2; blkdiscard /dev/nbd0; tarn detach disk'
}

# The kernel counts blocks and requests in 32 bits here and there: the last block is past all of these, and a discard of
# everything is larger than any of them.
@test "a device of 2 TiB is served to its end, and emptied at once" {
    vm 'tarn create vast 2TiB; tarn attach vast; [[ $(blockdev --getsize64 /dev/nbd0) = $((2 << 40)) ]]
        head -c 4k /dev/urandom > /tmp/bytes; stored > /tmp/before
        for page in 0 $((1 << 20)) $((1 << 28)) $(((2 << 28) - 1)); do
            fails cmp -s -n 4096 /tmp/bytes /dev/nbd0 -i 0:$((page * 4096))
            dd if=/tmp/bytes of=/dev/nbd0 bs=4k seek=$page oflag=direct conv=notrunc status=none
            dd if=/dev/nbd0 bs=4k skip=$page count=1 iflag=direct status=none | cmp - /tmp/bytes
        done; stored > /tmp/full
        timeout 120 blkdiscard /dev/nbd0; stored > /tmp/after; head -c 4k /dev/zero > /tmp/zeros
        for page in 0 $((1 << 20)) $((1 << 28)) $(((2 << 28) - 1)); do
            dd if=/dev/nbd0 bs=4k skip=$page count=1 iflag=direct status=none | cmp - /tmp/zeros
        done
        (($(< /tmp/full) == $(< /tmp/before) + 4 * 4096 && $(< /tmp/after) == $(< /tmp/before)))
        tarn detach vast; tarn delete vast'
}

@test "what cannot be attached is refused and leaves nothing" {
    run vm 'tarn attach nope'
    assert_failure 3
    vm 'tarn attach disk'
    run vm 'tarn attach disk'
    assert_failure 4
    assert_output --partial "attached here already"
    vm 'tarn detach disk'
    run vm 'tarn detach disk'
    assert_failure 3
    run vm 'chmod o+rwx /run/tarn && chmod o+rw /run/tarn/control.sock && setpriv --reuid nobody --clear-groups tarn attach disk'
    assert_failure 7
    vm 'chmod 755 /run/tarn && chmod 660 /run/tarn/control.sock'
    # Newer kernels load the driver for whoever asks for it.
    run vm 'rmmod nbd && echo install nbd /bin/false > /etc/modprobe.d/nbd.conf && tarn attach disk'
    assert_failure 1
    assert_output --partial "modprobe nbd"
    vm 'rm /etc/modprobe.d/nbd.conf; modprobe nbd'
}

@test "the kernel makes more devices than it has, so that nobody need tell the driver how many" {
    local few
    for few in 1 0; do
        run vm 'rmmod nbd; modprobe nbd nbds_max='$few'; tarn create second 64MiB > /tmp/said; tarn attach disk; tarn attach second
            printf last | dd of=/dev/nbd1 bs=4 seek=$(((64 << 18) - 1)) conv=notrunc,fsync status=none
            tarn detach second > /tmp/said; tarn attach second; tail -c 4 /dev/nbd1'
        assert_success
        assert_output $'/dev/nbd0\n/dev/nbd1\n/dev/nbd1\nlast'
        vm 'tarn detach disk; tarn detach second; tarn delete second'
    done
    vm 'rmmod nbd; modprobe nbd'
}

@test "a mounted device grows with its volume, and shrinks only by force" {
    vm 'tarn create grows 64MiB && tarn attach grows'
    # The table of a disk of twice the size, with a partition of 96 MiB: the kernel cuts it at the end that there is.
    vm 'printf "\0\0\0\0\x83\0\0\0\0\1\0\0\0\x60\0\0" | dd of=/dev/nbd0 bs=1 seek=446 conv=notrunc status=none
        printf "\x55\xaa" | dd of=/dev/nbd0 bs=1 seek=510 conv=notrunc status=none; blockdev --rereadpt /dev/nbd0'
    run vm 'blockdev --getsize64 /dev/nbd0p1'
    assert_output 66060288
    vm 'tarn resize grows 128MiB && true < /dev/nbd0'
    run vm 'blockdev --getsize64 /dev/nbd0 /dev/nbd0p1; tarn attached --json | jq .attachments[0].size_bytes'
    assert_output $'134217728\n100663296\n134217728'
    vm 'mkfs.ext4 -q /dev/nbd0p1 40M && mount /dev/nbd0p1 /mnt && echo kept > /mnt/file'
    vm 'fio --name=v --directory=/mnt --size=8m --rw=randwrite --bs=4k --ioengine=io_uring --direct=1 --iodepth=8 \
            --verify=crc32c --time_based --runtime=5 --output-format=terse > /tmp/fio.txt & 
        tarn resize grows 192MiB && resize2fs /dev/nbd0p1 && tarn resize grows 256MiB && wait $!'
    run vm 'blockdev --getsize64 /dev/nbd0; df --output=size /mnt | tail -n 1 | awk "{ print (\$1 > 80000) }"; cat /mnt/file'
    assert_output $'268435456\n1\nkept'
    run vm 'tarn resize grows 64MiB'
    assert_failure 4
    assert_output --partial "the kernel's device /dev/nbd0 (host vm)"
    run vm 'umount /mnt && tarn resize --force grows 64MiB'
    assert_line "grows is still open in the kernel's device /dev/nbd0 (host vm)"
    run vm 'blockdev --getsize64 /dev/nbd0; dd if=/dev/nbd0 of=/dev/null bs=4k count=1 skip=16384 iflag=direct status=none'
    assert_line 67108864
    vm 'tarn detach grows && tarn delete grows'
}

@test "a size that nobody told is learned with the next request, and after a restart" {
    [[ -n ${TARN_FULL-} ]] || skip "takes long here: ./dev test vm --full"
    vm 'modprobe fuse && tarn create files 64MiB --shared && tarn attach files && mkdir -p /tmp/files && tarn mount /tmp/files'
    # Of a file system of the daemon: nobody resizes the volume by name.
    vm 'truncate -s 96M /tmp/files/files && dd if=/dev/nbd0 of=/dev/null bs=4k count=1 iflag=direct status=none'
    vm 'within 10 eval "[[ \$(blockdev --getsize64 /dev/nbd0) == 100663296 ]]"'
    vm 'tarn umount /tmp/files && tarnd_end -KILL && tarnd_start && tarn resize files 128MiB'
    run vm 'blockdev --getsize64 /dev/nbd0'
    assert_output 134217728
    vm 'tarn detach files && tarn delete files'
}

@test "who deletes the volume of a mounted device is told where that is, and by force ends its requests" {
    vm 'tarn create doomed 64MiB; tarn attach doomed; mkfs.ext4 -q /dev/nbd0; mount /dev/nbd0 /mnt'
    run vm 'tarn delete doomed'
    assert_failure 4
    assert_output --partial "/dev/nbd0 is still mounted on /mnt: umount that"
    run vm 'tarn delete --force doomed'
    assert_success
    assert_output --partial "/dev/nbd0 is still mounted on /mnt: umount that"
    run vm 'timeout 20 dd if=/dev/nbd0 of=/dev/null bs=1M count=32 skip=16 iflag=direct'
    assert_failure 1
    run vm 'tarn attached'
    assert_output --partial "unless it was ended already"
    vm 'timeout 20 umount /mnt; fails [ -e /sys/block/nbd0/pid ]; [ "$(tarn attached --json | jq ".attachments | length")" = 0 ]'
}
