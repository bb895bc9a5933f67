# What ./dev says before it installs or builds anything.

load tarn

setup() {
    # Alone in a directory, and with tools that only note that they were called.
    cp "$BATS_TEST_DIRNAME/../../dev" "$BATS_TEST_TMPDIR"
    mkdir "$BATS_TEST_TMPDIR/bin"
    local tool
    for tool in apt-get sudo meson ninja; do
        printf '#!/bin/sh\ntouch "%s/called"\n' "$BATS_TEST_TMPDIR" > "$BATS_TEST_TMPDIR/bin/$tool"
    done
    chmod +x "$BATS_TEST_TMPDIR"/bin/*
    PATH=$BATS_TEST_TMPDIR/bin:$PATH
}
teardown_file() { :; }
dev() { "$BATS_TEST_TMPDIR/dev" "$@"; }

@test "help of a verb is what the usage says of it, and does nothing else" {
    local verb
    for verb in deps build install package demo test sim mutants fuzz bench lint fmt clean; do
        run -0 dev "$verb" --help
        assert_line --index 0 --regexp "^  $verb "
        refute_output --partial "VERB"
    done
    run -0 dev test --help
    assert_output --partial "[unit|sim|integration|vm]"
    [ ! -e "$BATS_TEST_TMPDIR/called" ]
}

@test "an unknown option is refused with those that are allowed, before anything is installed or built" {
    local verb
    for verb in deps build install package demo test fuzz lint fmt clean; do
        run -1 dev "$verb" --bogus
        assert_line --index 0 "dev: $verb: unknown option --bogus; allowed is:"
        assert_line --index 1 --regexp "^  $verb "
    done
    run -1 dev demo --kee
    assert_output --partial "demo [--keep]"
    run -1 dev demo bogus
    assert_output --partial "demo [--keep]"
    run -1 dev test --full --sa
    [ ! -e "$BATS_TEST_TMPDIR/called" ]
}

@test "demo --end leaves neither processes, nor namespaces, nor files of a cluster that was kept" {
    CLUSTER=$BATS_TEST_TMPDIR/cluster
    cluster_make a b
    cluster_start
    cluster_remember
    host_crash a # its keeper stays
    run -0 "$BATS_TEST_DIRNAME/../../dev" demo --end "$CLUSTER"
    assert_output --partial "ended the cluster that was in $CLUSTER"
    run -1 pgrep -f "^(tarn-keeper|tarnd .*) $CLUSTER/"
    run ! grep -q "tarn-$CLUSTER_ID-" <(ip netns list)
    [ ! -e "$CLUSTER" ]
    run -1 "$BATS_TEST_DIRNAME/../../dev" demo --end "$BATS_TEST_TMPDIR"
    assert_output --partial "no cluster of a demo"
    [ -e "$BATS_TEST_TMPDIR" ]
}
