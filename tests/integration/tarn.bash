# What the tests of whole daemons share: bats' helpers and a cluster per file.

bats_load_library bats-support
bats_load_library bats-assert
bats_require_minimum_version 1.5.0

: "${TARN_BUILD:=$(cd "$BATS_TEST_DIRNAME/../../build/release" && pwd)}"
export TARN_BUILD
CLUSTER=${BATS_FILE_TMPDIR:-$BATS_RUN_TMPDIR}/cluster
# shellcheck source=tests/integration/cluster.bash
source "$BATS_TEST_DIRNAME/cluster.bash"

# bats runs each test in a process of its own: what cluster_make found out is kept beside the cluster.
cluster_remember() {
    declare -p CLUSTER_ID CLUSTER_NETWORK CLUSTER_UUID HOSTS | sed 's/^declare /declare -g /' > "$CLUSTER/state"
}
cluster_recall() {
    # shellcheck disable=SC1091
    source "$CLUSTER/state"
}

# nbd_python HOST VOLUME LINES: Python with h connected to the export.
nbd_python() { timeout 60 env PATH="/usr/bin:$PATH" nbdsh -u "$(uri "$1" "$2")" -c "$3"; }

random_file() { head -c "$2" /dev/urandom > "$1"; }
sum() { sha256sum "$1" | cut -d' ' -f1; }
