# Stores on devices that rot, fill up and vanish: errors, never wrong bytes, and tarnd goes on.

load tarn

setup_file() {
    HOST_STORE=128MiB
    HOST_MEMORY=128MiB
    cluster_for_all_tests solo
}
setup() {
    cluster_recall
    [[ -e $CLUSTER/solo/pid ]] || host_start solo
}
teardown() {
    [[ ! -e $CLUSTER/solo/pid ]] || host_kill solo
    umount "$BATS_TEST_TMPDIR/small" 2> /dev/null || true
    [[ -z ${LOOP-} ]] || losetup -d "$LOOP"
}

# flip FILE TEXT: one bit where the text lies in the file.
flip() {
    python3 - "$1" "$2" <<'PYTHON'
import os, sys
with open(sys.argv[1], 'r+b') as file:
    # The last: the ring may still have what it once held.
    at = file.read().rfind(sys.argv[2].encode())
    assert at > 0, 'it is not there'
    file.seek(at)
    byte = file.read(1)[0]
    file.seek(at)
    file.write(bytes([byte ^ 4]))
    os.fsync(file)
PYTHON
}

# What the state must be once the store failed.
expect_failed_store() {
    run -0 on solo status
    assert_output --partial "FAILED"
    run -0 on solo show "$1"
    assert_output --partial "DEGRADED: the store of host solo failed"
    run -1 on solo flush "$1"
}

@test "verify finds the bit that flipped under a page that is cached and clean" {
    on solo create rots 4MiB
    nbd_python solo rots "
h.pwrite(b'a needle'.ljust(4096, b'.'), 1 << 20)
h.pwrite(b'hay' * 65536, 2 << 20)
h.flush()
"
    # Once it is in its place, and read from there.
    host_stop solo
    host_start solo
    nbd_python solo rots "assert h.pread(8, 1 << 20) == b'a needle'"
    run -0 on solo verify rots
    assert_output --partial "0 bad"
    flip "$CLUSTER/solo/store" "a needle"
    nbd_python solo rots "assert h.pread(8, 1 << 20) == b'a needle'"
    run -1 on solo verify rots --json --rate 1GiB
    assert_equal "$(jq -c '[.bad_page_count, .bad_pages[0].page, .running]' <<< "$output")" '[1,256,false]'
    assert_equal "$(grep -c 'page 256 at device offset [0-9]*: checksum [0-9a-f]*, expected [0-9a-f]*' \
        "$CLUSTER/solo/log")" 1
    run -1 on solo verify --host
    assert_output --partial "1 bad"
    assert_line "bad      rots: page 256, its bytes 1048576 to 1052671"
    # Written anew it is good.
    nbd_python solo rots "h.pwrite(b'a needle'.ljust(4096, b'.'), 1 << 20); h.flush()"
    run -0 on solo verify --host
    run -2 on solo verify
    run -3 on solo verify nosuch
    on solo delete rots
}

@test "a pass follows its schedule, and a slow one is stopped" {
    host_stop solo
    sed -i '1i scrub_every = "1s"' "$CLUSTER/solo/tarn.toml"
    host_start solo
    pass_is() { curl -fs --unix-socket "$CLUSTER/solo/control.sock" http://tarn/v1/verify | jq -e "$1"; }
    within 30 pass_is '.passes >= 2'
    host_stop solo
    sed -i 1d "$CLUSTER/solo/tarn.toml"
    host_start solo
    on solo create slow 4MiB
    nbd_python solo slow "h.pwrite(b'x' * (4 << 20), 0); h.flush()"
    # A page a second would take a quarter of an hour.
    on solo verify slow --rate 4KiB 3>&- > "$BATS_TEST_TMPDIR/verify" 2>&1 &
    local verify=$!
    within 20 pass_is .running
    run -4 on solo verify --host
    assert_output --partial "pass is under way"
    on solo verify --stop
    local status=0
    wait "$verify" || status=$?
    assert_equal "$status" 1
    run cat "$BATS_TEST_TMPDIR/verify"
    assert_output --partial "stopped"
    on solo delete slow
}

@test "a file system that is full fails flushes, and what was flushed is there on a larger one" {
    [[ $EUID == 0 ]] || skip "needs root"
    on solo create fills 64MiB
    host_stop solo
    mkdir "$BATS_TEST_TMPDIR/small"
    truncate -s 24M "$BATS_TEST_TMPDIR/image"
    mkfs.ext4 -q "$BATS_TEST_TMPDIR/image"
    mount -o loop "$BATS_TEST_TMPDIR/image" "$BATS_TEST_TMPDIR/small"
    # A store with holes, where the file system was to have set the space aside.
    cp --sparse=always "$CLUSTER/solo/store" "$BATS_TEST_TMPDIR/small/store"
    host_start solo --store "$BATS_TEST_TMPDIR/small/store"
    nbd_python solo fills "
import os
h.pwrite(b'kept' * 1024, 0)
h.flush()
def fails(call):
    try:
        call()
    except nbd.Error:
        return True
def fill():
    for i in range(1, 48):
        h.pwrite(os.urandom(1 << 20), i << 20)
    h.flush()
assert fails(fill)
assert fails(h.flush) and fails(h.flush)
assert h.pread(4, 0) == b'kept'
"
    expect_failed_store fills
    host_stop solo
    cp --sparse=always "$BATS_TEST_TMPDIR/small/store" "$CLUSTER/solo/store"
    host_start solo
    nbd_python solo fills "
assert h.pread(4096, 0) == b'kept' * 1024
h.pwrite(b'more', 1 << 20)
h.flush()
"
    on solo delete fills
}

@test "a file system that stays full fails writers and hangs nobody, and with space again nothing is lost" {
    [[ $EUID == 0 ]] || skip "needs root"
    host_stop solo
    local -r small=$BATS_TEST_TMPDIR/small
    mkdir "$small"
    truncate -s 160M "$BATS_TEST_TMPDIR/image"
    mkfs.ext4 -q "$BATS_TEST_TMPDIR/image"
    mount -o loop "$BATS_TEST_TMPDIR/image" "$small"
    tarn init --store "$small/store" --size 128MiB --memory 64MiB --config "$BATS_TEST_TMPDIR/tarn.toml" --host solo \
        --cluster "$CLUSTER_UUID" --nbd-unix "$CLUSTER/solo/nbd.sock"
    # What the file system had set aside for it goes to somebody else.
    fallocate --dig-holes "$small/store"
    fallocate -l $(($(df --output=avail -B1M "$small" | tail -n 1) - 24))M "$small/ballast"
    # Far fewer frames than the volume has pages.
    start() { host_start solo --store "$small/store" --memory 64MiB; }
    start
    on solo create stays 96MiB
    cat > "$BATS_TEST_TMPDIR/common.py" << 'PYTHON'
import random
def piece(i):
    return random.Random(i).randbytes(1 << 20)
def fails(call):
    try:
        call()
    except nbd.Error as e:
        assert e.errno in ('EIO', 'ENOSPC'), e
        return True
PYTHON
    local -r common="exec(open('$BATS_TEST_TMPDIR/common.py').read())"
    nbd_python solo stays "
$common
written = []
for i in range(96):
    if not fails(lambda: h.pwrite(piece(i), i << 20)):
        written.append(i)
assert 0 < len(written) < 96, len(written)
assert fails(h.flush) and fails(h.flush)
for i in written:
    assert h.pread(1 << 20, i << 20) == piece(i), i
open('$BATS_TEST_TMPDIR/written', 'w').write(' '.join(map(str, written)))
"
    # Nobody is refused: neither another session nor a volume that is opened for the first time since.
    nbd_python solo stays "
$common
written = [int(i) for i in open('$BATS_TEST_TMPDIR/written').read().split()]
for i in written:
    assert h.pread(1 << 20, i << 20) == piece(i), i
for i in range(95, 85, -1):
    fails(lambda: h.pwrite(piece(i), i << 20))
assert fails(h.flush)
"
    run -0 on solo list
    expect_failed_store stays
    run -0 on solo status
    assert_output --partial "then restart tarnd"
    # As the status says.
    rm "$small/ballast"
    host_stop solo
    start
    nbd_python solo stays "
$common
h.flush()
for i in open('$BATS_TEST_TMPDIR/written').read().split():
    assert h.pread(1 << 20, int(i) << 20) == piece(int(i)), i
h.pwrite(piece(95), 95 << 20)
h.flush()
"
    host_stop solo
}

@test "what was zeroed without a hole has its space: when the store is full, each page of it can be written" {
    on solo create zeroed 512MiB
    nbd_python solo zeroed "
import os, random
piece = 1 << 20
h.set_strict_mode(0)
def zeroed(at):
    try:
        h.zero(piece, at * piece, nbd.CMD_FLAG_NO_HOLE)
        return True
    except nbd.Error as e:
        assert e.errno == 'ENOSPC', e
        return False
count = next(at for at in range(512) if not zeroed(at))
print(count, 'MiB were zeroed')
assert 32 < count < 128
def descriptors():
    other = nbd.NBD()
    other.add_meta_context('base:allocation')
    other.connect_uri(h.get_uri())
    seen = []
    while (done := sum(seen[::2])) < count * piece:
        other.block_status(count * piece - done, done, lambda name, offset, entries, error: seen.extend(entries))
    other.shutdown()
    return set(seen[1::2])
assert descriptors() <= {0, nbd.STATE_ZERO}, descriptors()
h.flush()
# In no order, whole pages and parts of them, more than memory has.
order = random.Random(1).sample(range(count), count)
for at in order: h.pwrite(random.Random(at).randbytes(piece), at * piece)
h.flush()
for at in order: assert h.pread(piece, at * piece) == random.Random(at).randbytes(piece), at
assert descriptors() == {0}, descriptors()
# And no other.
try:
    for at in range(count + 1, 512): h.pwrite(os.urandom(piece), at * piece)
    raise AssertionError('there was room')
except nbd.Error as e:
    assert e.errno == 'ENOSPC', e
h.trim(count * piece, 0)
h.pwrite(b'room', 500 * piece)
h.flush()
"
    run -0 on solo verify zeroed
    on solo delete zeroed
}

# spoil_journal FILE TEXT SIZE: so many bytes, from the last place of the text on, are others.
spoil_journal() {
    python3 - "$@" << 'PYTHON'
import os, sys
with open(sys.argv[1], 'r+b') as file:
    at = file.read().rfind(sys.argv[2].encode())
    assert at > 0, 'it is not there'
    file.seek(at)
    file.write(os.urandom(int(sys.argv[3])))
    os.fsync(file)
PYTHON
}

@test "a journal that rots is refused with the way on, and what is lost by it is on the list" {
    on solo create rotten 16MiB
    # Volume pages 0, 300 and 600: three places of 1 MiB. All is in the journal, and more than once durable.
    local -r writes="
for number, text in enumerate((b'first', b'second needle', b'third')):
    h.pwrite(text.ljust(4096, b'.'), number * 300 * 4096)
    h.flush()
h.pwrite(b'last', 4 << 20)
h.flush()
h.pwrite(b'more', 5 << 20)
h.flush()
"
    nbd_python solo rotten "$writes"
    host_kill solo
    flip "$CLUSTER/solo/store" "second needle"
    local status=0
    tarnd --config "$CLUSTER/solo/tarn.toml" --control "$CLUSTER/solo/control.sock" > "$BATS_TEST_TMPDIR/refused" 2>&1 ||
        status=$?
    assert_equal "$status" 3
    run cat "$BATS_TEST_TMPDIR/refused"
    assert_output --partial "tarn store repair --salvage-journal"
    # One bit costs nothing; nobody is asked nothing.
    run -2 tarn store repair "$CLUSTER/solo/store"
    run -2 tarn store repair --salvage-journal "$CLUSTER/solo/store" < /dev/null
    run -2 tarn store repair --salvage-journal --yes "$CLUSTER/solo/store" < /dev/null
    run -0 tarn store repair --salvage-journal --yes --yes "$CLUSTER/solo/store"
    assert_output --partial "mended   1 flipped bits"
    run -0 tarn store repair --salvage-journal "$CLUSTER/solo/store"
    assert_output --partial "nothing to salvage"
    host_start solo
    nbd_python solo rotten "
assert h.pread(13, 300 * 4096) == b'second needle'
assert h.pread(5, 0) == b'first' and h.pread(5, 600 * 4096) == b'third'
"
    # More than a bit of the same page, written anew.
    nbd_python solo rotten "${writes//needle/haystack}"
    host_kill solo
    spoil_journal "$CLUSTER/solo/store" "second haystack" 1000
    run -0 tarn store repair --salvage-journal --yes --yes --json "$CLUSTER/solo/store"
    assert_equal "$(jq -c '[.any_page, [.losses[] | [.first_page, .last_page]]]' <<< "$output")" '[false,[[256,511]]]'
    host_start solo
    on solo list
    run -0 on solo status
    assert_output --partial "LOST     rotten: maybe writes of 256 pages from 256 to 511, with the memory of another host, or a part of the journal"
    nbd_python solo rotten "
assert h.pread(13, 300 * 4096) == b'second needle'
assert h.pread(5, 0) == b'first' and h.pread(5, 600 * 4096) == b'third'
assert h.pread(4, 4 << 20) == b'last' and h.pread(4, 5 << 20) == b'more'
h.pwrite(b'go on', 300 * 4096)
h.flush()
"
    on solo delete rotten
}

@test "a device that vanishes fails flushes, and tarnd can be stopped" {
    [[ $EUID == 0 && -e /dev/loop-control ]] || skip "needs root and loop devices"
    on solo create vanishes 16MiB
    host_stop solo
    cp --sparse=always "$CLUSTER/solo/store" "$BATS_TEST_TMPDIR/backing"
    LOOP=$(losetup --find --show "$BATS_TEST_TMPDIR/backing")
    host_run solo --store "$LOOP"
    nbd_python solo vanishes "
import os, subprocess
h.pwrite(b'kept' * 1024, 0)
h.flush()
os.truncate('$BATS_TEST_TMPDIR/backing', 0)
subprocess.run(['losetup', '--set-capacity', '$LOOP'], check=True)
h.pwrite(b'lost' * 1024, 4096)
for _ in range(2):
    try:
        h.flush()
    except nbd.Error as e:
        assert e.errno == 'EIO', e
    else:
        raise AssertionError('a flush succeeded')
assert h.pread(4096, 4096) == b'lost' * 1024
"
    expect_failed_store vanishes
    local code=0
    kill -TERM "$(pid_of solo)"
    wait "$(pid_of solo)" || code=$?
    assert_equal "$code" 1
    rm -f "$CLUSTER/solo/pid"
    forget_memory solo
    run ! grep -i "assert" "$CLUSTER/solo/log"
}
