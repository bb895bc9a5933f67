# What the tests of whole daemons share: bats' helpers and a cluster per file.

bats_load_library bats-support
bats_load_library bats-assert
bats_require_minimum_version 1.5.0

: "${TARN_BUILD:=$(cd "$BATS_TEST_DIRNAME/../../build/release" && pwd)}"
export TARN_BUILD
export MALLOC_PERTURB_=165 # who uses memory that was freed finds other bytes there
CLUSTER=${BATS_FILE_TMPDIR:-$BATS_RUN_TMPDIR}/cluster
# shellcheck source=tests/integration/cluster.bash
source "$BATS_TEST_DIRNAME/cluster.bash"
load ../support/skip.bash

# cluster_for_all_tests NAME...: for setup_file; these are the set-up and the end of a test file that needs nothing else.
cluster_for_all_tests() {
    cluster_make "$@"
    cluster_start
    cluster_remember
}
setup() {
    skip_with_file
    cluster_recall
}
teardown_file() {
    if file_skips; then return; fi
    cluster_recall
    cluster_down
}

# nbd_python HOST VOLUME LINES: Python with h connected to the export.
nbd_python() { timeout 60 env PATH="/usr/bin:$PATH" nbdsh -u "$(uri "$1" "$2")" -c "$3"; }

# client_start HOST VOLUME < PROGRAM: Python with h connected to the export, side by side with the test. CLIENT is its
# process; it prints into $CLIENT_SAID, first the line "open", and at each readline() waits for client_go or client_end.
client_start() {
    CLIENT_SAID=$BATS_TEST_TMPDIR/client.said
    cat > "$BATS_TEST_TMPDIR/client.py"
    mkfifo "$BATS_TEST_TMPDIR/client.go"
    PATH="/usr/bin:$PATH" nbdsh -u "$(uri "$1" "$2")" -c "$(cat "$BATS_TEST_TMPDIR/client.py")" \
        < "$BATS_TEST_TMPDIR/client.go" > "$CLIENT_SAID" 2>&1 3>&- &
    CLIENT=$!
    exec 4> "$BATS_TEST_TMPDIR/client.go"
    within 10 grep -q open "$CLIENT_SAID"
}
client_go() { echo >&4; }
client_end() {
    exec 4>&-
    wait "$CLIENT"
}

random_file() { head -c "$2" /dev/urandom > "$1"; }
sum() { sha256sum "$1" | cut -d' ' -f1; }
