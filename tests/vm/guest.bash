# What lines that run in a virtual machine of the tests may use.

# within SECONDS COMMAND...: waits until it succeeds.
within() {
    local -r until=$((SECONDS + $1))
    until "${@:2}" > /dev/null 2>&1; do
        if ((SECONDS >= until)); then
            echo "not within $1 s: ${*:2}" >&2
            return 1
        fi
        read -r -t 0.1 <> <(:) || true
    done
}

# A store on the machine's disk, and a tarnd alone. What it says is in /tmp/tarnd.log. The machine forgets its files
# when its power is cut: so the configuration is one of this directory.
tarn_init() {
    tarn init --store /dev/vdb --memory 128MiB --host vm --config /tmp/tarn.toml --nbd-unix /run/tarn/nbd.sock \
        --cluster "$(sed -n 's/^cluster = "\(.*\)"/\1/p' /vm/tarn.toml)"
}
tarnd_start() {
    mkdir -p /run/tarn
    tarnd --config /vm/tarn.toml >> /tmp/tarnd.log 2>&1 &
    echo $! > /run/tarnd.pid
    within 60 tarn status || (cat /tmp/tarnd.log >&2 && false)
}
tarnd_end() {
    local -r pid=$(cat /run/tarnd.pid)
    kill "$1" "$pid"
    within 60 ended "$pid"
}
# It is a zombie until its parent, which may be the agent, looks.
ended() { ! grep -qs '^State:[[:space:]]*[A-Y]' "/proc/$1/status"; }
