# Where requests are served: shards on their CPUs, and connections that follow their client.

load tarn

# Each test has a tarnd of its own.
setup() {
    cluster_make solo
    cluster_remember
}
teardown() {
    stop_client
    if [ -n "${SWITCH_BEFORE-}" ]; then echo "$SWITCH_BEFORE" > /sys/module/fuse/parameters/enable_uring; fi
    if [ -e "$CLUSTER/state" ]; then cluster_recall && cluster_down; fi
    rm -rf "$CLUSTER"
}
setup_file() { :; }
teardown_file() { :; }

# One page of a new volume, read again and again by a client on the CPU given.
start_client() {
    on solo create disk 16MiB
    timeout 100 env PATH="/usr/bin:$PATH" taskset -c "$1" nbdsh -u "$(uri solo disk)" -c '
h.pwrite(b"x" * 4096, 0)
while True: h.pread(4096, 0)' 3>&- &
    CLIENT=$!
}
stop_client() {
    if [ -z "${CLIENT-}" ]; then return; fi
    pkill -P "$CLIENT" || true
    wait "$CLIENT" || true
    CLIENT=
}
client_to() { taskset -acp "$1" "$(pgrep -P "$CLIENT")"; }

cpus() { python3 -c 'import os; print(*sorted(os.sched_getaffinity(0)))'; }
of_shard() { on solo status --json | jq -r --arg cpu "$1" ".shards[] | select(.cpus == \$cpu) | $2"; }
has_connection() { [ "$(of_shard "$1" .nbd_connections)" = 1 ]; }

@test "there is a shard for each CPU, and its thread runs there" {
    cluster_start
    local list
    read -ra list <<< "$(cpus)"
    [ "$(on solo status --json | jq -c '[.shards[].cpus]')" = "$(printf '"%s"\n' "${list[@]}" | jq -sc .)" ]
    local thread affinities=()
    for thread in /proc/"$(pid_of solo)"/task/*; do
        affinities+=("$(sed -n 's/^Cpus_allowed_list:\t//p' "$thread/status")")
    done
    local cpu
    for cpu in "${list[@]}"; do grep -qx "$cpu" <<< "$(printf '%s\n' "${affinities[@]}")"; done
    run -0 on solo status --shards
    assert_line --regexp "^ +${list[0]} +joined +0 +0 +0 +"
}

@test "a connection follows its client to another CPU, and back" {
    local list cpu
    read -ra list <<< "$(cpus)"
    ((${#list[@]} > 1)) || skip "needs two CPUs"
    cluster_start
    start_client "${list[0]}"
    within 20 has_connection "${list[0]}"
    for cpu in "${list[1]}" "${list[0]}" "${list[1]}"; do
        client_to "$cpu"
        within 20 has_connection "$cpu"
    done
    [ "$(of_shard "${list[0]}" .nbd_connections)" = 0 ]
    stop_client
    within 10 eval '[ "$(on solo status --json | jq "[.shards[].nbd_connections] | add")" = 0 ]'
}

@test "with pin = off the scheduler places threads and connections stay" {
    sed -i '1i pin = "off"' "$CLUSTER/solo/tarn.toml"
    cluster_start
    [ "$(on solo status --json | jq -c '[.shards[].mode] | unique')" = '["free"]' ]
    local thread
    for thread in /proc/"$(pid_of solo)"/task/*; do
        [ "$(taskset -cp "${thread##*/}" | sed 's/.*: //')" = "$(taskset -cp $$ | sed 's/.*: //')" ]
    done
    echo 'pin = "on"' > "$CLUSTER/solo/wrong.toml"
    run -2 tarnd --check-config --config "$CLUSTER/solo/wrong.toml"
    assert_output --partial 'pin: not "auto" or "off"'
}

@test "under an affinity to one CPU there is one shard, on that CPU" {
    local list
    read -ra list <<< "$(cpus)"
    taskset -cp "${list[-1]}" $BASHPID
    cluster_start
    [ "$(on solo status --json | jq -c '[.shards[].cpus]')" = "[\"${list[-1]}\"]" ]
    start_client "${list[-1]}"
    within 20 has_connection "${list[-1]}"
}

requests() { on solo status --json | jq '[.shards[].requests] | add'; }
serves_more_than() { (($(requests) > $1)); }
is_divided() { [ "$(on solo status --json | jq -c '[.shards[].cpus]')" = "$1" ]; }

@test "when the CPUs of the process change, its shards get theirs" {
    local list
    read -ra list <<< "$(cpus)"
    ((${#list[@]} == 2)) || skip "needs two CPUs"
    cluster_start
    start_client "${list[0]}"
    within 20 has_connection "${list[0]}"
    taskset -acp "${list[1]}" "$(pid_of solo)"
    within 20 is_divided "[\"${list[1]}\",\"${list[1]}\"]"
    client_to "${list[1]}"
    local served
    served=$(requests)
    within 20 serves_more_than $((served + 2000))
    taskset -acp "${list[0]},${list[1]}" "$(pid_of solo)"
    client_to "${list[0]}"
    within 20 is_divided "[\"${list[0]}\",\"${list[1]}\"]"
    within 20 has_connection "${list[0]}"
}

# How often its threads have waited so far; not those of the kernel, which look after themselves.
waits() {
    cat /proc/"$(pid_of solo)"/task/*/status |
        awk '$1 == "Name:" { ours = $2 !~ /^iou-/ } ours && $1 == "voluntary_ctxt_switches:" { sum += $2 } END { print sum }'
}
rests() {
    local before
    before=$(waits)
    read -r -t 1 <> <(:) || true
    [ "$(waits)" = "$before" ]
}
works() { (($(of_shard "$1" .requests) > 2000)); }

@test "a daemon without work does not wake up, also after work" {
    local list
    read -ra list <<< "$(cpus)"
    cluster_start
    within 20 rests
    start_client "${list[-1]}"
    within 20 works "${list[-1]}"
    kill -STOP "$(pgrep -P "$CLIENT")"
    within 20 rests
    kill -CONT "$(pgrep -P "$CLIENT")"
    stop_client
    local round
    for round in 1 2; do
        qemu-io -f raw -c "write -P $round 0 16M" -c flush "$(uri solo disk)"
        within 20 rests
    done
}

# has_link HOST CPU: its only link is served there.
has_link() { [ "$(on "$1" status --json | jq --arg cpu "$2" '.shards[] | select(.cpus == $cpu) | .links')" = 1 ]; }

@test "a link is served on the CPU that takes in its packets, also when that changes with a new connection" {
    local list cpu
    read -ra list <<< "$(cpus)"
    ((${#list[@]} > 1)) || skip "needs two CPUs"
    [ "$CLUSTER_NETWORK" = namespaces ] || skip "needs network namespaces"
    cluster_down
    rm -rf "$CLUSTER"
    HOST_FABRIC=tcp cluster_make a b
    cluster_remember
    steer "${list[1]}"
    cluster_start
    on a create disk 16MiB --shared
    for cpu in "${list[1]}" "${list[0]}" "${list[1]}"; do
        steer "$cpu"
        host_crash b
        host_start b
        within 20 has_link a "$cpu"
        within 20 has_link b "$cpu"
        on b list | grep -q disk
    done
}
# Packets to either host are handled on this CPU.
steer() {
    local host mask
    mask=$(printf '%x' $((1 << $1)))
    for host in a b; do
        ip netns exec "$(namespace "$host")" sh -c "echo $mask > /sys/class/net/eth0/queues/rx-0/rps_cpus"
    done
}

@test "tarn mount switches io_uring on in the kernel, and says so" {
    local -r switch=/sys/module/fuse/parameters/enable_uring
    [ -w "$switch" ] || skip "needs a kernel with FUSE over io_uring, and to be root"
    cluster_start
    SWITCH_BEFORE=$(< "$switch")
    echo N > "$switch"
    run -0 on solo mount --io-uring "$CLUSTER/solo/mnt"
    assert_line --partial "switched on $switch"
    [ "$(< "$switch")" = Y ]
    timeout 20 ls "$CLUSTER/solo/mnt"
    on solo umount "$CLUSTER/solo/mnt"
    run -0 on solo mount --io-uring "$CLUSTER/solo/mnt"
    refute_output --partial "switched on"
    timeout 20 ls "$CLUSTER/solo/mnt"
    on solo umount "$CLUSTER/solo/mnt"
    [ "$(grep -c "requests come over io_uring" "$CLUSTER/solo/log")" = 2 ]
    echo N > "$switch"
    run -7 setpriv --reuid 65534 --regid 65534 --clear-groups env "TARN_CONTROL=$CLUSTER/solo/control.sock" \
        "$TARN_BUILD/daemon/tarn" mount --io-uring /tmp
    assert_output --partial "as root"
    [ "$(< "$switch")" = N ]
}
