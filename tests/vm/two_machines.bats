# Two machines of one cluster that have a shared volume attached: with direct I/O the two devices are one.

load vm.bash

setup_file() {
    local -r key=$(od -An -tx1 -N32 /dev/urandom | tr -d ' \n')
    VM=a vm_start --cpus 1 --cable "$BATS_FILE_TMPDIR/b" --forward 127.79.0.1:10809
    VM=b vm_start --cpus 1 --cable "$BATS_FILE_TMPDIR/a" --forward 127.79.0.2:10809
    prepare a 10.77.0.1 "$key"
    prepare b 10.77.0.2 "$key"
    VM=a vm 'within 60 connected; tarn create checked 192MiB --shared'
    export_device a
    export_device b
}
teardown_file() {
    VM=a vm_stop
    VM=b vm_stop
}

# Eth0 is the cable, and eth1 leads to this machine.
prepare() {
    VM=$1 vm 'modprobe -a virtio_net nbd; within 20 test -e /sys/class/net/eth1
        ip address add '"$2"'/24 dev eth0; ip link set eth0 up
        ip address add 10.0.2.15/24 dev eth1; ip link set eth1 up
        (umask 077; echo '"$3"' > /run/key)
        NAME='"$1"' tarn_init /dev/vdb --peer a=10.77.0.1:7420 --peer b=10.77.0.2:7420 --key-file /run/key
        tarnd_start'
}
export_device() {
    VM=$1 vm 'tarn attach --block-size 512 checked
        qemu-nbd --fork -f raw --cache=none --discard=unmap -t -e 32 -x checked -p 10809 /dev/nbd0'
}

@test "an exclusive volume is taken over from a host that answers, and from no other" {
    VM=a vm 'tarn create one 32MiB && tarn attach one && head -c 4M /dev/urandom > /tmp/bytes
        dd if=/tmp/bytes of=/dev/nbd1 bs=1M oflag=direct status=none'
    VM=b run vm 'tarn attach one'
    assert_failure 4
    assert_output --partial "host a has the volume open for writing"
    VM=b vm 'tarn attach --take-over one'
    [[ $(VM=b vm 'head -c 4M /dev/nbd1 | md5sum') == "$(VM=a vm 'md5sum < /tmp/bytes')" ]]
    VM=a run vm 'tarn attached --json | jq -c "[.attachments[].volume]"; dd if=/tmp/bytes of=/dev/nbd1 bs=1M oflag=direct'
    assert_failure
    assert_line '["checked"]'

    VM=b vm 'tarnd_end -TERM'  # what a device has stays held until its host goes on with it
    VM=a vm 'fails timeout 20 tarn attach one'
    VM=b vm 'tarnd_start; dd if=/dev/nbd1 bs=1M count=4 iflag=direct status=none | md5sum > /tmp/again'
    [[ $(VM=b vm 'cat /tmp/again') == "$(VM=a vm 'md5sum < /tmp/bytes')" ]]

    VM=b vm 'kill -STOP $(cat /run/tarnd.pid)'
    VM=a vm 'within 20 silent b'
    VM=a run vm 'tarn attach --take-over one'
    assert_failure 5
    assert_output --partial "host b has the volume open for writing and does not answer"
    VM=b vm 'kill -CONT $(cat /run/tarnd.pid)'
    VM=a vm 'within 20 fails silent b && within 20 tarn attach --take-over one'
    [[ $(VM=a vm 'head -c 4M /dev/nbd1 | md5sum') == "$(VM=a vm 'md5sum < /tmp/bytes')" ]]
    VM=a vm 'tarn detach one && tarn delete one'
}

@test "every register of the two devices is linearizable, whether links break or tarnd is stopped or killed" {
    MACHINES=$BATS_FILE_TMPDIR timeout 300 "$TARN_BUILD/tests/checker/tarn_checker" --size $((192 << 20)) \
        --time "${CHECKER_SECONDS:-20}" ${CHECKER_SEED:+--seed "$CHECKER_SEED"} --faults pause,cut,crash \
        --hook "$BATS_TEST_DIRNAME/checker_hook.bash" {a=nbd://127.79.0.1/checked,b=nbd://127.79.0.2/checked} 3>&- \
        > "$BATS_TEST_TMPDIR/said" 2>&1 || {
        tail -n 40 "$BATS_TEST_TMPDIR/said"
        VM=a vm 'tail -n 15 /tmp/tarnd.log'
        VM=b vm 'tail -n 15 /tmp/tarnd.log'
        return 1
    }
    echo "# $(tail -n 1 "$BATS_TEST_TMPDIR/said")" >&3
}

# Linux 6.9 and newer let no request in, and wait for those under way, to change a device's size.
@test "a device whose request waits for a silent machine gets its size once it is answered, and tarnd can be killed" {
    [[ -n ${TARN_FULL-} ]] || skip "the kernel of these tests is older: TARN_VM_KERNEL=bookworm-backports ./dev test vm --full"
    VM=a vm 'for name in wait-{one,two,three,four}; do tarn create $name 256MiB; done'
    VM=b vm 'kill -STOP $(cat /run/tarnd.pid)'
    # One of them has its size, which may be changed there, but not all of its pages, at machine a.
    VM=a vm 'within 20 silent b
        for name in wait-{one,two,three,four}; do
            if tarn resize $name 256MiB && timeout 3 tarn attach $name; then break; fi
        done; echo $name > /tmp/name
        for mib in {0..255..4}; do
            setsid dd if=/dev/nbd1 of=/dev/null bs=4k count=1 skip=$((mib << 8)) iflag=direct status=none > /dev/null 2>&1 &
        done
        within 10 eval "read -r reads writes < /sys/block/nbd1/inflight && ((reads > 0))"'
    VM=a run vm 'tarn resize $(cat /tmp/name) $(((256 << 20) + 4096))'
    assert_success
    assert_line --partial "a: a device of $(VM=a vm 'cat /tmp/name') there gets its new size later"
    VM=a vm 'tarnd_end -KILL; tarnd_start'
    VM=b vm 'kill -CONT $(cat /run/tarnd.pid)'
    VM=a vm 'within 20 eval "[[ \$(blockdev --getsize64 /dev/nbd1) == $(((256 << 20) + 4096)) ]]"
        within 10 eval "read -r reads writes < /sys/block/nbd1/inflight && ((reads == 0))"
        tarn detach $(cat /tmp/name)'
}
