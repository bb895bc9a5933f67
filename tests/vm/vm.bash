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
# Verified writes and reads of /dev/nbd0 while LINE runs; prints the longest wait of a request, in ms.
# shellcheck disable=SC2016 # the machine expands it
under_load() {
    vm 'fio --name=v --filename=/dev/nbd0 --size=64m --rw=randrw --bs=4k-64k --ioengine=io_uring --direct=1 --iodepth=16 \
            --verify=crc32c --verify_backlog=64 --time_based --runtime=600 --output=/tmp/fio.json --output-format=json &
        fio=$!
        '"$1"'
        within 60 served 500
        kill -INT $fio; wait $fio || [ $? = 128 ]
        sed -i "0,/^{/{/^{/!d}" /tmp/fio.json  # what it says of the signal
        jq -e ".jobs[0].error == 0" /tmp/fio.json > /tmp/verdict
        jq "[.jobs[0] | .read, .write | .clat_ns.max] | max / 1000000 | floor" /tmp/fio.json'
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
# Bats shows what it says if the test failed. A file whose setup skipped has no machine.
teardown() {
    sed -n 's/.*"kind": "\([a-z]*\)".*/the machine was \1/p' "$BATS_FILE_TMPDIR"/*/machine.json 2> /dev/null || true
}
vm_stop() {
    # A file whose setup skipped has no machine.
    [[ -e $(vm_directory)/pid ]] || return 0
    "$BATS_TEST_DIRNAME/machine.py" stop "$(vm_directory)"
    # For whoever asks why.
    if [[ -n ${VM_LOGS:-} ]]; then cp "$(vm_directory)"/*.log "$VM_LOGS"; fi
}
