# What lines that use PostgreSQL in a virtual machine of the tests may use. Its data is in /mnt.

as_postgres() {
    setpriv --reuid postgres --regid postgres --init-groups \
        env --chdir=/ HOME=/tmp PGHOST=/run/postgresql PATH=/usr/lib/postgresql/15/bin:/usr/bin:/bin "$@"
}
postgres_init() {
    install -d -o postgres -m 700 /mnt/data
    as_postgres initdb -D /mnt/data --wal-segsize=1 --no-instructions -A trust > /dev/null
    printf '%s\n' "listen_addresses = ''" "shared_buffers = 16MB" "max_wal_size = 16MB" "min_wal_size = 4MB" \
        "jit = off" >> /mnt/data/postgresql.conf
}
postgres_start() {
    install -d -o postgres /run/postgresql
    as_postgres pg_ctl -D /mnt/data -s -w -t 60 -l /run/postgresql/log start || (cat /run/postgresql/log >&2 && false)
}
postgres_stop() { as_postgres pg_ctl -D /mnt/data -s -w stop; }
# Whether pgbench has committed so many transactions since this was true the last time.
committed() {
    local now
    now=$(as_postgres psql -qAtc 'select count(*) from pgbench_history')
    ((now >= ${committed_before:=0} + $1)) && committed_before=$now
}
