# A virtual machine that has its root and its disk from volumes of a tarnd outside of it, over NBD.

load vm.bash
HOST_MEMORY=256MiB HOST_STORE=3GiB
CLUSTER=${BATS_FILE_TMPDIR:-$BATS_RUN_TMPDIR}/cluster
# shellcheck source=tests/integration/cluster.bash
source "$BATS_TEST_DIRNAME/../integration/cluster.bash"

setup_file() {
    local image
    image=$("$BATS_TEST_DIRNAME/image.bash")
    cluster_make solo
    cluster_start
    cluster_remember
    on solo create root "$(stat -c %s "$image/root.ext4")"
    on solo create disk 256MiB
    timeout 120 nbdcopy --flush "$image/root.ext4" "$(uri solo root)"
    vm_start --root "$(uri solo root)" --disk "$(uri solo disk)"
}
setup() { cluster_recall; }
teardown_file() {
    vm_stop
    if [[ -e $CLUSTER/state ]]; then cluster_recall && cluster_down; fi
}

@test "it runs programs of its root, and a file system on its disk" {
    vm 'mkfs.ext4 -q /dev/vdb && mount /dev/vdb /mnt'
    vm 'fio --name=v --directory=/mnt --size=16m --rw=randwrite --bs=4k --ioengine=io_uring --direct=1 --iodepth=8 \
            --verify=crc32c --do_verify=1 --output-format=terse > /dev/null'
}

# What it reads and writes meanwhile waits.
@test "it goes on when tarnd is restarted below it" {
    vm 'head -c 8M /dev/urandom > /mnt/before && sync /mnt/before && sha256sum /mnt/before > /tmp/sums'
    host_stop solo
    vm 'head -c 8M /dev/urandom > /mnt/after && sync /mnt/after && sha256sum /mnt/after >> /tmp/sums' 3>&- &
    local -r writer=$!
    host_start solo
    wait "$writer"
    vm 'echo 3 > /proc/sys/vm/drop_caches && sha256sum -c /tmp/sums'
    vm 'umount /mnt && fsck.ext4 -fn /dev/vdb'
}

# boot_sector WORD: code for an x86 that says the word on the first serial port.
boot_sector() {
    python3 - "$1" << 'END'
import sys
code = bytes.fromhex(
    "31c0 8ed8"     # xor ax, ax; mov ds, ax
    "fc be 167c"    # cld; mov si, behind the code, which is loaded at 7c00
    "ba f803"       # mov dx, the port
    "ac 84c0 7403"  # next: lodsb; test al, al; jz end
    "ee ebf8"       # out dx, al; jmp next
    "f4 ebfd")      # end: hlt; jmp end
assert len(code) == 0x16
sys.stdout.buffer.write((code + sys.argv[1].encode() + b"\0").ljust(510, b"\0") + b"\x55\xaa")
END
}

@test "another one has its firmware boot from a volume, and does so again after a kill of tarnd" {
    on solo create boots 16MiB
    boot_sector "tarn booted this" > "$BATS_TEST_TMPDIR/sector"
    timeout 20 qemu-io -f raw -c "write -s $BATS_TEST_TMPDIR/sector 0 512" "$(uri solo boots)"
    local times serial machine
    for times in 1 2; do
        serial=$BATS_TEST_TMPDIR/serial.$times
        timeout 120 qemu-system-x86_64 -accel tcg -machine pc -nodefaults -no-user-config -display none -m 32M -boot c \
            -serial "file:$serial" -drive "file=$(uri solo boots),format=raw,if=virtio" \
            > "$BATS_TEST_TMPDIR/qemu.log" 2>&1 3>&- &
        machine=$!
        within 60 grep "tarn booted this" "$serial" || { cat "$BATS_TEST_TMPDIR/qemu.log" && false; }
        kill "$machine"
        wait "$machine" || true
        host_crash solo
        host_start solo
    done
    on solo delete boots
}
