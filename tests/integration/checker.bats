# Every register of a volume is linearizable over all hosts, both front ends and all faults, flushed writes stay, and
# no session that lost writes, or could have seen them, is left without an error.
#
# CHECKER_SECONDS and CHECKER_SEED make a run longer, or like another.

load tarn

setup_file() { cluster_for_all_tests a b c; }

@test "clients on three hosts see one volume, whatever breaks" {
    # Twenty times what a host holds in memory.
    local size=$((1280 << 20)) host hosts=() faults=pause,crash,kill
    on a create checked "$size" --shared
    for host in a b c; do
        host_mount "$host"
        hosts+=("$host=$(uri "$host" checked),$(uri "$host" checked),$CLUSTER/$host/mnt/checked")
    done
    if [[ $CLUSTER_NETWORK == namespaces ]]; then faults+=,cut,mute,slow; fi
    export CLUSTER
    timeout $((${CHECKER_SECONDS:-60} + 200)) "$TARN_BUILD/tests/checker/tarn_checker" --size "$size" \
        --time "${CHECKER_SECONDS:-60}" ${CHECKER_SEED:+--seed "$CHECKER_SEED"} --faults "$faults" \
        --hook "$BATS_TEST_DIRNAME/checker_hook.bash" "${hosts[@]}" 3>&- > "$BATS_TEST_TMPDIR/said" 2>&1 || {
        tail -n 40 "$BATS_TEST_TMPDIR/said"
        tail -n 15 "$CLUSTER"/{a,b,c}/log
        return 1
    }
    echo "# $(tail -n 1 "$BATS_TEST_TMPDIR/said")" >&3
    for host in a b c; do on "$host" umount "$CLUSTER/$host/mnt"; done
}
