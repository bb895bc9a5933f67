# What an attached device has for each CPU: a hardware queue, a connection, and a shard of tarnd that serves it.

load vm.bash

setup_file() {
    vm_start --cpus 2
    vm 'tarn_init && tarnd_start && tarn create disk 256MiB && modprobe nbd'
}
teardown_file() { vm_stop; }

@test "a volume becomes a device, with a hardware queue for each CPU, which its shard serves" {
    run vm 'tarn attach disk'
    assert_output "/dev/nbd0" # no udev runs, and nobody makes a link
    run vm 'blockdev --getsize64 --getss --getro /dev/nbd0; cat /sys/block/nbd0/backend; ls /sys/block/nbd0/mq'
    assert_output $'268435456\n4096\n0\ntarn/by-name/disk\n0\n1'
    run vm 'for cpu in 0 1; do taskset -c $cpu dd if=/dev/nbd0 of=/dev/null bs=4k count=200 iflag=direct status=none; done
            tarn --json status | jq -c "[.shards[] | [.nbd_connections, .requests >= 200]]"'
    assert_output '[[1,true],[1,true]]'
    vm 'tarn detach disk'
}

@test "kill -9 under verified load is a pause" {
    vm 'tarn attach disk; : > /tmp/tarnd.log; dmesg -C'
    run under_load 'for i in 1 2 3 4; do within 60 served 500; tarnd_end -9; tarnd_start; done'
    assert_success
    echo "longest wait: ${lines[-1]} ms" >&3
    run vm 'dmesg | grep nbd0'
    assert_failure
    assert_output ""
    run vm 'grep -c "nbd0 is volume disk, as before" /tmp/tarnd.log'
    assert_output 4
    vm 'tarn detach disk'
}

# The first socket of the device: the keeper has those of the device, too, and no other of tarnd's. To shut down tarnd's
# end is what a kernel that gives a connection up looks like to tarnd, and what a tarnd that ends it to the kernel.
@test "a connection that breaks is replaced by a new one, which serves, and outlives tarnd" {
    vm 'tarn attach disk; : > /tmp/tarnd.log; dmesg -C
        python3 - "$(cat /run/tarnd.pid)" "$(pidof tarn-keeper)" << "END"
import ctypes, os, socket, sys
def sockets(pid):
    links = {os.readlink(f"/proc/{pid}/fd/{fd}"): int(fd) for fd in os.listdir(f"/proc/{pid}/fd")}
    return {link: fd for link, fd in links.items() if link.startswith("socket:")}
tarnd, keeper = map(int, sys.argv[1:])
ours = sockets(tarnd)
first = min(ours[link] for link in ours.keys() & sockets(keeper).keys())
pidfd_getfd = 438
fd = ctypes.CDLL(None, use_errno=True).syscall(pidfd_getfd, os.pidfd_open(tarnd), first, 0)
socket.socket(fileno=fd).shutdown(socket.SHUT_RDWR)
END
        within 20 grep "the kernel had given up connection" /tmp/tarnd.log; dmesg | grep "nbd0: reconnected socket"
        head -c 4M /dev/urandom > /tmp/bytes; dd if=/tmp/bytes of=/dev/nbd0 bs=64k oflag=direct status=none'
    local -r read_by_each_cpu='for cpu in 0 1; do
            taskset -c $cpu dd if=/dev/nbd0 bs=64k count=64 iflag=direct status=none | cmp - /tmp/bytes
        done
        tarn --json status | jq -c "[.shards[] | [.nbd_connections, .requests >= 64]]"'
    run vm "$read_by_each_cpu"
    assert_output '[[1,true],[1,true]]'
    vm 'tarnd_end -9; tarnd_start'
    run vm "$read_by_each_cpu"
    assert_output '[[1,true],[1,true]]'
    run vm 'dmesg | grep "I/O error"; grep "error" /tmp/tarnd.log'
    assert_output ""
    vm 'tarn detach disk'
}
