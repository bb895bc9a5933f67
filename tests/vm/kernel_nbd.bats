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

# TLS 1.3, and 1.2 with both of its ciphers, of which each has its own way to number records.
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
            nbdcopy /tmp/sealed "$1" && nbdcopy "$1" /tmp/opened && cmp /tmp/sealed /tmp/opened
            [[ $(sealed) -ge $((before + 2)) ]]
        }
        user=nbds://carol@127.0.0.1/small?tls-psk-file=/run/keys.psk
        there_and_back "$user"
        export GNUTLS_SYSTEM_PRIORITY_FILE=/tmp/older
        there_and_back "$user"
        there_and_back nbds://127.0.0.1/small?tls-certificates=/run/pki/client'
}
