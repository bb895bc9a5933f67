# What the benches share: their options, one tarnd, one measurement, and the way into docs/benchmarks.md. Source it.
#
# A bench measures cases on servers, in rounds. Within a round the servers take turns at one case, so that whatever
# else the machine does hits them alike; report.py compares them within each round and takes medians over the rounds.
#
#   [--rounds N] [--seconds N]   how often, and how long each measurement takes
#   [--quick]                    once and briefly, into no document: does it work at all?
#
# Everything a bench makes lies in $WORK, on the file system of BENCH_DIRECTORY, and is removed at its end.

# shellcheck disable=SC2034  # the benches use what is set here

set -euo pipefail
: "${TARN_BUILD:?}"
BENCH_SOURCE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
LOAD=$TARN_BUILD/tests/bench/nbd_load
IOPS=0
CPU_US=0

# bench_begin NAME COMMAND-LINE...
bench_begin() {
    BENCH=$1
    shift
    COMMAND="./dev bench $BENCH${*:+ $*}"
    ROUNDS=5
    SECONDS_EACH=2
    QUICK=
    while [[ $# -gt 0 ]]; do
        case $1 in
            --rounds) ROUNDS=$2 && shift ;;
            --seconds) SECONDS_EACH=$2 && shift ;;
            --quick) QUICK=1 ROUNDS=1 SECONDS_EACH=0.1 ;;
            *) echo "$BENCH: unknown option $1; try --rounds N, --seconds N, --quick" >&2 && exit 2 ;;
        esac
        shift
    done
    WORK=$(mktemp -d "${BENCH_DIRECTORY:-/var/tmp}/tarn-bench.XXXXXX")
    RESULTS=$WORK/results
    GOALS=$WORK/goals
    FIGURES=$WORK/figures
    : > "$GOALS"
    : > "$FIGURES"
    CLUSTER=$WORK/cluster
    HOSTS=()
    PEERS=()
    MOUNTS=()
    HALT_POLL_BEFORE=$(cat "$HALT_POLL" 2> /dev/null) || HALT_POLL_BEFORE=
    idle_polls
    # shellcheck source=tests/integration/cluster.bash
    source "$BENCH_SOURCE/../integration/cluster.bash"
    trap bench_end EXIT
    trap 'exit 130' INT TERM
}

bench_end() {
    local status=$? last=$BASH_COMMAND pid i
    trap '' INT TERM
    if ((status != 0)); then echo "$BENCH: ended with status $status by: $last" >&2; fi
    for ((i = ${#MOUNTS[@]} - 1; i >= 0; i--)); do umount -l "${MOUNTS[i]}" 2> /dev/null || true; done
    for pid in "${PEERS[@]}"; do kill "$pid" 2> /dev/null || true; done
    idle_as_before
    if ((status != 0)); then tail -n 5 "$CLUSTER"/*/log "$WORK"/*.log >&2 2> /dev/null || true; fi
    if ((${#HOSTS[@]} > 0)); then cluster_down; fi
    for pid in "${PEERS[@]}"; do wait "$pid" 2> /dev/null || true; done
    rm -rf "$WORK"
}

# On a virtual machine, waking a CPU that halted costs the waker 10 us and the woken one as much: two processes that take
# turns would measure the hypervisor. So idle CPUs poll for a while before they halt, as far as this can be set. It is
# back as it was at the end of the bench, or from idle_as_before on, for the cases that show the difference.
HALT_POLL=/sys/module/haltpoll/parameters/guest_halt_poll_ns
IDLE_POLL_US=200
idle_polls() { [[ ! -w $HALT_POLL ]] || echo $((IDLE_POLL_US * 1000)) > "$HALT_POLL"; }
idle_as_before() { [[ -z $HALT_POLL_BEFORE || ! -w $HALT_POLL ]] || echo "$HALT_POLL_BEFORE" > "$HALT_POLL"; }

# start_tarn MEMORY STORE [LINE...]: one host, with TARN_PID; lines of its [nbd].
start_tarn() {
    HOST_MEMORY=$1
    HOST_STORE=$2
    cluster_make solo
    printf '%s\n' "${@:3}" >> "$CLUSTER/solo/tarn.toml"
    cluster_start
    TARN_PID=$(pid_of solo)
}

# mount_with_rings DIRECTORY: mounts solo's volumes there over io_uring; false where the kernel cannot. Its switch counts
# when a mount begins, and is put back at once.
RINGS=/sys/module/fuse/parameters/enable_uring
mount_with_rings() {
    [[ -w $RINGS ]] || return 1
    local before failed=
    before=$(< "$RINGS")
    mkdir "$1"
    MOUNTS+=("$1")
    echo Y > "$RINGS"
    { on solo mount "$1" && stat "$1"; } > /dev/null || failed=1
    echo "$before" > "$RINGS"
    [[ -z $failed ]] && grep -qF "$1: requests come over io_uring" "$CLUSTER/solo/log" && return
    echo "$BENCH: $1 is not mounted over io_uring" >&2
    exit 1
}

# start_passthrough MIB: libfuse's example over a tmpfs, as Debian ships it, at $WORK/mnt, with PEER_PID.
start_passthrough() {
    local examples
    examples=$(dirname "$(dpkg -L libfuse3-dev | grep '/passthrough_ll\.c$')")
    # shellcheck disable=SC2046
    clang-19 -O2 "$examples/passthrough_ll.c" -o "$WORK/passthrough_ll" $(pkg-config --cflags --libs fuse3) \
        2> "$WORK/clang.log"
    mkdir "$WORK/tmpfs" "$WORK/mnt"
    mount -t tmpfs -o "size=$(($1 + 16))M" tarn-bench "$WORK/tmpfs"
    MOUNTS+=("$WORK/tmpfs" "$WORK/mnt")
    start_peer "$WORK/passthrough_ll" -f -o "source=$WORK/tmpfs,cache=never" "$WORK/mnt"
    within 10 mountpoint -q "$WORK/mnt"
}

# start_peer COMMAND...: runs until bench_end; leaves its process in PEER_PID. What it mounts belongs into MOUNTS.
start_peer() {
    "$@" > "$WORK/$(basename "$1").log" 2>&1 &
    PEER_PID=$!
    PEERS+=("$PEER_PID")
}

# CPU time of all threads of a process so far, also of those that ended.
cpu_us_of() {
    local fields
    fields=$(< "/proc/$1/stat")
    read -ra fields <<< "${fields##*) }"
    echo $(((fields[11] + fields[12]) * 1000000 / CLOCK_TICKS))
}
CLOCK_TICKS=$(getconf CLK_TCK)

# Each of these sets IOPS and CPU_US, the server's CPU time for each operation; - where it is not known.

# run_load SERVER-PID OPTIONS...: the cheap load.
run_load() {
    local pid=$1 said
    shift
    said=$("$LOAD" --seconds "$SECONDS_EACH" --server-pid "$pid" "$@")
    IOPS=$(jq .iops <<< "$said")
    CPU_US=$(jq .server_cpu_us_per_op <<< "$said")
}

# run_fio SERVER-PID OPTIONS...: 0 for fio's own process, where there is no server.
run_fio() {
    local pid=$1 before=0 after=0 said=$WORK/fio.json
    shift
    ((pid == 0)) || before=$(cpu_us_of "$pid")
    fio --name=bench --time_based --runtime="$(jq -n "$SECONDS_EACH * 1000")ms" --norandommap --randrepeat=0 --output-format=json \
        --output="$said" "$@"
    ((pid == 0)) || after=$(cpu_us_of "$pid")
    IOPS=$(jq '.jobs[0] | .read.iops + .write.iops' "$said")
    CPU_US=$(jq --argjson server_us $((after - before)) --argjson own "$((pid == 0))" '.jobs[0] |
        (if $own == 1 then (.usr_cpu + .sys_cpu) / 100 * .job_runtime * 1000 else $server_us end)
        / (.read.total_ios + .write.total_ios)' "$said")
}

# run_copy SERVER-PID FROM TO: nbdcopy of SIZE_MIB in requests of 256 KiB.
run_copy() {
    local before after took
    before=$(cpu_us_of "$1")
    took=$EPOCHREALTIME
    beside_solo nbdcopy "$2" "$3"
    took=$(jq -n "$EPOCHREALTIME - $took")
    after=$(cpu_us_of "$1")
    IOPS=$(jq -n "$SIZE_MIB * 4 / $took")
    CPU_US=$(jq -n "($after - $before) / ($SIZE_MIB * 4)")
}
# A program in the network of the host solo.
beside_solo() {
    local enter=()
    [[ $CLUSTER_NETWORK != namespaces ]] || enter=(nsenter "--net=/run/netns/$(namespace solo)")
    "${enter[@]}" "$@"
}

# The options of both loads for a case: OPERATION DEPTH, where an operation is read, write, mixed, or sequential-read
# and sequential-write in blocks of 128 KiB.
load_options() {
    case $1 in
        read) echo "--depth $2 --block 4096 --read-percent 100" ;;
        write) echo "--depth $2 --block 4096 --read-percent 0" ;;
        mixed) echo "--depth $2 --block 4096 --read-percent 70" ;;
        sequential-read) echo "--depth $2 --block 131072 --read-percent 100 --sequential 1" ;;
        sequential-write) echo "--depth $2 --block 131072 --read-percent 0 --sequential 1" ;;
    esac
}
fio_options() {
    case $1 in
        read) echo "--rw=randread --bs=4k --iodepth=$2" ;;
        write) echo "--rw=randwrite --bs=4k --iodepth=$2" ;;
        mixed) echo "--rw=randrw --rwmixread=70 --bs=4k --iodepth=$2" ;;
        sequential-read) echo "--rw=read --bs=128k --iodepth=$2" ;;
        sequential-write) echo "--rw=write --bs=128k --iodepth=$2" ;;
    esac
}
describe() {
    case $1 in
        read) echo "4 KiB read, depth $2" ;;
        write) echo "4 KiB write, depth $2" ;;
        mixed) echo "4 KiB 70/30, depth $2" ;;
        sequential-*) echo "128 KiB sequential ${1#sequential-}, depth $2" ;;
    esac
}

# record TABLE CASE SERVER: what the last run measured.
record() {
    printf '%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$IOPS" "$CPU_US" >> "$RESULTS"
    printf '   %-24s %-32s %-22s %10.0f IOPS %8.8s us\n' "$1" "$2" "$3" "$IOPS" "$CPU_US"
}

# figure WHAT VALUE UNIT GOAL: one that stands alone, and how large it may be; the unit may be empty.
figure() {
    printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" >> "$FIGURES"
    printf '   %s: %.2f %s\n' "$1" "$2" "$3"
}

# goal TABLE CASE PEER IOPS CPU: tarn's IOPS at least, its CPU time for each operation at most, times the peer's; - for
# none.
goal() { printf '%s\t%s\t%s\t%s\t%s\n' "$@" >> "$GOALS"; }

# bench_report [--text FILE]: prints what was recorded, or the file, and writes it into the document.
bench_report() {
    local what=(--results "$RESULTS" --goals "$GOALS" --figures "$FIGURES") document=()
    [[ $# -eq 0 ]] || what=("$@")
    [[ ! -w $HALT_POLL || $BENCH == placement ]] || what+=(--note "idle CPUs poll for $IDLE_POLL_US µs before they halt")
    [[ -n $QUICK ]] || document=(--document "$BENCH_SOURCE/../../docs/benchmarks.md")
    python3 "$BENCH_SOURCE/report.py" "$BENCH" "${what[@]}" --command "$COMMAND" --directory "$WORK" "${document[@]}"
}
