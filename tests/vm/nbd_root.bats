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
