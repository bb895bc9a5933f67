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

# A bare ! would let a line go on when its command succeeds.
fails() { ! "$@"; }

# tarn_init [DEVICE [OPTIONS...]]: a store there, or on the machine's disk, for a tarnd alone, or for what the options
# of tarn init say. What tarnd says is in /tmp/tarnd.log. The machine forgets its files when its power is cut: so the
# configuration is then one of this directory, of a tarnd alone on the machine's disk.
tarn_init() {
    tarn init --store "${1:-/dev/vdb}" --memory 128MiB --host "${NAME:-vm}" --config /run/tarn.toml \
        --nbd-unix /run/tarn/nbd.sock --cluster "$(sed -n 's/^cluster = "\(.*\)"/\1/p' /vm/tarn.toml)" "${@:2}"
}
tarnd_start() {
    local configuration=/run/tarn.toml
    [[ -e $configuration ]] || configuration=/vm/tarn.toml
    mkdir -p /run/tarn
    tarnd --config "$configuration" >> /tmp/tarnd.log 2>&1 &
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
# How many bytes of volumes the store has, once everything is there.
stored() {
    tarn list --json | jq -r ".volumes[].name" | xargs -n 1 tarn flush > /dev/null
    tarn status --json | jq .store_stored_bytes
}
# Whether this host has links to all others.
connected() { ! tarn status --json | jq -e '.peers[]? | select(.connected | not)'; }
# Whether another host does not answer.
silent() { tarn status --json | jq -e --arg name "$1" '.peers[] | select(.name == $name and (.answers | not))'; }
no_attachments() { [[ $(tarn attached --json | jq -c "[.attachments[] | select(.served)]") == "[]" ]]; }
no_keeper() { ! pidof tarn-keeper; }
another_keeper_than() { local keeper; keeper=$(pidof tarn-keeper) && [[ $keeper != "$1" ]]; }
mounted_by() { grep -q "/dev/nbd0 " "/proc/$1/mounts"; }
# Its request is with the device.
waits_for_the_device() { grep -q '^State:[[:space:]]*D' "/proc/$1/status"; }
# What waits for what, of a command that did not end.
tell_stuck() {
    ps --ppid 2 -p 2 --deselect -Lo pid,tid,stat,wchan:24,comm
    cat /sys/block/nbd0/inflight /sys/block/nvme0n1/inflight; tail -n 20 /tmp/tarnd.log; dmesg | tail -n 5
    return 1
} >&2
# Whether nbd0, or DEVICE, has answered so many requests since this was true the last time.
served() {
    local now
    now=$(awk '{ print $1 + $5 }' "/sys/block/${DEVICE:-nbd0}/stat")
    ((now >= ${served_before:=0} + $1)) && served_before=$now
}
# Where systemd runs.
booted() { systemctl is-active multi-user.target; }
has_failed_once() { (($(systemctl show --property=NRestarts --value "$1") > 0)); }
