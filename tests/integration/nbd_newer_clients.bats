# NBD clients of Debian 13 (libnbd 1.22, qemu 10): they have extended headers, which those of Debian 12 lack.

load front_end_server

setup_file() {
    export NBD_SOCKET="$BATS_FILE_TMPDIR/root/nbd.sock" NBD_EXPORT=huge
    [[ -n ${TARN_FULL-} ]] && curl -sfI http://deb.debian.org/debian/dists/trixie/Release > /dev/null || return 0
    timeout 300 mmdebstrap --quiet --variant=apt --include=libnbd-bin,python3-libnbd,qemu-utils trixie \
        "$BATS_FILE_TMPDIR/root" http://deb.debian.org/debian
    start_memory_server --unix "$NBD_SOCKET" --volume disk=256 --volume huge=6144 --shards 2 --miss-every 5
}

setup() {
    [[ -n ${TARN_FULL-} ]] || skip "takes a minute: ./dev test --full"
    [ -S "$NBD_SOCKET" ] || skip "needs Debian's packages"
}

teardown_file() {
    stop_memory_server
}

inside() { timeout 100 chroot "$BATS_FILE_TMPDIR/root" "$@"; }
uri() { echo "nbd+unix:///$1?socket=/nbd.sock"; }

@test "libnbd chooses extended headers" {
    run -0 inside nbdinfo "$(uri huge)"
    assert_line --partial "using extended packets"
    run -0 inside nbdinfo --map=tarn:tier "$(uri disk)"
}

@test "libnbd trims, zeroes and asks about more than 4 GiB at once" {
    inside python3 -c '
import nbd, sys
h = nbd.NBD()
for context in ("base:allocation", "tarn:tier"): h.add_meta_context(context)
h.connect_uri(sys.argv[1])
assert h.get_extended_headers_negotiated()
size = h.get_size()
def seen():
    contexts = {}
    h.block_status_64(size, 0, lambda name, offset, entries, error: contexts.update({name: entries}))
    return contexts["base:allocation"], contexts["tarn:tier"]
h.pwrite(b"x" * 4096, size - 4096, nbd.CMD_FLAG_FUA)
assert seen() == ([(size - 4096, 3), (4096, 0)], [(size - 4096, 8), (4096, 1)]), seen()
h.trim(size, 0)
assert seen()[0] == [(size, 3)]
big = b"y" * (32 << 20)
h.pwrite(big, 5)
assert h.pread(len(big), 5) == big
h.zero(size, 0)
assert h.pread(len(big), 5) == bytes(len(big))
h.cache(size, 0)
h.set_strict_mode(nbd.STRICT_AUTO_FLAG)
for change in (lambda: h.pwrite(b"x" * 100000, size), lambda: h.trim(1 << 40, 0), lambda: h.pread(2, size - 1)):
    try:
        change()
        raise AssertionError("it worked")
    except nbd.Error as e:
        assert e.errno in ("EINVAL", "ENOSPC"), e
h.pread(1, 0)
h.shutdown()
' "$(uri huge)"
}

@test "what nbdcopy writes, nbdcopy and qemu-img read" {
    local -r root=$BATS_FILE_TMPDIR/root
    head -c 50000001 /dev/urandom > "$root/in"
    inside nbdcopy --flush /in "$(uri disk)"
    inside nbdcopy "$(uri disk)" /out
    cmp -n 50000001 "$root/in" "$root/out"
    inside qemu-img convert -f raw -O raw "$(uri disk)" /out2
    cmp "$root/out" "$root/out2"
}

@test "qemu-io writes, zeroes, discards and reads back" {
    run -0 inside qemu-io -f raw -c 'write -P 7 513 1111' -c 'read -P 7 513 1111' -c 'write -z 4096 2000M' \
        -c 'read -P 0 4096 64k' -c 'write -P 9 1M 1M' -c 'discard 1M 1M' -c 'read -P 0 1M 1M' -c 'write -f 0 512' \
        -c flush "$(uri huge)"
    refute_output --partial "failed"
}
