# What people put on a block device: file systems and partitions, on volumes that were attached.

load vm.bash

setup_file() {
    vm_start
    vm "cat > /etc/udev/rules.d/60-tarn.rules << 'END'
$(cat "$BATS_TEST_DIRNAME/../../packaging/60-tarn.rules")
END
        /lib/systemd/systemd-udevd --daemon"
    # A device that udev has open while it looks at it is not given to anybody: the next one would be.
    vm 'tarn_init; tarnd_start; modprobe -a nbd xfs; udevadm settle'
}
teardown_file() { vm_stop; }

# a_life_of MKFS CHECK: its files and the space that it trims, until a new attach, by a new tarnd, finds it clean.
a_life_of() {
    vm 'tarn create disk 304MiB; tarn attach disk
        mkfs.'"$1"' -q /dev/tarn/by-name/disk; mount /dev/tarn/by-name/disk /mnt
        cp -r /usr/share/zoneinfo/America /mnt/kept; head -c 16M /dev/urandom > /mnt/gone; sync -f /mnt
        (cd /mnt; find kept -type f | xargs md5sum) > /tmp/sums
        stored > /tmp/before; rm /mnt/gone; sync -f /mnt; fstrim /mnt; stored > /tmp/after
        umount /mnt; tarn detach disk; tarnd_end -TERM; tarnd_start; tarn attach disk
        '"$2"' /dev/tarn/by-name/disk; mount /dev/tarn/by-name/disk /mnt; (cd /mnt; md5sum --quiet -c /tmp/sums)
        umount /mnt; tarn detach disk; tarn delete disk'
    local -r trimmed=$(vm 'echo $(($(< /tmp/before) - $(< /tmp/after)))')
    echo "$trimmed bytes"
    ((trimmed > 15 << 20))
}

@test "ext4: files, trimmed space, and what a new attach finds" {
    a_life_of "ext4 -N 4096 -E lazy_itable_init=0" "fsck.ext4 -fn"
}

@test "XFS: files, trimmed space, and what a new attach finds" {
    [[ -n ${TARN_FULL-} ]] || skip "takes a minute: ./dev test --full"
    a_life_of xfs "xfs_repair -n"
}

@test "XFS grows with its volume while it is mounted" {
    [[ -n ${TARN_FULL-} ]] || skip "takes a minute: ./dev test --full"
    vm 'tarn create grows 304MiB; tarn attach grows; mkfs.xfs -q /dev/tarn/by-name/grows
        mount /dev/tarn/by-name/grows /mnt; echo kept > /mnt/file
        tarn resize grows 608MiB; xfs_growfs /mnt > /dev/null; head -c 350M /dev/zero > /mnt/more; sync -f /mnt'
    run vm 'umount /mnt; xfs_repair -n /dev/tarn/by-name/grows; mount /dev/tarn/by-name/grows /mnt
        cat /mnt/file; stat --format=%s /mnt/more
        umount /mnt; tarn detach grows; tarn delete grows'
    assert_success
    assert_output --partial $'kept\n367001600'
}

@test "partitions, and the links by which udev knows them" {
    vm 'tarn create parted 64MiB; tarn attach parted; udevadm settle'
    run vm 'readlink -f /dev/tarn/by-name/parted
        grep -o "\[.*\]" /sys/block/nbd0/queue/scheduler; cat /sys/block/nbd0/queue/{rotational,max_sectors_kb}'
    assert_output $'/dev/nbd0\n[none]\n0\n1024'
    vm 'printf "%s\n" "label: gpt" "size=8MiB" "size=32MiB" | sfdisk -q /dev/nbd0; udevadm settle'
    run vm 'readlink -f /dev/tarn/by-name/parted-part1 /dev/tarn/by-name/parted-part2'
    assert_output $'/dev/nbd0p1\n/dev/nbd0p2'
    vm 'mkfs.ext4 -q /dev/tarn/by-name/parted-part2; mount /dev/tarn/by-name/parted-part2 /mnt; cp /etc/passwd /mnt'
    run vm 'tarn detach parted'
    assert_failure 4
    vm 'umount /mnt; tarn detach parted; udevadm settle
        [[ ! -e /dev/nbd0p1 && ! -L /dev/tarn/by-name/parted && ! -L /dev/tarn/by-name/parted-part1 ]]'
    vm 'tarn attach parted; udevadm settle; mount /dev/tarn/by-name/parted-part2 /mnt; cmp /etc/passwd /mnt/passwd
        umount /mnt; tarn detach parted; tarn delete parted'
}
