# One tarnd: its command line, its store, its limits.

load tarn

setup_file() {
    HOST_STORE=10GiB
    # Frames of somewhat less than 64 MiB, and the books of that store.
    HOST_MEMORY=128MiB
    cluster_for_all_tests solo
}

@test "the verbs work, as text and as JSON" {
    run -0 on solo create vol1 10MiB
    run -0 on solo list --json
    [ "$(jq -r '.volumes[0].name' <<< "$output")" = vol1 ]
    run -0 on solo show vol1
    assert_output --partial "10 MiB"
    run -0 on solo resize vol1 20MiB
    run -0 on solo flush vol1
    run -0 on solo export vol1
    [ "$output" = "$(uri solo vol1 | sed "s|socket=.*|socket=$(jq -rn --arg s "$CLUSTER/solo/nbd.sock" '$s|@uri')|")" ]
    run -0 on solo status --json
    [ "$(jq -r .host <<< "$output")" = solo ]
    run -0 on solo delete vol1
    run -3 on solo show vol1
}

@test "list and show tell what is used" {
    on solo create used 64MiB
    nbd_python solo used "h.pwrite(b'x' * (8 << 20), 0); h.flush()"
    [ "$(on solo list --json | jq '.volumes[0].used_bytes >= 8388608 and .volumes[0].used_bytes <= 12582912')" = true ]
    [ "$(on solo show used --json | jq '.volumes[0].used_bytes >= 8388608')" = true ]
    on solo delete used
}

@test "a volume that shrinks while it is exported takes no write past its new end" {
    on solo create shrinks 8MiB
    nbd_python solo shrinks "
import os, subprocess
h.set_strict_mode(0)
h.pwrite(b'x' * 4096, 6 << 20)
subprocess.run(['tarn', 'resize', '--force', 'shrinks', '4MiB'], check=True, env={**os.environ, 'TARN_CONTROL': '$CLUSTER/solo/control.sock'})
def error(call):
    try:
        call()
    except nbd.Error as e:
        return e.errno
assert error(lambda: h.pwrite(b'x', 4 << 20)) == 'ENOSPC'
assert error(lambda: h.zero(4096, 6 << 20)) == 'ENOSPC'
assert error(lambda: h.pread(2, (4 << 20) - 1)) == 'EINVAL'
h.pwrite(b'x', (4 << 20) - 1)
"
    on solo resize shrinks 8MiB
    nbd_python solo shrinks "assert h.pread(4 << 20, 4 << 20) == bytes(4 << 20)"
    on solo delete shrinks
}

@test "bad names and sizes are refused with a reason" {
    for name in '' . .. a/../b /a a/ "$(printf 'x%.0s' {1..300})" $'a\nb'; do
        run on solo create "$name" 1MiB
        assert_failure 2
    done
    run on solo create zero 0
    assert_failure 2
    on solo create twice 1MiB
    run -4 on solo create twice 1MiB
    on solo delete twice
    run -3 on solo delete twice
    run -3 on solo flush nothing
    TARN_CONTROL=$BATS_TEST_TMPDIR/nobody run -5 tarn status
}

@test "a name that is not UTF-8 is refused, not renamed, and stays readable in messages" {
    run -2 on solo create $'v\xff' 1MiB
    assert_output "tarn: create v\\xff: not a volume's name: not valid UTF-8"
    run -0 on solo list --quiet
    assert_output ""
    run -2 on solo mount "$CLUSTER/solo/"$'\xff'
}

@test "a volume and a directory cannot have one name, whichever was first" {
    on solo create x/y 1MiB --shared
    run -4 on solo create x/y/z 1MiB
    assert_output --partial "a part of its name is a volume"
    run -4 on solo create x 1MiB
    assert_output --partial "a directory of others has that name"
    on solo mount "$CLUSTER/solo/mnt"
    run ! touch "$CLUSTER/solo/mnt/x/y/z"
    run ! touch "$CLUSTER/solo/mnt/x"
    [ "$(on solo list --quiet)" = x/y ]
    on solo umount "$CLUSTER/solo/mnt"
    on solo delete x/y
    on solo create x/y/z 1MiB
    run -4 on solo create x/y 1MiB
    on solo create x/yz 1MiB
    on solo delete x/y/z x/yz
    on solo create x 1MiB
    on solo delete x
}

@test "an unknown key in the configuration is named with its line and the nearest name" {
    sed 's/^memory/memroy/' "$CLUSTER/solo/tarn.toml" > "$BATS_TEST_TMPDIR/bad.toml"
    run -2 tarnd --config "$BATS_TEST_TMPDIR/bad.toml" --check-config
    assert_output --regexp 'bad.toml:[0-9]+.*memroy.*memory'
    run -0 tarnd --config "$CLUSTER/solo/tarn.toml" --check-config
}

@test "more memory than there is is refused with the arithmetic" {
    run -2 tarnd --config "$CLUSTER/solo/tarn.toml" --memory 15TiB --check-config
    assert_output --regexp 'memory: 15 TiB is too much: .* (has|allows) .*, of which .* stay .*; write [0-9]+MiB or less'
    local -r most=$(sed 's/.*write \([0-9]*MiB\).*/\1/' <<< "$output")
    run -0 tarnd --config "$CLUSTER/solo/tarn.toml" --memory "$most" --check-config
    run -2 tarnd --config "$CLUSTER/solo/tarn.toml" --memory "$((${most%MiB} + 1))MiB"
    run -2 tarnd --config "$CLUSTER/solo/tarn.toml" --memory 900TiB
}

@test "a store that is in use, not ours or too small is refused" {
    local other=(tarnd --config "$CLUSTER/solo/tarn.toml" --control "$BATS_TEST_TMPDIR/c.sock")
    run -4 "${other[@]}" --nbd-unix "$BATS_TEST_TMPDIR/n.sock"
    assert_output --partial "store $CLUSTER/solo/store: "
    assert_output --partial "in use by another process"
    assert_output --partial "fuser -v $CLUSTER/solo/store names it"
    random_file "$BATS_TEST_TMPDIR/foreign" 64M
    run "${other[@]}" --store "$BATS_TEST_TMPDIR/foreign"
    assert_failure
    assert_output --partial "$BATS_TEST_TMPDIR/foreign"
    random_file "$BATS_TEST_TMPDIR/small" 4096
    run "${other[@]}" --store "$BATS_TEST_TMPDIR/small"
    assert_failure
}

@test "a limit of open files with which nothing could be served is refused" {
    run -2 bash -c 'ulimit -n 255; exec timeout 20 "$TARN_BUILD/daemon/tarnd" --config "$0"' "$CLUSTER/solo/tarn.toml"
    assert_output --partial "the limit of open files is 255, and tarnd needs 256; raise it (ulimit -Hn"
}

@test "random writes over 8 GiB with a 64 MiB pool end, verify, and stay within the memory" {
    on solo create big 8GiB --shared
    timeout 120 fio --name=big --ioengine=nbd --uri="$(uri solo big)" --rw=randwrite --bs=4k --iodepth=32 --size=8G \
        --io_size=200M --verify=crc32c --verify_fatal=1 --output="$BATS_TEST_TMPDIR/fio.log"
    local resident
    resident=$(awk '/^Rss(Anon|Shmem):/ { sum += $2 } END { print sum }' "/proc/$(pid_of solo)/status")
    echo "RssAnon + RssShmem = $resident KiB"
    ((resident <= 128 * 1024 * 11 / 10))
    on solo delete big
}

@test "a thousand idle clients stay within the memory and hold up nobody" {
    on solo create idle 1MiB --shared
    cat > "$BATS_TEST_TMPDIR/idle.py" << 'END'
import socket, sys, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
clients = []
for _ in range(1000):
    client = socket.socket(socket.AF_UNIX)
    client.connect(sys.argv[1])
    assert client.recv(18)
    clients.append(client)
print("connected", flush=True)
sys.stdin.read()
END
    mkfifo "$BATS_TEST_TMPDIR/end"
    python3 "$BATS_TEST_TMPDIR/idle.py" "$CLUSTER/solo/nbd.sock" \
        < "$BATS_TEST_TMPDIR/end" > "$BATS_TEST_TMPDIR/out" 3>&- &
    exec 4> "$BATS_TEST_TMPDIR/end"
    within 20 grep connected "$BATS_TEST_TMPDIR/out"
    nbd_python solo idle "h.pwrite(b'hello', 0); assert h.pread(5, 0) == b'hello'"
    exec 4>&-
    on solo delete idle
}

@test "what only asks is asked again when the daemon dies under it, and a change is not" {
    cat > "$BATS_TEST_TMPDIR/dying.py" << 'END'
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("listens", flush=True)
listener.accept()[0].close()
client, daemon = listener.accept()[0], socket.socket(socket.AF_UNIX)
daemon.connect(sys.argv[2])
daemon.sendall(client.recv(65536))
while answer := daemon.recv(65536): client.sendall(answer)
client.close()
listener.accept()[0].close()
sys.stdin.read()
listener.setblocking(False)
try:
    listener.accept()
    print("asked again", flush=True)
except BlockingIOError:
    print("asked once", flush=True)
END
    mkfifo "$BATS_TEST_TMPDIR/end"
    python3 "$BATS_TEST_TMPDIR/dying.py" "$BATS_TEST_TMPDIR/control.sock" "$CLUSTER/solo/control.sock" \
        < "$BATS_TEST_TMPDIR/end" > "$BATS_TEST_TMPDIR/out" 3>&- &
    exec 4> "$BATS_TEST_TMPDIR/end"
    within 20 grep listens "$BATS_TEST_TMPDIR/out"
    run -0 timeout 20 tarn --control "$BATS_TEST_TMPDIR/control.sock" status
    run -5 timeout 20 tarn --control "$BATS_TEST_TMPDIR/control.sock" create again 1MiB
    exec 4>&-
    within 20 grep "asked once" "$BATS_TEST_TMPDIR/out"
}

@test "clients that take all connections take no descriptor that something else needs" {
    on solo create crowd 1MiB --shared
    on solo create busy 1MiB --shared
    host_stop solo
    (ulimit -n 300 && host_start solo)
    cat > "$BATS_TEST_TMPDIR/crowd.py" << 'END'
import socket, struct, sys
clients = []
# Who chose no volume yet would make room for the next one.
def connect():
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(10)
    client.connect(sys.argv[1])
    clients.append(client)
    if len(client.recv(18)) < 18: return False
    client.sendall(struct.pack(">IQII4s", 3, 0x49484156454F5054, 1, 4, b"busy"))
    return len(client.recv(10)) == 10
while connect(): pass
print("full after", len(clients), flush=True)
sys.stdin.read()
END
    mkfifo "$BATS_TEST_TMPDIR/end"
    python3 "$BATS_TEST_TMPDIR/crowd.py" "$CLUSTER/solo/nbd.sock" < "$BATS_TEST_TMPDIR/end" \
        > "$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
    local -r crowd=$!
    exec 4> "$BATS_TEST_TMPDIR/end"
    within 20 grep -q "full after" "$BATS_TEST_TMPDIR/out"
    timeout 10 tarn --control "$CLUSTER/solo/control.sock" status
    timeout 10 tarn --control "$CLUSTER/solo/control.sock" delete crowd
    # The line about it is one of few, however often it happens.
    grep -q "connections are the limit" "$CLUSTER/solo/log"
    exec 4>&-
    wait "$crowd"
    host_stop solo
    host_start solo
}

@test "SIGTERM flushes and ends at once" {
    on solo create last 4MiB
    nbd_python solo last "h.pwrite(b'last words', 1000)"
    host_stop solo
    [ "$(tarn store inspect "$CLUSTER/solo/store" --json | jq .journal.records)" = 0 ]
    tarn store check "$CLUSTER/solo/store"
    host_start solo
    nbd_python solo last "assert h.pread(10, 1000) == b'last words'"
}

@test "a read-only mount refuses writes" {
    on solo create fixed 1MiB --shared
    on solo mount --read-only "$CLUSTER/solo/mnt"
    run -0 head -c 4 "$CLUSTER/solo/mnt/fixed"
    run ! touch "$CLUSTER/solo/mnt/new"
    assert_output --partial "Read-only file system"
    on solo umount "$CLUSTER/solo/mnt"
    on solo delete fixed
}
