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
# Of one that does not come to serve.
host_run_to_end() { tarnd --config "$CLUSTER/$1/tarn.toml" --control "$CLUSTER/$1/control.sock" 2>&1; }
# status_of HOST PEER: why it has no link with it.
status_of() { on "$1" status --json | jq -r --arg peer "$2" '.peers[] | select(.name == $peer) | .reason'; }
status_says() { status_of "$1" "$2" | grep -q "$3"; }
says() { grep "its list of peers is not ours; all hosts must be given the same hosts in the same order" "$CLUSTER/$1/log"; }

@test "of two hosts that both take themselves for the first each says why they have no link" {
    cluster_make a b
    init_again b b a
    host_start a
    host_start b
    within 20 says a
    within 20 says b
    run -0 on a status
    assert_output --regexp 'unreachable: its list of peers is not ours'
    assert_output --regexp 'space .* in all, .* free; without b, whose space is not known yet'
}

@test "a host with another order is named by the two others, which have their link" {
    cluster_make a b c
    init_again c c b a
    for host in a b c; do host_start "$host"; done
    within 20 says a
    within 20 says c
    within 20 grep "no link with host c at .*: .*list of peers" "$CLUSTER/a/log"
    within 20 status_says a c "its list of peers is not ours"
    not_connected a c
    linked() { on a status --json | jq -e '.peers[] | select(.name == "b") | .connected'; }
    within 20 linked
    [ -z "$(status_of a b)" ]
}

@test "a wrong key and another cluster are named on both sides" {
    cluster_make a b
    sed -i "s|^key_file = .*|key_file = \"$CLUSTER/b/key\"|" "$CLUSTER/b/tarn.toml"
    (umask 077 && tr 0-9a-f 1-9a-f0 < "$CLUSTER/key" > "$CLUSTER/b/key")
    host_start a
    host_start b
    within 20 status_says b a "wrong key"
    within 20 status_says a b "is its key the same"
    host_stop b
    sed -i "s|^key_file = .*|key_file = \"$CLUSTER/key\"|" "$CLUSTER/b/tarn.toml"
    host_start b
    for host in a b; do within 20 connected "$host"; done
    [ -z "$(status_of a b)" ]
    [ -z "$(status_of b a)" ]
    host_stop b
    rm "$CLUSTER/b/store"
    CLUSTER_UUID=$(cat /proc/sys/kernel/random/uuid) init_again b a b
    host_start b
    within 20 status_says a b "of another cluster"
    within 20 status_says b a "its log says why"
}

# correct_order HOST FROM: with the peers, and nothing else, as that host has them.
correct_order() {
    local config=$CLUSTER/$1/tarn.toml
    { sed '/^\[\[peer\]\]/,$d' "$config"; sed -n '/^\[\[peer\]\]/,/^$/p' "$CLUSTER/$2/tarn.toml"; } > "$config.new"
    mv "$config.new" "$config"
}

@test "a host whose list was corrected before it met another keeps its store" {
    cluster_make a b c
    init_again c c b a
    for host in a b c; do host_start "$host"; done
    within 20 says c
    host_stop c
    correct_order c a
    host_start c
    for host in a b c; do within 20 connected "$host"; done
    on c create vol1 1MiB
}

@test "a host that has stored something under a wrong order is told both orders and what to do" {
    cluster_make c b a
    host_start c
    for host in b a; do host_start "$host"; done
    for host in a b c; do within 20 connected "$host"; done
    for host in b a c; do host_stop "$host"; done
    init_again a a b c
    cp "$CLUSTER/c/tarn.toml" "$CLUSTER/c/before.toml"
    correct_order c a
    run -3 host_run_to_end c
    assert_output --partial "for host 1 of another list of peers; here c is host 3 of a, b, c"
    assert_output --partial "put the peers back into the order in which c was host 1"
    mv "$CLUSTER/c/before.toml" "$CLUSTER/c/tarn.toml"
    host_start c
}
