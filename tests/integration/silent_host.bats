# A host that hangs, and keeps its connections: who only asks is answered at once, from what is known.

load tarn

setup_file() {
    cluster_make a b c
    cluster_start
    cluster_remember
    local name
    # Volumes in a row have their attributes on different hosts.
    for name in one two three four five six; do on a create "$name" 1MiB --shared --mode 0644; done
    on c list
}

teardown() { for host in a b c; do kill -CONT "$(pid_of "$host")" 2> /dev/null || true; done; }

does_not_answer() { on "$1" status | grep -E "^  $2 .*connected, does not answer"; }
answers() { on "$1" status --json | jq -e --arg peer "$2" '.peers[] | select(.name == $peer) | .answers'; }

# Much longer than it may take, and much shorter than for ever.
at_once() { timeout 8 env TARN_CONTROL="$CLUSTER/b/control.sock" "$@"; }

@test "tarn status answers, and says who does not" {
    within 5 answers b c
    run -0 at_once tarn status
    refute_output --partial "does not answer"
    local -r space=$(at_once tarn status --json | jq .space.total_bytes)
    kill -STOP "$(pid_of c)"
    run -0 at_once tarn status
    assert_output --partial "; as last told by c"
    within 5 does_not_answer b c
    within 5 does_not_answer a c
    [ "$(at_once tarn status --json | jq .space.total_bytes)" = "$space" ]
    grep -q "host 2 does not answer" "$CLUSTER/b/log"
    kill -CONT "$(pid_of c)"
    within 5 answers b c
    within 5 answers c b
    run -0 at_once tarn status
    refute_output --partial "as last told"
}

@test "a host that cannot be reached any more is noticed long before its connections break" {
    [[ $CLUSTER_NETWORK == namespaces ]] || skip "needs network namespaces"
    host_mute c
    within 5 does_not_answer b c
    run -0 at_once tarn status
    assert_output --partial "; as last told by c"
    run -5 at_once tarn create unheard 1MiB --shared
    assert_output --partial "host c does not answer"
    host_unmute c
    within 20 answers b c
    within 20 answers a c
}

@test "df and ls -la of a mount answer while a host hangs, with what was seen last" {
    [[ -w /dev/fuse && $EUID == 0 ]] || skip "needs /dev/fuse, and to be root"
    host_mount b
    local -r mount=$CLUSTER/b/mnt
    at_once ls -la "$mount" > "$BATS_TEST_TMPDIR/before"
    [ "$(grep -c 1048576 "$BATS_TEST_TMPDIR/before")" -eq 6 ]
    # What b has seen is not at hand any more: the attributes were changed elsewhere.
    local name
    for name in one two three four five six; do on c resize "$name" 2MiB; done
    exec 5< "$mount/one"
    for name in one two three four five six; do on c resize "$name" 3MiB; done
    on c create unseen-1 1MiB --shared
    on c create unseen-2 1MiB --shared
    on c create unseen-3 1MiB --shared
    kill -STOP "$(pid_of c)"
    run -0 at_once df "$mount"
    run at_once ls -la "$mount"
    [ "$status" -le 1 ]
    for name in one two three four five six unseen-1 unseen-2 unseen-3; do assert_line --regexp " $name$"; done
    # Of what b never saw, and c is home of, nothing is known.
    [ "$(grep -cE ' (1048576|2097152) .* (one|two|three|four|five|six)$' <<< "$output")" -eq 6 ]
    assert_line --regexp '\?\?\? .* unseen-[123]$'
    run -0 at_once stat -L -c %s /dev/fd/5
    [ "$output" -le 2097152 ]
    exec 5<&-
    kill -CONT "$(pid_of c)"
    within 5 answers b c
    run -0 at_once ls -la "$mount"
    [ "$(grep -c 3145728 <<< "$output")" -eq 6 ]
    on b umount "$mount"
}

@test "tarn create fails with the name of the host that hangs" {
    on c list
    kill -STOP "$(pid_of c)"
    run -5 at_once tarn create made 1MiB --shared
    assert_output --partial "host c does not answer"
    kill -CONT "$(pid_of c)"
    within 5 answers a c
    run -0 on b create made 1MiB --shared
}

@test "tarn create fails with the name of the registrar that hangs" {
    kill -STOP "$(pid_of a)"
    run -5 at_once tarn create later 1MiB --shared
    assert_output --partial "registrar"
    run -5 at_once tarn create other 1MiB --shared
    assert_output --partial "registrar"
    run -0 at_once tarn status
    kill -CONT "$(pid_of a)"
    within 5 answers b a
    within 5 on b create other 1MiB --shared
}
