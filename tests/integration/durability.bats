# What clients were told is durable is there after every crash: real clients, and SIGKILL at random moments.
#
# DURABILITY_ROUNDS crashes under fio, a quarter of it under the others; DURABILITY_SEED draws the moments.

load tarn

setup_file() {
    export DURABILITY_ROUNDS=${DURABILITY_ROUNDS:-6}
    export DURABILITY_SEED=${DURABILITY_SEED:-$RANDOM}
    HOST_STORE=1GiB
    HOST_MEMORY=96MiB
    cluster_make solo
    start_and_mount
    cluster_remember
}
setup() {
    cluster_recall
    RANDOM=$DURABILITY_SEED
    echo "DURABILITY_SEED=$DURABILITY_SEED DURABILITY_ROUNDS=$DURABILITY_ROUNDS"
}

# Up to MILLISECONDS, drawn: the moment of a crash is what varies, nothing waits for it to pass.
any_moment() { read -r -t "0.$(printf %03d $((RANDOM % $1 + 1)))" <> <(:) || true; }

start_and_mount() {
    host_start solo
    [[ ! -w /dev/fuse ]] || host_mount solo
}

quarter() { echo $(((DURABILITY_ROUNDS + 3) / 4)); }

# fio_on VOLUME OPTION...: what it prints matters only when it fails.
fio_on() {
    local uri said=$BATS_TEST_TMPDIR/fio-$BASHPID  # two may run side by side
    uri=$(uri solo "$1")
    shift
    timeout -s KILL 60 fio --name=j --ioengine=nbd --uri="$uri" --bs=4k --verify=crc32c --verify_state_save=0 \
        --verify_fatal=1 --iodepth=16 "$@" > "$said" 2>&1 || { cat "$said"; return 1; }
}

@test "fio finds what it flushed after SIGKILL at any moment" {
    on solo create fio 64MiB
    local round load
    for ((round = 1; round <= DURABILITY_ROUNDS; ++round)); do
        fio_on fio --rw=randwrite --offset=32M --size=32M --do_verify=0 --time_based=1 --runtime=30 \
            --fsync=64 3>&- &
        load=$!
        # This round's blocks: other contents than those that lay there before.
        local flushed=(--offset=$((round % 8 * 4))M --size=4M --rw=randwrite)
        flushed+=(--randseed=$((DURABILITY_SEED * 1000 + round)))
        fio_on fio "${flushed[@]}" --do_verify=0 --end_fsync=1
        any_moment 200
        host_kill solo
        wait "$load" || true
        start_and_mount
        fio_on fio "${flushed[@]}" --verify_only=1
    done
    on solo delete fio
}

# Writes of any size at any offset, each durable by itself, among others that are not. What the first ones wrote goes
# into FILE.
fua_writer() {
    MODEL=$2 SEED=$3 PATH="/usr/bin:$PATH" nbdsh -u "$(uri solo "$1")" -c - <<'PYTHON'
import os, random
draw = random.Random(int(os.environ['SEED']))
size = 4 << 20
model = bytearray(h.pread(size, 0))
for i in range(draw.randint(50, 300)):
    h.pwrite(draw.randbytes(4096), size + draw.randrange(1000) * 4096)
    offset = draw.randrange(size - 20000)
    data = draw.randbytes(draw.choice([1, 100, 512, 3000, 4096, 20000]))
    h.pwrite(data, offset, nbd.CMD_FLAG_FUA)
    model[offset:offset + len(data)] = data
open(os.environ['MODEL'], 'wb').write(model)
PYTHON
}

@test "FUA writes are there after SIGKILL, whatever was not flushed beside them" {
    on solo create fua 16MiB
    local round said=$BATS_TEST_TMPDIR/said
    for ((round = 0; round < DURABILITY_ROUNDS; ++round)); do
        fua_writer fua "$said" $((DURABILITY_SEED * 1000 + round))
        host_kill solo
        start_and_mount
        run nbdcopy "$(uri solo fua)" "$BATS_TEST_TMPDIR/found"
        assert_success
        cmp --bytes=$((4 << 20)) "$said" "$BATS_TEST_TMPDIR/found"
    done
    on solo delete fua
}

# Commits rows until the file goes away, and says after each commit which it was.
sqlite_writer() {
    python3 - "$1" "$2" <<'PYTHON'
import sqlite3, sys
db = sqlite3.connect('file:%s?vfs=unix-none' % sys.argv[1], uri=True, isolation_level=None)
if sys.argv[2] == 'wal':
    db.execute('pragma locking_mode = exclusive')
db.execute('pragma journal_mode = %s' % sys.argv[2])
db.execute('pragma synchronous = full')
db.execute('create table if not exists t(id integer primary key, filler blob)')
first = db.execute('select coalesce(max(id), 0) from t').fetchone()[0] + 1
for number in range(first, first + 1000000):
    db.execute('begin')
    db.execute('insert into t values (?, randomblob(?))', (number, 100 + number * 37 % 6000))
    if number % 5 == 0:
        db.execute('delete from t where id = ?', (number - 4,))
    db.execute('commit')
    print(number, flush=True)
PYTHON
}

sqlite_survives() {
    local mode=$1 round last file=$CLUSTER/solo/mnt/db-$1
    for ((round = 0; round < $(quarter) * 2; ++round)); do
        rm -f "$BATS_TEST_TMPDIR/committed"
        sqlite_writer "$file" "$mode" > "$BATS_TEST_TMPDIR/committed" 2> /dev/null 3>&- &
        local writer=$!
        within 20 test -s "$BATS_TEST_TMPDIR/committed"
        any_moment 400
        host_kill solo
        wait "$writer" || true
        start_and_mount
        last=$(tail -n 1 "$BATS_TEST_TMPDIR/committed")
        run sqlite3 "file:$file?vfs=unix-none" "pragma locking_mode = exclusive; pragma integrity_check;
            select count(*) from t where id = $last;"
        assert_success
        assert_output $'exclusive\nok\n1'
    done
    rm "$file"*
}

@test "SQLite with a rollback journal keeps what it committed" {
    [ -w /dev/fuse ] || skip "needs /dev/fuse"
    sqlite_survives delete
}

@test "SQLite with a write-ahead log keeps what it committed" {
    [ -w /dev/fuse ] || skip "needs /dev/fuse"
    sqlite_survives wal
}

postgres_do() { runuser -u postgres -- env "PATH=$POSTGRES:$PATH" PGHOST="$BATS_TEST_TMPDIR/run" PGDATABASE=postgres "$@"; }

disk_attach() {
    LOOP=$(losetup --find --show --direct-io=on "$CLUSTER/solo/mnt/pg.img")
}

postgres_up() {
    mount -o noatime "$LOOP" "$BATS_TEST_TMPDIR/data"
    postgres_do pg_ctl -D "$BATS_TEST_TMPDIR/data/pg" -w -t 60 -l "$BATS_TEST_TMPDIR/run/log" start 3>&-
}

# As a power cut leaves it: neither the server nor the file system says good-bye.
postgres_crash() {
    local pid
    pid=$(head -n 1 "$BATS_TEST_TMPDIR/data/pg/postmaster.pid" 2> /dev/null) || pid=${POSTGRES_PID-}
    [[ -z $pid ]] || kill -KILL "$pid" 2> /dev/null || true
    within 30 gone "${pid:-0}"
    within 30 umount_data
    losetup -d "$LOOP"
    LOOP=
}
umount_data() { umount "$BATS_TEST_TMPDIR/data" || ! mountpoint -q "$BATS_TEST_TMPDIR/data"; }

teardown() {
    [[ -n ${LOOP-} ]] || return 0
    postgres_crash || true
}

@test "PostgreSQL on ext4 keeps its balances when tarnd and the server are killed" {
    [[ $EUID == 0 ]] || skip "needs root"
    [[ -w /dev/fuse && -e /dev/loop-control ]] || skip "needs /dev/fuse and loop devices"
    POSTGRES=$(compgen -G '/usr/lib/postgresql/*/bin' | tail -n 1) || skip "needs PostgreSQL"
    local round acknowledged found
    mkdir "$BATS_TEST_TMPDIR/data" "$BATS_TEST_TMPDIR/run"
    chmod a+x "$BATS_RUN_TMPDIR" "$BATS_FILE_TMPDIR" "$BATS_TEST_TMPDIR" "$(dirname "$BATS_TEST_TMPDIR")"
    chown postgres "$BATS_TEST_TMPDIR/run"
    truncate -s 256M "$CLUSTER/solo/mnt/pg.img"
    disk_attach
    mkfs.ext4 -q "$LOOP"
    mount "$LOOP" "$BATS_TEST_TMPDIR/data"
    install -d -o postgres -m 700 "$BATS_TEST_TMPDIR/data/pg"
    postgres_do initdb -D "$BATS_TEST_TMPDIR/data/pg" --wal-segsize=1 --no-sync -A trust > /dev/null
    cat >> "$BATS_TEST_TMPDIR/data/pg/postgresql.conf" <<TEXT
unix_socket_directories = '$BATS_TEST_TMPDIR/run'
listen_addresses = ''
shared_buffers = 16MB
max_wal_size = 16MB
min_wal_size = 2MB
checkpoint_timeout = 30s
TEXT
    umount "$BATS_TEST_TMPDIR/data"
    postgres_up
    postgres_do pgbench -q -i -s 1 > /dev/null 2>&1
    postgres_do psql -qc 'create extension amcheck'
    acknowledged=0
    for ((round = 0; round < $(quarter); ++round)); do
        POSTGRES_PID=$(head -n 1 "$BATS_TEST_TMPDIR/data/pg/postmaster.pid")
        postgres_do pgbench -n -c 4 -T 60 --log --log-prefix="$BATS_TEST_TMPDIR/run/acknowledged.$round" \
            > /dev/null 2>&1 3>&- &
        local clients=$!
        within 30 logged "$BATS_TEST_TMPDIR/run/acknowledged.$round"
        any_moment 999
        host_kill solo
        postgres_crash
        wait "$clients" || true
        start_and_mount
        disk_attach
        postgres_up
        # pgbench logs a transaction after its commit was answered; the line that the crash cut is not counted.
        acknowledged=$((acknowledged + $(cat "$BATS_TEST_TMPDIR/run/acknowledged.$round".* | wc -l)))
        found=$(postgres_do psql -Atc 'select count(*) from pgbench_history')
        ((found >= acknowledged)) || fail "$acknowledged transactions were acknowledged, $found are there"
        acknowledged=$found
        postgres_do pg_amcheck --all --heapallindexed
        run -0 postgres_do psql -Atc 'select (select sum(abalance) from pgbench_accounts) =
            all (values ((select sum(tbalance) from pgbench_tellers)), ((select sum(bbalance) from pgbench_branches)),
                ((select sum(delta) from pgbench_history)))'
        assert_output t
    done
    postgres_do pg_ctl -D "$BATS_TEST_TMPDIR/data/pg" -m fast -w stop
    umount "$BATS_TEST_TMPDIR/data"
    losetup -d "$LOOP"
    LOOP=
    rm "$CLUSTER/solo/mnt/pg.img"
}
logged() { compgen -G "$1.*" > /dev/null && [[ -n $(cat "$1".*) ]]; }

@test "a store of format 2 is refused without --upgrade, and with it has all that was durable" {
    on solo create old 64MiB
    nbd_python solo old "h.pwrite(b'in the journal' * 1000, 4096); h.flush()"
    host_kill solo
    "$BATS_TEST_DIRNAME/../support/make_format_2.py" "$CLUSTER/solo/store"
    local before
    before=$(sum "$CLUSTER/solo/store")
    run -3 timeout 20 tarnd --config "$CLUSTER/solo/tarn.toml" --control "$CLUSTER/solo/control.sock"
    assert_output --partial "of format 2"
    assert_output --partial "start tarnd with --upgrade"
    assert_equal "$(sum "$CLUSTER/solo/store")" "$before"
    host_start solo --upgrade
    nbd_python solo old "assert h.pread(14000, 4096) == b'in the journal' * 1000"
    host_stop solo
    start_and_mount
    nbd_python solo old "assert h.pread(14000, 4096) == b'in the journal' * 1000"
    on solo delete old
}
