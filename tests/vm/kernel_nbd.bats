# A volume as a block device of the kernel, by nbd-client over the Unix socket.

load vm.bash

setup_file() {
    vm_start
    vm 'tarn_init && tarnd_start && tarn create disk 256MiB && modprobe nbd'
}
teardown_file() { vm_stop; }

attach() { vm "nbd-client -unix /run/tarn/nbd.sock /dev/nbd0 -name disk -b 4096 ${1:-}"; }
detach() { vm 'nbd-client -d /dev/nbd0'; }

@test "a file system lives on it, and is clean after it was detached and attached again" {
    [[ -n ${TARN_FULL-} ]] || skip "takes long here: ./dev test vm --full"
    attach
    vm 'mkfs.ext4 -q /dev/nbd0 && mount /dev/nbd0 /mnt'
    vm 'fio --name=v --directory=/mnt --size=16m --rw=randwrite --bs=4k --ioengine=io_uring --direct=1 --iodepth=8 \
            --verify=crc32c --do_verify=1 --output-format=terse > /dev/null'
    vm 'fstrim /mnt && umount /mnt'
    detach
    attach "-C 2"
    vm 'fsck.ext4 -fn /dev/nbd0'
    detach
}

@test "fio verifies what it wrote by several connections" {
    attach "-C 2"
    vm 'fio --name=v --filename=/dev/nbd0 --size=64m --rw=randrw --bsrange=4k-128k --ioengine=io_uring --direct=1 \
            --iodepth=16 --verify=crc32c --output-format=terse > /dev/null'
    detach
}

@test "after kill -9 and a new start every byte that was written is there" {
    attach
    vm 'head -c 8M /dev/urandom > /tmp/bytes && dd if=/tmp/bytes of=/dev/nbd0 bs=128k oflag=direct status=none'
    vm 'tarnd_end -KILL && nbd-client -d /dev/nbd0 && tarnd_start'
    attach
    vm 'cmp -n 8388608 /tmp/bytes /dev/nbd0'
    detach
}

@test "after a power cut every byte that was flushed is there" {
    attach
    vm 'dd if=/dev/urandom of=/dev/nbd0 bs=128k count=64 oflag=direct conv=fsync status=none'
    local -r before=$(vm 'dd if=/dev/nbd0 bs=128k count=64 iflag=direct status=none | sha256sum')
    vm_power_cut
    vm_boot
    vm 'tarnd_start && modprobe nbd'
    attach
    run vm 'dd if=/dev/nbd0 bs=128k count=64 iflag=direct status=none | sha256sum'
    assert_output "$before"
    detach
}

# What nbd-client 3.24 can and cannot do. Without -b its blocks have 512 bytes. With -persist it is to connect again, and
# does not: by netlink it configures the device and ends, so that nobody is left who could; with -nonetlink it stays, but
# takes the end of its connections, which the kernel does not report as an error, for one that somebody asked for. So a
# restart of tarnd is an end of the device for it, with errors and without anybody who waits; what was written is there
# in the next device. (tarn attach makes one that a restart does not end.)
@test "several connections with blocks of 512 bytes, to a restart, after which the next device has what was written" {
    [[ -n ${TARN_FULL-} ]] || skip "takes long here: ./dev test vm --full"
    local way
    for way in "" -nonetlink; do
        vm 'nbd-client -unix /run/tarn/nbd.sock /dev/nbd0 -name disk -C 4 -persist '"$way"' > /tmp/said 2>&1
            within 20 test -e /sys/block/nbd0/pid'
        run vm 'blockdev --getss --getsize64 /dev/nbd0; tarn --json status | jq "[.shards[].nbd_connections] | add"'
        assert_output $'512\n268435456\n4'
        vm 'head -c 1M /dev/urandom > /tmp/bytes; dd if=/tmp/bytes of=/dev/nbd0 bs=64k seek=2048 oflag=direct status=none
            head -c 512 /dev/urandom > /tmp/sector
            dd if=/tmp/sector of=/tmp/bytes bs=512 seek=13 conv=notrunc status=none
            dd if=/tmp/sector of=/dev/nbd0 bs=512 seek=$(((128 << 11) + 13)) oflag=direct status=none
            fio --name=v --filename=/dev/nbd0 --size=64m --io_size=16m --rw=randrw --bsrange=512-64k --ioengine=io_uring \
                --direct=1 --iodepth=16 --verify=crc32c --output-format=terse > /dev/null
            dd if=/dev/nbd0 bs=64k skip=2048 count=16 iflag=direct status=none | cmp - /tmp/bytes'
        # Under load: it ends, with an error, and soon.
        vm 'fio --name=v --filename=/dev/nbd0 --size=64m --rw=randrw --bsrange=512-64k --ioengine=io_uring --direct=1 \
                --iodepth=16 --verify=crc32c --time_based --runtime=600 --output=/tmp/fio.txt & fio=$!
            served 0; within 60 served 50; tarnd_end -TERM; tarnd_start; within 60 ended "$fio"; fails wait "$fio"
            fails grep -i "bad magic\|verify.*failed" /tmp/fio.txt
            (head -c 512 /dev/nbd0 2> /dev/null || true) | cmp - /dev/null'
        # With -nonetlink it is gone, too.
        [[ -n $way ]] || detach
        vm 'within 20 fails test -e /sys/block/nbd0/pid'
        attach "-C 4"
        vm 'dd if=/dev/nbd0 bs=64k skip=2048 count=16 iflag=direct status=none | cmp - /tmp/bytes'
        detach
    done
}

# TLS 1.3; and 1.2 with the ciphers that a key and a certificate come to, each with its own way to number records.
@test "within TLS it is the kernel that seals what tarnd sends" {
    "$TARN_BUILD/daemon/tarn" tls init "$BATS_TEST_TMPDIR/pki" --host 127.0.0.1
    local -r pki=$(tar -C "$BATS_TEST_TMPDIR" -cz pki | base64 -w 0)
    vm "base64 -d <<< $pki | tar -C /run -xz"
    vm 'cp /vm/tarn.toml /run/tarn.toml; modprobe tls; ip link set lo up
        echo "carol:$(head -c 32 /dev/urandom | od -An -v -tx1 | tr -d " \n")" > /run/keys.psk; chmod 600 /run/keys.psk
        printf "%s\n" "tcp = \"127.0.0.1:10809\"" "tls = \"require\"" "tls_psk_file = \"/run/keys.psk\"" \
            "tls_certificates = \"/run/pki/hosts/127.0.0.1\"" >> /run/tarn.toml
        printf "[overrides]\ndisabled-version = tls1.3\n" > /tmp/older
        tarnd_end -TERM; tarnd_start; tarn create small 8MiB; head -c 8M /dev/urandom > /tmp/sealed'
    vm 'sealed() { awk "\$1 == \"TlsTxSw\" { print \$2 }" /proc/net/tls_stat; }
        there_and_back() {
            local -r before=$(sealed)
            nbdcopy /tmp/sealed "$1"
            nbdcopy "$1" /tmp/opened
            cmp /tmp/sealed /tmp/opened
            [[ $(sealed) -ge $((before + 2)) ]]
        }
        user=nbds://carol@127.0.0.1/small?tls-psk-file=/run/keys.psk
        there_and_back "$user"
        export GNUTLS_SYSTEM_PRIORITY_FILE=/tmp/older
        there_and_back "$user"
        there_and_back nbds://127.0.0.1/small?tls-certificates=/run/pki/client'
}
