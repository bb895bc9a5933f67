# Every register of a volume is linearizable over all hosts, both front ends and all faults, flushed writes stay, and
# no session that lost writes, or could have seen them, is left without an error.
#
# CHECKER_SECONDS and CHECKER_SEED make a run longer, or like another.

load tarn

setup_file() {
    export HOST_FABRIC=tcp  # the network is cut
    cluster_for_all_tests a b c
}

# check FAULTS SECONDS: Twenty times what a host holds in memory.
check() {
    local size=$((1280 << 20)) host hosts=() seconds=${CHECKER_SECONDS:-$2}
    on a create checked "$size" --shared
    for host in a b c; do
        host_mount "$host"
        hosts+=("$host=$(uri "$host" checked),$(uri "$host" checked),$CLUSTER/$host/mnt/checked")
    done
    export CLUSTER
    timeout $((seconds + 200)) "$TARN_BUILD/tests/checker/tarn_checker" --size "$size" \
        --time "$seconds" ${CHECKER_SEED:+--seed "$CHECKER_SEED"} --faults "$1" \
        --hook "$BATS_TEST_DIRNAME/checker_hook.bash" "${hosts[@]}" 3>&- > "$BATS_TEST_TMPDIR/said" 2>&1 || {
        tail -n 40 "$BATS_TEST_TMPDIR/said"
        tail -n 15 "$CLUSTER"/{a,b,c}/log
        return 1
    }
    echo "# $(tail -n 1 "$BATS_TEST_TMPDIR/said")" >&3
    for host in a b c; do on "$host" umount "$CLUSTER/$host/mnt"; done
    within 20 on a delete checked
}

@test "clients on three hosts see one volume, whatever breaks" {
    local faults=pause,crash,kill
    if [[ $CLUSTER_NETWORK == namespaces ]]; then faults+=,cut,mute,slow; fi
    check "$faults" 60
}

# transport_is TRANSPORT HOST PEER
transport_is() {
    on "$2" status --json |
        jq -e --arg transport "$1" --arg peer "$3" '.peers[] | select(.name == $peer) | .link.transport == $transport'
}

@test "the same over shared memory, and over TCP to one that has none" {
    local host
    for host in a b c; do host_stop "$host"; done
    for host in a b; do sed -i '/^fabric = /d' "$CLUSTER/$host/tarn.toml"; done
    cluster_start
    within 20 transport_is shm a b
    within 20 transport_is tcp a c
    within 20 transport_is tcp c b
    check pause,crash,kill 30
}
