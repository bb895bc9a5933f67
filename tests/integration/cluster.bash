# Clusters of real tarnd processes on this machine, for the demo and the integration tests. Source it.
#
# Each host is a tarnd with its own store and, as root, its own network namespace, joined by veth pairs to a bridge
# that lives in a namespace of its own; otherwise the hosts share this machine's loopback addresses. Everything made
# lies in $CLUSTER and is removed by cluster_down.
#
#   TARN_BUILD    where tarn and tarnd are
#   CLUSTER       a directory for everything of this cluster
#   HOST_MEMORY, HOST_STORE   sizes of each host
#   HOST_FABRIC   "tcp": links stay on TCP, so that the network can be cut; empty: they move to shared memory

: "${TARN_BUILD:?}"
HOST_MEMORY=${HOST_MEMORY:-64MiB}
HOST_STORE=${HOST_STORE:-1GiB}
PATH=$TARN_BUILD/daemon:$PATH

pause() { read -r -t 0.05 <> <(:) || true; }

# within SECONDS COMMAND...: runs it until it succeeds, at most so long.
within() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@" > /dev/null 2>&1; do
        if ((SECONDS >= deadline)); then
            "$@" >&2 && return # once more, to show why
            echo "not within the time allowed: $*" >&2
            return 1
        fi
        pause
    done
}

namespace() { echo "tarn-$CLUSTER_ID-$1"; }

# cluster_make NAME...: stores, key and configuration of each host; nothing runs yet.
cluster_make() {
    CLUSTER_ID=$(printf '%s' "$CLUSTER" | cksum | cut -d' ' -f1 | tail -c 5)
    HOSTS=("$@")
    mkdir -p "$CLUSTER"
    CLUSTER_UUID=$(cat /proc/sys/kernel/random/uuid)
    (umask 077 && od -An -tx1 -N32 /dev/urandom | tr -d ' \n' > "$CLUSTER/key" && echo >> "$CLUSTER/key")
    CLUSTER_NETWORK=namespaces
    if ! network_make 2> "$CLUSTER/network.log"; then
        network_remove
        CLUSTER_NETWORK=loopback
    fi
    local host peers=()
    for host in "${HOSTS[@]}"; do peers+=(--peer "$host=$(address_of "$host")"); done
    ((${#HOSTS[@]} > 1)) || peers=()
    for host in "${HOSTS[@]}"; do
        mkdir -p "$CLUSTER/$host/mnt"
        tarn init --store "$CLUSTER/$host/store" --size "$HOST_STORE" --memory "$HOST_MEMORY" \
            --config "$CLUSTER/$host/tarn.toml" --host "$host" "${peers[@]}" --cluster "$CLUSTER_UUID" \
            --key-file "$CLUSTER/key" --nbd-unix "$CLUSTER/$host/nbd.sock" > "$CLUSTER/$host/init.log"
        if [[ ${HOST_FABRIC:-} == tcp ]]; then sed -i '1i fabric = ["tcp"]' "$CLUSTER/$host/tarn.toml"; fi
    done
}

# For another process, such as bats has for each test: what cluster_make found out is kept beside the cluster.
cluster_remember() {
    declare -p CLUSTER_ID CLUSTER_NETWORK CLUSTER_UUID HOSTS | sed 's/^declare /declare -g /' > "$CLUSTER/state"
}
cluster_recall() {
    # shellcheck disable=SC1091
    source "$CLUSTER/state"
}

index_of() {
    local i
    for i in "${!HOSTS[@]}"; do [[ ${HOSTS[i]} == "$1" ]] && echo $((i + 1)) && return; done
    return 1
}

address_of() {
    if [[ $CLUSTER_NETWORK == namespaces ]]; then
        echo "10.77.0.$(index_of "$1"):7420"
    else
        echo "127.77.$((10#$CLUSTER_ID % 250)).$(index_of "$1"):7420"
    fi
}

network_make() {
    [[ $EUID == 0 ]] || return 1
    local host bridge
    bridge=$(namespace net)
    ip netns add "$bridge" || return 1
    ip -n "$bridge" link add bridge type bridge || return 1
    ip -n "$bridge" link set bridge up || return 1
    for host in "${HOSTS[@]}"; do
        local ns
        ns=$(namespace "$host")
        ip netns add "$ns" || return 1
        ip -n "$ns" link set lo up || return 1
        ip -n "$ns" link add eth0 type veth peer name "$host" netns "$bridge" || return 1
        ip -n "$bridge" link set dev "$host" master bridge up || return 1
        ip -n "$ns" address add "10.77.0.$(index_of "$host")/24" dev eth0 || return 1
        ip -n "$ns" link set eth0 up || return 1
    done
}

network_remove() {
    local name
    for name in "${HOSTS[@]}" net; do ip netns del "$(namespace "$name")" 2> /dev/null || true; done
}

# host_start NAME [FLAGS...]: returns when its control socket answers.
host_start() {
    tarnd_of "$@"
    disown
    host_answers "$1"
}
# host_run NAME [FLAGS...]: the same, but a child that can be waited for, for its exit code.
host_run() {
    tarnd_of "$@"
    host_answers "$1"
}
tarnd_of() {
    local host=$1 enter=()
    shift
    [[ $CLUSTER_NETWORK == namespaces ]] && enter=(nsenter "--net=/run/netns/$(namespace "$host")")
    # In a session of its own, as a service would be: the kernel shares the CPUs out among sessions, and one that fills
    # them keeps even the kernel's own threads, and with them the disk's completions, waiting for seconds.
    setsid "${enter[@]}" tarnd --config "$CLUSTER/$host/tarn.toml" --control "$CLUSTER/$host/control.sock" "$@" \
        >> "$CLUSTER/$host/log" 2>&1 3>&- &
    echo $! > "$CLUSTER/$host/pid"
}
host_answers() { within 20 test -S "$CLUSTER/$1/control.sock" && within 20 on "$1" status; }

pid_of() { cat "$CLUSTER/$1/pid"; }

# host_signal NAME SIGNAL: and waits for the process's end.
host_signal() {
    local pid
    pid=$(pid_of "$1")
    kill "-$2" "$pid"
    within 20 gone "$pid"
    rm -f "$CLUSTER/$1/pid"
}
gone() { ! kill -0 "$1" 2> /dev/null; }
# Only the process: the next host_start adopts its memory.
host_crash() { host_signal "$1" KILL; }
# And with it its memory, as if the machine had lost its power.
host_kill() {
    host_signal "$1" KILL
    forget_memory "$1"
}
forget_memory() { pkill -KILL -f "^tarn-keeper $CLUSTER/$1/" || true; }
host_stop() { host_signal "$1" TERM; }
# It hangs, until host_resume. The threads of a busy machine stop a little after the signal.
host_pause() {
    local pid
    pid=$(pid_of "$1")
    kill -STOP "$pid"
    within 20 rests "$pid"
}
host_resume() { kill -CONT "$(pid_of "$1")"; }
# Whether every thread is stopped, but for the kernel's own.
rests() {
    local task
    for task in /proc/"$1"/task/*; do
        [[ $(< "$task/comm") == iou-* ]] || grep -q '^State:.T' "$task/status" || return 1
    done
}

# on NAME VERB...: tarn on that host.
on() {
    local host=$1
    shift
    TARN_CONTROL="$CLUSTER/$host/control.sock" tarn "$@"
}

uri() { echo "nbd+unix:///$2?socket=$CLUSTER/$1/nbd.sock"; }

host_mount() { on "$1" mount "$CLUSTER/$1/mnt" > /dev/null; }

# With namespaces only. What the host sends is lost, while what it is sent arrives; or comes at 1 MB/s, late.
host_mute() { shape "$1" rate 8bit burst 1 limit 1; }
host_slow_down() { shape "$1" rate 8mbit burst 16kb latency 500ms; }
host_unmute() { tc -n "$(namespace "$1")" qdisc del dev eth0 root; }
shape() {
    local -r host=$1
    shift
    tc -n "$(namespace "$host")" qdisc add dev eth0 root tbf "$@"
}

cluster_start() {
    local host
    for host in "${HOSTS[@]}"; do host_start "$host" || return 1; done
    for host in "${HOSTS[@]}"; do within 20 connected "$host" || return 1; done
}

# Whether the host has links to all others.
connected() { ! on "$1" status --json | jq -e '.peers[]? | select(.connected | not)' > /dev/null; }
# not_connected HOST PEER
not_connected() {
    on "$1" status --json | jq -e --arg peer "$2" '.peers[] | select(.name == $peer) | .connected | not' > /dev/null
}

cluster_down() {
    local host
    for host in "${HOSTS[@]:-}"; do
        [[ -n $host ]] || continue
        if [[ -e $CLUSTER/$host/pid ]]; then
            kill -KILL "$(pid_of "$host")" 2> /dev/null || true
            within 10 gone "$(pid_of "$host")" || true
        fi
        forget_memory "$host"
        umount -l "$CLUSTER/$host/mnt" 2> /dev/null || true
    done
    network_remove
    rm -rf "$CLUSTER"
}
