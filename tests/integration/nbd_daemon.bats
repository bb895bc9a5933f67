# What NBD clients may rely on of a whole tarnd.

load tarn

setup_file() {
    cluster_make solo
    sed -i '/^\[nbd\]/a read_only = ["golden"]\nconnections_max = 20\nhandshake_seconds = 2' "$CLUSTER/solo/tarn.toml"
    cluster_start
    cluster_remember
    on solo create disk 64MiB
    on solo create golden 1MiB
    on solo create seen 64MiB
}

@test "volumes that the configuration names may only be read, over NBD" {
    run -0 timeout 10 nbdinfo "$(uri solo golden)"
    assert_output --partial "is_read_only: true"
    assert_output --partial "description: tarn volume, exclusive, 4 KiB pages, read-only, on host solo"
    nbd_python solo golden '
h.set_strict_mode(0)
try:
    h.pwrite(b"x", 0)
    raise AssertionError("it worked")
except nbd.Error as e:
    assert e.errno == "EPERM", e
assert h.pread(1, 0) == b"\0"
'
    run -0 timeout 10 nbdinfo "$(uri solo disk)"
    assert_output --partial "is_read_only: false"
}

# tiers HOST VOLUME: its first MiB in the context tarn:tier.
tiers() { timeout 10 nbdinfo --map=tarn:tier "$(uri "$1" "$2")" | awk '$1 < 1048576 { print $1, $2, $3 }'; }

@test "tarn:tier tells memory, store and holes apart, and who asks changes nothing" {
    nbd_python solo seen 'h.pwrite(b"x" * 8192, 4096); h.flush()'
    run -0 tiers solo seen
    assert_line --index 0 "0 4096 8"
    assert_line --index 1 "4096 8192 1"
    host_stop solo
    host_start solo
    local tries
    for tries in 1 2; do
        run -0 tiers solo seen
        assert_line --index 1 "4096 8192 4"
    done
    nbd_python solo seen 'h.pread(4096, 4096)'
    run -0 tiers solo seen
    assert_line --index 1 "4096 4096 1"
    assert_line --index 2 "8192 4096 4"
}

@test "there are as many connections as the configuration allows, and room again when one ends" {
    nbd_python solo disk '
def connect():
    client = nbd.NBD()
    client.set_export_name("disk")
    client.connect_unix("'"$CLUSTER/solo/nbd.sock"'")
    client.pread(512, 0)
    return client
def refused():
    try:
        connect()
    except nbd.Error:
        return True
clients = [connect() for i in range(19)]
assert refused()
clients.pop().shutdown()
while refused(): pass
for client in clients: client.pread(512, 0)
'
    run -0 tail -n 20 "$CLUSTER/solo/log"
    assert_output --partial "20 connections are the limit (nbd.connections_max, open files)"
}

@test "a client that says nothing for too long is closed" {
    nbd_python solo disk '
import socket
silent = socket.socket(socket.AF_UNIX)
silent.settimeout(30)
silent.connect("'"$CLUSTER/solo/nbd.sock"'")
while silent.recv(100): pass
'
    run -0 tail -n 20 "$CLUSTER/solo/log"
    assert_output --partial "it took too long (nbd.handshake_seconds)"
}

@test "a limit that the open files do not allow is said at the start" {
    host_stop solo
    sed -i 's/^connections_max = .*/connections_max = 100000/' "$CLUSTER/solo/tarn.toml"
    (
        ulimit -n 4096
        host_start solo
    )
    run -0 tail -n 20 "$CLUSTER/solo/log"
    assert_output --partial "nbd.connections_max = 100000: the limit of open files allows 3584"
}
