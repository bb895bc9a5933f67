# PostgreSQL on ext4 on a volume that is attached: tarnd's death is a pause, and the machine's loses no commit.

load vm.bash

setup_file() {
    vm_start --volatile
    vm 'tarn_init; tarnd_start; modprobe nbd; tarn create database 256MiB; tarn attach database
        mkfs.ext4 -q /dev/nbd0; mount /dev/nbd0 /mnt'
    database 'postgres_init; postgres_start; as_postgres pgbench -iq -s 1
        as_postgres psql -qc "create table numbers (number int)"'
}
teardown_file() { vm_stop; }

database() { vm ". /vm/postgres.bash; $1"; }

# Prints each number once it is committed, for ever.
commit_numbers() {
    database 'yes "insert into numbers select count(*) + 1 from numbers returning number;" | as_postgres psql -qAt'
}

@test "pgbench goes on while tarnd is killed and started again" {
    run database 'as_postgres pgbench -n -c 4 -t 100 2>&1 & pgbench=$!
        for i in 1 2 3; do within 60 committed 80; tarnd_end -KILL; tarnd_start; done; wait $pgbench'
    assert_success
    assert_output --partial "number of transactions actually processed: 400/400"
    database 'as_postgres pg_amcheck --heapallindexed --install-missing'
}

@test "each commit that a client was told of is there after a power cut" {
    commit_numbers 2> /dev/null | head -n 100 > "$BATS_TEST_TMPDIR/told"
    vm_power_cut
    vm_boot
    database 'tarnd_start; modprobe nbd; tarn attach database; mount /dev/nbd0 /mnt; postgres_start'
    local -r told=$(tail -n 1 "$BATS_TEST_TMPDIR/told")
    ((told >= 100))
    run database 'as_postgres psql -qAtc "select count(*) >= '"$told"', max(number) = count(*) from numbers"'
    assert_output 't|t'
    run database 'as_postgres pg_amcheck --heapallindexed; postgres_stop; umount /mnt; fsck.ext4 -fn /dev/nbd0'
    assert_success
}
