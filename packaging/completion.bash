# Bash completion for tarn and tarnd; installed once under each name.

_tarn_volumes() {
    local json
    json=$(tarn list --json --timeout 2 2>/dev/null) || return 0
    sed -n 's/^ *"name": "\(.*\)",$/\1/p' <<<"$json"
}

_tarn_reply() {
    local IFS=$'\n'
    # shellcheck disable=SC2207 # names are split at line ends only
    COMPREPLY+=($(compgen -W "$1" -- "$2"))
}

_tarn() {
    local -r current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    local -r verbs=$'init\ncreate\nlist\nshow\nresize\ndelete\nexport\nmount\numount\nflush\nstatus\nverify\nhost\nstore'
    local verb="" word
    COMPREPLY=()
    case $previous in
        --control | --config | --store | --device | --key-file | --nbd-unix)
            compopt -o default
            return
            ;;
        --memory | --size | --rate | --timeout | --host | --peer | --cluster | --nbd-tcp | --mode | --fail-after) return ;;
    esac
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        if [[ $'\n'$verbs$'\n' == *$'\n'$word$'\n'* ]]; then
            verb=$word
            break
        fi
    done
    local options=$'--control\n--timeout\n--json\n--help'
    case $verb in
        "")
            _tarn_reply "$verbs"$'\n'"$options"$'\n--version' "$current"
            return
            ;;
        init)
            options+=$'\n--store\n--device\n--size\n--memory\n--config\n--host\n--peer\n--cluster\n--key-file'
            options+=$'\n--nbd-unix\n--nbd-tcp\n--force'
            ;;
        create) options+=$'\n--shared\n--exclusive\n--mode\n--fail-after' ;;
        resize) options+=$'\n--force' ;;
        mount) options+=$'\n--read-only' ;;
        umount) options+=$'\n--force' ;;
        verify) options+=$'\n--host\n--rate\n--stop' ;;
        host) options+=$'\n--it-is-dead' ;;
        store) options+=$'\n--salvage-journal\n--yes' ;;
    esac
    if [[ $current == -* ]]; then
        _tarn_reply "$options" "$current"
    else
        case $verb in
            show | resize | delete | export | flush | verify) _tarn_reply "$(_tarn_volumes)" "$current" ;;
            host) _tarn_reply $'forget' "$current" ;;
            mount | umount) compopt -o dirnames ;;
            store)
                _tarn_reply $'inspect\ncheck\nrepair' "$current"
                compopt -o default
                ;;
        esac
    fi
}

_tarnd() {
    local -r current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    COMPREPLY=()
    case $previous in
        -c | --config | --store | --control | --nbd-unix) compopt -o default ;;
        --log-level) _tarn_reply $'error\nwarning\ninfo\ndebug' "$current" ;;
        --host | --memory | --shards | --listen | --nbd-tcp) ;;
        *)
            local options=$'--config\n--check-config\n--upgrade\n--accept-older-store\n--discard-memory\n--host\n--store\n--memory\n--shards\n--listen\n--control'
            options+=$'\n--nbd-unix\n--nbd-tcp\n--log-level\n--help\n--version'
            _tarn_reply "$options" "$current"
            ;;
    esac
}

complete -F _tarn tarn
complete -F _tarnd tarnd
