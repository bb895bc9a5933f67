# A host that stops as asked: nobody loses anything by it, nor is told so; and hosts that stop in turn do not wait for
# those that have gone.

load tarn

setup_file() { cluster_for_all_tests a b c; }

# Three ranges, each with another home.
write_everywhere() { nbd_python "$1" "$2" "[h.pwrite(b'$3' * 4096, n << 26) for n in range(3)]"; }

@test "whoever has a volume open reads on as a host that wrote to it is stopped and started" {
    on a create shared 192MiB --shared
    client_start c shared << 'END'
import sys
print("open", flush=True)
sys.stdin.readline()
print([h.pread(4096, n << 26)[:1].decode() for n in range(3)], flush=True)
END
    write_everywhere b shared 1
    host_stop b
    host_start b
    within 20 connected b
    client_go
    client_end
    run -0 cat "$CLIENT_SAID"
    assert_line "['1', '1', '1']"
    for host in a b c; do
        run -0 on "$host" status --json
        assert_equal "$(jq -c '.losses' <<< "$output")" '[]'
    done
    on a delete shared
}

@test "who writes all the while as another host is stopped and started can flush what it wrote" {
    on a create written 192MiB --shared
    client_start c written << 'END'
import sys, threading
done = threading.Event()
def write():
    count = 0
    while not done.is_set():
        count += 1
        for n in range(3): h.pwrite(b"%04096d" % count, (n << 26) + count % 64 * 4096)
        if count == 64: print("open", flush=True)
writer = threading.Thread(target=write)
writer.start()
sys.stdin.readline()
done.set()
writer.join()
h.flush()
print("flushed", flush=True)
END
    local host
    for host in b a; do
        host_stop "$host"
        run ! grep -E "not everything is durable" "$CLUSTER/$host/log"
        host_start "$host"
        within 20 connected "$host"
    done
    client_go
    client_end
    run -0 cat "$CLIENT_SAID"
    assert_line "flushed"
    for host in a b c; do assert_equal "$(on "$host" status --json | jq -c .losses)" '[]'; done
    on a delete written
}

@test "hosts that are stopped one after the other all stop clean" {
    on a create parted 192MiB --shared
    write_everywhere b parted 2
    on b flush parted
    local host
    for host in a b c; do
        host_stop "$host"
        run ! grep -E "not everything is durable|given up" "$CLUSTER/$host/log"
    done
    for host in a b c; do host_start "$host"; done
    for host in a b c; do within 20 connected "$host"; done
    nbd_python c parted "assert all(h.pread(4096, n << 26) == b'2' * 4096 for n in range(3))"
    for host in a b c; do assert_equal "$(on "$host" status --json | jq -c .losses)" '[]'; done
    on a delete parted
}

@test "a host that has met no other stops clean" {
    local host
    for host in a b c; do host_stop "$host"; done
    host_start c
    host_stop c
    run ! grep -E "not everything is durable|given up" "$CLUSTER/c/log"
    for host in a b c; do host_start "$host"; done
    for host in a b c; do within 20 connected "$host"; done
    run ! grep -E "adopted" "$CLUSTER/c/log"
}

@test "a trim and a map need only the hosts whose pages they are about, and wait for those" {
    on a create mapped 192MiB --shared
    write_everywhere b mapped 3
    on b flush mapped
    host_kill c
    # Of the three ranges one is c's.
    local n free=0
    for n in 0 1 2; do
        if timeout 3 env PATH="/usr/bin:$PATH" nbdsh -u "$(uri b mapped)" -c "h.trim(4096, $n << 26)"; then
            free=$((free + 1))
        fi
    done
    assert_equal "$free" 2
    env PATH="/usr/bin:$PATH" nbdsh -u "$(uri b mapped)" -c '
for n in range(3): h.trim(4096, n << 26)
' 3>&- 4>&- &
    local -r waiting=$!
    host_start c
    within 20 connected c
    wait "$waiting"
    nbd_python a mapped "assert all(h.pread(4096, n << 26) == bytes(4096) for n in range(3))"
    on a delete mapped
}

nbd_replies() { nbd_python "$1" "$2" "h.pread(4096, 0)"; }

# At most two seconds are meant to pass. More is allowed here, because the machine may have much else to do.
@test "the first reply of the next tarnd comes soon after a stop, and after a kill" {
    on a create paused 192MiB --shared
    nbd_python a paused "for n in range(48): h.pwrite(b'x' * (1 << 20), n << 22)"
    local signal begin waited_ms
    for signal in TERM KILL; do
        begin=${EPOCHREALTIME/./}
        host_signal a "$signal"
        tarnd_of a
        disown
        within 30 nbd_replies a paused
        waited_ms=$(((${EPOCHREALTIME/./} - begin) / 1000))
        echo "# from SIG$signal to the first reply: $waited_ms ms" >&3
        ((waited_ms <= 10000))
        within 20 connected a
    done
    on a delete paused
}
