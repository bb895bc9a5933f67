# What the tests in virtual machines share: one machine per file, with a tarnd of its own.

bats_load_library bats-support
bats_load_library bats-assert
bats_require_minimum_version 1.5.0

: "${TARN_BUILD:=$(cd "$BATS_TEST_DIRNAME/../../build/release" && pwd)}"
export TARN_BUILD

# vm_start [OPTIONS...]: those of machine.py start.
vm_start() {
    [[ $EUID -eq 0 ]] || skip "needs to be root"
    "$BATS_TEST_DIRNAME/machine.py" start "$BATS_FILE_TMPDIR/machine" "$@"
}
# vm LINE: runs it there; its output and status are those of the line.
vm() { "$BATS_TEST_DIRNAME/machine.py" exec "$BATS_FILE_TMPDIR/machine" "set -euo pipefail; . /vm/guest.bash; $1"; }
vm_power_cut() { "$BATS_TEST_DIRNAME/machine.py" kill "$BATS_FILE_TMPDIR/machine"; }
vm_boot() { "$BATS_TEST_DIRNAME/machine.py" boot "$BATS_FILE_TMPDIR/machine"; }
vm_stop() {
    if [[ -e $BATS_FILE_TMPDIR/machine/pid ]]; then "$BATS_TEST_DIRNAME/machine.py" stop "$BATS_FILE_TMPDIR/machine"; fi
    # For whoever asks why.
    if [[ -n ${VM_LOGS:-} ]]; then cp "$BATS_FILE_TMPDIR"/machine/*.log "$VM_LOGS"; fi
}
