# What NBD clients, good and bad, may rely on.

load front_end_server

setup_file() {
    [ -n "${NBD_SOCKET-}" ] && return
    export NBD_SOCKET="$BATS_FILE_TMPDIR/nbd.sock" NBD_EXPORT=disk OWN_SERVER=1
    start_memory_server --unix "$NBD_SOCKET" --volume disk=256 --volume other=16 --held theirs=16 --shards 2 \
        --miss-every 5
}

teardown_file() {
    stop_memory_server
}

@test "a client learns what the export can do" {
    run -0 timeout 10 nbdinfo "$(nbd_uri)"
    for line in 'can_multi_conn: true' 'can_fua: true' 'can_trim: true' 'can_zero: true' 'can_fast_zero: true' \
        'can_cache: true' 'can_df: true' 'is_read_only: false' 'block_size_minimum: 1' 'block_size_preferred: 4096' \
        'block_size_maximum: 33554432' 'base:allocation'; do
        assert_output --partial "$line"
    done
}

@test "exports are listed, and an unknown one is refused" {
    run -0 timeout 10 nbdinfo --list "$(nbd_uri '')"
    assert_output --partial "export=\"$NBD_EXPORT\""
    run -1 timeout 10 nbdinfo "$(nbd_uri no-such-volume)"
}

@test "a volume that another host holds is refused with the holder's name" {
    [ -n "${OWN_SERVER-}" ] || skip "needs a volume that is held elsewhere"
    run -1 timeout 10 qemu-img info "$(nbd_uri theirs)"
    assert_output --partial "exclusive and held by host elsewhere"
}

@test "the log says once what a client was refused, and why" {
    [ -n "${OWN_SERVER-}" ] || skip "needs the log of the server"
    local -r log=$BATS_FILE_TMPDIR/server.log
    local -r before=$(wc -l <"$log")
    refusals() { tail -n "+$((before + 1))" "$log" | grep refused; }
    # By the old option, the answer to which is the end; and by the new one, of a client that leaves without a look.
    nbd_python "
for old in True, False:
    client, export = greet(), b'theirs'
    if old: client.sendall(option(1, len(export)) + export)
    else: client.sendall(option(7, len(export) + 6) + struct.pack('>I', len(export)) + export + bytes(2))
    if old: assert client.recv(1) == b''
    client.close()
client, export = greet(), b'none\x1b[2J'
client.sendall(option(1, len(export)) + export)
assert client.recv(1) == b''"
    local tries
    for tries in {1..100}; do
        (($(refusals | wc -l) < 3)) || break
        read -rt 0.05 <> <(:) || true
    done
    run -0 refusals
    [ "${#lines[@]}" -eq 3 ]
    [ "$(grep -c 'refused: export "theirs": the volume is exclusive and held by host elsewhere' <<<"$output")" -eq 2 ]
    assert_output --partial 'refused: export "none\x1b[2J": there is no such export'
}

@test "what nbdcopy writes, nbdcopy and qemu-img read" {
    head -c 50000001 /dev/urandom >"$BATS_TEST_TMPDIR/in"
    timeout 60 nbdcopy "$BATS_TEST_TMPDIR/in" "$(nbd_uri)"
    timeout 60 nbdcopy "$(nbd_uri)" "$BATS_TEST_TMPDIR/out"
    cmp -n 50000001 "$BATS_TEST_TMPDIR/in" "$BATS_TEST_TMPDIR/out"
    timeout 60 qemu-img convert -f raw -O raw "$(nbd_uri)" "$BATS_TEST_TMPDIR/out2"
    cmp "$BATS_TEST_TMPDIR/out" "$BATS_TEST_TMPDIR/out2"
}

@test "qemu-io writes, zeroes, discards and reads back at odd offsets" {
    run -0 timeout 60 qemu-io -f raw -c 'write -P 7 513 1111' -c 'read -P 7 513 1111' -c 'write -z 4096 64k' \
        -c 'read -P 0 4096 64k' -c 'write -P 9 1M 1M' -c 'discard 1M 1M' -c 'read -P 0 1M 1M' -c 'write -f 0 512' \
        -c flush "$(nbd_uri)"
    refute_output --partial "verification failed"
}

@test "fio finds what it wrote" {
    cd "$BATS_TEST_TMPDIR"
    run -0 timeout -s KILL 100 fio --name=v --ioengine=nbd "--uri=$(nbd_uri)" --rw=randrw --bs=1k-256k --size=128M \
        --io_size=64M --iodepth=16 --verify=crc32c --do_verify=1
}

@test "32 MiB at an odd offset, pipelined small requests and block status" {
    nbd_python '
big = os.urandom(32 << 20)
h.pwrite(big, 12345)
assert h.pread(32 << 20, 12345) == big
for i in range(300):
    h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray([i % 256]) * 5000), i * 5000)
while h.aio_in_flight() > 0:
    h.poll(-1)
    while h.aio_in_flight() > 0 and (cookie := h.aio_peek_command_completed()) > 0:
        assert h.aio_command_completed(cookie)
for i in range(300):
    assert h.pread(5000, i * 5000) == bytes([i % 256]) * 5000
h.trim(4 << 20, 0)
runs = []
h.block_status(4 << 20, 0, lambda name, offset, entries, error: runs.extend(entries))
assert runs[1] == 3, runs
'
}

@test "requests past the end fail and the connection goes on" {
    nbd_python '
assert fails(lambda: h.pread(2, size - 1)) == "EINVAL"
assert fails(lambda: h.pwrite(b"xx", size - 1)) == "ENOSPC"
assert fails(lambda: h.trim(1 << 20, size)) == "EINVAL"
assert fails(lambda: h.zero(100, 1, nbd.CMD_FLAG_FAST_ZERO)) == "ENOTSUP"
h.pwrite(b"x", size - 1)
assert h.pread(1, size - 1) == b"x"
'
}

# libnbd ends the connection of a server that answers what is still being sent.
@test "a refused write is answered after its payload, and requests behind it are served" {
    nbd_python '
for i in range(50):
    for length in (2, 100000, 8 << 20, 32 << 20):
        assert fails(lambda: h.pwrite(bytes(length), size - 1)) == "ENOSPC"
    assert h.aio_is_ready()
assert fails(lambda: h.pwrite(bytes(1 << 20), 0, 0x8000)) == "EINVAL"
errors = []
def done(i):
    def ended(error):
        errors.append((i, error.value))
        return 1
    return ended
for i in range(50):
    h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray([i]) * 300000), i * 300000, done(3 * i))
    h.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(1 << 20)), size - 4096, done(3 * i + 1))
    h.aio_pread(nbd.Buffer(4096), 60 << 20, done(3 * i + 2))
while len(errors) < 150:
    assert h.aio_is_ready() or h.aio_is_processing()
    h.poll(-1)
assert sorted(errors) == [(i, 28 if i % 3 == 1 else 0) for i in range(150)], errors
for i in range(50):
    assert h.pread(300000, i * 300000) == bytes([i]) * 300000
'
}

@test "garbage and lies end their own connection only" {
    nbd_python '
for sent in (b"GET / HTTP/1.1\r\n\r\n" * 10, struct.pack(">I", 3) + b"\xff" * 64, option(7, 0xffffffff)):
    client = greet()
    client.sendall(sent)
    assert client.recv(1) == b""
client = greet()
client.sendall(option(77, 5000) + bytes(5000))
assert struct.unpack(">QIII", client.recv(20, socket.MSG_WAITALL))[2] == 0x80000001
client = negotiate()
client.sendall(b"\x55" * 28)
assert client.recv(1) == b""
h.pread(1, 0)
'
}

@test "half a write has no effect" {
    nbd_python '
h.pwrite(bytes(8192), 0)
client = negotiate()
client.sendall(request(1, 1, 0, 8192) + b"Z" * 8000)
client.close()
for i in range(100):
    assert h.pread(8192, 0) == bytes(8192)
'
}

@test "a client that takes no replies stops nobody else" {
    nbd_python '
client = negotiate()
client.settimeout(2)
try:
    for i in range(100000):
        client.sendall(request(0, i, 0, 1 << 20))
    raise AssertionError("the server never stopped reading")
except socket.timeout:
    pass
start = time.monotonic()
h.pread(4096, 0)
assert time.monotonic() - start < 1
'
}

@test "a thousand idle connections hold up nobody" {
    ulimit -n 4096
    nbd_python '
idle = [negotiate() for i in range(1000)]
h.pread(10, 0)
idle[999].sendall(request(0, 1, 0, 16))
assert len(idle[999].recv(32, socket.MSG_WAITALL)) == 32
'
}
