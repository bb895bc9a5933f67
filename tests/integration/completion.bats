# Completion in a real, interactive bash: names of volumes are data that anybody may have chosen.

load tarn

setup_file() { cluster_for_all_tests solo; }
setup() {
    cluster_recall
    EVIL=("\$(touch $BATS_TEST_TMPDIR/run)" "\`touch $BATS_TEST_TMPDIR/run\`" 'two words' "it's" 'a;b&c|d>e' 'q"uote'
        'back\slash' 'col:on' '*' 'größe' $'bi\u202edi' '$HOME' 'team/a')
    local name
    for name in "${EVIL[@]}"; do on solo create "$name" 1MiB > /dev/null; done
}
teardown() { on solo delete "${EVIL[@]}" > /dev/null; }

# type_in LINE: what is on the command line of an interactive bash after LINE and TAB were typed.
type_in() {
    cat > "$BATS_TEST_TMPDIR/bashrc" << END
source "$BATS_TEST_DIRNAME/../../packaging/completion.bash"
set +H
PS1='ready> '
bind 'set bell-style none'
bind 'set enable-bracketed-paste off'
shown() { printf '\n[line %s]\n' "\$(printf %s "\$READLINE_LINE" | od -An -v -tx1 | tr -d ' \n')"; }
bind -x '"\C-xa": shown'
END
    TARN_CONTROL=${CONTROL_OF_SHELL-$CLUSTER/solo/control.sock} timeout 60 python3 - "$BATS_TEST_TMPDIR/bashrc" "$1" << 'END'
import fcntl, os, pty, re, select, struct, sys, termios
pid, terminal = pty.fork()
if pid == 0:
    os.environ.update(TERM="dumb", LC_ALL="C.UTF-8", INPUTRC="/dev/null", HISTFILE="/dev/null")
    os.execlp("bash", "bash", "--noprofile", "--rcfile", sys.argv[1], "-i")
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 1000, 0, 0))
said = b""
def until(pattern):
    global said
    while not (found := re.search(pattern, said)):
        if not select.select([terminal], [], [], 20)[0]:
            sys.exit("waited for %r, had %r" % (pattern, said))
        said += os.read(terminal, 65536)
    said = said[found.end():]
    return found
until(b"ready> ")
os.write(terminal, sys.argv[2].encode() + b"\t\x18a")
line = until(rb"\[line ([0-9a-f]*)\]").group(1)
sys.stdout.buffer.write(bytes.fromhex(line.decode()))
os.close(terminal)
os.waitpid(pid, 0)
END
}

# completes PREFIX NAME: what is typed becomes a command line that means exactly this name.
completes() {
    local line words
    line=$(type_in "tarn delete $1")
    echo "typed: $1 line: $line"
    # The shell reads it as the words that it would hand to tarn.
    tarn() { words=("$@"); }
    eval "$line"
    unset -f tarn
    [ "${#words[@]}" -eq 2 ] && [ "${words[1]}" = "$2" ]
    [ ! -e "$BATS_TEST_TMPDIR/run" ]
}

@test "pressing TAB runs nothing, and every name comes out as itself" {
    completes '\$\(' "${EVIL[0]}"
    completes "'\$(" "${EVIL[0]}"
    completes '"\$(' "${EVIL[0]}"
    completes '\`' "${EVIL[1]}"
    completes 'two\ ' 'two words'
    completes 'tw' 'two words'
    completes "'two w" 'two words'
    completes 'it' "it's"
    completes 'a' 'a;b&c|d>e'
    completes '"a' 'a;b&c|d>e'
    completes 'q' 'q"uote'
    completes '"q' 'q"uote'
    completes 'back' 'back\slash'
    completes 'col' 'col:on'
    completes 'col:' 'col:on'
    completes 'col:o' 'col:on'
    completes '\*' '*'
    completes 'grö' 'größe'
    completes 'team/' 'team/a'
    completes '\$H' '$HOME'
    # The list of all of them: what is typed stays as it was.
    [ "$(type_in 'tarn delete ')" = 'tarn delete ' ]
    [ ! -e "$BATS_TEST_TMPDIR/run" ]
}

@test "a name that would turn the text around is spelled out" {
    local line
    line=$(type_in 'tarn delete bi')
    [[ $line != *$'\u202e'* ]]
    completes 'bi' "$(printf 'bi\u202edi')" || completes "\$'bi" "$(printf 'bi\u202edi')"
}

@test "verbs and options are completed" {
    [ "$(type_in 'tarn resi')" = 'tarn resize ' ]
    [ "$(type_in 'tarn create v 1G --sh')" = 'tarn create v 1G --shared ' ]
    [ "$(type_in 'tarn store insp')" = 'tarn store inspect ' ]
    [ "$(type_in 'tarn attach v --block-size 5')" = 'tarn attach v --block-size 512 ' ]
    [ "$(type_in 'tarnd --disc')" = 'tarnd --discard-memory ' ]
}

@test "names are of the daemon that the command line is for" {
    local -r socket=$CLUSTER/solo/control.sock
    CONTROL_OF_SHELL=$BATS_TEST_TMPDIR/nowhere
    local option
    for option in "--control $socket" "--control=$socket" "--timeout 9 --control $socket"; do
        [ "$(type_in "tarn $option show tea")" = "tarn $option show team/a " ]
    done
    [ "$(type_in "tarn show tea")" = "tarn show tea" ]
    [ "$(type_in "tarn --control")" = "tarn --control " ]
}
