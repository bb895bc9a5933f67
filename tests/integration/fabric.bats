# Links between hosts of one machine: over shared memory if both have it, and over TCP whatever stands in the way.

load tarn

setup_file() { cluster_for_all_tests a b c; }

# link_of HOST PEER FIELD
link_of() {
    on "$1" status --json | jq -r --arg peer "$2" --arg field "$3" '.peers[] | select(.name == $peer) | .link[$field]'
}
# transport_is TRANSPORT HOST PEER
transport_is() { [ "$(link_of "$2" "$3" transport)" = "$1" ]; }
has_round_trip() { [ "$(link_of "$1" "$2" round_trip_ns)" -gt 0 ]; }
links_are() { [ "$(link_of "$2" "$3" links)" -ge "$1" ]; }
# Each host reads what the others wrote, of pages with a home on each.
all_see_all() {
    local host
    for host in a b c; do
        nbd_python "$host" "$1" "[h.pwrite(b'$host' * 65536, (n << 26) + (ord('$host') << 16)) for n in range(3)]; h.flush()"
    done
    for host in a b c; do
        nbd_python "$host" "$1" "
for n in range(3):
    for o in 'abc': assert h.pread(65536, (n << 26) + (ord(o) << 16)) == o.encode() * 65536"
    done
}

@test "hosts of one machine are linked over shared memory" {
    local host peer
    for host in a b c; do
        for peer in a b c; do
            [[ $host == "$peer" ]] || within 20 transport_is shm "$host" "$peer"
        done
    done
    on a create seen 192MiB --shared
    all_see_all seen
    run -0 on a status --links
    assert_line --regexp '^ +b +shm '
    assert_line --regexp '^ +c +shm '
    run -0 on a status
    refute_output --partial shm
    (($(link_of a b bytes_sent) > 65536 && $(link_of a b bytes_received) > 65536))
    [ "$(on a status --json | jq -c '.peers[0].link')" = null ]
    within 20 has_round_trip a b
    [ "$(stat -c %a "$CLUSTER/a/control.sock.fabric")" = 600 ]
    grep -q "linked with host b .* over shm" "$CLUSTER/a/log"
}

@test "a host that is killed, stopped or hangs comes back to shared memory" {
    on a create back 192MiB --shared
    local end links
    for end in host_crash host_kill host_stop; do
        links=$(link_of a b links)
        "$end" b
        within 5 not_connected a b
        host_start b
        within 20 links_are $((links + 1)) a b
        within 20 transport_is shm a b
        within 20 transport_is shm c b
        all_see_all back
    done
    links=$(link_of a b links)
    host_pause b
    silent() { on a status --json | jq -e '.peers[] | select(.name == "b") | .connected and (.answers | not)'; }
    within 20 silent
    host_resume b
    within 20 eval '! silent'
    all_see_all back
    [ "$(link_of a b links)" = "$links" ]
}

# restart HOST: and waits for both links.
restart() {
    host_stop "$1"
    host_start "$1"
    within 20 connected "$1"
}

@test "without the socket of the other host a link stays on TCP, and the log says why" {
    on a create tcp 192MiB --shared
    rm "$CLUSTER/a/control.sock.fabric"
    restart b
    within 20 transport_is tcp b a
    within 20 transport_is shm b c
    grep -q "the link with host a stays on tcp; over shm: .*No such file" "$CLUSTER/b/log"
    all_see_all tcp
    restart a
    within 20 transport_is shm b a
}

# It accepts, takes the memory that comes, and then says what it likes, or nothing.
squat() {
    cat > "$BATS_TEST_TMPDIR/squat.py" << 'END'
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(8)
print('listens', flush=True)
kept = []
while True:
    connection, _ = listener.accept()
    kept.append((connection, socket.recv_fds(connection, 1, 1)))
    if sys.argv[2] == 'junk': connection.sendall(b'x' * 4096)
    print('met', flush=True)
END
    python3 "$BATS_TEST_TMPDIR/squat.py" "$1" "$2" > "$BATS_TEST_TMPDIR/squat.said" 3>&- &
    SQUATTER=$!
    within 10 grep -q listens "$BATS_TEST_TMPDIR/squat.said"
}

@test "who sits on another host's socket without the cluster's key gets nothing but a try" {
    local kind
    for kind in junk silent; do
        rm "$CLUSTER/a/control.sock.fabric"
        squat "$CLUSTER/a/control.sock.fabric" "$kind"
        restart c
        grep -q met "$BATS_TEST_TMPDIR/squat.said"
        within 20 transport_is tcp c a
        within 20 transport_is shm c b
        kill "$SQUATTER"
        rm "$CLUSTER/a/control.sock.fabric"
        restart a
        within 20 transport_is shm c a
    done
    grep -q "the link with host a stays on tcp; over shm: " "$CLUSTER/c/log"
}

@test "a client that has no key is hung up on, and so is one whose memory could be cut off" {
    cat > "$BATS_TEST_TMPDIR/stranger.py" << 'END'
import ctypes, fcntl, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def memory(size, seals):
    fd = os.memfd_create('stranger', os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd
right = 4096 + (2 << 20)
sealed = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
for size, seals in ((right, 0), (right, fcntl.F_SEAL_SHRINK), (4096, sealed), (right, sealed | fcntl.F_SEAL_WRITE),
                    (right, sealed)):
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(20)
    client.connect(sys.argv[1])
    socket.send_fds(client, [b'M'], [memory(size, seals)])
    try:
        client.sendall(b'x' * 4096)
        while client.recv(4096): pass
    except (ConnectionResetError, BrokenPipeError): pass
END
    python3 "$BATS_TEST_TMPDIR/stranger.py" "$CLUSTER/b/control.sock.fabric"
    run -0 grep "refused a connection from process" "$CLUSTER/b/log"
    assert_output --partial "the memory's size is not sealed"
    assert_output --partial "the memory has another size"
    assert_output --partial "the memory cannot be written"
    assert_output --partial "not a host of this cluster"
    on b list > /dev/null
}

@test "a host that cannot have the socket says so, and does without" {
    host_stop c
    mkdir "$CLUSTER/c/control.sock.fabric"
    host_start c
    within 20 connected c
    grep -q "no link will move to shared memory, for lack of a socket .*control.sock.fabric" "$CLUSTER/c/log"
    transport_is tcp c a
    transport_is shm b a
    [ "$(on c status --json | jq -r .fabric)" = tcp ]
    [ "$(on a status --json | jq -r .fabric)" = "shm, tcp" ]
    host_stop c
    rmdir "$CLUSTER/c/control.sock.fabric"
    sed -i '1i fabric = ["shm"]' "$CLUSTER/c/tarn.toml"
    run -2 tarnd --config "$CLUSTER/c/tarn.toml" --control "$CLUSTER/c/control.sock"
    assert_output --partial '"tcp" among them'
    sed -i '1d' "$CLUSTER/c/tarn.toml"
    host_start c
}
