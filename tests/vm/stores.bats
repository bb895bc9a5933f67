# The devices that a store is on, and what an attached device makes of their errors: an NVMe device, and one of the
# device mapper above it that fails when it is told to.

load vm.bash

setup_file() {
    vm_start --nvme
    vm 'modprobe -a nbd dm-flakey; modprobe nvme poll_queues=2; within 20 test -b /dev/nvme0n1'
}
teardown_file() { vm_stop; }

# map TARGET [OPTION...]: what the store's device is from now on.
map() {
    vm 'dmsetup suspend --noflush store; dmsetup load store --table "0 $(blockdev --getsz /dev/nvme0n1) '"$*"'"
        dmsetup resume store'
}

@test "fio verifies what it wrote to a device whose store is on NVMe" {
    vm 'tarn_init /dev/nvme0n1; tarnd_start; tarn create disk 192MiB; tarn attach disk
        timeout 120 fio --name=v --filename=/dev/nbd0 --size=128m --io_size=32m --rw=randrw --bsrange=4k-128k \
            --ioengine=io_uring --direct=1 --iodepth=16 --verify=crc32c --output-format=terse > /dev/null || tell_stuck
        tarn verify disk; tarn detach disk; tarnd_end -TERM; rm /run/tarn.toml'
}

# Of the device's interrupts, only those of its queues for writes and for other commands come then.
@test "reads of a store on an NVMe device with queues for that are polled" {
    vm 'interrupts() { awk "/nvme0q/ { for (i = 2; i <= 3; i++) sum += \$i } END { print sum }" /proc/interrupts; }
        commands() { awk "{ print \$1 }" /sys/block/nvme0n1/stat; }
        [[ $(< /sys/block/nvme0n1/queue/io_poll) = 1 ]]; tarn_init /dev/nvme0n1 --force; tarnd_start; tarn create disk 64MiB
        grep "reads are polled" /tmp/tarnd.log; [[ $(tarn status --json | jq .store_polls_reads) = true ]]
        tarn attach disk; head -c 32M /dev/urandom > /tmp/bytes; dd if=/tmp/bytes of=/dev/nbd0 bs=128k oflag=direct conv=fsync status=none
        tarn detach disk; tarnd_end -TERM; tarnd_start; tarn attach disk
        random_reads() {
            commands=$(commands) interrupts=$(interrupts)
            fio --name=r --filename=/dev/nbd0 --size=32m --rw=randread --bs=4k --number_ios=500 --direct=1 --output-format=terse > /dev/null
            echo "$((commands = $(commands) - commands)) reads, $((interrupts = $(interrupts) - interrupts)) interrupts"
        }
        random_reads; ((commands >= 300 && interrupts * 10 < commands))
        dd if=/dev/nbd0 bs=128k count=256 iflag=direct status=none | cmp - /tmp/bytes; tarn detach disk; tarnd_end -TERM
        sed -i "1i poll_store = \"off\"" /run/tarn.toml; tarnd_start; tarn attach disk
        [[ $(tarn status --json | jq .store_polls_reads) = false ]]; random_reads; ((commands >= 300 && interrupts * 2 > commands))
        dd if=/dev/nbd0 bs=128k count=256 iflag=direct status=none | cmp - /tmp/bytes; tarn detach disk; tarnd_end -TERM; rm /run/tarn.toml'
}

@test "a store that fails to write fails the device's flush, and what was flushed before stays" {
    vm 'dmsetup create store --table "0 $(blockdev --getsz /dev/nvme0n1) linear /dev/nvme0n1 0"
        tarn_init /dev/mapper/store --force; tarnd_start; tarn create disk 64MiB; tarn attach disk
        mkfs.ext4 -q /dev/nbd0; mount /dev/nbd0 /mnt; cp -r /usr/share/zoneinfo/Europe /mnt/kept; sync -f /mnt
        (cd /mnt; find kept -type f | xargs md5sum) > /tmp/sums'
    map flakey /dev/nvme0n1 0 0 60 1 error_writes
    run vm 'dd if=/dev/urandom of=/mnt/lost bs=1M count=4 conv=fsync'
    assert_failure
    assert_output --partial "Input/output error"
    vm '[[ $(tarn status --json | jq -r .store_failure) != "" ]]; dmesg | grep "nbd0.*error"
        echo 3 > /proc/sys/vm/drop_caches; cd /mnt; md5sum --quiet -c /tmp/sums; cd /; umount /mnt; tarn detach disk'
    map linear /dev/nvme0n1 0
    vm 'tarnd_end -TERM; tarnd_start; tarn attach disk; fsck.ext4 -fy /dev/nbd0 || [ $? = 1 ]; mount /dev/nbd0 /mnt
        cd /mnt; md5sum --quiet -c /tmp/sums; head -c 1M /dev/urandom > new; sync -f .; cd /; umount /mnt
        fsck.ext4 -fn /dev/nbd0; tarn detach disk'
}

@test "a store whose device is gone fails writes and flushes, while what is in memory is read, and nothing flushed is lost" {
    vm 'tarn attach disk; blkdiscard /dev/nbd0; head -c 8M /dev/urandom > /tmp/kept
        dd if=/tmp/kept of=/dev/nbd0 bs=128k oflag=direct conv=fsync status=none'
    map error
    run vm 'dd if=/dev/urandom of=/dev/nbd0 bs=128k seek=256 count=32 oflag=direct conv=fsync status=none'
    assert_failure
    assert_output --partial "Input/output error"
    vm '[[ $(tarn status --json | jq -r .store_failure) != "" ]]; dmesg | grep "nbd0.*error"
        dd if=/dev/nbd0 bs=128k count=64 iflag=direct status=none | cmp - /tmp/kept
        fails dd if=/dev/zero of=/dev/nbd0 bs=128k count=1 oflag=direct conv=fsync status=none
        timeout 20 tarn detach disk; tarnd_end -TERM; grep -i "store" /tmp/tarnd.log | tail -n 3'
    map linear /dev/nvme0n1 0
    vm 'tarnd_start; tarn attach disk; dd if=/dev/nbd0 bs=128k count=64 iflag=direct status=none > /tmp/read
        tail -c +131073 /tmp/read | cmp - <(tail -c +131073 /tmp/kept)
        dd if=/tmp/kept of=/dev/nbd0 bs=128k oflag=direct conv=fsync status=none
        tarn verify disk; tarn detach disk; tarnd_end -TERM; tarn store check /dev/mapper/store'
}
