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
    local host
    for host in a c; do
        run -4 on "$host" resize mine 5MiB --force
        assert_output --partial "host b has the volume open for writing; resize it there"
    done
    exec 4>&-
    within 10 nbd_python c mine "h.pwrite(b'y', 0)"
    within 10 on a delete mine
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

@test "a stop of all hosts under load is clean, and the next start finds nothing left" {
    on a create big 1GiB --shared
    on a create held 600MiB
    local round host volume load
    # All at once: who stops after the others cannot flush to them any more.
    for host in a b c; do kill -TERM "$(pid_of "$host")"; done
    for host in a b c; do within 20 gone "$(pid_of "$host")"; done
    for round in 1 2; do
        for host in a b c; do : > "$CLUSTER/$host/log"; done
        for host in a b c; do host_run "$host"; done
        for host in a b c; do within 20 connected "$host"; done
        on a create gone 64MiB --shared
        nbd_python b gone "h.pwrite(b'x' * (8 << 20), 0); h.flush(); h.pwrite(b'y' * (8 << 20), 0)"
        on b delete gone
        host_mount c
        load=()
        for volume in "b big" "a held"; do
            # shellcheck disable=SC2086 # a host and a volume
            fio --name=load --ioengine=nbd --uri="$(uri $volume)" --rw=randwrite --bs=4k --iodepth=32 --size=500m \
                --time_based --runtime=60 > "$BATS_TEST_TMPDIR/fio" 2>&1 3>&- &
            load+=($!)
        done
        dd if=/dev/zero "of=$CLUSTER/c/mnt/file" bs=64k count=500 conv=notrunc 2> /dev/null
        # So much that pages are evicted, and pushed out again and again.
        within 30 dirty_beyond a $((24 << 20))
        within 30 dirty_beyond b $((24 << 20))
        for host in b a c; do kill -TERM "$(pid_of "$host")"; done
        for host in b a c; do wait "$(pid_of "$host")"; done
        kill "${load[@]}" 2> /dev/null || true
        for host in a b c; do
            refute [ -e "$CLUSTER/$host/control.sock.keeper" ]
            run grep -E "not everything|adopted" "$CLUSTER/$host/log"
            assert_output ""
        done
    done
    cluster_start
}
dirty_beyond() { on "$1" status --json | jq -e --argjson bytes "$2" '.dirty_bytes > $bytes' > /dev/null; }
