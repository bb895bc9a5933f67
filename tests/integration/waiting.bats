# Who waits on a mount for a host that is away: how it can be killed and interrupted, and the mount taken down.

load tarn

setup_file() {
    cluster_make a b c
    [[ -w /dev/fuse && $EUID == 0 ]] || skip "needs /dev/fuse, and to be root"
    cluster_start
    cluster_remember
    on c create file 192MiB --shared
}

setup() {
    cluster_recall
    mount_b
}
teardown() {
    kill -CONT "$(pid_of a)" 2> /dev/null || true
    if [ -n "${WAITING-}" ]; then kill -KILL "$WAITING" 2> /dev/null || true; fi
}

# Over the device, or over io_uring where a test wants that and the kernel has it.
mount_b() {
    if grep -q " $CLUSTER/b/mnt fuse" /proc/mounts; then on b umount --force "$CLUSTER/b/mnt"; fi
    host_mount b
}

# Uses each range of a file that is open, one after the other. c has the pages: what concerns the range that a is home of
# waits while a is stopped. WAITING is that process, when it waits.
start_waiting() {
    cat > "$BATS_TEST_TMPDIR/reader.py" << 'END'
import os, signal, sys
def on_alarm(number, frame): raise InterruptedError("signal")
signal.signal(signal.SIGALRM, on_alarm)
file = os.open(sys.argv[1], os.O_RDWR)
print("open", flush=True)
sys.stdin.readline()
kind = sys.argv[2]
for n in range(3):
    print("try", n, flush=True)
    try:
        if kind == "read": os.pread(file, 4096, n << 26)
        elif kind == "write": os.pwrite(file, b"b" * 100, (n << 26) + 5000)
        elif kind == "page": os.pwrite(file, b"b" * 4096, (n << 26) + 8192)
        elif kind == "fsync": os.pwrite(file, b"b", (n << 26) + 3); os.fsync(file)
    except InterruptedError as error:
        print("interrupted", flush=True)
        break
    print("done", n, flush=True)
END
    local -r kind=$1
    rm -f "$BATS_TEST_TMPDIR/go"
    mkfifo "$BATS_TEST_TMPDIR/go"
    python3 "$BATS_TEST_TMPDIR/reader.py" "$CLUSTER/b/mnt/file" "$kind" < "$BATS_TEST_TMPDIR/go" \
        > "$BATS_TEST_TMPDIR/said" 2>&1 3>&- &
    WAITING=$!
    exec 4> "$BATS_TEST_TMPDIR/go"
    within 20 grep -q open "$BATS_TEST_TMPDIR/said"
    nbd_python c file "[h.pwrite(b'c' * 12288, n << 26) for n in range(3)]"
    kill -STOP "$(pid_of a)"
    echo >&4
    exec 4>&-
    within 20 waits_on_fuse "$WAITING"
}
# Longer than any answer of a host that runs takes.
waits_on_fuse() {
    local tries
    for tries in 1 2 3 4 5 6 7 8; do
        grep -qE 'request_wait_answer|fuse' "/proc/$1/wchan" || return 1
        pause
    done
}

@test "a process that waits for a host that is away can be killed" {
    for kind in read write page fsync; do
        start_waiting "$kind"
        kill -KILL "$WAITING"
        within 5 gone "$WAITING"
        kill -CONT "$(pid_of a)"
        within 20 cat "$CLUSTER/b/mnt/file"
        mount_b
    done
}

@test "a process with a handler for its signal gets it" {
    start_waiting read
    kill -ALRM "$WAITING"
    within 10 grep -q interrupted "$BATS_TEST_TMPDIR/said"
    within 5 gone "$WAITING"
}

@test "a mount in use is not taken down without force, and it is said who uses it" {
    start_waiting read
    run -4 on b umount "$CLUSTER/b/mnt"
    assert_output --partial "(process $WAITING)"
    assert_output --partial "--force"
    kill -KILL "$WAITING"
    within 5 gone "$WAITING"
    (cd "$CLUSTER/b/mnt" && exec sleep 100) 3>&- &
    WAITING=$!
    within 5 grep -q sleep "/proc/$WAITING/comm"
    run -4 on b umount "$CLUSTER/b/mnt"
    assert_output --partial "sleep (process $WAITING)"
    kill "$WAITING"
    within 5 gone "$WAITING"
    within 5 on b umount "$CLUSTER/b/mnt"
    run ! mountpoint -q "$CLUSTER/b/mnt"
}

@test "a mount can be taken down by force while processes wait for a host that is away" {
    start_waiting read
    run -0 timeout 10 tarn --control "$CLUSTER/b/control.sock" umount --force "$CLUSTER/b/mnt"
    within 5 gone "$WAITING"
    run ! mountpoint -q "$CLUSTER/b/mnt"
}

mount_with_rings() {
    local -r switch=/sys/module/fuse/parameters/enable_uring
    [ -w "$switch" ] || skip "needs a kernel with FUSE over io_uring"
    on b umount "$CLUSTER/b/mnt"
    local -r before=$(<"$switch")
    : > "$CLUSTER/b/log"
    echo Y > "$switch"
    host_mount b || true
    timeout 20 ls "$CLUSTER/b/mnt" > "$BATS_TEST_TMPDIR/list" || true
    echo "$before" > "$switch"
    grep -q "requests come over io_uring" "$CLUSTER/b/log"
}

@test "over io_uring a process that waits can be killed, and the mount taken down by force" {
    mount_with_rings
    start_waiting read
    kill -KILL "$WAITING"
    within 5 gone "$WAITING"
    kill -CONT "$(pid_of a)"
    start_waiting fsync
    run -0 timeout 10 tarn --control "$CLUSTER/b/control.sock" umount --force "$CLUSTER/b/mnt"
    within 5 gone "$WAITING"
}

@test "over io_uring, too, a mount in use stays and one that nobody uses goes" {
    mount_with_rings
    exec 6< "$CLUSTER/b/mnt/file"
    run -4 on b umount "$CLUSTER/b/mnt"
    assert_output --partial "(process $$)"
    exec 6<&-
    within 5 timeout 10 tarn --control "$CLUSTER/b/control.sock" umount "$CLUSTER/b/mnt"
    run ! mountpoint -q "$CLUSTER/b/mnt"
    timeout 10 tarn --control "$CLUSTER/b/control.sock" status
}
