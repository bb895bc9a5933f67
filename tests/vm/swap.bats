# A virtual machine that swaps to a volume of a tarnd outside of it, over the kernel's NBD device: what it needs to write
# there it cannot get by waiting for memory. (To swap to a device of the same machine is not promised: docs/block.md.)

load vm.bash
HOST_MEMORY=128MiB HOST_STORE=2GiB
CLUSTER=${BATS_FILE_TMPDIR:-$BATS_RUN_TMPDIR}/cluster
# shellcheck source=tests/integration/cluster.bash
source "$BATS_TEST_DIRNAME/../integration/cluster.bash"

setup_file() {
    [[ -n ${TARN_FULL-} ]] || return 0
    cluster_make solo
    cluster_start
    cluster_remember
    on solo create swap 512MiB
    vm_start --memory 256M --server "$CLUSTER/solo/nbd.sock"
    vm 'modprobe -a virtio_net nbd; within 20 test -e /sys/class/net/eth0
        ip address add 10.0.2.15/24 dev eth0; ip link set eth0 up
        nbd-client 10.0.2.100 /dev/nbd0 -name swap -b 4096 -swap; mkswap /dev/nbd0; swapon /dev/nbd0
        echo 5 > /proc/sys/vm/page-cluster'
}
setup() {
    [[ -n ${TARN_FULL-} ]] || skip "takes long here: ./dev test vm --full"
    cluster_recall
}
teardown_file() {
    vm_stop
    if [[ -e $CLUSTER/state ]]; then cluster_recall && cluster_down; fi
}

# Each page has its number and its turn all over, so that neither another page nor an older one passes for it.
@test "more memory than it has keeps what was written to it, page by page" {
    vm 'cat > /tmp/fill.py << "END"
import mmap, struct
pages, page_size = 280 << 8, 4096
memory = mmap.mmap(-1, pages * page_size)
def page(number, turn):
    return struct.pack("<QQ", number, turn) * (page_size // 16)
def fill(numbers, turn):
    for number in numbers: memory[number * page_size:(number + 1) * page_size] = page(number, turn)
fill(range(pages), 0)
fill(range(0, pages, 64), 1)
for number in range(pages):
    assert memory[number * page_size:(number + 1) * page_size] == page(number, number % 64 == 0), number
print("all is there")
END
        awk "/^MemTotal/ { print (\$2 < 280 * 1024) }" /proc/meminfo | grep 1'
    run vm 'timeout 300 python3 /tmp/fill.py'
    assert_output "all is there"
    run vm 'awk "/^pswpout/ { print (\$2 > 20000) }" /proc/vmstat; dmesg | grep -iE "nbd0.*(error|timed out)|I/O error|blocked for more"'
    assert_output 1
    local -r stored=$(on solo status --json | jq .store_stored_bytes)
    echo "# of 280 MiB $((stored >> 20)) MiB were stored outside" >&3
    ((stored > 64 << 20))
    vm 'timeout 200 swapoff /dev/nbd0; nbd-client -d /dev/nbd0'
}
