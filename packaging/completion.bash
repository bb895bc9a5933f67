# Bash completion for tarn and tarnd; installed once under each name.
#
# Names of volumes are data that anybody may have chosen: nothing here may expand them (so no compgen -W), and what is
# offered is quoted for the command line that it becomes a part of.

# _tarn_offer CURRENT WORD...: those words that CURRENT begins, as they are. For words of our own.
_tarn_offer() {
    local -r current=$1
    local word
    shift
    for word in "$@"; do
        if [[ $word == "$current"* ]]; then COMPREPLY+=("$word"); fi
    done
}

# _tarn_quoted NAME: into REPLY, as the shell reads it back, and harmless to show.
_tarn_quoted() {
    local bytes=$1
    # What changes the direction of text, or hides: in the C locale printf spells such bytes out.
    local LC_ALL=C
    if [[ $bytes == *$'\xe2\x80'* || $bytes == *$'\xe2\x81'* || $bytes == *$'\xd8\x9c'* || $bytes == *$'\xef\xbb\xbf'* ]]; then
        printf -v REPLY '%q' "$bytes"
        return
    fi
    unset LC_ALL
    printf -v REPLY '%q' "$bytes"
}

# _tarn_typed: into REPLY, the word before the cursor as the shell sees it. Readline's own ends at a colon and such.
_tarn_typed() {
    local -r line=${COMP_LINE:0:COMP_POINT}
    local -i at=${#line}
    while ((at > 0)); do
        if [[ ${line:at-1:1} == [[:space:]] && ${line:at-2:1} != \\ ]]; then break; fi
        at+=-1
    done
    REPLY=${line:at}
}

# _tarn_offer_volumes CURRENT VERB: those names that VERB lists which begin with what was typed, however it was quoted.
_tarn_offer_volumes() {
    local -r current=$1 list=$2
    local name REPLY typed=$1 before=""
    if [[ $current != [\'\"]* ]]; then
        _tarn_typed
        typed=$REPLY
        before=${typed%"$current"}
        # A word that is nothing but the character which begins it.
        if [[ $COMP_WORDBREAKS == *"$current"* && ${#current} -eq 1 ]]; then before=$typed; fi
    fi
    while IFS= read -r name; do
        case $typed in
            \'*)
                if [[ $name == "${typed:1}"* && $name != *\'* ]]; then COMPREPLY+=("$name"); fi
                ;;
            \"*)
                REPLY=${name//\\/\\\\}
                REPLY=${REPLY//\"/\\\"}
                REPLY=${REPLY//\$/\\\$}
                REPLY=${REPLY//\`/\\\`}
                if [[ $REPLY == "${typed:1}"* ]]; then COMPREPLY+=("$REPLY"); fi
                ;;
            *)
                _tarn_quoted "$name"
                if [[ $REPLY == "$typed"* || $name == "$typed"* ]]; then COMPREPLY+=("${REPLY#"$before"}"); fi
                ;;
        esac
    done < <(command tarn "$list" --quiet --timeout 2 ${control:+--control "$control"} 2> /dev/null)
}

_tarn() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    local -r verbs=(init create list show resize delete export mount umount attach detach attached flush status verify
        doctor host store tls)
    local verb="" word known control="" i
    COMPREPLY=()
    # Of the daemon that the command line is for.
    for ((i = 1; i < COMP_CWORD; ++i)); do
        case ${COMP_WORDS[i]} in
            --control=*) control=${COMP_WORDS[i]#*=} ;;
            --control)
                if [[ ${COMP_WORDS[i + 1]} == = ]]; then ((++i)); fi
                if ((i + 1 < COMP_CWORD)); then control=${COMP_WORDS[i + 1]}; fi
                ;;
        esac
    done
    case $previous in
        --control | --config | --store | --device | --key-file | --nbd-unix | --from)
            compopt -o default
            return
            ;;
        --memory | --size | --rate | --timeout | --host | --peer | --cluster | --nbd-tcp | --mode | --fail-after | --connections) return ;;
        --block-size)
            _tarn_offer "$current" 512 4096
            return
            ;;
    esac
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        for known in "${verbs[@]}"; do
            if [[ $word == "$known" ]]; then verb=$word && break 2; fi
        done
    done
    local options=(--control --timeout --json --help)
    case $verb in
        "")
            _tarn_offer "$current" "${verbs[@]}" "${options[@]}" --version
            return
            ;;
        init)
            options+=(--store --device --size --memory --config --host --peer --cluster --key-file --nbd-unix --nbd-tcp
                --replace-config --force)
            ;;
        create) options+=(--shared --exclusive --mode --fail-after) ;;
        list | attached) options+=(--quiet) ;;
        resize | delete | umount) options+=(--force) ;;
        mount) options+=(--read-only --io-uring) ;;
        attach) options+=(--read-only --take-over --block-size --connections --from) ;;
        detach) options+=(--force --if-attached) ;;
        status) options+=(--links --shards) ;;
        verify) options+=(--host --rate --stop) ;;
        host) options+=(--it-is-dead) ;;
        store) options+=(--salvage-journal --yes) ;;
        tls) options+=(--host) ;;
    esac
    if [[ $current == -* ]]; then
        _tarn_offer "$current" "${options[@]}"
        return
    fi
    case $verb in
        show | resize | delete | export | attach | flush | verify) _tarn_offer_volumes "$current" list ;;
        detach) _tarn_offer_volumes "$current" attached ;;
        host) _tarn_offer "$current" forget ;;
        mount | umount) compopt -o dirnames ;;
        tls)
            _tarn_offer "$current" init
            compopt -o dirnames
            ;;
        store)
            _tarn_offer "$current" inspect check repair
            compopt -o default
            ;;
    esac
}

_tarnd() {
    local -r current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    COMPREPLY=()
    case $previous in
        -c | --config | --store | --control | --nbd-unix) compopt -o default ;;
        --log-level) _tarn_offer "$current" error warning info debug ;;
        --host | --memory | --shards | --listen | --nbd-tcp) ;;
        *)
            _tarn_offer "$current" --config --check-config --upgrade --accept-older-store --discard-memory --host --store --memory --shards \
                --listen --control --nbd-unix --nbd-tcp --log-level --help --version
            ;;
    esac
}

complete -F _tarn tarn
complete -F _tarnd tarnd
