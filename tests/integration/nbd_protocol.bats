# What NBD clients, good and bad, may rely on.

load front_end_server

setup_file() {
    [ -n "${NBD_SOCKET-}" ] && return
    ulimit -n 16384
    export NBD_SOCKET="$BATS_FILE_TMPDIR/nbd.sock" NBD_EXPORT=disk OWN_SERVER=1
    start_memory_server --unix "$NBD_SOCKET" --volume disk=256 --volume other=16 --held theirs=16 --shards 2 \
        --volume golden=16 --read-only golden --volume huge=6144 --handshakes-max 500 --miss-every 5
}

teardown_file() {
    stop_memory_server
}

@test "a client learns what the export can do" {
    run -0 timeout 10 nbdinfo "$(nbd_uri)"
    for line in 'can_multi_conn: true' 'can_fua: true' 'can_trim: true' 'can_zero: true' 'can_fast_zero: true' \
        'can_cache: true' 'can_df: true' 'can_flush: true' 'is_read_only: false' 'block_size_minimum: 1' 'block_size_preferred: 4096' \
        'block_size_maximum: 33554432' 'base:allocation'; do
        assert_output --partial "$line"
    done
}

@test "exports are listed, and an unknown one is refused" {
    run -0 timeout 10 nbdinfo --list "$(nbd_uri '')"
    assert_output --partial "export=\"$NBD_EXPORT\""
    run -1 timeout 10 nbdinfo "$(nbd_uri no-such-volume)"
}

@test "exports have descriptions, in the list and for one that is asked for" {
    [ -n "${OWN_SERVER-}" ] || skip "needs to know what is exported"
    run -0 timeout 10 nbdinfo --list --json "$(nbd_uri '')"
    [ "$(jq -r '.exports[] | select(."export-name" == "golden").description' <<<"$output")" = \
        "tarn volume, exclusive, 4 KiB pages, read-only" ]
    nbd_python '
other = nbd.NBD()
other.set_export_name("other")
other.set_full_info(True)
other.connect_unix(path)
assert other.get_export_description() == "tarn volume, exclusive, 4 KiB pages"
assert other.get_canonical_export_name() == "other"
'
}

@test "an export that may only be read says so and refuses every change with EPERM" {
    [ -n "${OWN_SERVER-}" ] || skip "needs a volume that may only be read"
    run -0 timeout 10 nbdinfo "$(nbd_uri golden)"
    assert_output --partial "is_read_only: true"
    run -1 timeout 10 qemu-io -f raw -c 'write 0 4k' "$(nbd_uri golden)"
    run -0 timeout 10 qemu-io -r -f raw -c 'read -P 0 0 4k' "$(nbd_uri golden)"
    nbd_python '
golden = nbd.NBD()
golden.set_export_name("golden")
golden.connect_unix(path)
golden.set_strict_mode(0)
for change in (lambda: golden.pwrite(bytes(100000), 0), lambda: golden.zero(4096, 0), lambda: golden.trim(4096, 0)):
    assert fails(change) == "EPERM"
golden.flush()
golden.cache(4096, 0)
assert golden.pread(4096, 0) == bytes(4096)
'
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
exchange_much(h)
h.trim(4 << 20, 0)
runs = []
h.block_status(4 << 20, 0, lambda name, offset, entries, error: runs.extend(entries))
assert runs[1] == 3, runs
'
}

@test "tarn:tier is listed, and says where bytes are beside what base:allocation says" {
    [ -n "${OWN_SERVER-}" ] || skip "needs to know where the bytes are"
    run -0 timeout 10 nbdinfo --list --json "$(nbd_uri '')"
    [ "$(jq -c '.exports[0].contexts' <<<"$output")" = '["base:allocation","tarn:tier"]' ]
    nbd_python '
both = nbd.NBD()
for context in ("tarn:tier", "base:allocation"): both.add_meta_context(context)
both.set_export_name("other")
both.connect_unix(path)
both.pwrite(b"x" * 4096, 8192)
seen = {}
both.block_status(16384, 0, lambda name, offset, entries, error: seen.update({name: entries}))
assert seen == {"base:allocation": [8192, 3, 4096, 0, 4096, 3], "tarn:tier": [8192, 8, 4096, 1, 4096, 8]}, seen
'
    run -0 timeout 10 nbdinfo --map=tarn:tier "$(nbd_uri other)"
    [ "$(awk '{ print $1, $2, $3 }' <<<"$output")" = "0 8192 8
8192 4096 1
12288 16764928 8" ]
}

# What is written, what was never, and, in a volume in memory, each fifth page that comes later than the others.
@test "a read that is not to be fragmented is one chunk, whatever is there" {
    nbd_python '
at = 3 << 20
h.trim(1 << 20, at)
expected = bytearray(1 << 20)
for page in range(0, 256, 3):
    expected[page * 4096:page * 4096 + 4096] = bytes([1 + page % 255]) * 4096
    h.pwrite(expected[page * 4096:page * 4096 + 4096], at + page * 4096)
assert h.get_structured_replies_negotiated()
def read(length, offset):
    chunks = []
    data = h.pread_structured(length, offset, lambda data, at, kind, error: chunks.append((at, len(data), kind)),
                              nbd.CMD_FLAG_DF)
    assert data == expected[offset - at:offset - at + length]
    assert chunks == [(offset, length, nbd.READ_DATA)], chunks
for begin in range(0, 15): read(65536, at + begin * 65536)
for begin in (1, 4095, 4097, 12345): read(65536, at + begin)
read(1 << 20, at)
# A hole, and nothing else.
h.trim(1 << 20, at)
expected = bytes(1 << 20)
chunks = []
assert h.pread_structured(65536, at, lambda data, at, kind, error: chunks.append(at), nbd.CMD_FLAG_DF) == bytes(65536)
assert chunks == [at], chunks
'
}

# The most that 32 bits can say of whole pages; 4 GiB is where they wrap.
@test "a trim and a zeroing of all but a page of 4 GiB empty that, and no page behind it" {
    [ -n "${OWN_SERVER-}" ] || skip "needs a volume of more than 4 GiB"
    nbd_python '
huge = nbd.NBD()
huge.add_meta_context("base:allocation")
huge.set_export_name("huge")
huge.connect_unix(path)
length, page = (1 << 32) - 4096, b"x" * 4096
places = (0, 1 << 31, length - 4096, length, 1 << 32)
def allocated(at):
    seen = []
    huge.block_status(4096, at, lambda name, offset, entries, error: seen.extend(entries), nbd.CMD_FLAG_REQ_ONE)
    return seen[1] == 0
for empty in huge.trim, huge.zero:
    for at in places: huge.pwrite(page, at)
    assert all(allocated(at) for at in places)
    empty(length, 0)
    assert [huge.pread(4096, at) == page for at in places] == [False, False, False, True, True]
    assert all(huge.pread(4096, at) == bytes(4096) for at in places[:3])
    assert [allocated(at) for at in places] == [False, False, False, True, True]
# The first byte stays.
for empty in huge.trim, huge.zero:
    for at in places: huge.pwrite(page, at)
    empty((1 << 32) - 1, 1)
    assert huge.pread(1, 0) == b"x"
    assert [huge.pread(4096, at) for at in places[1:]] == [bytes(4096)] * 3 + [page]
huge.zero(4096, 0)
huge.zero(4096, 1 << 32)
'
}

@test "with extended headers one request trims, zeroes or asks about more than 4 GiB" {
    [ -n "${OWN_SERVER-}" ] || skip "needs a volume of more than 4 GiB"
    nbd_python '
size = 6 << 30
client = Extended("huge")
WRITE, FLUSH, TRIM, CACHE, ZERO, STATUS = 1, 3, 4, 5, 6, 7
PAYLOAD, ONE = 32, 8
none, error, status = (0, b""), 0x8001, 6
def extents(length, flags=0):
    kind, payload = client.ask(STATUS, 0, length, flags)
    assert kind == status
    context, count = struct.unpack(">II", payload[:8])
    assert context == 1 and len(payload) == 8 + 16 * count
    return struct.unpack(">%dQ" % (2 * count), payload[8:])
assert extents(size) == (size, 3)
assert client.ask(WRITE, size - 4096, 4096, PAYLOAD, b"x" * 4096) == none
assert client.ask(FLUSH, 0, 0) == none
assert client.ask(0, size - 1, 1) == (1, struct.pack(">Q", size - 1) + b"x")
assert extents(size) == (size - 4096, 3, 4096, 0)
assert extents(size, ONE) == (size - 4096, 3)
assert client.ask(CACHE, 0, size) == none
for command in (TRIM, ZERO):
    assert client.ask(WRITE, size - 4096, 4096, PAYLOAD, b"x" * 4096) == none
    assert client.ask(command, 0, size) == none
    assert extents(size) == (size, 3)
for command in (TRIM, ZERO, CACHE, STATUS):
    kind, payload = client.ask(command, 1, size)
    assert kind == error and payload[:4] == struct.pack(">I", 28 if command == ZERO else 22)
    assert client.ask(command, 0, 1 << 63)[0] == error
'
}

@test "with extended headers a payload is taken whether the request is served or not" {
    nbd_python '
client = Extended(name)
READ, WRITE, TRIM, STATUS, PAYLOAD = 0, 1, 4, 7, 32
refused = (0x8001, struct.pack(">IH", 22, 0))
for command in (READ, TRIM, STATUS, 99):
    for length in (1, 12, 100000, 32 << 20):
        assert client.ask(command, 0, length, PAYLOAD, bytes(length)) == refused
for length in (1, 4096, 32 << 20):
    for flags in (0, PAYLOAD):
        assert client.ask(WRITE, 512, length, flags, b"y" * length) == (0, b"")
    assert client.ask(READ, 512, length) == (1, struct.pack(">Q", 512) + b"y" * length)
assert client.ask(READ, 0, (32 << 20) + 1) == refused
client.socket.sendall(struct.pack(">IHHQQQ", 0x21E41C71, PAYLOAD, WRITE, 1, 0, 1 << 40))
assert client.socket.recv(1) == b""
h.pread(1, 0)
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

@test "ten thousand clients that say nothing keep nobody out, and most of them are closed" {
    [ -n "${OWN_SERVER-}" ] || skip "needs to know the limit"
    ulimit -n 16384
    nbd_python '
import select
silent = []
for i in range(10000):
    silent.append(greet())
    if i % 2000 == 0: connect().pread(4096, 0)
poll = select.poll()
for client in silent: poll.register(client, select.POLLRDHUP)
deadline = time.monotonic() + 30
while len(closed := poll.poll(1000)) < 9500: assert time.monotonic() < deadline, len(closed)
open_still = set(client.fileno() for client in silent) - set(fd for fd, event in closed)
assert len(open_still) <= 500, len(open_still)
assert silent[-1].fileno() in open_still
connect().pread(4096, 0)
h.pread(4096, 0)
'
}
