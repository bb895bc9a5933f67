#!/usr/bin/env bash
# checker_hook.bash VERB HOST: breaks the tarnd of one machine below $MACHINES and mends it; tarn_checker calls it.
#
#   pause, resume   SIGSTOP, SIGCONT
#   cut, heal       the cable between the machines
#   crash, start    SIGKILL; its memory stays
set -euo pipefail

# The machine expands the lines.
# shellcheck disable=SC2016
case $1 in
    pause) line='kill -STOP "$(cat /run/tarnd.pid)"' ;;
    resume) line='kill -CONT "$(cat /run/tarnd.pid)"' ;;
    cut) line='ip link set eth0 down' ;;
    heal) line='ip link set eth0 up' ;;
    crash) line='tarnd_end -KILL' ;;
    start) line='tarnd_start' ;;
    *)
        echo "unknown verb $1" >&2
        exit 2
        ;;
esac
"$(dirname "${BASH_SOURCE[0]}")/machine.py" exec "${MACHINES:?}/$2" "set -euo pipefail; . /vm/guest.bash; $line"
