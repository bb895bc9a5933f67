# The Debian package as an administrator meets it: on this system under an overlay, which takes what is changed away, and
# on a Debian 13 beside it.

load tarn
load ../support/packages.bash

setup_file() {
    if [[ $EUID != 0 ]]; then
        skip_file "needs to be root"
        return
    fi
    TREE=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    PACKAGES=$BATS_FILE_TMPDIR/packages
    ROOT=$BATS_FILE_TMPDIR/root
    export TREE PACKAGES ROOT
    mkdir -p "$ROOT" "$BATS_FILE_TMPDIR/changes"
    make_packages "$PACKAGES"
    mount -t tmpfs tmpfs "$BATS_FILE_TMPDIR/changes"
    mkdir "$BATS_FILE_TMPDIR"/changes/{upper,work}
    mount -t overlay overlay "$ROOT" \
        -o "lowerdir=/,upperdir=$BATS_FILE_TMPDIR/changes/upper,workdir=$BATS_FILE_TMPDIR/changes/work"
    mount --rbind /proc "$ROOT/proc"
    mount --rbind /dev "$ROOT/dev"
    mount -t tmpfs tmpfs "$ROOT/tmp"
    mount -t tmpfs tmpfs "$ROOT/run"
    rm -rf "$ROOT"/etc/tarn "$ROOT"/var/lib/tarn
    cp "$PACKAGES"/tarn_0.1.0~1_*.deb "$ROOT/tmp/tarn_1.deb"
    cp "$PACKAGES"/tarn_0.1.0~2.deb "$ROOT/tmp/tarn_2.deb"
}

teardown_file() {
    if file_skips; then return; fi
    # Only what runs below the overlay.
    local pid
    for pid in $(pgrep -x 'tarnd|tarn-keeper'); do
        [[ $(readlink "/proc/$pid/root") != "$ROOT" ]] || kill -KILL "$pid"
    done
    umount -R -l "$ROOT" 2> /dev/null || true
    umount -l "$BATS_FILE_TMPDIR/changes" 2> /dev/null || true
}
setup() { skip_with_file; }

# inside COMMAND...: in the system under test; what was built is not on its path.
inside() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 chroot "$ROOT" "$@"; }
apt() { inside apt-get -o APT::Sandbox::User=root -o Dpkg::Use-Pty=0 -y -qq "$@"; }
nbd_shell() { PATH="/usr/bin:$PATH" nbdsh "$@"; }
start() {
    inside /usr/sbin/tarnd 3>&- 4>&- >> "$BATS_FILE_TMPDIR/log" 2>&1 &
    echo $! > "$BATS_FILE_TMPDIR/pid"
    inside tarn status
}

@test "lintian finds nothing" {
    run -0 lintian --allow-root --fail-on error,warning "$PACKAGES"/tarn{,-dbgsym}_0.1.0~1_*.deb
    assert_output ""
}

@test "the debug symbols are those of the programs, apart" {
    dpkg-deb --extract "$PACKAGES"/tarn-dbgsym_*.deb "$BATS_TEST_TMPDIR/symbols"
    dpkg-deb --extract "$PACKAGES"/tarn_0.1.0~1_*.deb "$BATS_TEST_TMPDIR/programs"
    local program id
    for program in usr/bin/tarn usr/sbin/tarnd usr/sbin/tarn-keeper; do
        run ! grep -q debug_info <(readelf --sections --wide "$BATS_TEST_TMPDIR/programs/$program")
        id=$(readelf --notes "$BATS_TEST_TMPDIR/programs/$program" | sed -n 's/.*Build ID: //p')
        run -0 readelf --sections --wide "$BATS_TEST_TMPDIR/symbols/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug"
        assert_output --partial .debug_line
    done
}

@test "every link of the installed documents leads somewhere" {
    dpkg-deb --extract "$PACKAGES"/tarn_0.1.0~1_*.deb "$BATS_TEST_TMPDIR/all"
    cd "$BATS_TEST_TMPDIR/all/usr/share/doc/tarn"
    local file link count=0
    while IFS=: read -r file link; do
        link=${link#*](}
        link=${link%)}
        [[ $link == http* || $link == '#'* ]] && continue
        [[ -e $(dirname "$file")/${link%%#*} ]] || fail "$file: $link"
        ((++count))
    done < <(grep -rHo '\]([^) ]*)' --include='*.md' .)
    ((count > 5))
}

@test "it depends on nothing that another release calls otherwise" {
    run -0 dpkg-deb --field "$PACKAGES"/tarn_0.1.0~1_*.deb Depends
    refute_output --regexp 'libfuse|libfmt'
}

@test "it installs, and everything is where it belongs" {
    run -0 apt install /tmp/tarn_1.deb
    run -0 inside tarn --version
    run -0 inside systemd-analyze verify --man=yes /usr/lib/systemd/system/tarnd.service
    refute_output --partial tarnd
    for page in tarn.1 tarnd.8 tarn-keeper.8 tarn.toml.5 attachtab.5; do
        [ -s "$ROOT/usr/share/man/man${page##*.}/$page.gz" ]
    done
    inside bash -n /usr/share/bash-completion/completions/tarn
    [ -L "$ROOT/etc/systemd/system/multi-user.target.wants/tarnd.service" ]
    [ -s "$ROOT/usr/lib/systemd/system/tarnd-nbd.socket" ]
    [ ! -L "$ROOT/etc/systemd/system/sockets.target.wants/tarnd-nbd.socket" ]
    [ -s "$ROOT/usr/lib/udev/rules.d/60-tarn.rules" ]
    [ -x "$ROOT/usr/lib/systemd/system-generators/tarn-attach-generator" ]
    grep -q '^ExecStart=:/usr/bin/tarn attach ' "$ROOT/usr/lib/systemd/system/tarn-attach@.service"
    # This example attaches nothing until somebody edits it.
    run -0 inside cat /usr/share/doc/tarn/examples/attachtab
    run ! grep -v '^#' <<< "$output"
    # That of the configuration is one that tarnd takes, apart from its key.
    sed 's/^key_file.*//' "$ROOT/usr/share/doc/tarn/examples/tarn.toml" > "$ROOT/tmp/example.toml"
    run -2 inside tarnd --check-config --config /tmp/example.toml
    assert_output "tarnd: /tmp/example.toml: key_file: missing; the hosts of a cluster need a key in common"
}

@test "README's first host works as it is written" {
    # Its commands, in order: blocks of them, and what follows a $ in the others.
    {
        echo 'set -ex; cd /tmp; truncate -s 1M disk.img'
        sed -n '/^## One host/,/^## Three hosts/p' "$TREE/README.md" |
            awk '/^```/ { block = !block; text = ""; next }
                 block && /^\$ / { print substr($0, 3); transcript = 1; next }
                 block && !transcript { print }
                 !block { transcript = 0 }'
    } > "$ROOT/tmp/readme.bash"
    grep -q 'systemctl enable --now tarnd' "$ROOT/tmp/readme.bash" && grep -q 'tarn umount' "$ROOT/tmp/readme.bash"
    cat > "$ROOT/usr/local/bin/systemctl" << 'END'
#!/bin/sh
[ "$*" = "enable --now tarnd" ] && { tarnd < /dev/null > /tmp/tarnd.log 2>&1 & echo $! > /tmp/tarnd.pid; }
END
    chmod +x "$ROOT/usr/local/bin/systemctl"
    run -0 inside env PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin timeout 60 bash /tmp/readme.bash 3>&-
    assert_output --partial "hello"
    kill -TERM "$(< "$ROOT/tmp/tarnd.pid")"
    within 20 gone "$(< "$ROOT/tmp/tarnd.pid")"
    rm -r "$ROOT"/etc/tarn "$ROOT"/var/lib/tarn "$ROOT/usr/local/bin/systemctl"
}

@test "it upgrades under a running daemon, which goes on, and whose memory the next version takes over" {
    run -0 inside tarn init --store /var/lib/tarn/store --size 64M --memory 64M --nbd-unix /run/tarn/nbd.sock
    start
    inside tarn create vol1 8MiB
    mkfifo "$BATS_TEST_TMPDIR/go"
    nbd_shell -u "nbd+unix:///vol1?socket=$ROOT/run/tarn/nbd.sock" -c "
h.pwrite(b'before', 0)
print('open', flush=True)
input()
assert h.pread(6, 0) == b'before'
h.pwrite(b'after', 4096)
print('served', flush=True)
" < "$BATS_TEST_TMPDIR/go" > "$BATS_TEST_TMPDIR/said" 2>&1 3>&- &
    local client=$!
    exec 4> "$BATS_TEST_TMPDIR/go"
    within 10 grep -q open "$BATS_TEST_TMPDIR/said"
    run -0 apt install /tmp/tarn_2.deb
    [ "$(inside dpkg-query -W -f '${Version}' tarn)" = 0.1.0~2 ]
    kill -0 "$(< "$BATS_FILE_TMPDIR/pid")"
    echo >&4
    exec 4>&-
    wait "$client"
    grep -q served "$BATS_TEST_TMPDIR/said"
    kill -KILL "$(< "$BATS_FILE_TMPDIR/pid")"
    within 10 gone "$(< "$BATS_FILE_TMPDIR/pid")"
    start
    run -0 nbd_shell -u "nbd+unix:///vol1?socket=$ROOT/run/tarn/nbd.sock" \
        -c "assert h.pread(6, 0) == b'before' and h.pread(5, 4096) == b'after'"
    kill -TERM "$(< "$BATS_FILE_TMPDIR/pid")"
    within 20 gone "$(< "$BATS_FILE_TMPDIR/pid")"
}

@test "it is removed without what is stored, and purged with its configuration" {
    run -0 apt remove tarn
    [ ! -e "$ROOT/usr/sbin/tarnd" ]
    [ -s "$ROOT/etc/tarn/tarn.toml" ]
    run -0 apt purge tarn
    assert_output --partial "/var/lib/tarn is kept"
    [ ! -e "$ROOT/etc/tarn" ]
    [ ! -L "$ROOT/etc/systemd/system/multi-user.target.wants/tarnd.service" ]
    [ -s "$ROOT/var/lib/tarn/store" ]
    run -0 find "$ROOT/usr" "$ROOT/etc" -xdev '(' -name 'tarn*' -o -name '60-tarn*' ')'
    assert_output ""
}

@test "./dev install puts programs where the unit says" {
    cd "$TREE"
    run -0 ./dev install --prefix /opt/tarn --destdir "$BATS_TEST_TMPDIR/there"
    local installed=$BATS_TEST_TMPDIR/there/opt/tarn
    run -0 sed -n 's/^ExecStart=//p' "$installed/lib/systemd/system/tarnd.service"
    assert_output /opt/tarn/sbin/tarnd
    [ -x "$installed/sbin/tarnd" ] && [ -x "$installed/sbin/tarn-keeper" ] && [ -x "$installed/bin/tarn" ]
    [ -s "$installed/share/man/man8/tarnd.8" ] && [ -s "$installed/share/bash-completion/completions/tarn" ]
    [ -s "$installed/lib/udev/rules.d/60-tarn.rules" ] && [ -s "$installed/share/doc/tarn/examples/tarn.toml" ]
}

@test "meson's install builds what it installs, and no tests" {
    cd "$TREE"
    CXX=clang++-19 meson setup "$BATS_TEST_TMPDIR/plain" > /dev/null
    run -0 ninja -C "$BATS_TEST_TMPDIR/plain" -n -v all
    refute_output --partial tests/
    assert_output --partial daemon/process/tarnd.cpp
}

@test "what Debian 12 built runs on Debian 13" {
    [[ -n ${TARN_FULL-} ]] || skip "takes a minute: ./dev test --full"
    curl -sfI http://deb.debian.org/debian/dists/trixie/Release > /dev/null || skip "needs Debian's packages"
    timeout 300 mmdebstrap --quiet --variant=apt --customize-hook="copy-in $PACKAGES/tarn_0.1.0~2.deb /" \
        --customize-hook='chroot "$1" apt-get install -y -qq /tarn_0.1.0~2.deb' \
        --customize-hook='chroot "$1" sh -ec "
            tarn init --store /var/lib/tarn/store --size 64M --memory 64M
            tarnd < /dev/null > /tarnd.log 2>&1 & daemon=\$!
            tarn create vol1 8MiB && tarn flush vol1 || { kill \$daemon; exit 1; }
            kill \$daemon && wait \$daemon"' \
        trixie /dev/null http://deb.debian.org/debian
}
