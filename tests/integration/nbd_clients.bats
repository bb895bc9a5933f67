# Other projects' NBD clients on a whole tarnd, and what becomes of them when it is gone for a moment.

load tarn

setup_file() {
    cluster_make solo
    cluster_start
    cluster_remember
    on solo create disk 256MiB
}

# qemu_io_start: a qemu-io that reads commands from descriptor 4 and prints what it did into $SAID. A request waits
# for a server that is gone.
qemu_io_start() {
    SAID=$BATS_TEST_TMPDIR/said
    mkfifo "$BATS_TEST_TMPDIR/commands"
    local options=driver=raw,file.driver=nbd,file.export=disk,file.reconnect-delay=60
    options+=,file.server.type=unix,file.server.path=$CLUSTER/solo/nbd.sock
    # It forgets lines that its library has read with the one before.
    timeout 120 stdbuf --input=0 qemu-io --image-opts "$options" < "$BATS_TEST_TMPDIR/commands" > "$SAID" 2>&1 3>&- &
    QEMU_IO=$!
    exec 4> "$BATS_TEST_TMPDIR/commands"
}
qemu_io_end() {
    exec 4>&-
    wait "$QEMU_IO"
}
# said COUNT PATTERN
said() { [ "$(grep -c "$2" "$SAID")" -ge "$1" ]; }

@test "requests of a qemu with reconnect-delay wait while tarnd is restarted, and go on" {
    qemu_io_start
    echo "write -P 7 1M 64k" >&4
    within 10 said 1 "wrote 65536/65536"
    host_stop solo
    echo "read -P 7 1M 64k" >&4
    host_start solo 4>&-
    within 60 said 1 "read 65536/65536"
    echo "write -P 8 2M 64k" >&4
    qemu_io_end
    run -0 cat "$SAID"
    refute_output --partial "failed"
    nbd_python solo disk 'assert h.pread(65536, 2 << 20) == b"\x08" * 65536'
}

@test "requests of a qemu with reconnect-delay survive a crash of tarnd, and so does what it did not flush" {
    qemu_io_start
    echo "write -P 9 3M 64k" >&4
    within 10 said 1 "wrote 65536/65536"
    host_crash solo
    echo "read -P 9 3M 64k" >&4
    host_start solo 4>&-
    within 60 said 1 "read 65536/65536"
    echo flush >&4
    qemu_io_end
    run -0 cat "$SAID"
    refute_output --partial "failed"
}

@test "writes of a qemu with reconnect-delay that wait while tarnd is down land after it was started again" {
    local signal at=10
    for signal in stop crash kill; do
        qemu_io_start
        echo "write -P 1 ${at}M 64k" >&4
        within 10 said 1 "wrote 65536/65536"
        "host_$signal" solo
        # Once it has told the size, it has begun with what came before.
        printf '%s\n' "aio_write -P 2 ${at}M 64k" "aio_write -P 3 $((at + 1))M 64k" length >&4
        within 10 said 1 "256 MiB"
        run -1 said 2 "wrote 65536/65536"
        host_start solo 4>&-
        printf '%s\n' aio_flush "write -P 4 $((at + 2))M 64k" >&4
        within 60 said 4 "wrote 65536/65536" || { cat "$SAID"; return 1; }
        qemu_io_end
        run -0 cat "$SAID"
        refute_output --partial "failed"
        nbd_python solo disk "
for place, byte in enumerate((b'\2', b'\3', b'\4')):
    assert h.pread(65536, ($at + place) << 20) == byte * 65536, place"
        rm "$BATS_TEST_TMPDIR/commands"
        at=$((at + 10))
    done
}

@test "nbdcopy copies in and out over several connections" {
    random_file "$BATS_TEST_TMPDIR/in" 200000001
    run -0 timeout 60 nbdcopy --connections=4 --requests=32 --flush "$BATS_TEST_TMPDIR/in" "$(uri solo disk)"
    run -0 timeout 60 nbdcopy --connections=4 --requests=32 "$(uri solo disk)" "$BATS_TEST_TMPDIR/out"
    cmp -n 200000001 "$BATS_TEST_TMPDIR/in" "$BATS_TEST_TMPDIR/out"
}

@test "a qemu-storage-daemon exports a volume on, and a qcow2 image in it" {
    local -r socket=$BATS_TEST_TMPDIR/qemu.sock
    timeout 60 qemu-img create -q -f qcow2 "$(uri solo disk)" 100M
    timeout 120 qemu-storage-daemon \
        --blockdev "driver=nbd,node-name=volume,server.type=unix,server.path=$CLUSTER/solo/nbd.sock,export=disk" \
        --blockdev driver=qcow2,node-name=image,file=volume \
        --nbd-server "addr.type=unix,addr.path=$socket" \
        --export type=nbd,id=out,node-name=image,name=image,writable=on > "$BATS_TEST_TMPDIR/daemon.log" 2>&1 3>&- &
    local -r daemon=$!
    within 20 timeout 5 nbdinfo "nbd+unix:///image?socket=$socket"
    random_file "$BATS_TEST_TMPDIR/in" 50000001
    run -0 timeout 60 nbdcopy --flush "$BATS_TEST_TMPDIR/in" "nbd+unix:///image?socket=$socket"
    kill -TERM "$daemon"
    wait "$daemon"
    run -0 timeout 60 qemu-img check "$(uri solo disk)"
    run -0 timeout 60 qemu-img convert -f qcow2 -O raw "$(uri solo disk)" "$BATS_TEST_TMPDIR/out"
    cmp -n 50000001 "$BATS_TEST_TMPDIR/in" "$BATS_TEST_TMPDIR/out"
}
