# What somebody meets who has just installed it: waiting for a start, and being told what is missing.

load tarn

setup_file() { cluster_for_all_tests solo; }

@test "tarn waits for a tarnd that is just starting" {
    host_stop solo
    local round
    for round in 1 2 3; do
        tarnd --config "$CLUSTER/solo/tarn.toml" --control "$CLUSTER/solo/control.sock" >> "$CLUSTER/solo/log" 2>&1 3>&- &
        echo $! > "$CLUSTER/solo/pid"
        run -0 on solo status
        host_stop solo
    done
    # Nobody waits for one that listens elsewhere, nor for none.
    tarnd --config "$CLUSTER/solo/tarn.toml" --control "$CLUSTER/solo/control.sock" >> "$CLUSTER/solo/log" 2>&1 3>&- &
    echo $! > "$CLUSTER/solo/pid"
    TARN_CONTROL=$CLUSTER/solo/elsewhere.sock run -5 tarn status
    run -0 on solo status
}

# As anybody can start one, and have it name any file.
@test "what a program of another user says of itself is nothing to go by" {
    [[ $EUID == 0 ]] || skip "needs to be root"
    local -r place=$(mktemp -d /tmp/tarn-XXXXXX)
    chmod 755 "$place"
    cp "$(type -P bash)" "$place/tarnd"
    mkfifo "$place/file"
    chmod 666 "$place/file"
    setpriv --reuid=65534 --regid=65534 --clear-groups "$place/tarnd" -c 'read -r line < <(sleep 60)' --config "$place/file" 3>&- &
    local -r stranger=$!
    is_called_tarnd() { [[ $(< "/proc/$stranger/comm") == tarnd ]]; }
    within 5 is_called_tarnd
    TARN_CONTROL=$place/control.sock run -5 timeout 5 tarn --timeout 10 status # who is waited for, is for 10 s
    kill "$stranger"
    # One's own may be starting; what it names is read if it is a file.
    "$place/tarnd" -c 'read -r line < <(sleep 60)' --config "$place/file" 3>&- &
    local -r own=$!
    TARN_CONTROL=$place/control.sock run -5 timeout 20 tarn --timeout 3 status
    kill "$own"
    rm -r "$place"
}

@test "a missing configuration and a missing store say tarn init" {
    run -2 tarnd --config "$BATS_TEST_TMPDIR/none.toml"
    assert_output --partial "tarn init"
    run -1 tarnd --config "$CLUSTER/solo/tarn.toml" --control "$BATS_TEST_TMPDIR/c" --nbd-unix "$BATS_TEST_TMPDIR/n" \
        --store "$BATS_TEST_TMPDIR/none"
    assert_output --partial "tarn init --store $BATS_TEST_TMPDIR/none"
    run -2 tarnd $'--\e[2J'
    assert_output --partial '\x1b[2J'
}

@test "an export that nobody serves says so and fails" {
    on solo create vol1 1MiB
    run -0 on solo export
    sed '/^unix/d' "$CLUSTER/solo/tarn.toml" > "$BATS_TEST_TMPDIR/tarn.toml"
    host_stop solo
    cp "$CLUSTER/solo/tarn.toml" "$CLUSTER/solo/before.toml"
    cp "$BATS_TEST_TMPDIR/tarn.toml" "$CLUSTER/solo/tarn.toml"
    host_start solo
    run -1 on solo export
    assert_output --partial "serves no NBD"
    run -1 on solo export vol1
    assert_output --partial "nbd.unix"
    host_stop solo
    mv "$CLUSTER/solo/before.toml" "$CLUSTER/solo/tarn.toml"
    host_start solo
    on solo delete vol1
}

@test "a mount that is not seen where it was asked for is refused, and listed as such" {
    [[ $EUID == 0 && -w /dev/fuse ]] || skip "needs root and /dev/fuse"
    export TARN_CONTROL=$CLUSTER/solo/control.sock
    run -1 unshare --mount tarn mount "$CLUSTER/solo/mnt"
    assert_output --partial "another mount namespace"
    run ! mountpoint -q "$CLUSTER/solo/mnt"
    run -0 tarn mount "$CLUSTER/solo/mnt"
    run -0 tarn mount
    assert_output "$CLUSTER/solo/mnt"
    run -0 unshare --mount bash -c "umount -l '$CLUSTER/solo/mnt'; tarn mount"
    assert_output "$CLUSTER/solo/mnt (in another mount namespace: not seen here)"
    tarn umount "$CLUSTER/solo/mnt"
}

@test "a mount that lives on in another mount namespace does not keep the place where it was" {
    [[ $EUID == 0 && -w /dev/fuse ]] || skip "needs root and /dev/fuse"
    export TARN_CONTROL=$CLUSTER/solo/control.sock
    mkfifo "$BATS_TEST_TMPDIR/go"
    tarn create kept 1MiB
    tarn mount "$CLUSTER/solo/mnt"
    unshare --mount --propagation private sh -c 'read -r line; stat "$0"' "$CLUSTER/solo/mnt/kept" \
        < "$BATS_TEST_TMPDIR/go" > "$BATS_TEST_TMPDIR/seen" 3>&- &
    local -r other=$!
    exec 4> "$BATS_TEST_TMPDIR/go"
    within 10 in_another_mount_namespace "$other"
    run -4 tarn mount "$CLUSTER/solo/mnt"
    assert_output --partial "mounted there already"
    umount -l "$CLUSTER/solo/mnt"
    run -0 tarn mount "$CLUSTER/solo/mnt"
    run -0 tarn mount
    assert_output "$CLUSTER/solo/mnt"
    stat "$CLUSTER/solo/mnt/kept"
    echo >&4 # the other one goes on all the while
    wait "$other"
    tarn umount "$CLUSTER/solo/mnt"
    run ! mountpoint -q "$CLUSTER/solo/mnt"
    run -0 tarn mount
    assert_output ""
    tarn delete kept
}
in_another_mount_namespace() { [[ $(readlink "/proc/$1/ns/mnt") != "$(readlink /proc/self/ns/mnt)" ]]; }

@test "what takes long tells a terminal how far it is" {
    on solo create vol1 64MiB
    nbd_python solo vol1 "h.pwrite(b'x' * (16 << 20), 0); h.flush()"
    run -0 script --quiet --return --command "tarn --control '$CLUSTER/solo/control.sock' verify vol1 --rate 8MiB" /dev/null
    assert_output --regexp 'verifying vol1: [0-9]+ of [0-9]+ pages, 0 bad'
    run -0 on solo verify vol1
    refute_output --partial verifying
    on solo delete vol1
}

# refuses_to_touch FILE: what is stored there is there afterwards.
refuses_to_touch() {
    local before
    before=$(sha256sum < "$1")
    run -4 tarn init --store "$1" --size 16MiB --memory 64MiB --host solo --config "$BATS_TEST_TMPDIR/tarn.toml"
    [ "$(sha256sum < "$1")" = "$before" ]
    [ ! -e "$BATS_TEST_TMPDIR/tarn.toml" ]
}

@test "tarn init destroys nothing that is stored in a file" {
    local file=$BATS_TEST_TMPDIR/file
    echo "a few lines of text" > "$file"
    refuses_to_touch "$file"
    ln -s "$file" "$BATS_TEST_TMPDIR/link"
    refuses_to_touch "$BATS_TEST_TMPDIR/link"
    head -c 100 /dev/urandom | gzip > "$file"
    refuses_to_touch "$file"
    head -c 4095 /dev/urandom > "$file"
    refuses_to_touch "$file"
    truncate -s 0 "$file"
    truncate -s 40M "$file"
    head -c 8192 /dev/urandom >> "$file"
    truncate -s 60M "$file"
    refuses_to_touch "$file"
    truncate -s 0 "$file"
    truncate -s 40M "$file"
    run -0 tarn init --store "$file" --size 16MiB --memory 64MiB --host solo --config "$BATS_TEST_TMPDIR/tarn.toml"
    mkfifo "$BATS_TEST_TMPDIR/fifo"
    run -2 tarn init --store "$BATS_TEST_TMPDIR/fifo" --size 16MiB --memory 64MiB --host solo \
        --config "$BATS_TEST_TMPDIR/other.toml" --force
    assert_output --partial "neither a regular file nor a block device"
    [ -p "$BATS_TEST_TMPDIR/fifo" ]
}

@test "tarn init takes up a store that exists, and what it stores is there" {
    local config=$CLUSTER/solo/tarn.toml
    init_solo() {
        tarn init --store "$CLUSTER/solo/store" --memory "$HOST_MEMORY" --host solo --config "$config" \
            --nbd-unix "$CLUSTER/solo/nbd.sock" "$@"
    }
    on solo create kept 1MiB
    run -4 init_solo --size 1GiB --replace-config
    assert_output --partial "in use by another process"
    host_stop solo
    run -4 init_solo --size 1GiB
    assert_output --partial "--replace-config to write it anew for the store that is there"
    rm "$config"
    run -4 init_solo --size 1GiB
    assert_output --partial "the store of host solo, cluster "
    assert_output --partial "--replace-config takes it up"
    run -0 init_solo --replace-config
    host_start solo
    run -0 on solo list --quiet
    assert_output kept
    on solo delete kept
}

@test "tarn init says what a store needs" {
    local init=(tarn init --store "$BATS_TEST_TMPDIR/store" --host solo --config "$BATS_TEST_TMPDIR/tarn.toml")
    run -2 "${init[@]}" --size 1M
    assert_output --regexp "1 MiB is too small for a store, which takes ([0-9]+) MiB at least; try: --size ([0-9]+)MiB"
    run -0 "${init[@]}" --size "${output##* }"
    run -2 "${init[@]}" --size 16MiB --memory 1M --force
    refute_output --partial "options:"
    rm "$BATS_TEST_TMPDIR/store" "$BATS_TEST_TMPDIR/tarn.toml"
    [[ $EUID == 0 ]] || skip "needs root for a full file system"
    mkdir "$BATS_TEST_TMPDIR/small"
    mount -t tmpfs -o size=20M none "$BATS_TEST_TMPDIR/small"
    run -1 tarn init --store "$BATS_TEST_TMPDIR/small/store" --size 64Mi --host solo --config "$BATS_TEST_TMPDIR/tarn.toml"
    umount "$BATS_TEST_TMPDIR/small"
    assert_output --partial "no space for a store of 64 MiB: its file system has 20 MiB free"
}

@test "a host does not forget itself" {
    run -2 on solo host forget solo --it-is-dead
    assert_output --partial "that is this host"
}

@test "a TCP port that is in use is named with what to do next" {
    coproc python3 -c 'if True:
        import socket, sys
        taken = socket.create_server(("127.0.0.1", 0))
        print(taken.getsockname()[1], flush=True)
        sys.stdin.read()' 3>&-
    local port
    read -r port <&"${COPROC[0]}"
    local -r at=$BATS_TEST_TMPDIR
    tarn init --store "$at/one" --size 64MiB --memory 128MiB --config "$at/one.toml" --nbd-tcp "127.0.0.1:$port"
    run -4 tarnd --config "$at/one.toml" --control "$at/control.sock"
    assert_output --partial "nbd.tcp 127.0.0.1:$port: another process listens there; ss -ltnp names it"
    tarn init --store "$at/two" --size 64MiB --memory 128MiB --config "$at/two.toml" --host a \
        --peer "a=127.0.0.1:$port" --peer b=127.0.0.1:1
    run -4 tarnd --config "$at/two.toml" --control "$at/control.sock"
    assert_output --partial "listen 127.0.0.1:$port: another process listens there; ss -ltnp names it"
    exec {COPROC[1]}>&-
}

@test "a daemon that is not there is not waited for because another has just started" {
    local -r at=$BATS_TEST_TMPDIR
    tarn init --store "$at/store" --size 16MiB --memory 64MiB --config "$at/tarn.toml" --control "$at/its.sock"
    (cd "$at" && exec tarnd --config tarn.toml > "$at/log" 2>&1 3>&-) &
    within 20 tarn --control "$at/its.sock" status
    run -5 timeout 8 tarn --control "$at/none.sock" status
    assert_output --partial "no daemon at $at/none.sock"
    kill %1
    wait %1
}
