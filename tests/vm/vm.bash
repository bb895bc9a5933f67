# What the tests in virtual machines share: one machine per file, with a tarnd of its own; or several, and VM=NAME says
# which is meant.

bats_load_library bats-support
bats_load_library bats-assert
bats_require_minimum_version 1.5.0

: "${TARN_BUILD:=$(cd "$BATS_TEST_DIRNAME/../../build/release" && pwd)}"
export TARN_BUILD

vm_directory() { echo "$BATS_FILE_TMPDIR/${VM:-machine}"; }
# vm_start [OPTIONS...]: those of machine.py start.
vm_start() {
    "$BATS_TEST_DIRNAME/machine.py" start "$(vm_directory)" "$@"
}
# vm LINE: runs it there; its output and status are those of the line.
vm() { "$BATS_TEST_DIRNAME/machine.py" exec "$(vm_directory)" "set -euo pipefail; . /vm/guest.bash; $1"; }
vm_power_cut() { "$BATS_TEST_DIRNAME/machine.py" kill "$(vm_directory)"; }
vm_boot() { "$BATS_TEST_DIRNAME/machine.py" boot "$(vm_directory)"; }
# It reboots by itself.
vm_reboot() {
    vm 'systemctl reboot' 2> /dev/null || true
    timeout 120 "$BATS_TEST_DIRNAME/machine.py" wait "$(vm_directory)"
    vm_boot
}
# run_systemd_in UPPER: changes of the root after which systemd is the first process, and runs the agent.
run_systemd_in() {
    local -r upper=$1 units=$1/etc/systemd/system
    mkdir -p "$units/multi-user.target.wants" "$upper/var/log/journal"
    echo 8ac0a3a24a0a4a0f9f5d6c1f2b3d4e5f > "$upper/etc/machine-id"
    printf '[Service]\nExecStart=/usr/bin/python3 /vm/agent.py\n' > "$units/agent.service"
    ln -s ../agent.service "$units/multi-user.target.wants/"
    ln -s /lib/systemd/system/multi-user.target "$units/default.target"
    local unit
    for unit in getty.target systemd-logind.service apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer \
        e2scrub_all.timer e2scrub_reap.service fstrim.timer systemd-binfmt.service modprobe@{dm_mod,loop}.service; do
        ln -s /dev/null "$units/$unit"
    done
}
vm_stop() {
    # A file whose setup skipped has no machine.
    [[ -e $(vm_directory)/pid ]] || return 0
    "$BATS_TEST_DIRNAME/machine.py" stop "$(vm_directory)"
    # For whoever asks why.
    if [[ -n ${VM_LOGS:-} ]]; then cp "$(vm_directory)"/*.log "$VM_LOGS"; fi
}
