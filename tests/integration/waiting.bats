# Who waits on a mount for a host that is away: how it can be killed and interrupted, and the mount taken down.

load tarn

setup_file() {
    if [[ ! -w /dev/fuse || $EUID != 0 ]]; then
        skip_file "needs /dev/fuse, and to be root"
        return
    fi
    cluster_make a b c
    cluster_start
    cluster_remember
    on c create file 192MiB --shared
}

setup() {
    skip_with_file
    cluster_recall
    mount_b
}
teardown() {
    if file_skips; then return; fi
    host_resume a 2> /dev/null || true
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
    host_pause a
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
        host_resume a
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

# Each read fetches its page from c. Programs do not expect EINTR of a file.
@test "signals and killed readers disturb nobody while pages come from other hosts" {
    cat > "$BATS_TEST_TMPDIR/writer.py" << 'END'
print("open", flush=True)
number = 0
while True:
    number += 1
    for n in range(3):
        for page in range(16): h.pwrite(bytes([number % 256]) * 4096, (n << 26) + page * 4096)
END
    PATH="/usr/bin:$PATH" nbdsh -u "$(uri c file)" -c "$(cat "$BATS_TEST_TMPDIR/writer.py")" \
        > "$BATS_TEST_TMPDIR/writer" 2>&1 3>&- &
    local -r writer=$!
    within 10 grep -q open "$BATS_TEST_TMPDIR/writer"
    cat > "$BATS_TEST_TMPDIR/reader.py" << 'END'
import ctypes, os, signal, sys
signals = 0
def on_alarm(number, frame):
    global signals
    signals += 1
signal.signal(signal.SIGALRM, on_alarm)
signal.siginterrupt(signal.SIGALRM, True)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
file = os.open(sys.argv[1], os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(4096)
libc.pread.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long]
libc.pread.restype = ctypes.c_ssize_t
for i in range(3000):
    count = libc.pread(file, buffer, 4096, ((i % 3) << 26) + i % 16 * 4096)
    assert count == 4096, (i, count, os.strerror(ctypes.get_errno()))
signal.setitimer(signal.ITIMER_REAL, 0)
assert signals > 50, signals
END
    local pids=() i
    run -0 timeout 60 python3 "$BATS_TEST_TMPDIR/reader.py" "$CLUSTER/b/mnt/file"
    # Killed at whatever moment.
    for i in {1..30}; do
        python3 "$BATS_TEST_TMPDIR/reader.py" "$CLUSTER/b/mnt/file" > /dev/null 2>&1 3>&- &
        pids+=($!)
        ((i % 3 != 0)) || pause
        ((i < 4)) || kill -KILL "${pids[i - 4]}"
    done
    for i in "${pids[@]}"; do
        kill -KILL "$i" 2> /dev/null || true
        within 10 gone "$i"
    done
    kill -KILL "$writer"
    timeout 20 cmp --bytes=65536 "$CLUSTER/b/mnt/file" <(nbd_python a file "import sys; sys.stdout.buffer.write(h.pread(65536, 0))")
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
    host_resume a
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

# The server's ends of the connections with its NBD socket.
nbd_connection_count() { ss -xH state connected src "$CLUSTER/b/nbd.sock" | wc -l; }
no_nbd_connection() { [ "$(nbd_connection_count)" -eq 0 ]; }

# kill_waiting_client LINES: which start requests to each range.
kill_waiting_client() {
    command -v ss > /dev/null || skip "needs ss"
    within 10 no_nbd_connection
    cat > "$BATS_TEST_TMPDIR/client.py" << END
import sys
print("open", flush=True)
sys.stdin.readline()
$1
while h.poll(1000) > 0: pass
print("waits", flush=True)
while True: h.poll(-1)
END
    mkfifo "$BATS_TEST_TMPDIR/client.go"
    PATH="/usr/bin:$PATH" nbdsh -u "$(uri b file)" -c "$(cat "$BATS_TEST_TMPDIR/client.py")" \
        < "$BATS_TEST_TMPDIR/client.go" > "$BATS_TEST_TMPDIR/said" 2>&1 3>&- &
    WAITING=$!
    exec 4> "$BATS_TEST_TMPDIR/client.go"
    within 10 grep -q open "$BATS_TEST_TMPDIR/said"
    nbd_python c file "[h.pwrite(b'd' * 4096, n << 26) for n in range(3)]"
    host_pause a
    echo >&4
    exec 4>&-
    [ "$(nbd_connection_count)" -eq 1 ]
    within 20 grep -q waits "$BATS_TEST_TMPDIR/said"
    kill -KILL "$WAITING"
    within 20 no_nbd_connection
    host_resume a
    within 20 nbd_python b file "assert h.pread(1, 0) == b'd'; h.flush()"
}

@test "what an NBD client that was killed waited for, nobody waits for" {
    kill_waiting_client 'buffers = [nbd.Buffer(4096) for n in range(3)]
for n in range(3): h.aio_pread(buffers[n], n << 26)
h.aio_flush()'
}

# Of a connection that holds as much as it may nothing is read, not even its end.
@test "nor for what such a client had sent beyond what is taken at once" {
    kill_waiting_client 'buffers = [nbd.Buffer(1 << 20) for n in range(48)]
for n in range(48): h.aio_pwrite(buffers[n], (n % 3 << 26) + (n + 1 << 20))'
}
