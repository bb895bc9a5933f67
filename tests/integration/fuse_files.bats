# The mount: each volume a file.

load front_end_server

setup_file() {
    [ -n "${MOUNT_POINT-}" ] && return
    if [[ ! -w /dev/fuse ]]; then
        skip_file "needs /dev/fuse"
        return
    fi
    export MOUNT_POINT="$BATS_FILE_TMPDIR/mount" OWN_SERVER=1
    mkdir "$MOUNT_POINT"
    start_memory_server --mount "$MOUNT_POINT" --shared team/a/disk=1 --held theirs=1 --shards 2
}

teardown_file() {
    if file_skips; then return; fi
    stop_memory_server
}

setup() {
    skip_with_file
    cd "$MOUNT_POINT"
}

teardown() {
    if file_skips; then return; fi
    rm -f test-*
    cd /
}

@test "files are written, appended to, read, truncated and removed" {
    echo hello >test-a
    echo more >>test-a
    assert_equal "$(cat test-a)" $'hello\nmore'
    truncate -s 3 test-a
    truncate -s 6 test-a
    assert_equal "$(od -An -c test-a | tr -d ' ')" 'hel\0\0\0'
    truncate -s 1T test-a
    assert_equal "$(stat -c %s test-a)" 1099511627776
    rm test-a
    run -1 cat test-a
    assert_output --partial "No such file"
}

@test "what dd writes, in any block size and with direct I/O, dd reads" {
    head -c 20000001 /dev/urandom >"$BATS_TEST_TMPDIR/in"
    dd if="$BATS_TEST_TMPDIR/in" of=test-a bs=777k status=none
    cmp "$BATS_TEST_TMPDIR/in" test-a
    dd if=test-a of="$BATS_TEST_TMPDIR/out" bs=1M iflag=direct status=none
    cmp "$BATS_TEST_TMPDIR/in" "$BATS_TEST_TMPDIR/out"
    cp --sparse=always test-a test-b
    cmp test-a test-b
}

@test "fallocate grows, punches and zeroes" {
    fallocate -l 1M test-a
    assert_equal "$(stat -c %s test-a)" 1048576
    head -c 100000 /dev/zero | tr '\0' x >test-b
    fallocate -p -o 4096 -l 8192 test-b
    fallocate -z -o 50000 -l 10 test-b
    assert_equal "$(stat -c %s test-b)" 100000
    assert_equal "$(tr -d x <test-b | wc -c)" 8202
    run -1 fallocate -i -o 4096 -l 4096 test-b
}

@test "statfs tells the space" {
    local total free
    read -r total free < <(stat -f -c '%b %a' .)
    ((total > 0 && free <= total))
    assert_equal "$(stat -f -c %l .)" 255
}

@test "mode, owner and times are kept" {
    echo x >test-a
    chmod 640 test-a
    chown 5:6 test-a
    touch -d '2001-02-03 04:05:06.123456789 UTC' test-a
    assert_equal "$(TZ=UTC stat -c '%a %u %g %y' test-a)" "640 5 6 2001-02-03 04:05:06.123456789 +0000"
}

@test "times before 1970 are kept, and those that cannot be are clamped, not wrapped" {
    echo x >test-a
    local when
    for when in '1969-12-31 23:59:59.250000000' '1700-01-01 00:00:00.000000000' '2262-04-11 23:47:16.854775807'; do
        touch -d "$when UTC" test-a
        assert_equal "$(TZ=UTC stat -c %y test-a)" "$when +0000"
    done
    touch -d '9999-01-01 UTC' test-a
    assert_equal "$(TZ=UTC stat -c %y test-a)" "2262-04-11 23:47:16.854775807 +0000"
    touch -d '0001-01-01 UTC' test-a
    assert_equal "$(TZ=UTC stat -c %y test-a)" "1677-09-21 00:12:43.145224192 +0000"
}

@test "only one creator wins" {
    echo x >test-a
    run -1 bash -o noclobber -c 'echo y >test-a'
    assert_equal "$(cat test-a)" x
}

@test "locks are refused, never local" {
    echo x >test-a
    run ! flock -n test-a true
    assert_output --partial "No locks available"
    run -0 /usr/bin/python3 -c "
import fcntl, errno
try:
    fcntl.lockf(open('test-a', 'r+'), fcntl.LOCK_EX)
except OSError as e:
    assert e.errno == errno.ENOLCK
else:
    raise AssertionError
"
}

@test "what a volume cannot be is refused" {
    echo x >test-a
    run -1 mkdir test-dir
    run -1 ln test-a test-b
    run -1 ln -s test-a test-b
    run -1 mv test-a test-b
    run -1 mkfifo test-fifo
    assert_equal "$(cat test-a)" x
}

@test "shared mappings are refused rather than wrong" {
    echo x >test-a
    run -0 /usr/bin/python3 -c "
import mmap, errno
f = open('test-a', 'r+')
try:
    mmap.mmap(f.fileno(), 2)
except OSError as e:
    assert e.errno == errno.ENODEV
else:
    raise AssertionError
"
}

@test "holes are found" {
    run -0 /usr/bin/python3 -c "
import os
f = os.open('test-a', os.O_CREAT | os.O_RDWR)
os.pwrite(f, b'x' * 4096, 8 << 20)
os.ftruncate(f, 16 << 20)
data = os.lseek(f, 0, os.SEEK_DATA)
hole = os.lseek(f, data, os.SEEK_HOLE)
assert 0 < data <= 8 << 20 < hole <= 16 << 20, (data, hole)
"
}

@test "fsync of files and of the root works, and names and offsets past the limits fail" {
    echo x >test-a
    sync test-a
    sync .
    run ! touch "test-$(printf 'x%.0s' {1..255})"
    run -0 /usr/bin/python3 -c "
import os, errno
f = os.open('test-a', os.O_RDWR)
try:
    os.pwrite(f, b'x', 1 << 52)
except OSError as e:
    assert e.errno == errno.EFBIG
else:
    raise AssertionError
"
}

@test "SQLite works without locks" {
    run -0 sqlite3 'file:test-db?vfs=unix-none' 'create table t(a);
        with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000) insert into t select i from n;
        delete from t where a % 2; pragma integrity_check; select count(*) from t;'
    assert_output $'ok\n2500'
}

@test "fio finds what it wrote with direct I/O" {
    run -0 timeout -s KILL 100 fio --name=v --filename=test-fio --ioengine=libaio --direct=1 --rw=randrw \
        --bs=4k-256k --size=64M --iodepth=16 --verify=crc32c --do_verify=1 --verify_state_save=0
}

@test "names with slashes show as directories" {
    [ -n "${OWN_SERVER-}" ] || skip "needs a volume named team/a/disk"
    assert_equal "$(ls team)" a
    assert_equal "$(stat -c %s team/a/disk)" 1048576
    echo x >team/a/more
    assert_equal "$(ls team/a | tr '\n' ' ')" "disk more "
    rm team/a/more
    run -2 ls team/b
}

@test "a volume that another host holds cannot be opened" {
    [ -n "${OWN_SERVER-}" ] || skip "needs a volume that is held elsewhere"
    run -1 cat theirs
    assert_output --partial "busy"
}

@test "a mount that a killed daemon left is replaced, and a stopped one is gone" {
    [ -n "${OWN_SERVER-}" ] || skip "kills its server"
    cd /
    local pid
    pid=$(<"$BATS_FILE_TMPDIR/server.pid")
    kill -KILL "$pid"
    timeout 20 tail -f --pid="$pid" /dev/null
    start_memory_server --mount "$MOUNT_POINT" --shared again=1
    assert_equal "$(ls "$MOUNT_POINT")" again
    stop_memory_server
    run ! mountpoint -q "$MOUNT_POINT"
}
