# Volumes that are deleted while somebody uses them: the name goes at once, the bytes with the last who has them open.

load tarn

setup_file() {
    cluster_for_all_tests a b c
    for host in a b c; do host_mount "$host"; done
    on a create first 1MiB # the catalog has its space from then on
    on a flush first
    on a delete first
    within 10 nothing_is_deleted
}

# Bytes that the hosts' stores have set aside.
allocated() {
    local host sum=0
    for host in a b c; do
        sum=$((sum + $(on "$host" status --json | jq .store_allocated_bytes)))
    done
    echo "$sum"
}
# no_more_than BYTES
no_more_than() { (($(allocated) <= $1)); }
cached() { on "$1" status --json | jq .cached_bytes; }
nothing_is_deleted() { on a status --json | jq -e '.deleting == []'; }

@test "a file that is open stays whole on every host when its name goes, and its space comes back after" {
    local before
    before=$(allocated)
    head -c 40M /dev/urandom > "$BATS_TEST_TMPDIR/bytes"
    cp "$BATS_TEST_TMPDIR/bytes" "$CLUSTER/a/mnt/open"
    exec {there}< "$CLUSTER/b/mnt/open"
    exec {here}<> "$CLUSTER/a/mnt/open"
    rm "$CLUSTER/c/mnt/open"
    for host in a b c; do [ ! -e "$CLUSTER/$host/mnt/open" ]; done
    echo another > "$CLUSTER/c/mnt/open" # the name is free
    [ "$(stat -L -c '%s %h' "/proc/self/fd/$there")" = "$((40 << 20)) 0" ]
    printf changed | dd of="/proc/self/fd/$here" bs=1 seek=1000 conv=notrunc status=none
    printf changed | dd of="$BATS_TEST_TMPDIR/bytes" bs=1 seek=1000 conv=notrunc status=none
    cmp "$BATS_TEST_TMPDIR/bytes" <(cat <&"$there")
    sync "/proc/self/fd/$here"
    run -0 on a status
    assert_output --regexp "deleting open; files of it are open on (a|b)"
    [ "$(on c status --json | jq -r '.deleting[].name')" = open ]
    exec {there}<&-
    ! within 1 nothing_is_deleted
    exec {here}>&-
    within 10 nothing_is_deleted
    [ "$(cat "$CLUSTER/b/mnt/open")" = another ]
    rm "$CLUSTER/b/mnt/open"
    within 10 nothing_is_deleted
    within 10 no_more_than "$before"
}

@test "memory and space come back within seconds, also what nobody had flushed" {
    local before cached_before
    sync "$CLUSTER/a/mnt" # what the tests before have left
    before=$(allocated)
    cached_before=$(cached a)
    head -c 20M /dev/zero | tr '\0' x > "$CLUSTER/a/mnt/dirty"
    head -c 20M "$CLUSTER/b/mnt/dirty" > /dev/null
    rm "$CLUSTER/b/mnt/dirty"
    within 10 nothing_is_deleted
    within 10 no_more_than "$before"
    (($(cached a) < cached_before + (4 << 20)))
}

@test "a volume that an NBD client uses is deleted by force only, and the client is disconnected" {
    on a create used 64MiB --shared
    client_start b used << 'EOF'
import sys
h.pwrite(b'x' * 4096, 0)
print('open', flush=True)
sys.stdin.readline()
try:
    h.pwrite(b'y' * 4096, 0)
    print('written')
except nbd.Error as error:
    print('refused', error.errno)
EOF
    run -4 on c delete used
    assert_output --regexp "NBD clients have it open: .*process [0-9]+.*\(host b\)"
    run ! rm "$CLUSTER/a/mnt/used"
    assert_output --partial "busy"
    on a list | grep -q '^used '
    run -0 on c delete used --force
    within 10 nothing_is_deleted
    client_go
    client_end
    run -0 cat "$CLIENT_SAID"
    assert_output --regexp "refused (ESHUTDOWN|ENOTCONN|EIO|EINVAL)"
}

@test "who has a volume open over NBD is named when it shrinks, whichever host he is on" {
    on a create shrinks 8MiB --shared
    client_start b shrinks << 'EOF'
import sys
print('open', flush=True)
sys.stdin.readline()
EOF
    run -4 on c resize shrinks 4MiB
    assert_output --regexp "NBD clients have it open: .*process [0-9]+.*\(host b\)"
    run -0 on c resize shrinks 12MiB
    refute_output --partial "open"
    run -0 on c resize shrinks 4MiB --force
    assert_line --regexp "^shrinks is still open in .*process [0-9]+.*\(host b\)"
    run -0 on c resize shrinks 2MiB --force --json
    jq -e '.volumes[0].open_by | length == 1' <<< "$output"
    client_go
    client_end
    run -1 on c resize shrinks 1MiB
    run -0 on c resize shrinks 1MiB --force
    refute_output --partial "open"
    on a delete shrinks
}

@test "a deletion goes on after a restart of the registrar, and waits for a host that is away" {
    head -c 8M /dev/urandom > "$CLUSTER/c/mnt/waits"
    sync "$CLUSTER/c/mnt/waits"
    exec {file}< "$CLUSTER/c/mnt/waits"
    rm "$CLUSTER/b/mnt/waits"
    host_crash a
    host_start a
    for host in b c; do within 20 connected "$host"; done
    within 20 says a "deleting waits; files of it are open on c"
    host_kill c
    exec {file}<&-
    within 20 says a "deleting waits; waits for c"
    host_start c
    for host in a b c; do within 20 connected "$host"; done
    within 20 nothing_is_deleted
    for host in a b c; do
        host_stop "$host"
        only_the_catalog_has_space "$CLUSTER/$host/store"
    done
}
# A home that starts anew may store a page of the catalog that was only read before, so the stores' whole space may grow.
only_the_catalog_has_space() { tarn store inspect --json "$1" | jq -e 'all(.volumes[]; .id == 0)'; }
# says HOST TEXT
says() { on "$1" status | grep -qF "$2"; }
