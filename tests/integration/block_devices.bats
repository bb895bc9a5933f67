# Stores on block devices, as tarn init is told to use them: with sectors of 512 bytes and of 4 KiB.

load tarn

setup() {
    [[ $EUID == 0 && -w /dev/loop-control ]] || skip "needs root and loop devices"
    HOSTS=(solo)
    CLUSTER_NETWORK=loopback
    CLUSTER=$BATS_TEST_TMPDIR/cluster
    CLUSTER_ID=0
    mkdir -p "$CLUSTER/solo/mnt"
    truncate -s 256M "$BATS_TEST_TMPDIR/disk"
}

teardown() {
    [[ -z ${LOOP-} ]] || { cluster_down && losetup -d "$LOOP"; }
}
teardown_file() { :; }

# A loop device with sectors of so many bytes: LOOP.
device_make() { LOOP=$(losetup --find --show --sector-size "$1" "$BATS_TEST_TMPDIR/disk"); }
init() {
    tarn init --device "$LOOP" --memory 64MiB --host solo --config "$CLUSTER/solo/tarn.toml" \
        --control "$CLUSTER/solo/control.sock" --nbd-unix "$CLUSTER/solo/nbd.sock" "$@"
}

# init, writes of all sizes, a crash, a power cut, a clean stop, a check: each as an administrator would meet it.
live_on() {
    device_make "$1"
    [ "$(blockdev --getss "$LOOP")" = "$1" ]
    run -0 init
    host_start solo
    on solo create vol1 64MiB
    run -0 timeout 100 fio --name=v --ioengine=nbd --uri="$(uri solo vol1)" --rw=randwrite --bsrange=512-64k \
        --size=64M --io_size=24M --iodepth=8 --fsync=32 --verify=crc32c --verify_fatal=1 --do_verify=1
    nbd_python solo vol1 "h.pwrite(b'flushed', 12345); h.flush(); h.pwrite(b'adopted', 54321)"
    host_crash solo
    host_start solo
    nbd_python solo vol1 "assert h.pread(7, 12345) == b'flushed' and h.pread(7, 54321) == b'adopted'"
    nbd_python solo vol1 "h.pwrite(b'again', 777); h.flush()"
    host_kill solo
    host_start solo
    nbd_python solo vol1 "assert h.pread(7, 12345) == b'flushed' and h.pread(5, 777) == b'again'"
    run -0 on solo verify vol1
    host_stop solo
    run -0 tarn store check "$LOOP"
    run -0 tarn store inspect "$LOOP"
    # All of the device but less than a slab, and what is there is not overwritten.
    local space_mib
    space_mib=$(tarn store inspect "$LOOP" --json | jq '(.data_offset_bytes + .total_bytes) / 1048576 | floor')
    ((space_mib > 250 && space_mib <= 256))
    rm "$CLUSTER/solo/tarn.toml"
    run -4 init
    run -0 init --force
}

@test "a device with sectors of 512 bytes is a store" {
    live_on 512
}

@test "a device with sectors of 4 KiB is a store" {
    live_on 4096
}

@test "a device that is mounted, has a file system, or is too large for the memory is refused" {
    device_make 512
    mke2fs -q -t ext4 "$LOOP"
    run -4 init
    assert_output --partial "ext4"
    mount "$LOOP" "$CLUSTER/solo/mnt"
    run -4 init --force
    assert_output --partial "mounted or in use"
    umount "$CLUSTER/solo/mnt"
    losetup -d "$LOOP"
    # Of what has no known signature the first 16 MiB and the last 1 MiB count.
    local at
    for at in 15 255; do
        rm "$BATS_TEST_TMPDIR/disk"
        truncate -s "${at}M" "$BATS_TEST_TMPDIR/disk"
        printf x >> "$BATS_TEST_TMPDIR/disk"
        truncate -s 256M "$BATS_TEST_TMPDIR/disk"
        device_make 512
        run -4 init
        assert_output --partial "something is stored there already"
        losetup -d "$LOOP"
    done
    truncate -s 1T "$BATS_TEST_TMPDIR/disk"
    device_make 512
    run -2 init --force
    assert_output --partial "a store of 1 TiB, whose books alone may take"
    [ ! -e "$CLUSTER/solo/tarn.toml" ]
}
