# The Debian package on a machine that systemd runs: installed, upgraded under load, removed.

load vm.bash
load ../support/packages.bash
load ../support/skip.bash

setup_file() {
    if [[ -z ${TARN_FULL-} ]]; then
        skip_file "takes minutes: ./dev test vm --full"
        return
    fi
    local -r changes=$BATS_FILE_TMPDIR/changes
    run_systemd_in "$changes/upper"
    make_packages "$changes/upper/root"
    vm_start --changes "$changes"
    vm 'within 300 booted; dpkg --install /root/tarn_0.1.0~1_*.deb'
}
setup() { skip_with_file; }
teardown_file() { vm_stop; }

@test "what the package has installed serves a device" {
    vm 'tarn init --store /dev/vdb --memory 128MiB --host vm
        systemctl is-enabled tarnd; systemctl start tarnd
        tarn create db 64MiB; echo db > /etc/tarn/attachtab
        echo "/dev/tarn/by-name/db /srv ext4 _netdev 0 2" >> /etc/fstab
        systemctl daemon-reload; systemctl start tarn-attach@db; within 60 test -b /dev/tarn/by-name/db
        mkfs.ext4 -q /dev/tarn/by-name/db; systemctl start srv.mount; mountpoint /srv'
}

@test "an upgrade, and the restart that begins the new version, are a pause for verified writes" {
    vm 'pid=$(systemctl show --property=MainPID --value tarnd)
        fio --name=v --directory=/srv --size=16m --rw=randwrite --bs=4k-64k --ioengine=io_uring --direct=1 --iodepth=8 \
            --verify=crc32c --verify_backlog=64 --time_based --runtime=600 --output=/tmp/fio.txt & fio=$!
        within 60 served 50; dpkg --install /root/tarn_0.1.0~2.deb
        [[ $(dpkg-query --show --showformat="\${Version}" tarn) = 0.1.0~2 ]]
        [[ $(systemctl show --property=MainPID --value tarnd) = "$pid" ]]
        within 60 served 50; systemctl restart tarnd; within 60 served 50
        kill -INT $fio; wait $fio || [ $? = 128 ]; fails grep -E "err= *[1-9]|verify:" /tmp/fio.txt
        mountpoint /srv'
}

@test "it is removed, and its units with it" {
    vm 'tarn create left 64MiB; tarn attach left; fails dpkg --remove tarn 2> /tmp/refused; grep "still attached: nbd" /tmp/refused
        tarn attached | grep left; tarn detach left
        systemctl stop tarn-attach@db; no_attachments; dpkg --remove tarn
        fails systemctl is-active tarnd; [ ! -e /usr/sbin/tarnd ]; [ -s /etc/tarn/tarn.toml ]
        systemctl daemon-reload; fails systemctl cat tarn-attach@db'
}
