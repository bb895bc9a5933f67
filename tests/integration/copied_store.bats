# A store that is copied back, or started twice, or made anew: the other hosts know better.

load tarn

setup_file() { cluster_for_all_tests a b c; }

# refused HOST [FLAGS...]: its tarnd ends by itself, with 3; what it said is in $output.
refused() {
    local -r host=$1
    shift
    local enter=()
    [[ $CLUSTER_NETWORK == namespaces ]] && enter=(nsenter "--net=/run/netns/$(namespace "$host")")
    run -3 timeout 30 "${enter[@]}" tarnd --config "$CLUSTER/$host/tarn.toml" \
        --control "$CLUSTER/$host/control.sock" "$@"
}

@test "a store from before the last start is refused, and with --accept-older-store all of it is lost" {
    on b create copied 192MiB --shared
    nbd_python c copied "[h.pwrite(b'1' * 4096, n << 26) for n in range(3)]; h.flush()"
    host_stop a
    cp "$CLUSTER/a/store" "$BATS_TEST_TMPDIR/backup"
    host_start a
    within 20 connected a
    client_start b copied << 'END'
import sys
print("open", flush=True)
sys.stdin.readline()
def read(n):
    try: return h.pread(4096, n << 26)[:1].decode()
    except nbd.Error as error: return error.errno
print(sorted(read(n) for n in range(3)), flush=True)
END
    # Nobody but a has the new bytes in memory.
    nbd_python a copied "[h.pwrite(b'2' * 4096, n << 26) for n in range(3)]; h.flush()"
    host_stop a
    cp "$CLUSTER/a/store" "$BATS_TEST_TMPDIR/newest"
    # The next start of the copy has the number of the one that b and c have met.
    cp "$BATS_TEST_TMPDIR/backup" "$CLUSTER/a/store"
    refused a
    assert_output --partial "remembers home epoch"
    assert_output --partial "another copy"
    grep -q "older than this host remembers it" "$CLUSTER/b/log" "$CLUSTER/c/log"
    # And whoever is reached.
    refused a
    assert_output --partial "--accept-older-store"
    # The newest one is as good as ever.
    cp "$BATS_TEST_TMPDIR/newest" "$CLUSTER/a/store"
    host_start a
    within 20 connected a
    host_stop a
    cp "$BATS_TEST_TMPDIR/backup" "$CLUSTER/a/store"
    refused a
    host_start a --accept-older-store
    within 20 connected a
    within 20 connected b
    within 20 connected c
    # A range of the volume is a's: a client from before never sees its old bytes without an error, a new one what there
    # is. (What a alone could write when it stopped counts as lost to it, too.)
    client_go
    client_end
    run -0 cat "$CLIENT_SAID"
    assert_line --index 1 --partial "EIO"
    refute_line --index 1 --partial "'1'"
    nbd_python c copied "assert sorted(h.pread(1, n << 26) for n in range(3)) == [b'1', b'2', b'2']"
    run -0 on a status
    assert_output --partial "LOST     any volume"
    # It is the one that the others know from now on.
    host_stop a
    host_start a
    within 20 connected a
    on b delete copied
}

@test "a store that was made anew is not the one that the others know" {
    host_stop c
    mv "$CLUSTER/c/store" "$BATS_TEST_TMPDIR/newest"
    local peers=()
    for host in "${HOSTS[@]}"; do peers+=(--peer "$host=$(address_of "$host")"); done
    tarn init --store "$CLUSTER/c/store" --size "$HOST_STORE" --memory "$HOST_MEMORY" \
        --config "$BATS_TEST_TMPDIR/tarn.toml" --host c "${peers[@]}" --cluster "$CLUSTER_UUID" \
        --key-file "$CLUSTER/key" --nbd-unix "$CLUSTER/c/nbd.sock"
    refused c
    assert_output --partial "made anew"
    mv "$BATS_TEST_TMPDIR/newest" "$CLUSTER/c/store"
    host_start c
    within 20 connected c
}

@test "hosts remember how far the others have come, and keep it in their stores" {
    on a create growing 192MiB --shared
    nbd_python a growing "[h.pwrite(b'x' * (1 << 20), n << 26) for n in range(3)]; h.flush()"
    host_stop a
    host_stop b
    local -r own=$(tarn store inspect --json "$CLUSTER/a/store" | jq -c '[.home_epoch, .journal.end > 0]')
    assert_equal "$(tarn store inspect --json "$CLUSTER/b/store" |
        jq -c '.heard[] | select(.host_id == 0) | [.home_epoch, .position > 0]')" "$own"
    host_start a
    host_start b
    within 20 connected a
    on a delete growing
}
