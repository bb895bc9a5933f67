# The benches run to their end, and print their tables; what they measure is not looked at.

bats_load_library bats-support
bats_load_library bats-assert

bench() {
    TARN_BUILD=${TARN_BUILD:-$BATS_TEST_DIRNAME/../../build/release} BENCH_DIRECTORY=$BATS_TEST_TMPDIR \
        timeout 60 "$BATS_TEST_DIRNAME/../bench/$1.bash" --quick 3>&-
}

@test "the NBD bench" {
    command -v qemu-storage-daemon || skip "needs qemu-storage-daemon"
    run bench nbd
    assert_success
    assert_line --regexp '^\| 4 KiB read, depth 1 \| .* \| × [0-9.]+ \|'
    assert_equal "$(ls "$BATS_TEST_TMPDIR")" ""
}

@test "the bench of where requests are served" {
    run bench placement
    assert_success
    assert_line --regexp '^\| a client, depth 1 \| .* \| × [0-9.]+ \|'
    assert_equal "$(ls "$BATS_TEST_TMPDIR")" ""
}

@test "the FUSE bench" {
    [ -w /dev/fuse ] || skip "needs /dev/fuse"
    run bench fuse
    assert_success
    assert_line --regexp '^\| 4 KiB 70/30, depth 32 \|'
    assert_equal "$(ls "$BATS_TEST_TMPDIR")" ""
}

@test "the bench of the store" {
    run bench store
    assert_success
    assert_line --regexp '^\| 4 KiB read, depth 32 \|'
    assert_equal "$(ls "$BATS_TEST_TMPDIR")" ""
}

@test "the bench of other hosts' pages" {
    command -v redis-server || skip "needs redis-server"
    run bench remote
    assert_success
    assert_line --regexp '^\| 4 KiB remote read \| .* \| × [0-9.]+ \|'
    assert_line --regexp '^\| 128 KiB sequential read, depth 8 \| .* \| × [0-9.]+ \|'
    assert_equal "$(ls "$BATS_TEST_TMPDIR")" ""
}

@test "the bench of the fabric" {
    run bench fabric
    assert_success
    assert_line --regexp '^\| shm, one CPU \| .* \| × [0-9.]+ \|'
    assert_line --regexp '^\| shm, two CPUs \| .* \| × [0-9.]+ \|'
    assert_equal "$(ls "$BATS_TEST_TMPDIR")" ""
}
