# A crash of tarnd alone loses nothing: its memory outlives it, and the next tarnd takes it over.
#
# ADOPTION_ROUNDS crashes under load.

load tarn

setup_file() {
    export ADOPTION_ROUNDS=${ADOPTION_ROUNDS:-4}
    HOST_STORE=1GiB
    HOST_MEMORY=96MiB
    cluster_make a b c
    cluster_start
    on a create shared 600MiB --shared
    cluster_remember
}

# Once the process is gone, every host but this one waits for it.
restart() {
    host_start "$1" "${@:2}"
    within 20 connected "$1"
}
memory_log() { grep "memory" "$CLUSTER/$1/log" | tail -n 1; }
keepers_of() { pgrep -f "^tarn-keeper $CLUSTER/$1/"; }

@test "what was written and never flushed is there after a crash of any host" {
    local writer crashed reader
    for writer in a b c; do
        for crashed in a b c; do
            random_file "$BATS_TEST_TMPDIR/bytes" 24M
            timeout 60 nbdcopy "$BATS_TEST_TMPDIR/bytes" "$(uri "$writer" shared)"
            host_crash "$crashed"
            restart "$crashed"
            assert_regex "$(memory_log "$crashed")" 'adopted [0-9]+ pages'
            for reader in a b c; do
                timeout 60 nbdcopy "$(uri "$reader" shared)" "$BATS_TEST_TMPDIR/seen"
                cmp --bytes=24M "$BATS_TEST_TMPDIR/bytes" "$BATS_TEST_TMPDIR/seen"
            done
        done
    done
}

@test "more than the memory holds, written and never flushed, is there after a crash" {
    random_file "$BATS_TEST_TMPDIR/bytes" 500M
    timeout 60 nbdcopy "$BATS_TEST_TMPDIR/bytes" "$(uri a shared)"
    host_crash a
    host_crash b
    host_start a
    host_start b
    for host in a b c; do within 20 connected "$host"; done
    timeout 60 nbdcopy "$(uri c shared)" "$BATS_TEST_TMPDIR/seen"
    cmp --bytes=500M "$BATS_TEST_TMPDIR/bytes" "$BATS_TEST_TMPDIR/seen"
}

@test "every write that was answered survives crashes under load" {
    on a create loaded 64MiB --shared
    cat > "$BATS_TEST_TMPDIR/writer.py" << 'END'
# Says each page that it has written, once it was answered; ends with the connection.
import random
random.seed(0)
number = 0
try:
    while True:
        number += 1
        page = random.randrange(16384)
        h.pwrite(number.to_bytes(8, 'little') * 512, page << 12)
        print(page, number, flush=True)
except nbd.Error:
    pass
END
    cat > "$BATS_TEST_TMPDIR/reader.py" << 'END'
# The page has what was last said of it; or, if it was the very next one to be written, that. Never half of either.
import random
random.seed(0)
said, last = {}, 0
for line in open(said_path):
    page, last = map(int, line.split())
    said[page] = last
for _ in range(last): random.randrange(16384)
under_way = random.randrange(16384)
for page, number in said.items():
    seen = bytes(h.pread(4096, page << 12))
    allowed = [number] + ([last + 1] if page == under_way else [])
    assert seen in [n.to_bytes(8, 'little') * 512 for n in allowed], (page, number, seen[:8])
END
    local round host
    for ((round = 0; round < ADOPTION_ROUNDS; ++round)); do
        host=$(printf '%s\n' a b c | sed -n "$((round % 3 + 1))p")
        rm -f "$BATS_TEST_TMPDIR/said"
        PATH="/usr/bin:$PATH" timeout 60 nbdsh -u "$(uri "$host" loaded)" -c "$(< "$BATS_TEST_TMPDIR/writer.py")" \
            > "$BATS_TEST_TMPDIR/said" 3>&- &
        local writer=$!
        within 20 test -s "$BATS_TEST_TMPDIR/said"
        read -r -t "0.$(printf %03d $((RANDOM % 500 + 1)))" <> <(:) || true  # any moment
        host_crash "$host"
        wait "$writer"
        restart "$host"
        nbd_python b loaded "said_path = '$BATS_TEST_TMPDIR/said'; exec(open('$BATS_TEST_TMPDIR/reader.py').read())"
    done
    on a delete loaded
}

@test "a crash right after an adoption loses nothing either" {
    nbd_python b shared "h.pwrite(b'twice' * 1000, 12345)"
    host_crash b
    host_start b
    host_crash b
    restart b
    nbd_python a shared "assert h.pread(5000, 12345) == b'twice' * 1000"
}

adopted_times() { (($(grep -c 'memory: adopted' "$CLUSTER/$1/log") == $2)); }
is_durable() { [[ $(on "$1" status --json | jq .dirty_bytes) == 0 ]]; }

# They would all have to be written again, for which a full store has no room.
@test "a process that is killed before it serves leaves every page as clean as it was" {
    nbd_python b shared "h.pwrite(b'clean' * 400000, 0); h.flush()"
    local host
    for host in a b c; do on "$host" flush shared; done
    within 20 is_durable b
    host_pause a
    host_pause c
    host_crash b
    local times
    times=$(grep -c 'memory: adopted' "$CLUSTER/b/log" || true)
    tarnd_of b  # it waits for what the others hold
    disown
    within 20 adopted_times b $((times + 1))
    host_crash b
    host_resume a
    host_resume c
    restart b
    adopted_times b $((times + 2))
    is_durable b
    nbd_python c shared "assert h.pread(2000000, 0) == b'clean' * 400000"
}

@test "a clean stop leaves nothing behind" {
    keepers_of c
    host_stop c
    run keepers_of c
    assert_output ""
    assert_equal "$(find "$CLUSTER/c" -name '*.keeper')" ""
    restart c
    refute_regex "$(tail -n 3 "$CLUSTER/c/log")" adopted
}

@test "--discard-memory begins without it, and says what is lost" {
    nbd_python c shared "h.flush(); h.pwrite(b'gone' * 1024, 0)"
    host_crash c
    restart c --discard-memory
    assert_regex "$(memory_log c)" 'memory of the process before is discarded, and with it what [1-9][0-9]* pages had'
}

@test "the memory of another store is neither taken nor thrown away" {
    nbd_python c shared "h.pwrite(b'left' * 1024, 0)"
    host_crash c
    mv "$CLUSTER/c/store" "$CLUSTER/c/store.old"
    tarn init --store "$CLUSTER/c/store" --size "$HOST_STORE" --memory "$HOST_MEMORY" --config "$CLUSTER/c/other.toml" \
        --host c --cluster "$CLUSTER_UUID" --key-file "$CLUSTER/key" \
        --peer "a=$(address_of a)" --peer "b=$(address_of b)" --peer "c=$(address_of c)"
    local enter=()
    [[ $CLUSTER_NETWORK == namespaces ]] && enter=(nsenter "--net=/run/netns/$(namespace c)")
    run -3 timeout 30 "${enter[@]}" tarnd --config "$CLUSTER/c/tarn.toml" --control "$CLUSTER/c/control.sock"
    assert_output --regexp 'memory: what a process that crashed has left is of another store'
    mv "$CLUSTER/c/store.old" "$CLUSTER/c/store"
    restart c
    assert_regex "$(memory_log c)" adopted
    nbd_python c shared "assert h.pread(4096, 0) == b'left' * 1024"
}

@test "a second daemon on a control socket that is in use leaves the first one's memory alone" {
    tarn init --store "$CLUSTER/c/second" --size 64MiB --memory 64MiB --config "$CLUSTER/c/second.toml" --host c \
        --cluster "$CLUSTER_UUID"
    run timeout 20 tarnd --config "$CLUSTER/c/second.toml" --control "$CLUSTER/c/control.sock"
    assert_failure
    assert_output --partial "another daemon listens there"
    nbd_python c shared "h.pwrite(b'kept' * 1024, 8192)"
    host_crash c
    restart c
    nbd_python a shared "assert h.pread(4096, 8192) == b'kept' * 1024"
}

# As the kernel does with those of a process that was killed.
@test "a start while the sockets of the process before still take connections takes over its memory" {
    nbd_python c shared "h.pwrite(b'soon' * 1024, 12288)"
    host_crash c
    python3 -c '
import os, socket, sys
os.unlink(sys.argv[1])
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("listens", flush=True)
for _ in range(3):
    listener.accept()
' "$CLUSTER/c/control.sock" > "$BATS_TEST_TMPDIR/listener" 3>&- &
    local -r listener=$!
    within 10 grep -q listens "$BATS_TEST_TMPDIR/listener"
    tarnd_of c
    disown
    wait "$listener"
    host_answers c
    within 20 connected c
    assert_regex "$(memory_log c)" adopted
    nbd_python c shared "assert h.pread(4096, 12288) == b'soon' * 1024"
}

@test "where nobody keeps the memory, tarnd says so and serves" {
    host_stop c
    mkdir "$BATS_TEST_TMPDIR/bin"
    cp "$TARN_BUILD/daemon/tarnd" "$BATS_TEST_TMPDIR/bin"
    PATH="$BATS_TEST_TMPDIR/bin:$PATH" host_start c
    assert_regex "$(memory_log c)" 'nobody keeps it should this process crash .*no tarn-keeper beside tarnd'
    host_stop c
    restart c
}

@test "a service manager's descriptor store keeps it as well" {
    host_stop c
    mkdir "$BATS_TEST_TMPDIR/manager"
    local enter=() tarnd=(tarnd --config "$CLUSTER/c/tarn.toml" --control "$CLUSTER/c/control.sock")
    [[ $CLUSTER_NETWORK == namespaces ]] && enter=(nsenter "--net=/run/netns/$(namespace c)")
    python3 "$BATS_TEST_DIRNAME/../support/service_manager.py" "$BATS_TEST_TMPDIR/manager" "${enter[@]}" "${tarnd[@]}" \
        > "$BATS_TEST_TMPDIR/told" 2>> "$CLUSTER/c/log" 3>&- &
    local manager=$!
    within 20 on c status
    nbd_python c shared "h.pwrite(b'stored' * 1000, 54321)"
    run keepers_of c
    assert_output ""
    kill -KILL "$(< "$BATS_TEST_TMPDIR/manager/pid")"
    within 20 grep -q SIGKILL "$BATS_TEST_TMPDIR/told"
    within 20 on c status
    assert_regex "$(memory_log c)" 'adopted [1-9][0-9]* pages'
    for host in a b c; do within 20 connected "$host"; done
    nbd_python a shared "assert h.pread(6000, 54321) == b'stored' * 1000"
    kill -TERM "$(< "$BATS_TEST_TMPDIR/manager/pid")"
    wait "$manager"
    run -0 cat "$BATS_TEST_TMPDIR/told"
    assert_output --partial "FDSTORE=1 FDNAME=arena"
    assert_equal "${lines[-1]}" "FDSTOREREMOVE=1 FDNAME=arena"
    restart c
}

@test "a client that comes back after a crash of tarnd is told what was lost of its writes, and is told again" {
    on a create several 192MiB --shared
    client_start b several << 'END'
import sys, time
uri = h.get_uri()
def connect():
    while True:
        try:
            other = nbd.NBD()
            other.connect_uri(uri)
            return other
        except nbd.Error: time.sleep(.1)  # b is not there yet
def flushed(over):
    try:
        over.flush()
        return 'flushed'
    except nbd.Error as error: return error.errno
h.shutdown()
client = connect()
for n in range(3): client.pwrite(b'1' * 4096, n << 26)
print('open', flush=True)
for _ in range(2):
    sys.stdin.readline()
    client = connect()
    print('then', flushed(client), flush=True)
client.shutdown()
client = connect()
print('anew', flushed(client), flush=True)
END
    # What one of the pages' homes had is gone while nobody on b could hear of that.
    host_crash b
    host_kill a
    host_start a
    restart b
    within 20 connected a
    client_go
    within 20 grep -q then "$CLIENT_SAID"
    host_crash b
    restart b
    client_go
    client_end
    run -0 cat "$CLIENT_SAID"
    assert_line --index 1 "then EIO"
    assert_line --index 2 "then EIO"
    assert_line --index 3 "anew flushed"
    on a delete several
}
