# What the tests of the front ends run against. Set NBD_SOCKET and NBD_EXPORT, or MOUNT_POINT, to run them against a
# daemon that is up; else each file starts MEMORY_SERVER, the front ends over volumes in memory.

bats_load_library bats-support
bats_load_library bats-assert
bats_require_minimum_version 1.5.0
load ../support/skip.bash

: "${MEMORY_SERVER:=$BATS_TEST_DIRNAME/../../build/release/tests/support/memory_server}"

# It says "ready" when clients may come. Everything a test starts must close descriptor 3, which bats waits for.
start_memory_server() {
    local ready="$BATS_FILE_TMPDIR/ready" line=
    rm -f "$ready"
    mkfifo "$ready"
    "$MEMORY_SERVER" "$@" >"$ready" 2>"$BATS_FILE_TMPDIR/server.log" 3>&- &
    echo $! >"$BATS_FILE_TMPDIR/server.pid"
    read -rt 20 line <"$ready" && [ "$line" = ready ] && return
    cat "$BATS_FILE_TMPDIR/server.log" >&2
    return 1
}

stop_memory_server() {
    [ -f "$BATS_FILE_TMPDIR/server.pid" ] || return 0
    local pid
    pid=$(<"$BATS_FILE_TMPDIR/server.pid")
    rm "$BATS_FILE_TMPDIR/server.pid"
    kill -TERM "$pid" 2>/dev/null || return 0
    timeout 20 tail -f --pid="$pid" /dev/null
}

# Of the export, or of the one named.
# shellcheck disable=SC2120
nbd_uri() {
    echo "nbd+unix:///${1-$NBD_EXPORT}?socket=$NBD_SOCKET"
}

# Runs Python lines with h connected to the export.
nbd_python() {
    printf '%s\n' "$(<"$BATS_TEST_DIRNAME/nbd_client.py")" "$1" >"$BATS_TEST_TMPDIR/client.py"
    PYTHONPATH="$BATS_TEST_DIRNAME" timeout 60 /usr/bin/python3 "$BATS_TEST_TMPDIR/client.py" "$(nbd_uri "$NBD_EXPORT")" "$NBD_SOCKET" "$NBD_EXPORT"
}
