#!/usr/bin/env bash
# checker_hook.bash VERB HOST: breaks one host of the cluster in $CLUSTER and mends it; tarn_checker calls it.
#
#   pause, resume   SIGSTOP, SIGCONT
#   cut, heal       its network
#   mute, unmute    what it sends is lost, what it is sent arrives
#   slow, fast      what it sends takes its time
#   crash           SIGKILL; its memory stays
#   kill            SIGKILL, and its memory is gone
#   start           returns when it is linked and mounted again
set -euo pipefail
: "${CLUSTER:?}"
# shellcheck source=tests/integration/cluster.bash
source "$(dirname "${BASH_SOURCE[0]}")/cluster.bash"
# shellcheck disable=SC1091
source "$CLUSTER/state"

main() {
    local verb=$1 host=$2
    case $verb in
        pause) host_pause "$host" ;;
        resume) host_resume "$host" ;;
        cut) ip -n "$(namespace net)" link set dev "$host" down ;;
        heal) ip -n "$(namespace net)" link set dev "$host" up ;;
        mute) host_mute "$host" ;;
        slow) host_slow_down "$host" ;;
        unmute | fast) host_unmute "$host" ;;
        crash) host_crash "$host" ;;
        kill) host_kill "$host" ;;
        start)
            host_start "$host"
            within 20 connected "$host"
            host_mount "$host"
            ;;
        *)
            echo "unknown verb $verb" >&2
            return 2
            ;;
    esac
}
main "$@"
