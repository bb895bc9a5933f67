# A host that hangs, and keeps its connections: who only asks is answered at once, from what is known.

load tarn

setup_file() {
    HOST_MEMORY=256MiB
    export HOST_FABRIC=tcp  # the network is cut
    cluster_make a b c
    cluster_start
    cluster_remember
    local name
    # Volumes in a row have their attributes on different hosts.
    for name in one two three four five six; do on a create "$name" 1MiB --shared --mode 0644; done
    on c list
}

teardown() { for host in a b c; do host_resume "$host" 2> /dev/null || true; done; }

does_not_answer() { on "$1" status | grep -E "^  $2 .*connected, does not answer"; }
answers() { on "$1" status --json | jq -e --arg peer "$2" '.peers[] | select(.name == $peer) | .answers'; }

# Much longer than it may take, and much shorter than for ever.
at_once() { timeout 8 env TARN_CONTROL="$CLUSTER/b/control.sock" "$@"; }

@test "tarn status answers, and says who does not" {
    within 5 answers b c
    run -0 at_once tarn status
    refute_output --partial "does not answer"
    local -r space=$(at_once tarn status --json | jq .space.total_bytes)
    host_pause c
    run -0 at_once tarn status
    assert_output --partial "; as last told by c"
    within 5 does_not_answer b c
    within 5 does_not_answer a c
    [ "$(at_once tarn status --json | jq .space.total_bytes)" = "$space" ]
    grep -q "host c does not answer" "$CLUSTER/b/log"
    host_resume c
    within 5 answers b c
    within 5 answers c b
    run -0 at_once tarn status
    refute_output --partial "as last told"
}

@test "a host that cannot be reached any more is noticed long before its connections break" {
    [[ $CLUSTER_NETWORK == namespaces ]] || skip "needs network namespaces"
    host_mute c
    within 5 does_not_answer b c
    run -0 at_once tarn status
    assert_output --partial "; as last told by c"
    run -5 at_once tarn create unheard 1MiB --shared
    assert_output --partial "host c does not answer"
    host_unmute c
    within 20 answers b c
    within 20 answers a c
    within 20 answers c a
    within 20 answers c b
}

@test "who asks for very much of a host that hangs does not keep others from the pages of other hosts" {
    on a create scan 8GiB --shared
    on a create beside 192MiB --shared
    nbd_python c beside '[h.pwrite(b"1" * 4096, n << 26) for n in range(3)]; h.flush()' # each with another home
    nbd_python b scan '
import os, signal, time
other = nbd.NBD()
other.connect_uri(h.get_uri().replace("/scan", "/beside"))
os.kill('"$(pid_of a)"', signal.SIGSTOP)
for n in range(100): h.aio_cache(512 << 20, n << 26)
until = time.monotonic() + 3 # as much as it takes
while time.monotonic() < until: h.poll(50)
pages = [nbd.Buffer(4096) for _ in range(3)]
cookies = [other.aio_pread(page, n << 26) for n, page in enumerate(pages)]
until = time.monotonic() + 20
done = set()
while len(done) < 2 and time.monotonic() < until:
    other.poll(100)
    done |= {n for n, cookie in enumerate(cookies) if n not in done and other.aio_command_completed(cookie)}
assert len(done) >= 2, done'
    host_resume a
    within 20 answers b a
    within 20 answers c a
}

# Before anybody has waited in vain: who comes within 5 s of that does not wait.
@test "who opens a file that was never seen here waits for the host that hangs" {
    [[ -w /dev/fuse && $EUID == 0 ]] || skip "needs /dev/fuse, and to be root"
    host_mount b
    local name
    for name in early-{1..3}; do on c create "$name" 4096 --shared; done
    host_pause c
    name=$(on b list --json | jq -r '.volumes[] | select(.silent_host == "c" and .size_bytes == null).name' | grep -m 1 early)
    wc -c "$CLUSTER/b/mnt/$name" > "$BATS_TEST_TMPDIR/counted" 2>&1 3>&- &
    local -r waiting=$!
    within 5 grep -qE "request_wait_answer|fuse" "/proc/$waiting/wchan"
    host_resume c
    wait "$waiting"
    assert_equal "$(< "$BATS_TEST_TMPDIR/counted")" "4096 $CLUSTER/b/mnt/$name"
    on b umount "$CLUSTER/b/mnt"
}

@test "df and ls -la of a mount answer while a host hangs, with what was seen last" {
    [[ -w /dev/fuse && $EUID == 0 ]] || skip "needs /dev/fuse, and to be root"
    host_mount b
    local -r mount=$CLUSTER/b/mnt
    at_once ls -la "$mount" > "$BATS_TEST_TMPDIR/before"
    [ "$(grep -c 1048576 "$BATS_TEST_TMPDIR/before")" -eq 6 ]
    # What b has seen is not at hand any more: the attributes were changed elsewhere.
    local name
    for name in one two three four five six; do on c resize "$name" 2MiB; done
    exec 5< "$mount/one"
    for name in one two three four five six; do on c resize "$name" 3MiB; done
    for name in unseen-{1..6}; do on c create "$name" 1MiB --shared; done
    host_pause c
    run -0 at_once df "$mount"
    run at_once ls -la "$mount"
    [ "$status" -le 1 ]
    for name in one two three four five six unseen-{1..6}; do assert_line --regexp " $name$"; done
    # Of what b never saw, and c is home of, nothing is known: it waits for the first of them, and then for none.
    [ "$(grep -cE ' (1048576|2097152) .* (one|two|three|four|five|six)$' <<< "$output")" -eq 6 ]
    assert_line --regexp '\?\?\? .* unseen-[1-6]$'
    run -0 at_once stat -L -c %s /dev/fd/5
    [ "$output" -le 2097152 ]
    exec 5<&-
    host_resume c
    within 5 answers b c
    run -0 at_once ls -la "$mount"
    [ "$(grep -c 3145728 <<< "$output")" -eq 6 ]
    on b umount "$mount"
}

@test "tarn create fails with the name of the host that hangs" {
    on c list
    host_pause c
    run -5 at_once tarn create made 1MiB --shared
    assert_output --partial "host c does not answer"
    host_resume c
    within 5 answers a c
    run -0 on b create made 1MiB --shared
}

@test "tarn resize fails with the name of the host that hangs, and does nothing later" {
    local name size answer
    for name in resized-{1..6}; do on b create "$name" 1MiB --shared; done
    # Every host is home of the attributes of some.
    for name in resized-{1..6}; do on a resize "$name" 2MiB; done
    for name in resized-{1..6}; do on c resize "$name" 3MiB; done
    host_pause c
    for name in resized-{1..6}; do
        run at_once tarn resize "$name" 4MiB
        [[ $status -eq 0 || $status -eq 5 ]]
        [[ $status -eq 0 ]] || assert_output --partial "host c does not answer"
        echo "$name $status" >> "$BATS_TEST_TMPDIR/answers"
    done
    grep -q " 5$" "$BATS_TEST_TMPDIR/answers"
    host_resume c
    within 5 answers a c
    while read -r name answer; do
        run -0 on a show "$name" --json
        size=$((answer == 0 ? 4 << 20 : 3 << 20))
        [ "$name $(jq ".volumes[0].size_bytes" <<< "$output")" = "$name $size" ]
    done < "$BATS_TEST_TMPDIR/answers"
}

@test "tarn resize that has cut a volume says so, though a host hangs that has some of what was cut off" {
    local name size answer at
    local -a writes=() reads=()
    for at in {1..15}; do
        writes+=(-c "write -P 7 $((at * 16))M 64k")
        reads+=(-c "read -P 0 $((at * 16))M 64k")
    done
    for name in cut-{1..4}; do
        on b create "$name" 256MiB --shared
        timeout 60 qemu-io -f raw -c "write -P 5 0 64k" "${writes[@]}" -c flush "$(uri b "$name")"
    done
    host_pause c
    for name in cut-{1..4}; do
        run at_once tarn resize --force "$name" 1MiB
        [[ $status -eq 0 || $status -eq 5 ]]
        [[ $status -eq 0 ]] || assert_output --partial "host c does not answer"
        [[ $output == *"is not known"* ]] || echo "$name $status" >> "$BATS_TEST_TMPDIR/answers"
    done
    grep -q " 0$" "$BATS_TEST_TMPDIR/answers"
    host_resume c
    within 5 answers a c
    while read -r name answer; do
        run -0 on a show "$name" --json
        size=$((answer == 0 ? 1 << 20 : 256 << 20))
        [ "$name $(jq ".volumes[0].size_bytes" <<< "$output")" = "$name $size" ]
        [[ $answer -eq 0 ]] || continue
        on c resize "$name" 256MiB
        run -0 timeout 60 qemu-io -f raw -c "read -P 5 0 64k" "${reads[@]}" "$(uri c "$name")"
        refute_output --partial "verification failed"
    done < "$BATS_TEST_TMPDIR/answers"
}

@test "tarn create fails with the name of the registrar that hangs" {
    host_pause a
    run -5 at_once tarn create later 1MiB --shared
    assert_output --partial "registrar"
    run -5 at_once tarn create other 1MiB --shared
    assert_output --partial "registrar"
    run -0 at_once tarn status
    host_resume a
    within 5 answers b a
    within 5 on b create other 1MiB --shared
}

held_bytes() { awk '/^RssAnon/ { print $2 * 1024 }' "/proc/$(pid_of "$1")/status"; }

# Memory of 64 MiB, of which 4 MiB are for such requests; and what a connection may need beyond that.
@test "what many NBD clients write while a host hangs takes no memory beyond its share" {
    on b create written 192MiB --shared
    cat > "$BATS_TEST_TMPDIR/writers.py" << 'END'
import socket, struct, sys, threading
path, MiB = sys.argv[1], 1 << 20
def connect(timeout):
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    client.recv(18, socket.MSG_WAITALL)
    client.sendall(struct.pack(">IQII", 3, 0x49484156454F5054, 1, 7) + b"written")
    client.recv(10, socket.MSG_WAITALL)
    client.settimeout(timeout)
    return client
def write(cookie, offset, size): return struct.pack(">IHHQQI", 0x25609513, 0, 1, cookie, offset, size) + bytes(size)
def range_that_waits():
    for n in range(3):
        client = connect(4)
        client.sendall(write(0, n << 26, 4096))
        try: client.recv(16, socket.MSG_WAITALL)
        except TimeoutError: return n
offset = range_that_waits() << 26
clients = [connect(1) for n in range(32)]
rests = [b"".join(write(n, offset + n * MiB, MiB) for n in range(12)) for client in clients]
def send(n):
    try:
        while rests[n]: rests[n] = rests[n][clients[n].send(rests[n][:MiB]):]
    except TimeoutError: pass
def finish(n):
    clients[n].settimeout(120)
    clients[n].sendall(rests[n])
    for _ in range(12): assert clients[n].recv(8, socket.MSG_WAITALL)[4:] == bytes(4) and clients[n].recv(8, socket.MSG_WAITALL)
    done.append(n)
def on_each(work):
    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(clients))]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
done = []
on_each(send)
print("full", flush=True)
sys.stdin.readline()
on_each(finish)
assert len(done) == len(clients)
END
    mkfifo "$BATS_TEST_TMPDIR/go"
    host_pause c
    python3 "$BATS_TEST_TMPDIR/writers.py" "$CLUSTER/b/nbd.sock" < "$BATS_TEST_TMPDIR/go" \
        > "$BATS_TEST_TMPDIR/said" 2>&1 3>&- &
    local -r writers=$!
    exec 4> "$BATS_TEST_TMPDIR/go"
    local -r before=$(held_bytes b)
    within 60 grep -q full "$BATS_TEST_TMPDIR/said"
    local -r after=$(held_bytes b)
    echo "held $(((after - before) >> 10)) KiB more"
    ((after - before < 32 << 20))
    host_resume c
    exec 4>&-
    wait "$writers"
}
