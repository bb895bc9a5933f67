# NBD over TCP within TLS, by real clients: who gets in, who does not, and what each sees.

load tarn

export HOST_STORE=512MiB
PORT=10809

setup_file() {
    cluster_make solo
    cluster_remember
    local -r ip=$(ip_of_solo)
    tarn tls init "$CLUSTER/pki" --host "$ip" --host localhost
    cp -r "$CLUSTER/pki/hosts/$ip" "$CLUSTER/tls"
    psktool -u alice -p "$CLUSTER/keys.psk" > "$CLUSTER/psktool.log"
    psktool -u bob -p "$CLUSTER/keys.psk" > "$CLUSTER/psktool.log"
    # As qemu wants it.
    local user
    for user in alice bob; do
        mkdir "$CLUSTER/$user"
        grep "^$user:" "$CLUSTER/keys.psk" > "$CLUSTER/$user/keys.psk"
    done
    cp "$CLUSTER/solo/tarn.toml" "$CLUSTER/plain.toml"
    serve_with 'tls = "require"'
    on solo create disk 64MiB
    on solo create secret 16MiB
}

# Each test says what it changes, and starts anew where it does.
setup() {
    cluster_recall
    IP=$(ip_of_solo)
    TLS=$CLUSTER/tls
    LOG=$CLUSTER/solo/log
    PKI=$CLUSTER/pki
}

ip_of_solo() {
    local -r address=$(address_of solo)
    echo "${address%:*}"
}

# serve_with LINES: tarnd with these further lines of [nbd].
serve_with() {
    [ ! -e "$CLUSTER/solo/pid" ] || host_stop solo
    {
        cat "$CLUSTER/plain.toml"
        printf 'tcp = "%s:%s"\ntls_certificates = "%s"\ntls_psk_file = "%s"\n' "$(ip_of_solo)" "$PORT" "$CLUSTER/tls" \
            "$CLUSTER/keys.psk"
        printf '%s\n' "$1"
    } > "$CLUSTER/solo/tarn.toml"
    : > "$CLUSTER/solo/log"
    host_start solo
}

# A client beside the daemon.
client() {
    local enter=()
    [[ $CLUSTER_NETWORK == namespaces ]] && enter=(nsenter "--net=/run/netns/$(namespace solo)")
    timeout 60 "${enter[@]}" "$@"
}
# client_python URI LINES: Python with h connected to the export.
client_python() {
    client env "URI=$1" PATH="/usr/bin:$PATH" PYTHONPATH="$BATS_TEST_DIRNAME" nbdsh -c '
import os, random, signal, subprocess, time
from nbd_load import exchange_much
def connect():
    handle = nbd.NBD()
    handle.set_uri_allow_local_file(True)
    handle.connect_uri(os.environ["URI"])
    return handle
h = connect()' -c "$2"
}
plain() { echo "nbd://$IP:$PORT/$1"; }
x509() { echo "nbds://$IP:$PORT/$1?tls-certificates=${2-$PKI/client}"; }
psk() { echo "nbds://${2-alice}@$IP:$PORT/$1?tls-psk-file=${3-$CLUSTER/keys.psk}"; }

# Python with a client that knows the protocol, and no manners.
talk() {
    cat > "$BATS_TEST_TMPDIR/talk.py" << 'END'
import os, signal, socket, ssl, struct, sys, time
ip, port, options = sys.argv[1], int(sys.argv[2]), 0x49484156454F5054
ACK, POLICY, INVALID, TLS_REQD, UNKNOWN = 1, 0x80000002, 0x80000003, 0x80000005, 0x80000006
def greet():
    client = socket.create_connection((ip, port), timeout=50)
    assert len(client.recv(18, socket.MSG_WAITALL)) == 18
    client.sendall(struct.pack(">I", 3))
    return client
def option(number, payload=b""):
    return struct.pack(">QII", options, number, len(payload)) + payload
def info(name):
    return struct.pack(">I", len(name)) + name + bytes(2)
def whole(client, size):
    bytes = b""
    while len(bytes) < size:
        more = client.recv(size - len(bytes))
        assert more, "the end"
        bytes += more
    return bytes
def answer(client):
    magic, number, kind, size = struct.unpack(">QIII", whole(client, 20))
    whole(client, size)
    return kind
def ask(client, *words):
    client.sendall(option(*words))
    return answer(client)
def ended(client):
    try:
        while client.recv(4096): pass
        return True
    except ConnectionResetError:
        return True
def secure(client, version=None, certificates=None):
    assert ask(client, 5) == ACK
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    if certificates: context.load_cert_chain(certificates + "/client-cert.pem", certificates + "/client-key.pem")
    if version: context.minimum_version = context.maximum_version = version
    return context.wrap_socket(client)
END
    printf '%s\n' "$1" >> "$BATS_TEST_TMPDIR/talk.py"
    shift
    client /usr/bin/python3 -W ignore "$BATS_TEST_TMPDIR/talk.py" "$IP" "$PORT" "$@"
}

# issue DIRECTORY NAME LINE...: a client's certificate of the authority, or of the one in $AUTHORITY.
issue() {
    local -r directory=$1 name=$2 ca=${AUTHORITY-$PKI}
    shift 2
    mkdir -p "$directory"
    cp "$PKI/ca-cert.pem" "$directory"
    printf '%s\n' "cn = $name" tls_www_client signing_key "$@" > "$directory/template"
    certtool --generate-privkey --outfile "$directory/client-key.pem" 2> /dev/null
    certtool --generate-certificate --load-ca-certificate "$ca/ca-cert.pem" --load-ca-privkey "$ca/ca-key.pem" \
        --load-privkey "$directory/client-key.pem" --template "$directory/template" \
        --outfile "$directory/client-cert.pem" 2> /dev/null
}

# What the log has said since a test began, or as soon as it says it.
logged() { within 10 grep -qE "$1" "$LOG"; }
reload() { kill -HUP "$(pid_of solo)"; }

@test "libnbd's clients use certificates and pre-shared keys" {
    serve_with 'tls = "require"'
    random_file "$BATS_TEST_TMPDIR/in" 30000001
    local to
    for to in "$(x509 disk)" "$(psk disk)"; do
        run -0 client nbdinfo "$to"
        assert_output --partial "newstyle-fixed with TLS, using structured packets"
        client nbdcopy --flush "$BATS_TEST_TMPDIR/in" "$to"
        rm -f "$BATS_TEST_TMPDIR/out"
        client nbdcopy "$to" "$BATS_TEST_TMPDIR/out"
        cmp -n 30000001 "$BATS_TEST_TMPDIR/in" "$BATS_TEST_TMPDIR/out"
    done
    run -0 client nbdinfo --list "$(x509 '')"
    assert_output --partial 'export="disk"'
    run -0 on solo export disk
    assert_line "nbds://$IP:$PORT/disk"
    refute_output --partial "nbd://"
}

@test "qemu's clients use certificates and pre-shared keys" {
    local objects
    local -r image="driver=nbd,server.type=inet,server.host=$IP,server.port=$PORT,export=disk,tls-creds=tls0"
    for objects in "tls-creds-x509,id=tls0,endpoint=client,dir=$PKI/client" \
        "tls-creds-psk,id=tls0,endpoint=client,username=alice,dir=$CLUSTER/alice"; do
        run -0 client qemu-io --object "$objects" --image-opts "$image" -c 'write -P 7 513 1111' \
            -c 'read -P 7 513 1111' -c 'write -P 9 1M 9M' -c 'read -P 9 1M 9M' -c 'discard 1M 1M' -c 'read -P 0 1M 1M' \
            -c 'write -f 0 512' -c flush
        refute_output --partial "verification failed"
        client qemu-img convert --object "$objects" --image-opts "$image" -O raw "$BATS_TEST_TMPDIR/out"
        [ "$(stat -c %s "$BATS_TEST_TMPDIR/out")" -eq $((64 << 20)) ]
        run -0 client qemu-nbd --list -b "$IP" -p "$PORT" --object "$objects" --tls-creds tls0
        assert_output --partial "export: 'disk'"
    done
}

@test "big requests, pipelined small ones and many short connections" {
    client_python "$(psk disk)" '
exchange_much(h)
size, random = 8 << 20, random.Random(7)
disk = bytearray(h.pread(size, 0))
for i in range(1000):
    offset = random.randrange(size)
    length = min(size - offset, random.choice([1, 100, 4096, 16384, 16385, 70000, 300000]))
    if random.random() < 0.5:
        disk[offset:offset + length] = os.urandom(length)
        h.pwrite(bytes(disk[offset:offset + length]), offset)
    else:
        assert h.pread(length, offset) == disk[offset:offset + length]
h.shutdown()
'
    # None of the last replies is lost at the end.
    client_python "$(psk disk)" '
for i in range(100):
    h = connect()
    h.pwrite(b"x" * 70000, 0)
    assert h.pread(70000, 0) == b"x" * 70000
    h.shutdown()
'
}

@test "require answers nothing without TLS but on the Unix socket" {
    run client nbdinfo --size "$(plain disk)"
    assert_failure
    assert_output --partial "requires TLS"
    logged 'refused: .*it did not begin TLS, which is required'
    talk '
client = greet()
assert ask(client, 3) == TLS_REQD
assert ask(client, 6, info(b"disk")) == TLS_REQD
assert ask(client, 7, info(b"disk")) == TLS_REQD
assert ask(client, 8) == TLS_REQD
assert ask(client, 4711, bytes(5000)) == TLS_REQD
assert ask(client, 5, b"x") == INVALID
assert ask(client, 2) == ACK and ended(client)
client = greet()
client.sendall(option(1, b"disk"))
assert client.recv(1) == b""
client = secure(greet())
assert ask(client, 5) == INVALID
assert ask(client, 4711) == 0x80000001
assert ask(client, 6, info(b"none")) == UNKNOWN
'
    run -0 nbdinfo --size "$(uri solo disk)"
    assert_output $((64 << 20))
    run nbdinfo --size "$(uri solo disk | sed 's/^nbd+/nbds+/')&tls-psk-file=$CLUSTER/keys.psk&tls-username=alice"
    assert_failure
}

@test "what was sent in plain behind STARTTLS is never served" {
    talk '
client = greet()
client.sendall(option(5) + option(7, info(b"disk")))
said = b""
while more := client.recv(4096): said += more
assert len(said) <= 20, said
client = greet()
assert ask(client, 5) == ACK
client.sendall(option(7, info(b"disk")) * 50)
said = b""
try:
    while more := client.recv(4096): said += more
except ConnectionResetError:
    pass
assert not said or said[0] == 21, said  # an alert of TLS
'
    logged 'refused: .*bytes in plain behind STARTTLS'
}

@test "TLS 1.1 is refused, 1.2 and 1.3 are not" {
    talk '
for version in ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3:
    client = secure(greet(), version)
    assert ask(client, 6, info(b"none")) == UNKNOWN
try:
    secure(greet(), ssl.TLSVersion.TLSv1_1)
    raise AssertionError("it worked")
except (ssl.SSLError, ConnectionResetError):
    pass
'
    logged 'refused: TLS: '
}

@test "a server of another authority is refused by clients" {
    certtool --generate-privkey --outfile "$BATS_TEST_TMPDIR/ca-key.pem" 2> /dev/null
    printf '%s\n' 'cn = Other' ca cert_signing_key > "$BATS_TEST_TMPDIR/template"
    certtool --generate-self-signed --load-privkey "$BATS_TEST_TMPDIR/ca-key.pem" \
        --template "$BATS_TEST_TMPDIR/template" --outfile "$BATS_TEST_TMPDIR/ca-cert.pem" 2> /dev/null
    run client nbdinfo "$(x509 disk "$BATS_TEST_TMPDIR")"
    assert_failure
    assert_output --partial "certificate"
    logged "refused: .*it may not trust this host's certificate"
}

@test "a certificate that a client shows has to be good, and may be asked for" {
    serve_with 'tls = "on"
tls_verify_peer = true'
    issue "$BATS_TEST_TMPDIR/old" old 'activation_date = 2020-01-01 00:00:00' 'expiration_date = 2020-06-01 00:00:00'
    issue "$BATS_TEST_TMPDIR/revoked" revoked
    mkdir "$BATS_TEST_TMPDIR/none"
    cp "$PKI/ca-cert.pem" "$BATS_TEST_TMPDIR/none"
    # Of an authority that has the same name.
    mkdir "$BATS_TEST_TMPDIR/other"
    certtool --generate-privkey --outfile "$BATS_TEST_TMPDIR/other/ca-key.pem" 2> /dev/null
    printf '%s\n' 'cn = tarn CA' ca cert_signing_key > "$BATS_TEST_TMPDIR/template"
    certtool --generate-self-signed --load-privkey "$BATS_TEST_TMPDIR/other/ca-key.pem" \
        --template "$BATS_TEST_TMPDIR/template" --outfile "$BATS_TEST_TMPDIR/other/ca-cert.pem" 2> /dev/null
    AUTHORITY=$BATS_TEST_TMPDIR/other issue "$BATS_TEST_TMPDIR/foreign" foreign

    local good
    for good in client revoked; do
        cp -r "$PKI/client" "$BATS_TEST_TMPDIR/" 2> /dev/null || true
        client nbdinfo --size "$(x509 disk "$BATS_TEST_TMPDIR/$good")"
    done
    printf '%s\n' 'crl_next_update = 365' > "$BATS_TEST_TMPDIR/template"
    certtool --generate-crl --load-ca-certificate "$PKI/ca-cert.pem" --load-ca-privkey "$PKI/ca-key.pem" \
        --load-certificate "$BATS_TEST_TMPDIR/revoked/client-cert.pem" --template "$BATS_TEST_TMPDIR/template" \
        --outfile "$TLS/ca-crl.pem" 2> /dev/null
    reload
    logged 'were read anew'
    client nbdinfo --size "$(x509 disk)"
    local bad
    for bad in old revoked none foreign; do
        run client nbdinfo --size "$(x509 disk "$BATS_TEST_TMPDIR/$bad")"
        assert_failure
    done
    logged 'client certificate: .*expired'
    logged 'client certificate: .*revoked'
    logged 'refused: TLS: .*(Certificate is required|No certificate was found)'
    logged 'client certificate: .*issuer is unknown'
    client nbdinfo --size "$(psk disk)"

    # Not asked for, none is needed, but a bad one is refused as before.
    serve_with 'tls = "on"'
    client nbdinfo --size "$(x509 disk "$BATS_TEST_TMPDIR/none")"
    run client nbdinfo --size "$(x509 disk "$BATS_TEST_TMPDIR/old")"
    assert_failure
    run client nbdinfo --size "$(x509 disk "$BATS_TEST_TMPDIR/revoked")"
    assert_failure
    rm "$TLS/ca-crl.pem"
}

@test "a wrong key and an unknown user are refused, and the log says which" {
    serve_with 'tls = "require"'
    psktool -u alice -p "$BATS_TEST_TMPDIR/wrong.psk" > "$BATS_TEST_TMPDIR/psktool.log"
    psktool -u mallory -p "$BATS_TEST_TMPDIR/wrong.psk" > "$BATS_TEST_TMPDIR/psktool.log"
    run client nbdinfo --size "$(psk disk alice "$BATS_TEST_TMPDIR/wrong.psk")"
    assert_failure
    run client nbdinfo --size "$(psk disk mallory "$BATS_TEST_TMPDIR/wrong.psk")"
    assert_failure
    logged 'refused: TLS: PSK user "alice": its key is another one'
    logged 'refused: TLS: PSK user "mallory": unknown'
    client nbdinfo --size "$(psk disk)"
}

@test "a client that stops within the handshake is closed, and holds up nobody until then" {
    serve_with 'tls = "require"'
    talk '
stuck = [greet() for i in range(50)]
for i, client in enumerate(stuck):
    assert ask(client, 5) == ACK
    client.sendall(b"\x16\x03\x01\x02\x00\x01\x00"[:i % 8])
print("stuck", flush=True)
assert all(ended(client) for client in stuck)
' > "$BATS_TEST_TMPDIR/said" 3>&- &
    local -r stuck=$!
    within 10 grep -q stuck "$BATS_TEST_TMPDIR/said"
    local i
    for i in {1..5}; do
        client nbdinfo --size "$(psk disk)"
        client nbdinfo --size "$(x509 disk)"
    done
    kill -0 "$stuck"
    wait "$stuck"
    logged 'it took too long'
}

@test "an export with a list is there for those on it alone" {
    issue "$BATS_TEST_TMPDIR/b" 'unused' 'dns_name = host-b' 'dns_name = host-b.example'
    serve_with 'tls = "on"
[nbd.access]
secret = ["psk:alice", "cert:host-b.example"]
secrte = ["psk:alice"]'
    logged 'warning nbd.access: secrte: there is no volume of that name'
    on solo show secret | grep -x 'nbd     over TCP here for psk:alice, cert:host-b.example'
    [ "$(on solo export secret | sed 's/:.*//' | tr '\n' ' ')" = "nbd+unix nbds " ]
    exports() { client nbdinfo --list --json "$1" | jq -r '.exports[]."export-name"' | sort | tr '\n' ' '; }
    [ "$(exports "$(psk '')")" = "disk secret " ]
    [ "$(exports "$(x509 '' "$BATS_TEST_TMPDIR/b")")" = "disk secret " ]
    [ "$(exports "$(psk '' bob)")" = "disk " ]
    [ "$(exports "$(x509 '')")" = "disk " ]
    [ "$(exports "$(plain '')")" = "disk " ]
    client nbdinfo --size "$(psk secret)"
    client nbdinfo --size "$(x509 secret "$BATS_TEST_TMPDIR/b")"
    local other
    for other in "$(psk secret bob)" "$(x509 secret)" "$(plain secret)"; do
        run client nbdinfo --size "$other"
        assert_failure
    done
    logged ', psk:bob refused: export "secret": there is no such export \(nbd.access does not list this client'
    client nbdinfo --size "$(plain disk)"
    nbdinfo --size "$(uri solo secret)"
    # The two answers are the same, bytes and all.
    talk '
def said(name):
    client = secure(greet())
    client.sendall(option(6, info(name)) + option(10, info(name)[:-2] + bytes(4)) + option(7, info(name)) + option(2))
    said = b""
    while more := client.recv(4096): said += more
    return said
assert said(b"secret") == said(b"nosuch") and len(said(b"secret")) > 80
client = secure(greet())
client.sendall(option(1, b"secret"))
assert client.recv(1) == b""
client = greet()
assert ask(client, 6, info(b"secret")) == TLS_REQD == ask(client, 6, info(b"nosuch"))
'
}

@test "clients are named by what they proved" {
    serve_with 'tls = "require"'
    CONTROL=$CLUSTER/solo/control.sock client_python "$(psk disk)" '
said = subprocess.run(["tarn", "--control", os.environ["CONTROL"], "delete", "disk"], capture_output=True, text=True)
assert said.returncode == 4 and "psk:alice" in said.stderr, said
'
}

@test "clients from elsewhere than the networks are closed when they come" {
    serve_with 'networks = ["192.0.2.0/24", "fd00::/8"]'
    run -0 talk '
ends = 0
for i in range(20):
    client = socket.create_connection((ip, port), timeout=50)
    ends += ended(client)
print("ends", ends)
'
    assert_output "ends 20"
    logged 'refused: its address is in none of nbd.networks'
    (($(grep -c 'in none of nbd.networks' "$LOG") < 10))
    nbdinfo --size "$(uri solo disk)"
    serve_with "networks = [\"192.0.2.0/24\", \"$IP/32\"]"
    client nbdinfo --size "$(plain disk)"
}

@test "without TLS it is not offered, and off is the default" {
    serve_with ''
    logged 'warning nbd.tls is off, though tls_psk_file or tls_verify_peer is set: everybody who reaches .* is let in'
    client nbdinfo --size "$(plain disk)"
    run client nbdinfo --size "$(psk disk)"
    assert_failure
    talk '
client = greet()
assert ask(client, 5) == POLICY
assert ask(client, 6, info(b"none")) == UNKNOWN
'
    run -0 on solo export disk
    assert_line "nbd://$IP:$PORT/disk"
}

@test "SIGHUP reads certificates and keys anew, for connections to come" {
    serve_with 'tls = "require"'
    cp "$CLUSTER/keys.psk" "$BATS_TEST_TMPDIR/before.psk"
    psktool -u carol -p "$BATS_TEST_TMPDIR/carol.psk" > "$BATS_TEST_TMPDIR/psktool.log"
    run client nbdinfo --size "$(psk disk carol "$BATS_TEST_TMPDIR/carol.psk")"
    assert_failure
    export PID LOG KEYS=$CLUSTER/keys.psk CAROL=$BATS_TEST_TMPDIR/carol.psk
    PID=$(pid_of solo)
    client_python "$(psk disk)" '
h.pwrite(b"before", 0)
keys = os.environ["KEYS"]
carol = open(os.environ["CAROL"]).read()
def reload(text, says):
    with open(keys, "w") as file: file.write(text)
    os.kill(int(os.environ["PID"]), signal.SIGHUP)
    for i in range(1000):
        if says in open(os.environ["LOG"]).read(): return
        time.sleep(0.01)
    raise AssertionError(says)
reload(carol, "were read anew")
assert h.pread(6, 0) == b"before", "a connection under way goes on"
reload("carol:none\n", "stay in use: " + keys + ": line 1: the key is not made of pairs of hexadecimal digits")
h.pwrite(b"after!", 0)
h.shutdown()
'
    client nbdinfo --size "$(psk disk carol "$BATS_TEST_TMPDIR/carol.psk")"
    run client nbdinfo --size "$(psk disk alice "$BATS_TEST_TMPDIR/before.psk")"
    assert_failure
    cp "$BATS_TEST_TMPDIR/before.psk" "$CLUSTER/keys.psk"
    chmod 604 "$CLUSTER/keys.psk"
    reload
    logged 'stay in use: .*keys.psk: others may read it; chmod 0600'
    chmod 600 "$CLUSTER/keys.psk"
    # The server's own certificate, too: clients trust the other authority alone.
    tarn tls init "$BATS_TEST_TMPDIR/pki" --host "$IP"
    mv "$TLS" "$TLS.before"
    cp -r "$BATS_TEST_TMPDIR/pki/hosts/$IP" "$TLS"
    : > "$LOG"
    reload
    logged 'were read anew'
    client nbdinfo --size "$(x509 disk "$BATS_TEST_TMPDIR/pki/client")"
    run client nbdinfo --size "$(x509 disk)"
    assert_failure
    # Certificates that are on their way: the keys alone would be no reason to lose them.
    rm -r "$TLS"
    reload
    logged "stay in use: $TLS/server-cert.pem: no such file, but it was there before"
    client nbdinfo --size "$(x509 disk "$BATS_TEST_TMPDIR/pki/client")"
    client nbdinfo --size "$(psk disk)"
    mv "$TLS.before" "$TLS"
}

@test "a certificate of the server's own that has expired is told of" {
    mv "$TLS/server-cert.pem" "$BATS_TEST_TMPDIR/good.pem"
    printf '%s\n' "cn = $IP" tls_www_server 'activation_date = 2020-01-01 00:00:00' \
        'expiration_date = 2020-06-01 00:00:00' > "$BATS_TEST_TMPDIR/template"
    certtool --generate-certificate --load-ca-certificate "$PKI/ca-cert.pem" --load-ca-privkey "$PKI/ca-key.pem" \
        --load-privkey "$TLS/server-key.pem" --template "$BATS_TEST_TMPDIR/template" \
        --outfile "$TLS/server-cert.pem" 2> /dev/null
    serve_with 'tls = "require"'
    logged 'server-cert.pem has expired'
    run client nbdinfo --size "$(x509 disk)"
    assert_failure
    client nbdinfo --size "$(psk disk)"
    mv "$BATS_TEST_TMPDIR/good.pem" "$TLS/server-cert.pem"
}

@test "files that cannot be used are named before anything starts" {
    serve_with 'tls = "require"'
    check() { tarnd --config "$CLUSTER/solo/tarn.toml" --check-config; }
    run -0 check
    chmod 644 "$TLS/server-key.pem"
    run -2 check
    assert_output --partial "nbd.tls: $TLS/server-key.pem: others may read it; chmod 0600"
    chmod 600 "$TLS/server-key.pem"
    mv "$TLS/server-key.pem" "$BATS_TEST_TMPDIR/key.pem"
    cp "$PKI/hosts/localhost/server-key.pem" "$TLS"
    run -2 check
    assert_output --partial "$TLS/server-key.pem: not the key of server-cert.pem"
    mv "$BATS_TEST_TMPDIR/key.pem" "$TLS/server-key.pem"
    local name
    for name in ca-cert.pem ca-crl.pem; do
        [ ! -e "$TLS/$name" ] || mv "$TLS/$name" "$BATS_TEST_TMPDIR/kept.pem"
        echo nothing > "$TLS/$name"
        run -2 check
        assert_output --partial "$TLS/$name: "
        rm "$TLS/$name"
        [ "$name" != ca-cert.pem ] || mv "$BATS_TEST_TMPDIR/kept.pem" "$TLS/$name"
    done
    tarn tls init "$BATS_TEST_TMPDIR/other" --host localhost
    echo 'crl_next_update = 365' > "$BATS_TEST_TMPDIR/template"
    certtool --generate-crl --load-ca-certificate "$BATS_TEST_TMPDIR/other/ca-cert.pem" \
        --load-ca-privkey "$BATS_TEST_TMPDIR/other/ca-key.pem" --template "$BATS_TEST_TMPDIR/template" \
        --outfile "$TLS/ca-crl.pem" 2> /dev/null
    run -2 check
    assert_output --partial "$TLS/ca-crl.pem: no authority of ca-cert.pem has signed it; put that authority's own list there"
    rm "$TLS/ca-crl.pem"
    run -0 check
}

@test "tarn tls init makes what all need, and overwrites nothing" {
    cd "$BATS_TEST_TMPDIR"
    run -0 tarn tls init made --host a.example,a,192.0.2.1 --host 2001:db8::1 --json
    [ "$(jq -r '.hosts | join(" ")' <<< "$output")" = "a.example 2001:db8::1" ]
    [ "$(jq -r .directory <<< "$output")" = "$BATS_TEST_TMPDIR/made" ]
    [ "$(stat -c %a made made/hosts/* made/client | sort -u)" = 700 ]
    [ "$(stat -c %a made/ca-key.pem made/hosts/*/server-key.pem made/client/client-key.pem | sort -u)" = 600 ]
    local name
    for name in a.example a 192.0.2.1; do
        certtool --verify --load-ca-certificate made/ca-cert.pem --infile made/hosts/a.example/server-cert.pem \
            --verify-hostname "$name" > verified
    done
    local -r before=$(sha256sum made/ca-cert.pem)
    run -4 tarn tls init made
    assert_output --partial "it is there already, and nothing in it is overwritten"
    [ "$(sha256sum made/ca-cert.pem)" = "$before" ]
    run -2 tarn tls init other --host ../x
    run -2 tarn tls init other --host ..
    run -2 tarn tls init other --host a --host b,a
    run -2 tarn tls init other --host a,
    run -3 tarn tls init none/other
    run -3 env PATH=/nonexistent "$TARN_BUILD/daemon/tarn" tls init other
    assert_output --partial "certtool, which makes certificates, is not installed; try: apt install gnutls-bin"
    run -0 ls
    refute_output --partial other
}
