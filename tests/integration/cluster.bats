# Three tarnd: one coherent volume, whatever client and whichever host.

load tarn

setup_file() { cluster_for_all_tests a b c; }

@test "what one host writes over NBD every other reads at once" {
    on a create shared 200MiB --shared
    for host in a b c a b c; do
        nbd_python "$host" shared "h.pwrite(b'$host' * 70000, 65000)"
        for reader in a b c; do
            nbd_python "$reader" shared "assert h.pread(70000, 65000) == b'$host' * 70000"
        done
    done
}

@test "a file made on one host is read, grown and removed on the others" {
    for host in a b c; do host_mount "$host"; done
    echo one > "$CLUSTER/a/mnt/story"
    echo two >> "$CLUSTER/b/mnt/story"
    echo three >> "$CLUSTER/c/mnt/story"
    run -0 cat "$CLUSTER/a/mnt/story"
    assert_output $'one\ntwo\nthree'
    [ "$(stat -c '%s %Y' "$CLUSTER/a/mnt/story")" = "$(stat -c '%s %Y' "$CLUSTER/c/mnt/story")" ]
    truncate -s 5 "$CLUSTER/b/mnt/story"
    run -0 cat "$CLUSTER/c/mnt/story"
    assert_output $'one\nt'
    rm "$CLUSTER/c/mnt/story"
    [ ! -e "$CLUSTER/a/mnt/story" ]
    for host in a b c; do on "$host" umount "$CLUSTER/$host/mnt"; done
}

@test "sizes, times, holes and space are those of one file system on every host's mount" {
    for host in a b c; do host_mount "$host"; done
    local a=$CLUSTER/a/mnt b=$CLUSTER/b/mnt c=$CLUSTER/c/mnt
    head -c 1M /dev/zero | tr '\0' x > "$a/file"
    [ "$(on c list --json | jq -r '.volumes[] | select(.name == "file") | .shared')" = true ]
    touch -d '2001-02-03 04:05:06.123456789 UTC' "$b/file"
    for host in a b c; do
        [ "$(TZ=UTC stat -c '%s %y' "$CLUSTER/$host/mnt/file")" = '1048576 2001-02-03 04:05:06.123456789 +0000' ]
    done
    fallocate --punch-hole --offset 4096 --length 8192 "$b/file"
    fallocate --zero-range --offset 100000 --length 10 "$c/file"
    [ "$(tr -d x < "$a/file" | wc -c)" -eq 8202 ]
    fallocate --length 2M "$c/file"
    [ "$(stat -c %s "$b/file")" -eq $((2 << 20)) ]
    truncate -s 5T "$a/file"
    [ "$(stat -c %s "$c/file")" -eq $((5 << 40)) ]
    printf end >> "$b/file"
    truncate -s 3000000001 "$c/file"
    [ "$(stat -c %s "$a/file")" -eq 3000000001 ]
    printf y | dd of="$b/file" bs=1 seek=4000000000 conv=notrunc status=none
    [ "$(tail -c 1 "$c/file")" = y ]
    [ "$(stat -c %s "$a/file")" -eq 4000000001 ]
    [ "$(stat -f -c '%b %S' "$a")" = "$(stat -f -c '%b %S' "$c")" ]
    [ "$(stat -f -c '%b * %S' "$b" | xargs expr)" -gt $((2 << 30)) ]
    run ! flock -n "$b/file" true
    assert_output --partial "No locks available"
    sync "$a/file"
    rm "$b/file"
    [ ! -e "$c/file" ]
    for host in a b c; do on "$host" umount "$CLUSTER/$host/mnt"; done
}

@test "two hosts that create one name: one wins" {
    on b create race 1MiB --shared &
    local first=$! status=0
    on c create race 1MiB --shared || status=$?
    local other=0
    wait "$first" || other=$?
    [ $((status + other)) -eq 4 ]
    on a delete race
}

@test "an exclusive volume has one writing host, and the others are told which" {
    on a create mine 10MiB
    mkfifo "$BATS_TEST_TMPDIR/end"
    PATH="/usr/bin:$PATH" nbdsh -u "$(uri b mine)" \
        -c "import sys; h.pwrite(b'x', 0); print('held', flush=True); sys.stdin.read()" \
        < "$BATS_TEST_TMPDIR/end" > "$BATS_TEST_TMPDIR/out" 3>&- &
    exec 4> "$BATS_TEST_TMPDIR/end"
    within 10 grep held "$BATS_TEST_TMPDIR/out"
    run -1 timeout 10 qemu-img info "$(uri c mine)"
    assert_output --partial "held by host b"
    run -4 on a delete mine
    exec 4>&-
    within 10 nbd_python c mine "h.pwrite(b'y', 0)"
    within 10 on a delete mine
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
    run -0 on c status
    assert_line --partial "LOST     any volume: maybe unflushed writes of pages that no host held, with the memory of c"
    local lost
    lost=$(on c status | grep LOST)
    host_stop c
    host_start c
    within 20 connected c
    assert_equal "$(on c status | grep LOST)" "$lost"
    on a delete torn
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
    kill -STOP "$(pid_of c)"
    client_go
    within 40 grep -q "'EIO', 'ok', 'ok'.*'EIO', 'ok', 'ok'.*'EIO')" "$CLIENT_SAID"
    kill -CONT "$(pid_of c)"
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
    # It takes TCP's patience to find out; what needs c waits for as long as it takes.
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

@test "a stopped host has flushed" {
    on a create kept 20MiB --shared
    random_file "$BATS_TEST_TMPDIR/bytes" 20M
    timeout 60 nbdcopy "$BATS_TEST_TMPDIR/bytes" "$(uri b kept)"
    host_stop b
    host_start b
    within 20 connected b
    timeout 60 nbdcopy "$(uri a kept)" "$BATS_TEST_TMPDIR/seen"
    cmp "$BATS_TEST_TMPDIR/bytes" "$BATS_TEST_TMPDIR/seen"
}

@test "hosts that stop at the same time wait for each other's flush" {
    on a create together 192MiB --shared
    random_file "$BATS_TEST_TMPDIR/bytes" 20M
    # Each host writes the same range: whatever its home is, two of them have bytes that it lacks.
    for host in a b c; do
        timeout 60 qemu-io -f raw -c "write -P $(index_of "$host") $((RANDOM % 40 * 4))M 4M" "$(uri "$host" together)"
        timeout 60 nbdcopy "$BATS_TEST_TMPDIR/bytes" "$(uri "$host" together)"
    done
    local pids=()
    for host in a b c; do
        pids+=("$(pid_of "$host")")
        : > "$CLUSTER/$host/log"
    done
    kill -TERM "${pids[@]}"
    for pid in "${pids[@]}"; do within 8 gone "$pid"; done
    run grep -hE "given up|not everything" "$CLUSTER"/{a,b,c}/log
    assert_output ""
    cluster_start
    for host in a b c; do
        timeout 60 nbdcopy "$(uri "$host" together)" "$BATS_TEST_TMPDIR/seen"
        cmp -n $((20 << 20)) "$BATS_TEST_TMPDIR/bytes" "$BATS_TEST_TMPDIR/seen"
    done
    on a delete together
}

@test "a host that hangs keeps no other from opening volumes, nor from stopping" {
    on a create small 1MiB --shared
    kill -STOP "$(pid_of b)"
    nbd_python a small "h.pread(512, 0)"
    # What it is home of, or owns, is waited for; that this host stops all the same is the point.
    local pid
    pid=$(pid_of c)
    kill -TERM "$pid"
    within 20 gone "$pid"
    kill -CONT "$(pid_of b)"
    host_start c
    within 20 connected c
}

@test "while the registrar is away changes are refused with its name, and volumes in use go on" {
    on b create going 1MiB --shared
    # A range whose home is alive: volume ids are spread, one of three lies on b or c.
    host_kill a
    within 10 not_connected b a
    run on b create later 1MiB
    assert_failure 5
    assert_output --partial "registrar"
    host_start a
    within 20 connected b
    on b create later 1MiB
}
not_connected() {
    on "$1" status --json | jq -e --arg peer "$2" '.peers[] | select(.name == $peer) | .connected | not'
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
    assert_line --regexp '^seen-. +1 MiB  shared  \(as last seen'
    assert_line --regexp '^new-. +\?  shared  \(size unknown'
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
    # The registrar's first flush may still have to say that c took something with it.
    on b create own-3 1MiB || on b show own-3
    for name in own-1 own-2 own-3; do on a delete "$name"; done
}

@test "a host with the wrong key is refused, and says so" {
    host_stop c
    cp "$CLUSTER/key" "$CLUSTER/key.good"
    tr 0-9a-f 1-9a-f0 < "$CLUSTER/key.good" > "$CLUSTER/key"
    host_start c
    within 10 grep -q "wrong key" "$CLUSTER/c/log"
    within 10 not_connected c a
    host_stop c
    cp "$CLUSTER/key.good" "$CLUSTER/key"
    host_start c
    within 20 connected c
}
