# The mount over io_uring, where the kernel has it (Linux 6.14). Only the mounts made here use it: the kernel's switch
# is as it was once each of them has begun.

load front_end_server

SWITCH=/sys/module/fuse/parameters/enable_uring

setup_file() {
    if [[ ! -w /dev/fuse || ! -w $SWITCH ]]; then
        skip_file "needs a kernel with FUSE over io_uring, and to be root"
        return
    fi
    export MOUNT_POINT="$BATS_FILE_TMPDIR/mount"
    mkdir "$MOUNT_POINT"
}

setup() {
    skip_with_file
    start_with_rings --mount "$MOUNT_POINT" --shared disk=64 --shards 2
}

teardown() {
    if file_skips; then return; fi
    stop_load
    stop_memory_server
    run ! mountpoint -q "$MOUNT_POINT"
}

start_with_rings() {
    local before
    before=$(<"$SWITCH")
    echo Y >"$SWITCH"
    if start_memory_server "$@"; then timeout 20 ls "$MOUNT_POINT" >/dev/null; fi || true
    echo "$before" >"$SWITCH"
    grep -q "requests come over io_uring" "$BATS_FILE_TMPDIR/server.log"
}

# Returns when it has written for the first time.
start_load() {
    fio --name=load --filename="$MOUNT_POINT/disk" --size=32M --rw=randrw --bsrange=4k-256k --direct=1 --time_based \
        --runtime=60 --ioengine=io_uring --iodepth=64 --numjobs=2 --output=/dev/null 2>/dev/null 3>&- &
    LOAD_PID=$!
    while cmp -sn 32M "$MOUNT_POINT/disk" /dev/zero; do kill -0 "$LOAD_PID"; done
}

# By itself it ends when its file is gone.
stop_load() {
    if [ -z "${LOAD_PID-}" ]; then return; fi
    kill "$LOAD_PID" 2>/dev/null || true
    wait "$LOAD_PID" || true
    LOAD_PID=
}

@test "all that the mount does, it does over io_uring" {
    timeout 100 env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin BATS_LIB_PATH="${BATS_LIB_PATH-}" MOUNT_POINT="$MOUNT_POINT" \
        bats --tap "$BATS_TEST_DIRNAME/fuse_files.bats" 3>&-
}

@test "many requests at once, of all CPUs, bring back what was written" {
    fio --directory="$MOUNT_POINT" --size=8M --rw=randrw --bsrange=512-1M --ioengine=io_uring --iodepth=64 --direct=1 \
        --verify=crc32c --verify_fatal=1 --output="$BATS_TEST_TMPDIR/fio" \
        --name=a --filename=a --cpus_allowed=0 --name=b --filename=b --cpus_allowed="$(($(nproc) - 1))" --name=c --filename=c
}

@test "a server that stops under load ends, and open files fail" {
    exec 5<"$MOUNT_POINT/disk"
    start_load
    stop_memory_server
    run -1 cat <&5
    exec 5<&-
    assert_output --partial "not connected"
    wait "$LOAD_PID" || true
}

@test "an administrator may unmount under load" {
    exec 5<"$MOUNT_POINT/disk"
    start_load
    umount --force --lazy "$MOUNT_POINT"
    run -1 cat <&5
    exec 5<&-
    assert_output --partial "not connected"
    wait "$LOAD_PID" || true
}

@test "a server that is killed under load leaves a mount that the next one replaces" {
    start_load
    kill -KILL "$(<"$BATS_FILE_TMPDIR/server.pid")"
    wait "$LOAD_PID" || true
    start_with_rings --mount "$MOUNT_POINT" --shared again=1 --shards 2
    assert_equal "$(ls "$MOUNT_POINT")" again
}
