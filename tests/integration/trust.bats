# Other users of the machine: who is trusted with the memory, with the sockets, and with what root may mount on.

load tarn

# Where other users can get to.
CLUSTER=/tmp/tarn-trust-${BATS_RUN_TMPDIR##*-}

setup_file() {
    if [[ $EUID != 0 ]]; then
        skip_file "needs to be root"
        return
    fi
    cluster_for_all_tests solo
    chmod 755 "$CLUSTER" "$CLUSTER/solo"
    cluster_remember
}

# The user nobody, who may use the control socket.
as_nobody() {
    chown root:nogroup "$CLUSTER/solo/control.sock"
    TARN_CONTROL="$CLUSTER/solo/control.sock" setpriv --reuid nobody --regid nogroup --clear-groups "$@"
}
of_nobody() { mkdir -p "$1" && chown nobody:nogroup "$1"; }

@test "memory is not handed to another user's process that listens in place of the keeper" {
    host_stop solo
    cat > "$BATS_TEST_TMPDIR/stranger.py" << 'END'
import array, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
os.setuid(65534)
server.listen()
print("listens", flush=True)
while True:
    client, _ = server.accept()
    print("got", *socket.recv_fds(client, 100, 4)[:2], flush=True)
    client.close()
END
    python3 "$BATS_TEST_TMPDIR/stranger.py" "$CLUSTER/solo/control.sock.keeper" > "$BATS_TEST_TMPDIR/said" 3>&- &
    local -r stranger=$!
    within 10 grep -q listens "$BATS_TEST_TMPDIR/said"
    : > "$CLUSTER/solo/log"
    host_start solo
    grep -q "another user's process listens" "$CLUSTER/solo/log"
    host_stop solo
    kill "$stranger"
    rm "$CLUSTER/solo/control.sock.keeper"
    run -0 grep -v "b'' \[\]" "$BATS_TEST_TMPDIR/said"
    assert_output "listens"
    host_start solo
}

@test "a directory where others could put a socket in place of ours is refused" {
    mkdir -m 0777 "$CLUSTER/open"
    run -2 tarnd --config "$CLUSTER/solo/tarn.toml" --control "$CLUSTER/open/control.sock"
    assert_output --partial "others may write $CLUSTER/open (mode 0777)"
    run -2 tarnd --config "$CLUSTER/solo/tarn.toml" --control "$CLUSTER/solo/other.sock" \
        --nbd-unix "$CLUSTER/open/below/nbd.sock"
    assert_output --partial "others may write $CLUSTER/open (mode 0777)"
    of_nobody "$CLUSTER/theirs"
    run -2 tarnd --config "$CLUSTER/solo/tarn.toml" --control "$CLUSTER/theirs/control.sock"
    assert_output --partial "another user"
}

@test "a caller mounts on empty directories that are his to write, and on no other" {
    [ -w /dev/fuse ] || skip "needs /dev/fuse"
    local -r home=$CLUSTER/home
    of_nobody "$home"
    of_nobody "$home/empty"
    of_nobody "$home/full"
    touch "$home/full/file"
    of_nobody "$home/secret/inner"
    chown root "$home/secret"
    chmod 700 "$home/secret"
    mkdir -p "$CLUSTER/etc/cron.d"
    ln -s "$CLUSTER/etc/cron.d" "$home/link"
    ln -s "$CLUSTER/etc" "$home/above"
    local path
    for path in "$CLUSTER/etc/cron.d" "$home/above/cron.d" "$home/secret/inner"; do
        run -7 as_nobody tarn mount "$path"
        run ! mountpoint -q "$path"
    done
    run -4 as_nobody tarn mount "$home/full"
    run ! mountpoint -q "$home/full"
    run as_nobody tarn mount "$home/link"
    assert_failure
    run -3 as_nobody tarn mount "$home/none"
    run ! mountpoint -q "$CLUSTER/etc/cron.d"
    run -0 as_nobody tarn mount "$home/empty"
    mountpoint -q "$home/empty"
    run -0 as_nobody ls "$home/empty"
    run -4 as_nobody tarn mount "$home/empty"
    assert_output --partial "mounted there already"
    run -4 on solo mount "$home/empty"
    run -0 as_nobody tarn umount "$home/empty"
    run ! mountpoint -q "$home/empty"
    # Root has the right to write anywhere, and mounts over nothing that is there all the same.
    run -4 on solo mount "$home/full"
    assert_output --partial "not empty"
    run -0 on solo mount "$CLUSTER/etc/cron.d"
    run -0 on solo umount "$CLUSTER/etc/cron.d"
}

@test "what is unmounted is what was mounted, wherever its path leads by now" {
    [ -w /dev/fuse ] || skip "needs /dev/fuse"
    of_nobody "$CLUSTER/tricks"
    of_nobody "$CLUSTER/tricks/a"
    of_nobody "$CLUSTER/tricks/a/victim"
    mkdir -p "$CLUSTER/real/victim"
    mount -t tmpfs tmpfs "$CLUSTER/real/victim"
    run -0 as_nobody tarn mount "$CLUSTER/tricks/a/victim"
    as_nobody mv "$CLUSTER/tricks/a" "$CLUSTER/tricks/b"
    as_nobody ln -s "$CLUSTER/real" "$CLUSTER/tricks/a"
    run -0 as_nobody tarn umount --force "$CLUSTER/tricks/a/victim"
    mountpoint -q "$CLUSTER/real/victim"
    run ! mountpoint -q "$CLUSTER/tricks/b/victim"
    umount "$CLUSTER/real/victim"
}

# Each wish to stop the mount looks at all of its shards; the mount ends with the first.
@test "many may take a mount down by force at once, under load" {
    [ -w /dev/fuse ] || skip "needs /dev/fuse"
    local mount=$CLUSTER/solo/mnt
    on solo create busy 8MiB --shared
    for _ in {1..10}; do
        host_mount solo
        python3 -c '
import json, os, socket, sys, threading
control, mount = sys.argv[1:]

def use():
    try:
        while True:
            file = os.open(mount + "/busy", os.O_RDWR)
            os.pread(file, 65536, 0)
            os.close(file)
    except OSError:
        pass

users = [threading.Thread(target=use) for _ in range(3)]
for user in users:
    user.start()
callers = [socket.socket(socket.AF_UNIX) for _ in range(12)]
body = json.dumps({"path": mount, "force": True})
for caller in callers:
    caller.settimeout(20)
    caller.connect(control)
for caller in callers:
    caller.sendall(f"DELETE /v1/mounts HTTP/1.1\r\nHost: solo\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
answers = [caller.recv(65536).split()[1] for caller in callers]
for user in users:
    user.join()
assert b"200" in answers and set(answers) <= {b"200", b"404"}, answers
' "$CLUSTER/solo/control.sock" "$mount"
    done
    run -0 on solo status
    on solo delete busy
}

@test "the next steps of tarn init work for somebody who is not root" {
    of_nobody "$CLUSTER/own"
    local -r nobody=(setpriv --reuid nobody --regid nogroup --clear-groups)
    run -0 "${nobody[@]}" tarn init --store "$CLUSTER/own/store" --size 64MiB --memory 128MiB \
        --config "$CLUSTER/own/tarn.toml"
    local -r steps=$(sed '1,/^next:/d' <<< "$output")
    run -0 "${nobody[@]}" bash -ec "$steps"$'\nkill $!\nwait $!' 3>&-
    assert_output --partial "created vol1"
}

# A user of its own: at a limit of processes all threads of a user count.
@test "where the system has few threads to give tarnd does not start, or serves and ends when it is told to" {
    local -r own=$CLUSTER/own
    local -r other=(setpriv --reuid 54321 --regid nogroup --clear-groups)
    local -r few=(tarnd --config "$own/tarn.toml" --control "$own/control.sock" --shards 2)
    chown -R 54321 "$own"
    local limit
    for limit in 1 2; do
        run -1 "${other[@]}" prlimit "--nproc=$limit:$limit" "${few[@]}"
        assert_output --partial "the system has no thread for each shard"
    done
    # With one more than those of its shards it serves, and a stop needs none.
    "${other[@]}" prlimit --nproc=4:4 "${few[@]}" > "$own/log" 2>&1 3>&- &
    TARN_CONTROL=$own/control.sock tarn status
    kill $!
    wait $!
    chown -R nobody "$own"
}

@test "a socket that tarnd may not make is no refused store" {
    run -1 setpriv --reuid nobody --regid nogroup --clear-groups tarnd --config "$CLUSTER/own/tarn.toml" \
        --control "$CLUSTER/solo/below/control.sock"
    assert_output --partial "control $CLUSTER/solo/below/control.sock: its directory cannot be made: Permission denied"
}

@test "a directory that the configuration names may be mounted on by whoever may use the socket" {
    [ -w /dev/fuse ] || skip "needs /dev/fuse"
    host_stop solo
    mkdir -p "$CLUSTER/named"
    touch "$CLUSTER/named/something"
    printf '\n[fuse]\nmount_points = ["%s"]\n' "$CLUSTER/named" >> "$CLUSTER/solo/tarn.toml"
    host_start solo
    run -0 as_nobody tarn mount "$CLUSTER/named"
    # A dead one is replaced.
    host_kill solo
    host_start solo
    run -0 as_nobody tarn mount "$CLUSTER/named"
    run -0 timeout 10 ls "$CLUSTER/named"
    run -0 as_nobody tarn umount "$CLUSTER/named"
    of_nobody "$CLUSTER/mine"
    run -0 as_nobody tarn mount "$CLUSTER/mine"
    host_kill solo
    host_start solo
    run -0 as_nobody tarn mount "$CLUSTER/mine"
    run -0 timeout 10 ls "$CLUSTER/mine"
    run -0 as_nobody tarn umount "$CLUSTER/mine"
}
