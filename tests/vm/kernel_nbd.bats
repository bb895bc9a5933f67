# A volume as a block device of the kernel, by nbd-client over the Unix socket.

load vm.bash

setup_file() {
    vm_start
    vm 'tarn_init && tarnd_start && tarn create disk 256MiB && modprobe nbd'
}
teardown_file() { vm_stop; }

attach() { vm "nbd-client -unix /run/tarn/nbd.sock /dev/nbd0 -name disk -b 4096 ${1:-}"; }
detach() { vm 'nbd-client -d /dev/nbd0'; }

@test "a file system lives on it, and is clean after it was detached and attached again" {
    [[ -n ${TARN_FULL-} ]] || skip "takes long here: ./dev test vm --full"
    attach
    vm 'mkfs.ext4 -q /dev/nbd0 && mount /dev/nbd0 /mnt'
    vm 'fio --name=v --directory=/mnt --size=16m --rw=randwrite --bs=4k --ioengine=io_uring --direct=1 --iodepth=8 \
            --verify=crc32c --do_verify=1 --output-format=terse > /dev/null'
    vm 'fstrim /mnt && umount /mnt'
    detach
    attach "-C 2"
    vm 'fsck.ext4 -fn /dev/nbd0'
    detach
}

@test "fio verifies what it wrote by several connections" {
    attach "-C 2"
    vm 'fio --name=v --filename=/dev/nbd0 --size=64m --rw=randrw --bsrange=4k-128k --ioengine=io_uring --direct=1 \
            --iodepth=16 --verify=crc32c --output-format=terse > /dev/null'
    detach
}

@test "after kill -9 and a new start every byte that was written is there" {
    attach
    vm 'head -c 8M /dev/urandom > /tmp/bytes && dd if=/tmp/bytes of=/dev/nbd0 bs=128k oflag=direct status=none'
    vm 'tarnd_end -KILL && nbd-client -d /dev/nbd0 && tarnd_start'
    attach
    vm 'cmp -n 8388608 /tmp/bytes /dev/nbd0'
    detach
}

@test "after a power cut every byte that was flushed is there" {
    attach
    vm 'dd if=/dev/urandom of=/dev/nbd0 bs=128k count=64 oflag=direct conv=fsync status=none'
    local -r before=$(vm 'dd if=/dev/nbd0 bs=128k count=64 iflag=direct status=none | sha256sum')
    vm_power_cut
    vm_boot
    vm 'tarnd_start && modprobe nbd'
    attach
    run vm 'dd if=/dev/nbd0 bs=128k count=64 iflag=direct status=none | sha256sum'
    assert_output "$before"
    detach
}
