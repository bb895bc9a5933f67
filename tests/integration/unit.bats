# The unit of systemd: what it allows is what tarnd needs.

load tarn

CLUSTER=/tmp/tarn-unit-${BATS_RUN_TMPDIR##*-}
UNIT=$BATS_TEST_DIRNAME/../../packaging/tarnd.service

setup() {
    [[ $EUID == 0 ]] || skip "needs to be root"
    command -v systemd-analyze > /dev/null || skip "needs systemd-analyze"
    mkdir "$CLUSTER"
}
teardown() {
    if [ -e "$CLUSTER/state" ]; then cluster_recall && cluster_down; fi
    rm -rf "$CLUSTER"
}

values() { sed -n "s/^$1=//p" "$UNIT"; }

# A cluster of one host whose tarnd is started by the line given, which ends with "$0" "$@" for it.
start_wrapped() {
    mkdir -p "$CLUSTER/bin"
    printf '#!/bin/bash\n%s\n' "${1//__TARND__/$TARN_BUILD/daemon/tarnd}" > "$CLUSTER/bin/tarnd"
    chmod +x "$CLUSTER/bin/tarnd"
    cluster_make solo
    PATH=$CLUSTER/bin:$PATH
    cluster_start
    cluster_remember
}

# All that it does: store, volumes, NBD, mounts for another user, a crash, a stop.
use_all() {
    chmod 755 "$CLUSTER" "$CLUSTER/solo"
    on solo create disk 64MiB --shared --mode 0666
    random_file "$BATS_TEST_TMPDIR/bytes" 8M
    timeout 60 nbdcopy --flush "$BATS_TEST_TMPDIR/bytes" "$(uri solo disk)"
    if [ -w /dev/fuse ]; then
        mkdir "$CLUSTER/mine"
        chown nobody:nogroup "$CLUSTER/mine" && chown root:nogroup "$CLUSTER/solo/control.sock"
        TARN_CONTROL=$CLUSTER/solo/control.sock setpriv --reuid nobody --regid nogroup --clear-groups \
            tarn mount "$CLUSTER/mine"
        cmp --bytes=8M "$BATS_TEST_TMPDIR/bytes" "$CLUSTER/mine/disk"
        echo changed > "$CLUSTER/mine/disk"
        sync "$CLUSTER/mine/disk"
        run -4 bash -c "exec 5< '$CLUSTER/mine/disk'; tarn --control '$CLUSTER/solo/control.sock' umount '$CLUSTER/mine'"
        on solo umount --force "$CLUSTER/mine"
        run ! mountpoint -q "$CLUSTER/mine"
    fi
    on solo status
    on solo verify disk
    host_crash solo
    host_start solo
    grep -q "memory: adopted" "$CLUSTER/solo/log"
    on solo delete disk
    host_stop solo
}

@test "systemd-analyze finds no mistake in the units" {
    sed "s|^ExecStart=.*|ExecStart=$TARN_BUILD/daemon/tarnd|" "$UNIT" > "$CLUSTER/tarnd.service"
    run systemd-analyze verify --man=no "$CLUSTER/tarnd.service"
    refute_output --partial "$CLUSTER/tarnd.service"
    cp "${UNIT%.service}-nbd.socket" "$CLUSTER"
    run systemd-analyze verify --man=no "$CLUSTER/tarnd-nbd.socket"
    refute_output --partial "$CLUSTER/tarnd-nbd.socket"
    sed "s|:/usr/bin/tarn|:$TARN_BUILD/daemon/tarn|" "${UNIT%d.service}-attach@.service" > "$CLUSTER/tarn-attach@.service"
    run systemd-analyze verify --man=no "$CLUSTER/tarn-attach@db.service"
    refute_output --partial "tarn-attach@"
}

# Each line that is above names its reason in the unit.
@test "systemd-analyze security rates the unit as it was left" {
    run -0 systemd-analyze security --offline=yes --no-pager --threshold=44 "$UNIT"
    local missing
    missing=$(sed -nE 's/^✗ (RootDirectory|User|PrivateDevices|ProtectKernelLogs|ProtectControlGroups|ProtectKernelModules|PrivateMounts|ProtectHostname|ProtectKernelTunables|ProtectSystem|ProtectProc|ProcSubset|ProtectHome|PrivateNetwork|PrivateUsers|PrivateTmp|IPAddressDeny|UMask|DeviceAllow|RestrictAddressFamilies|SystemCallFilter|CapabilityBoundingSet)=.*//p' <<< "$output" | wc -l)
    [ "$missing" -eq "$(grep -c '^✗' <<< "$output")" ]
}

@test "tarnd needs no more capabilities than the unit gives it" {
    local capabilities
    capabilities=$(values CapabilityBoundingSet | tr 'A-Z' 'a-z' | sed 's/cap_/+/g; s/ /,/g')
    start_wrapped "exec setpriv --bounding-set=-all,$capabilities --no-new-privs __TARND__ \"\$@\""
    use_all
}

@test "tarnd makes no system call that the unit forbids" {
    command -v strace > /dev/null || skip "needs strace"
    start_wrapped "exec strace -D -f -qq -s 0 -o '$CLUSTER/calls.'\$\$ __TARND__ \"\$@\""
    use_all
    local set allowed
    members() { systemd-analyze syscall-filter --no-pager "$1" | sed 's/^ *//; /^#/d; /^$/d'; }
    # What a set has, with those that are named in it.
    all_of() {
        local name
        for name in "$@"; do
            if [[ $name == @* ]]; then all_of $(members "$name" | tail -n +2); else echo "$name"; fi
        done
    }
    # Each line adds to those before, or takes from them.
    local line
    while read -r line; do
        if [[ $line == ~* ]]; then
            allowed=$(comm -23 <(echo "$allowed") <(all_of ${line#\~} | sort -u))
        else
            allowed=$({ echo "$allowed"; all_of $line; } | sort -u)
        fi
    done < <(values SystemCallFilter)
    for set in write openat io_uring_enter mount setresuid; do grep -qx "$set" <<< "$allowed"; done
    for set in reboot init_module clock_settime sethostname keyctl setpriority; do run ! grep -qx "$set" <<< "$allowed"; done
    sed -nE 's/^[0-9]+ +([a-z_0-9]+)\(.*/\1/p' "$CLUSTER"/calls.* | sort -u > "$BATS_TEST_TMPDIR/made"
    grep -qx io_uring_enter "$BATS_TEST_TMPDIR/made"
    # Those of the wrapper are not asked.
    run comm -13 <(sort -u <<< "$allowed") "$BATS_TEST_TMPDIR/made"
    assert_output ""
}
