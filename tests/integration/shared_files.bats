# Files that several mounts write, append to, cut and read at once.

load tarn

setup_file() {
    cluster_for_all_tests a b c
    for host in a b c; do host_mount "$host"; done
}

@test "some order of the operations explains what every mount saw" {
    run -0 "$BATS_TEST_DIRNAME/../checker/file_checker.py" --rounds 300 "$CLUSTER"/{a,b,c}/mnt/checked
    assert_output --partial "300 rounds of 6 operations"
}

@test "the checker finds a file system that is none: files of their own, that nobody keeps alike" {
    mkdir -p "$BATS_TEST_TMPDIR"/{a,b}
    run ! "$BATS_TEST_DIRNAME/../checker/file_checker.py" --rounds 20 "$BATS_TEST_TMPDIR"/{a,b}/checked
    assert_output --regexp "no order explains|show different files"
}

# Who has seen a file cut writes past its new end, while what was cut off is still being zeroed.
@test "what is written after a truncation stays, however large it was before" {
    for round in {1..6}; do
        head -c 24M /dev/zero | tr '\0' x > "$CLUSTER/a/mnt/large"
        python3 -c '
import os, sys
file = os.open(sys.argv[1], os.O_RDWR)
while os.fstat(file).st_size != 4096:
    pass
assert os.pwrite(file, b"y" * 70000, 20 << 20) == 70000
' "$CLUSTER/b/mnt/large" &
        truncate -s 4096 "$CLUSTER/a/mnt/large"
        wait $!
        [ "$(tr -dc y < "$CLUSTER/c/mnt/large" | wc -c)" -eq 70000 ]
        [ "$(tr -dc x < "$CLUSTER/c/mnt/large" | wc -c)" -eq 4096 ]
        [ "$(stat -c %s "$CLUSTER/c/mnt/large")" -eq $(((20 << 20) + 70000)) ]
    done
}

@test "lines that all hosts append to one log are all there, whole, and seen by who follows it" {
    local log=mnt/log host writers=()
    for host in a b c; do
        for i in {1..150}; do echo "$host $i $(printf '%*s' $((i % 90)) '' | tr ' ' .)"; done > "$BATS_TEST_TMPDIR/$host"
        python3 -c '
import os, sys
out = os.open(sys.argv[2], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
for line in open(sys.argv[1], "rb"):
    os.write(out, line)
' "$BATS_TEST_TMPDIR/$host" "$CLUSTER/$host/$log" &
        writers+=($!)
    done
    python3 -c '
import os, sys
while not os.path.exists(sys.argv[1]): pass
seen = 0
while seen < 450:
    data = open(sys.argv[1], "rb").read()
    assert b"\0" not in data and (not data or data.endswith(b"\n")), data[-200:]
    assert data.count(b"\n") >= seen
    seen = data.count(b"\n")
' "$CLUSTER/c/$log"
    wait "${writers[@]}"
    for host in a b c; do grep "^$host " "$CLUSTER/a/$log" | cmp - "$BATS_TEST_TMPDIR/$host"; done
}

# The reply lets the client close the file while the thread that replied still holds the pages it has sent.
@test "whoever closes a file as soon as it has read takes nothing away from the thread that answered" {
    local readers=() i
    head -c 100000 /dev/urandom > "$CLUSTER/a/mnt/closed"
    for i in 1 2 3 4; do
        python3 -c '
import os, sys
for _ in range(3000):
    file = os.open(sys.argv[1], os.O_RDONLY)
    assert len(os.pread(file, 65536, 0)) == 65536
    os.close(file)
' "$CLUSTER/a/mnt/closed" &
        readers+=($!)
    done
    for i in "${readers[@]}"; do wait "$i"; done
    run -0 on a status
}
