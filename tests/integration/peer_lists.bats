# Hosts that were given the list of peers in another order take each other for somebody else: they say that.

load tarn

teardown() { cluster_down; }
teardown_file() { :; }
setup() { CLUSTER=$BATS_TEST_TMPDIR/cluster; }

# init_again HOST PEER...: with the peers in this order.
init_again() {
    local host=$1 peer peers=()
    shift
    for peer in "$@"; do peers+=(--peer "$peer=$(address_of "$peer")"); done
    tarn init --replace-config --force --store "$CLUSTER/$host/store" --size "$HOST_STORE" --memory "$HOST_MEMORY" \
        --config "$CLUSTER/$host/tarn.toml" --host "$host" "${peers[@]}" --cluster "$CLUSTER_UUID" \
        --key-file "$CLUSTER/key" > /dev/null
}
says() { grep "its list of peers is not ours; all hosts must be given the same hosts in the same order" "$CLUSTER/$1/log"; }

@test "of two hosts that both take themselves for the first each says why they have no link" {
    cluster_make a b
    init_again b b a
    host_start a
    host_start b
    within 20 says a
    within 20 says b
    run -0 on a status
    assert_output --partial unreachable
}

@test "a host with another order is named by the two others, which have their link" {
    cluster_make a b c
    init_again c c b a
    for host in a b c; do host_start "$host"; done
    within 20 says a
    within 20 says c
    not_connected a c
    linked() { on a status --json | jq -e '.peers[] | select(.name == "b") | .connected'; }
    within 20 linked
}
