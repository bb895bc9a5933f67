# Hosts that die, hang or cannot be reached: what waits for them, what fails, and what goes on.

load tarn

setup_file() {
    export HOST_FABRIC=tcp  # the network is cut
    cluster_for_all_tests a b c
}
# One that hangs when its test fails would take all later ones with it.
teardown() {
    for host in a b c; do host_resume "$host" 2> /dev/null || true; done
    umount -l "$BATS_TEST_TMPDIR/small" 2> /dev/null || true
}

@test "a slow link delays, and nothing else" {
    [[ $CLUSTER_NETWORK == namespaces ]] || skip "needs network namespaces"
    on a create late 192MiB --shared
    random_file "$BATS_TEST_TMPDIR/bytes" 2M
    host_slow_down b
    timeout 60 nbdcopy --flush "$BATS_TEST_TMPDIR/bytes" "$(uri b late)"
    for host in c a b; do
        timeout 60 qemu-img dd -f raw -O raw bs=1M count=2 "if=$(uri "$host" late)" "of=$BATS_TEST_TMPDIR/seen"
        cmp "$BATS_TEST_TMPDIR/bytes" "$BATS_TEST_TMPDIR/seen"
    done
    host_unmute b
    on a delete late
}

@test "every flushed byte survives the SIGKILL of any host" {
    on a create precious 200MiB --shared
    random_file "$BATS_TEST_TMPDIR/bytes" 200M
    timeout 60 nbdcopy --flush "$BATS_TEST_TMPDIR/bytes" "$(uri c precious)"
    for killed in a b c; do
        host_kill "$killed"
        host_start "$killed"
        within 20 connected "$killed"
        for reader in a b c; do
            timeout 60 nbdcopy "$(uri "$reader" precious)" "$BATS_TEST_TMPDIR/seen"
            cmp "$BATS_TEST_TMPDIR/bytes" "$BATS_TEST_TMPDIR/seen"
        done
    done
    on a delete precious
}

# What a host says of a loss, by the name or, before it has read the catalog, the number of the volume.
nothing_is_lost_of() { on "$1" status --json | jq -e --arg v "$2" '[.losses[] | select(.volume == $v)] == []'; }
lost_on() { on "$1" status | grep -o "^LOST .*" | sed 's/^LOST  *[^ ]*: //'; }

@test "after a loss, who may have seen lost writes gets I/O errors, and a new client what there is" {
    # Three ranges, each with another home. The one that c is home of goes with c, which it tells from its store.
    on a create torn 192MiB --shared
    nbd_python c torn "[h.pwrite(b'1' * 4096, n << 26) for n in range(3)]; h.flush()"
    mkfifo "$BATS_TEST_TMPDIR/go"
    cat > "$BATS_TEST_TMPDIR/old.py" << 'END'
import sys
def read(n):
    try: return h.pread(4096, n << 26)[:1].decode()
    except nbd.Error as error: return error.errno
print([read(n) for n in range(3)], flush=True)
sys.stdin.readline()
print(sorted(read(n) for n in range(3)), flush=True)
h.pwrite(b'3' * 4096, 4096)
for n in range(3): h.pwrite(b'4' * 4096, n << 26)
print([read(n) for n in range(3)], flush=True)
END
    PATH="/usr/bin:$PATH" nbdsh -u "$(uri b torn)" -c "$(cat "$BATS_TEST_TMPDIR/old.py")" \
        < "$BATS_TEST_TMPDIR/go" > "$BATS_TEST_TMPDIR/old" 2>&1 3>&- &
    local old=$!
    exec 4> "$BATS_TEST_TMPDIR/go"
    within 10 grep -q "'1', '1', '1'" "$BATS_TEST_TMPDIR/old"
    nbd_python c torn "[h.pwrite(b'2' * 4096, n << 26) for n in range(3)]"
    host_kill c
    host_start c
    within 20 connected c
    nbd_python b torn "assert [h.pread(1, n << 26) for n in range(3)] == [b'1'] * 3"
    nbd_python a torn "assert [h.pread(1, n << 26) for n in range(3)] == [b'1'] * 3"
    echo >&4
    exec 4>&-
    wait "$old"
    run -0 cat "$BATS_TEST_TMPDIR/old"
    assert_line --index 1 "['EIO', 'EIO', 'EIO']"
    assert_line --index 2 "['4', '4', '4']"
    run -0 on a status --json
    run -0 jq -r '.losses[] | "\(.volume) \(.host)"' <<< "$output"
    assert_line "torn c"
    run -0 on a status
    assert_line --partial "LOST     torn: maybe unflushed writes of"
    # The MiB that was written to, and that of the attributes.
    local lost
    lost=$(lost_on c | tail -1)
    [[ $lost =~ ^"maybe unflushed writes of "([0-9]+)" pages from ".*", with the memory of c, " ]]
    ((BASH_REMATCH[1] <= 512))
    host_stop c
    host_start c
    within 20 connected c
    assert_equal "$(lost_on c | tail -1)" "$lost"
    on a delete torn
    within 20 nothing_is_lost_of c torn
}

@test "a flush over any connection of a client tells what was lost of its writes, also after it has come back" {
    on a create several 192MiB --shared
    client_start b several << 'END'
import sys
uri = h.get_uri()
def connect():
    other = nbd.NBD()
    other.connect_uri(uri)
    return other
def flushed(over):
    try:
        over.flush()
        return 'flushed'
    except nbd.Error as error: return error.errno
h.shutdown()
first, second = connect(), connect()
for n in range(3): first.pwrite(b'1' * 4096, n << 26)
print('open', flush=True)
sys.stdin.readline()
print(flushed(second), flush=True)
# Both connections break without a word, and the client comes back.
del first, second
third = connect()
print(flushed(third), flush=True)
third.shutdown()
fourth = connect()
print(flushed(fourth), flush=True)
END
    host_kill a
    host_start a
    within 20 connected a
    client_go
    client_end
    run -0 cat "$CLIENT_SAID"
    assert_line --index 1 EIO
    assert_line --index 2 EIO
    assert_line --index 3 flushed
    on a delete several
}

@test "an NBD client is served on after a host lost the attributes that it wrote" {
    host_mount c
    on a create described 4MiB --shared
    client_start b described << 'END'
import sys
uri = h.get_uri()
h.pread(4096, 0)
print('open', flush=True)
sys.stdin.readline()
h.pwrite(b'2' * 4096, 4096)
print(h.pread(1, 4096).decode(), flush=True)
del h  # the connection breaks without a word
h = nbd.NBD()
h.connect_uri(uri)
print(h.get_size(), flush=True)
END
    touch "$CLUSTER/c/mnt/described"
    host_kill c
    host_start c
    within 20 connected c
    local losses=0
    for host in a b c; do nothing_is_lost_of "$host" described || losses=$((losses + 1)); done
    ((losses > 0))
    client_go
    client_end
    run -0 cat "$CLIENT_SAID"
    assert_line --index 1 2
    assert_line --index 2 4194304
    umount -l "$CLUSTER/c/mnt"
    within 10 on a delete described # as soon as b has seen that the client is gone
}

@test "a host that is declared dead is waited for no more, and is welcome when it is started anew" {
    on a create waiting 192MiB --shared
    nbd_python c waiting "[h.pwrite(b'1' * 4096, n << 26) for n in range(3)]; h.flush()"
    nbd_python c waiting "[h.pwrite(b'2' * 4096, n << 26) for n in range(3)]"
    run -4 on a host forget c --it-is-dead
    assert_output --partial "connected"
    run -2 on a host forget c
    run -2 on a host forget a --it-is-dead
    run -3 on a host forget nobody --it-is-dead
    # Of the three ranges one has c as its home, and waits for its return; so may the attributes, which opening needs.
    client_start b waiting << 'END'
import sys
def written(error):
    print('written', error.value, flush=True)
    return 1
print('open', flush=True)
sys.stdin.readline()
for n in range(3): h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(b'3' * 4096)), n << 26, completion=written)
while h.aio_in_flight() > 0: h.poll(-1)
END
    host_kill c
    within 10 not_connected a c
    within 10 not_connected b c
    client_go
    run -0 on b host forget c --it-is-dead --json
    [ "$(jq -r '.told | join(" ")' <<< "$output")" = a ]
    within 10 two_are_written
    run -0 on a status
    assert_line --regexp "^  c .*declared dead"
    # A restart remembers it, and waits for nobody.
    host_kill a
    host_start a
    within 20 reads_the_catalog a
    run -0 on a status
    assert_line --regexp "^  c .*declared dead"
    host_start c
    within 20 connected c
    client_end
    [ "$(grep -c 'written 0' "$CLIENT_SAID")" -eq 3 ]
    for host in a b c; do nbd_python "$host" waiting "assert [h.pread(1, n << 26) for n in range(3)] == [b'3'] * 3"; done
    run -0 on a status
    refute_output --partial "declared dead"
    on a delete waiting
}
reads_the_catalog() {
    local status=0
    on "$1" show nobody || status=$?
    [ "$status" -eq 3 ]
}
two_are_written() { [ "$(grep -c 'written 0' "$CLIENT_SAID")" -eq 2 ]; }

@test "a host that was declared dead and was not stays out, with one line, until it is restarted" {
    [[ $CLUSTER_NETWORK == namespaces ]] || skip "needs network namespaces"
    ip -n "$(namespace net)" link set dev c down
    within 40 not_connected a c
    within 40 not_connected b c
    on a host forget c --it-is-dead
    ip -n "$(namespace net)" link set dev c up
    within 10 grep -q "declared dead (incarnation .*) and is refused" "$CLUSTER/a/log"
    within 10 grep -q "declared dead (incarnation .*) and is refused" "$CLUSTER/b/log"
    not_connected a c
    within 10 grep -q "told that this host is dead .* --discard-memory" "$CLUSTER/c/log"
    run -0 on c status
    assert_line --regexp "^  a .*told that this host is dead"
    host_kill c
    host_start c
    within 20 connected c
    for host in a b; do [ "$(grep -c "and is refused" "$CLUSTER/$host/log")" -eq 1 ]; done
}

@test "with --fail-after what needs a host that hangs fails in time, and nothing else" {
    on a create hasty 192MiB --shared --fail-after 2s
    run -0 on b show hasty
    assert_output --partial "after 2000 ms"
    nbd_python b hasty "[h.pwrite(b'1' * 4096, n << 26) for n in range(3)]; h.flush()"
    client_start b hasty << 'END'
import sys
def attempt(what, *arguments):
    try:
        what(*arguments)
        return 'ok'
    except nbd.Error as error:
        return error.errno
def attempts():
    return (sorted(attempt(h.pread, 4096, (n << 26) + 8192) for n in range(3)),
            sorted(attempt(h.pwrite, b'2' * 512, (n << 26) + 8192) for n in range(3)),
            sorted(attempt(h.pwrite, b'3' * 4096, (n << 26) + 16384) for n in range(3)), attempt(h.flush))
print('open', flush=True)
sys.stdin.readline()
print(attempts(), flush=True)
sys.stdin.readline()
print(attempts(), flush=True)
END
    host_pause c
    client_go
    within 40 grep -q "'EIO', 'ok', 'ok'.*'EIO', 'ok', 'ok'.*'EIO')" "$CLIENT_SAID"
    host_resume c
    within 20 nbd_python c hasty "h.flush()"
    client_go
    client_end
    run -0 tail -n 1 "$CLIENT_SAID"
    assert_output "(['ok', 'ok', 'ok'], ['ok', 'ok', 'ok'], ['ok', 'ok', 'ok'], 'ok')"
    for host in a b c; do nbd_python "$host" hasty "assert [h.pread(1, (n << 26) + 16384) for n in range(3)] == [b'3'] * 3"; done
    on a delete hasty
}

@test "a host that hears and is not heard is waited for, and then everything is as it was" {
    [[ $CLUSTER_NETWORK == namespaces ]] || skip "needs network namespaces"
    on a create lopsided 192MiB --shared
    for host in a b c; do nbd_python "$host" lopsided "[h.pwrite(b'$host' * 4096, (n << 26) + $(index_of "$host") * 4096) for n in range(3)]"; done
    local lost
    lost=$(on a status | grep LOST || true)
    host_mute c
    # TCP finds out after its timeout; what needs c waits for as long as it takes.
    nbd_python c lopsided "[h.pwrite(b'2' * 4096, (n << 26) + 4096) for n in range(3)]; h.flush()" 3>&- &
    local waiting=$!
    within 60 not_connected a c
    within 60 not_connected b c
    [ -d "/proc/$waiting" ]
    host_unmute c
    within 20 connected c
    wait "$waiting"
    for host in a b c; do
        nbd_python "$host" lopsided "assert [h.pread(1, (n << 26) + k * 4096) for n in range(3) for k in (1, 2, 3)] == [b'2', b'b', b'c'] * 3"
    done
    assert_equal "$(on a status | grep LOST || true)" "$lost"
    on a delete lopsided
}

@test "a host that hangs keeps no other from opening volumes, nor from stopping" {
    # Volumes in a row have their attributes on different hosts; a, where they were made, has seen them all.
    local name
    for name in small-1 small-2 small-3; do on a create "$name" 1MiB --shared; done
    host_pause b
    for name in small-1 small-2 small-3; do nbd_python a "$name" "assert h.get_size() == 1 << 20"; done
    # What it is home of, or owns, is waited for; that this host stops all the same is the point.
    local pid
    pid=$(pid_of c)
    kill -TERM "$pid"
    within 20 gone "$pid"
    host_resume b
    host_start c
    within 20 connected c
    for name in small-1 small-2 small-3; do on a delete "$name"; done
}

@test "while the registrar is away changes are refused with its name, and volumes in use go on" {
    on b create going 1MiB --shared
    # A range whose home is alive: volume ids are spread, one of three lies on b or c.
    host_kill a
    within 10 not_connected b a
    run on b create later 1MiB
    assert_failure 5
    assert_output --partial "host a, the registrar, is away"
    host_start a
    within 20 connected b
    on b create later 1MiB
}

serves() { [ "$(on "$1" status --json | jq .serves)" = true ]; }
@test "a host that starts before the others looks for what deleted volumes left once they are there" {
    local host
    for host in c b a; do host_stop "$host"; done
    : > "$CLUSTER/b/log"
    host_start b
    within 20 grep "some hosts are away; the space of volumes that were deleted meanwhile is freed here once they are back" "$CLUSTER/b/log"
    run -0 on b status
    assert_output --partial "this host stores and serves nothing until it has met all others"
    for host in a c; do host_start "$host"; done
    for host in "${HOSTS[@]}"; do within 20 connected "$host" && within 20 serves "$host"; done
    run ! grep orphans "$CLUSTER/b/log"
}

@test "while a host is dead a list says what is known, and what needs that host fails in time" {
    # Of three volumes in a row each has its attributes on another host. What b has seen of the first three is old.
    local name
    for name in seen-1 seen-2 seen-3; do on a create "$name" 1MiB --shared; done
    on b list
    for name in seen-1 seen-2 seen-3; do on a resize "$name" 2MiB; done
    for name in new-1 new-2 new-3; do on a create "$name" 1MiB --shared; done
    host_kill c
    within 10 not_connected b c
    SECONDS=0
    run -0 on b list
    [ "$SECONDS" -le 10 ]
    [ "$(grep -c '(as last seen: host c does not answer)$' <<< "$output")" -eq 1 ]
    [ "$(grep -c '(size unknown: host c does not answer)$' <<< "$output")" -eq 1 ]
    assert_line 'USED is without what c stores, which does not answer'
    assert_line --regexp '^seen-. +1 MiB +0 B  shared  \(as last seen'
    assert_line --regexp '^new-. +\? +0 B  shared  \(size unknown'
    local hidden
    hidden=$(on b list --json | jq -r '.volumes[] | select(.silent_host == "c" and .size_bytes == null).name')
    SECONDS=0
    run on b show "$hidden"
    assert_failure 5
    assert_output --partial "host c does not answer"
    run nbd_python b "$hidden" "h.pread(512, 0)"
    assert_failure
    assert_output --partial "NBD_OPT_GO"
    [ "$SECONDS" -le 40 ]
    for name in $(on b list --json | jq -r '.volumes[] | select(.silent_host == "").name' | grep -E '^(seen|new)-'); do
        on b show "$name"
        nbd_python b "$name" "h.pwrite(b'x' * 512, 0); h.flush()"
    done
    host_start c
    within 20 connected b
    run -0 on b list
    refute_output --partial "does not answer"
    for name in seen-1 seen-2 seen-3 new-1 new-2 new-3; do on b delete "$name"; done
}

@test "a dead host that has read the catalog keeps it from being changed, in time, and not from being read" {
    local name
    for name in own-1 own-2; do on a create "$name" 1MiB; done
    on c list
    host_kill c
    within 10 not_connected a c
    # To be changed the page must be taken from c, which may be alive; b, which had it too, asks the registrar.
    for host in a b; do
        SECONDS=0
        run on "$host" create own-3 1MiB
        assert_failure 5
        assert_output --partial "host c does not answer"
        [ "$SECONDS" -le 20 ]
        run -0 on "$host" list
        assert_line --regexp '^own-1 .*exclusive'
        assert_line --regexp '^own-2 .*exclusive'
        refute_output --partial own-3
        name=$(on "$host" list --json | jq -r '.volumes[] | select(.silent_host == "").name' | grep -m 1 '^own-')
        run -0 on "$host" show "$name"
    done
    host_start c
    within 20 connected b
    on b create own-3 1MiB
    for name in own-1 own-2 own-3; do on a delete "$name"; done
}

# What its memory may have newer bytes of than its store: no more than where the attributes are.
# But for a MiB with attributes, which may be its.
has_stored() { (($(on "$1" status --json | jq -r .store_marked_bytes) <= 1 << 20)); }

@test "what was flushed and has rested is read as ever when its home's memory is gone, and what was not is an error" {
    on a create rests 192MiB --shared
    # Three ranges, each with another home; of those whose home is not a, a is the owner, and might have written.
    nbd_python a rests "[h.pwrite(b'1' * 4096, (n << 26) + (k << 20)) for n in range(3) for k in range(4)]; h.flush()"
    client_start c rests << 'END'
import sys
def read(at):
    try: return h.pread(4096, at)[:1].decode()
    except nbd.Error as error: return error.errno
print("open", flush=True)
sys.stdin.readline()
print(sorted(read(n << 26) for n in range(3)), flush=True)
print(sorted(read((n << 26) + (8 << 20)) for n in range(3)), flush=True)
END
    within 60 has_stored a
    nbd_python a rests "[h.pwrite(b'2' * 4096, (n << 26) + (k << 20)) for n in range(3) for k in range(8, 12)]"
    run ! has_stored a
    host_kill a
    host_start a
    within 20 connected a
    client_go
    client_end
    run -0 cat "$CLIENT_SAID"
    assert_line "['1', 'EIO', 'EIO']"
    assert_line "['EIO', 'EIO', 'EIO']"
    on a delete rests
}

@test "whoever opens a volume after a loss gets no error for it, however soon" {
    host_mount a
    for round in {1..12}; do
        on a create "fresh$round" 192MiB --shared
        nbd_python b "fresh$round" "[h.pwrite(b'1' * 4096, n << 26) for n in range(3)]"
        host_kill b
        host_start b
        for host in a b; do
            umount -l "$CLUSTER/$host/mnt" 2> /dev/null || true
            within 5 host_mount "$host"
            timeout 20 stat "$CLUSTER/$host/mnt/fresh$round"
            timeout 20 cat "$CLUSTER/$host/mnt/fresh$round" > "$BATS_TEST_TMPDIR/fresh"
        done
        timeout 20 nbdcopy "$(uri b "fresh$round")" null:
        on a delete "fresh$round"
    done
    on a umount "$CLUSTER/a/mnt"
    on b umount "$CLUSTER/b/mnt"
}

@test "a home whose file system is full fails what is for it, and keeps nobody from the rest" {
    [[ $EUID == 0 ]] || skip "needs root"
    host_stop a
    local -r small=$BATS_TEST_TMPDIR/small
    mkdir "$small"
    truncate -s 600M "$BATS_TEST_TMPDIR/image"
    mkfs.ext4 -q "$BATS_TEST_TMPDIR/image"
    mount -o loop "$BATS_TEST_TMPDIR/image" "$small"
    cp --sparse=always "$CLUSTER/a/store" "$small/store"
    fallocate -l $(($(df --output=avail -B1M "$small" | tail -n 1) - 24))M "$small/ballast"
    host_start a --store "$small/store"
    within 20 connected a
    within 20 connected b
    on a create stuffed 576MiB --shared
    on a create alone 4MiB
    nbd_python c alone "h.pwrite(b'alone', 0); h.flush()"
    # More for each of the three homes than all memories together have room for, nine ranges by turns.
    cat > "$BATS_TEST_TMPDIR/stuff.py" << 'PYTHON'
import random
def piece(i):
    return random.Random(i).randbytes(1 << 20)
def fails(call):
    try:
        call()
    except nbd.Error as e:
        assert e.errno in ('EIO', 'ENOSPC'), e
        return True
failed = set()
for i in range(576):
    if fails(lambda: h.pwrite(piece(i), i << 20)):
        failed.add(i)
homes = {i // 64 % 3 for i in failed}
assert len(homes) == 1, homes
assert fails(h.flush) and fails(h.flush)
for i in set(range(576)) - failed:
    assert h.pread(1 << 20, i << 20) == piece(i), i
PYTHON
    nbd_python b stuffed "exec(open('$BATS_TEST_TMPDIR/stuff.py').read())"
    # Whoever comes now is served: the others' pages and those of the full home, and exclusive volumes.
    nbd_python c alone "assert h.pread(5, 0) == b'alone'"
    nbd_python c stuffed "assert len([h.pread(4096, i << 26) for i in range(9)]) == 9"
    run -0 on a status
    assert_output --partial "FAILED"
    host_kill a
    umount "$small"
}
