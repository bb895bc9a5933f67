# tarnd under systemd itself, which runs here as the first process of a namespace, on this system under an overlay: what
# the unit promises about crashes and the memory that outlives them.

load tarn

setup_file() {
    if [[ $EUID != 0 || ! -x /lib/systemd/systemd ]]; then
        skip_file "needs to be root, and systemd"
        return
    fi
    CHANGES=$BATS_FILE_TMPDIR/changes
    ROOT=$BATS_FILE_TMPDIR/root
    export CHANGES ROOT
    mkdir "$CHANGES" "$ROOT"
    mount -t tmpfs tmpfs "$CHANGES"
    mkdir "$CHANGES"/{upper,work}
    mount -t overlay overlay "$ROOT" -o "lowerdir=/,upperdir=$CHANGES/upper,workdir=$CHANGES/work"
    local units=$ROOT/etc/systemd/system
    rm -rf "$ROOT"/etc/tarn "$ROOT"/var/lib/tarn "$units"/*.wants
    install -m 755 "$TARN_BUILD/daemon/tarnd" "$TARN_BUILD/daemon/tarn-keeper" "$ROOT/usr/sbin"
    install -m 755 "$TARN_BUILD/daemon/tarn" "$ROOT/usr/bin"
    cp "$BATS_TEST_DIRNAME"/../../packaging/tarnd{.service,-nbd.socket} "$units"
    printf '[Unit]\nDescription=nothing but systemd\nAllowIsolate=yes\n' > "$units/bare.target"
    boot
    inside tarn init --store /var/lib/tarn/store --size 64M --memory 64M --nbd-unix /run/tarn/nbd.sock
    inside systemctl start tarnd
    inside tarn create disk 8MiB
}

setup() { skip_with_file; }
teardown_file() {
    if file_skips; then return; fi
    # The end of a namespace's first process is the end of all in it.
    [[ ! -s $BATS_FILE_TMPDIR/first ]] || kill -KILL "$(< "$BATS_FILE_TMPDIR/first")" 2> /dev/null || true
    umount -R -l "$ROOT" 2> /dev/null || true
    umount -l "$CHANGES" 2> /dev/null || true
}

boot() {
    unshare --pid --fork --mount --uts --ipc --cgroup \
        "$BATS_TEST_DIRNAME/systemd_boot.bash" "$ROOT" bare.target < /dev/null > "$BATS_FILE_TMPDIR/log" 2>&1 3>&- 4>&- &
    local -r unshared=$!
    within 10 child_of "$unshared"
    child_of "$unshared" > "$BATS_FILE_TMPDIR/first"
    within 20 inside systemctl is-active --quiet bare.target
}
child_of() { pgrep --parent "$1"; }
# In the namespaces and the root of systemd.
inside() {
    local -r first=$(< "$BATS_FILE_TMPDIR/first")
    nsenter --target "$first" --pid --mount --uts --ipc --cgroup --root --wd=/ \
        env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "$@"
}

main_pid() { inside systemctl show --property=MainPID --value tarnd; }
is_up() { inside systemctl is-active --quiet tarnd; }
nbd() {
    within 20 is_up
    inside timeout 60 nbdsh -u 'nbd+unix:///disk?socket=/run/tarn/nbd.sock' -c "$1"
}
crash() { inside systemctl kill --kill-who=main --signal=SIGKILL tarnd; }
runs_not_as() { [[ $(main_pid) != "$1" && $(main_pid) != 0 ]] && is_up; }
has_ended() { ! inside kill -0 "$1" 2> /dev/null; }
# How many starts have failed, in the state that the unit is in.
has_failed_often() { (($(inside systemctl show --property=NRestarts --value tarnd) >= $1)); }

start_second() {
    inside sh -c 'tarnd --config /etc/tarn/b.toml < /dev/null >> /tmp/b.log 2>&1 &' 3>&- 4>&-
}

@test "what was written before a crash is there when systemd has started it again" {
    nbd "h.pwrite(b'first', 0)"
    local -r before=$(main_pid)
    crash
    within 20 runs_not_as "$before"
    nbd "assert h.pread(5, 0) == b'first'"
}

@test "tarn waits for a tarnd that systemd is about to start again" {
    local -r before=$(main_pid)
    crash
    within 5 has_ended "$before"
    run -0 inside tarn list
    assert_output --partial disk
}

@test "its memory stays however often it crashes" {
    nbd "h.pwrite(b'second', 4096)"
    local before
    for _ in {1..8}; do
        before=$(main_pid)
        crash
        within 20 runs_not_as "$before"
    done
    nbd "assert h.pread(6, 4096) == b'second'"
}

@test "its memory stays while it cannot start, until the configuration is mended" {
    nbd "h.pwrite(b'third', 8192)"
    local -r before=$(main_pid)
    inside cp /etc/tarn/tarn.toml /etc/tarn/right.toml
    inside sh -c 'echo "memory = \"never\"" > /etc/tarn/tarn.toml'
    inside systemctl reset-failed tarnd
    crash
    within 30 has_failed_often 7
    inside cp /etc/tarn/right.toml /etc/tarn/tarn.toml
    within 20 runs_not_as "$before"
    nbd "assert h.pread(5, 8192) == b'third'"
}

# The port is one of this machine, as its network is.
@test "who connects while tarnd is down waits for it on systemd's socket, and its memory stays as well" {
    local -r port=$((20000 + RANDOM % 10000))
    inside mkdir -p /run/systemd/system/tarnd-nbd.socket.d
    inside sh -c "printf '[Socket]\nListenStream=\nListenStream=127.0.0.1:$port\n' \
        > /run/systemd/system/tarnd-nbd.socket.d/port.conf"
    inside sh -c "echo 'tcp = \"127.0.0.1:$port\"' > /tmp/tcp && sed -i '/^\[nbd\]/r /tmp/tcp' /etc/tarn/tarn.toml"
    inside systemctl daemon-reload
    inside systemctl stop tarnd
    inside systemctl start tarnd-nbd.socket
    run -0 inside timeout 60 nbdinfo --size "nbd://127.0.0.1:$port/disk"
    assert_output 8388608
    within 20 is_up
    run -0 inside tarn export disk
    assert_line "nbd://127.0.0.1:$port/disk"
    nbd "h.pwrite(b'passed', 16384)"
    local -r before=$(main_pid)
    crash
    run -0 inside timeout 60 nbdsh -u "nbd://127.0.0.1:$port/disk" -c "assert h.pread(6, 16384) == b'passed'"
    within 20 runs_not_as "$before"
    inside systemctl stop tarnd-nbd.socket
    inside sed -i '/^tcp/d' /etc/tarn/tarn.toml
    inside systemctl restart tarnd
    nbd "assert h.pread(6, 16384) == b'passed'"
}

@test "a stop is clean, and the next start takes over no memory" {
    nbd "h.pwrite(b'fourth', 12288)"
    run -0 inside systemctl stop tarnd
    [ "$(inside systemctl show --property=Result --value tarnd)" = success ]
    run -0 inside systemctl start tarnd
    nbd "assert h.pread(6, 12288) == b'fourth'"
}

@test "its memory stays after a stop that could not make everything durable" {
    # A second host beside it, by hand.
    inside systemctl stop tarnd
    inside sh -ec '
        rm -r /etc/tarn /var/lib/tarn
        peers="--peer a=127.0.0.1:7410 --peer b=127.0.0.1:7411"
        tarn init --host a $peers --store /var/lib/tarn/a --size 64M --memory 64M --nbd-unix /run/tarn/nbd.sock
        cluster=$(sed -n "s/^cluster = \"\(.*\)\"/\1/p" /etc/tarn/tarn.toml)
        tarn init --host b $peers --store /var/lib/tarn/b --size 64M --memory 64M --config /etc/tarn/b.toml \
            --cluster "$cluster" --key-file /etc/tarn/key
        echo "control = \"/run/tarn/b.sock\"" > /tmp/b.toml && grep -v ^control /etc/tarn/b.toml >> /tmp/b.toml
        mv /tmp/b.toml /etc/tarn/b.toml'
    start_second
    inside systemctl start tarnd
    inside tarn create disk 8MiB --shared
    nbd "h.pwrite(b'fifth' * 1000000, 0)"
    inside pkill -KILL -f b.toml
    run -0 inside systemctl stop tarnd
    [ "$(inside systemctl show --property=Result --value tarnd)" = exit-code ]
    start_second
    run -0 inside systemctl start tarnd
    nbd "assert h.pread(5000000, 0) == b'fifth' * 1000000; h.flush()"
    run -0 inside systemctl stop tarnd
    [ "$(inside systemctl show --property=Result --value tarnd)" = success ]
    run ! inside pgrep -f 'tarn-keeper /run/tarn/control.sock'
}
