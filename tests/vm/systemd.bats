# Volumes that are kept attached, on a machine that systemd runs and that keeps its files: installed units, udev rules and
# generator, attachtab and fstab, and a reboot of the machine itself.

load vm.bash

setup_file() {
    local -r changes=$BATS_FILE_TMPDIR/changes
    run_systemd_in "$changes/upper"
    meson install -C "$TARN_BUILD" --no-rebuild --quiet --destdir "$changes/upper"
    vm_start --changes "$changes"
    vm 'within 300 booted
        tarn init --store /dev/vdb --memory 128MiB --host vm --nbd-unix /run/tarn/nbd.sock
        systemctl enable --now tarnd && tarn create db 256MiB'
}
teardown_file() { vm_stop; }

@test "a file system of fstab comes back after a reboot, and what was written to it" {
    vm 'echo db > /etc/tarn/attachtab
        echo "/dev/tarn/by-name/db /srv ext4 _netdev 0 2" >> /etc/fstab
        systemctl daemon-reload; systemctl start tarn-attach@db
        within 60 test -b /dev/tarn/by-name/db # udev is busy with the other devices of the driver
        mkfs.ext4 -q /dev/tarn/by-name/db; systemctl start srv.mount
        echo kept > /srv/file; sync /srv/file; touch /tmp/before'
    vm_reboot
    run vm 'within 300 booted; systemctl is-active tarn-attach@db srv.mount; cat /srv/file; [ ! -e /tmp/before ]'
    assert_success
    assert_output $'active\nactive\nkept'
}

@test "before that it was unmounted, then detached, and then tarnd stopped" {
    run vm 'journalctl --boot=-1 --output=cat | grep -oE "^(Unmounted srv.mount|Stopped (tarn-attach@db|tarnd).service)" | tail -n 3'
    assert_output $'Unmounted srv.mount\nStopped tarn-attach@db.service\nStopped tarnd.service'
}

# The kernel takes the first device that nobody has open: while udev looks at nbd0 that is another one.
device_of_db='DEVICE=$(basename "$(readlink -f /dev/tarn/by-name/db)")'

@test "a restart or a stop of tarnd detaches and unmounts nothing, and writes go on after it" {
    vm "$device_of_db"'; systemctl show --property=InvocationID tarn-attach@db srv.mount > /tmp/before
        fio --name=v --directory=/srv --size=16m --rw=randwrite --bs=4k-64k --ioengine=io_uring --direct=1 --iodepth=8 \
            --verify=crc32c --verify_backlog=64 --time_based --runtime=600 --output=/tmp/fio.txt & fio=$!
        within 60 served 50; systemctl restart tarnd; within 60 served 50
        systemctl stop tarnd; systemctl is-active tarn-attach@db srv.mount; systemctl start tarnd; within 60 served 50
        kill -INT $fio; wait $fio || [ $? = 128 ]
        systemctl show --property=InvocationID tarn-attach@db srv.mount | diff /tmp/before -'
}

@test "a tarnd that is killed is started again by systemd alone, and nothing was lost" {
    vm "$device_of_db"'; systemctl show --property=InvocationID tarn-attach@db srv.mount > /tmp/before
        killed=$(systemctl show --property=MainPID --value tarnd)
        fio --name=v --directory=/srv --size=16m --rw=randwrite --bs=4k-64k --ioengine=io_uring --direct=1 --iodepth=8 \
            --verify=crc32c --verify_backlog=64 --time_based --runtime=600 --output=/tmp/fio.txt & fio=$!
        served 0; within 60 served 50; head -c 4M /dev/urandom | tee /srv/bytes | md5sum > /tmp/sum; sync -f /srv
        systemctl kill --kill-who=main -s KILL tarnd; within 20 ended "$killed"; served 0; within 60 served 50
        kill -INT $fio; wait $fio || [ $? = 128 ]
        [[ $(systemctl show --property=NRestarts --value tarnd) = 1 ]]
        echo 3 > /proc/sys/vm/drop_caches; md5sum < /srv/bytes | diff /tmp/sum -; cat /srv/file
        systemctl show --property=InvocationID tarn-attach@db srv.mount | diff /tmp/before -
        rm /srv/bytes'
    vm 'journalctl --boot --unit=tarnd --output=cat | tail -n 20 | grep "nbd[0-9]* is volume db, as before"'
    run vm 'dmesg | grep "nbd[0-9].*error"'
    assert_output ""
}

@test "stopping the unit unmounts and detaches, and the mount starts it again" {
    vm 'systemctl stop tarn-attach@db; no_attachments; fails mountpoint -q /srv; fails systemctl is-active srv.mount'
    run vm 'systemctl start srv.mount && systemctl is-active tarn-attach@db && cat /srv/file'
    assert_output $'active\nkept'
}

@test "so it does with the units read anew, and a second start or stop is no failure" {
    [[ -n ${TARN_FULL-} ]] || skip "takes long here: ./dev test vm --full"
    vm 'systemctl daemon-reload; systemctl stop tarn-attach@db; no_attachments; fails mountpoint -q /srv
        tarn attach db; systemctl start tarn-attach@db srv.mount; tarn attached | grep -c nbd
        systemctl stop srv.mount; tarn detach db; systemctl stop tarn-attach@db; fails systemctl is-failed tarn-attach@db'
}

@test "what was mounted by hand is not detached under it" {
    vm 'systemctl start tarn-attach@db; mount /dev/tarn/by-name/db /mnt
        systemctl stop tarn-attach@db; systemctl is-failed tarn-attach@db; cat /mnt/file
        umount /mnt; systemctl start tarn-attach@db; systemctl is-active tarn-attach@db'
}

@test "a unit that fails while tarnd is away is started again, and the mount waits meanwhile" {
    [[ -n ${TARN_FULL-} ]] || skip "takes long here: ./dev test vm --full"
    vm 'systemctl stop tarn-attach@db tarnd
        systemctl start --no-block srv.mount; within 60 has_failed_once tarn-attach@db
        journalctl --boot --unit=tarn-attach@db --output=cat | grep "no daemon at"
        fails systemctl is-active tarnd; systemctl start tarnd; within 60 mountpoint -q /srv; cat /srv/file'
}

@test "a mistake in attachtab fails the unit with its line, and is not tried again" {
    vm 'printf "db\n\nbad readonly\n" > /etc/tarn/attachtab; systemctl daemon-reload
        systemctl list-dependencies --plain remote-fs.target | grep -F tarn-attach@bad.service
        fails systemctl start tarn-attach@bad
        systemctl is-failed tarn-attach@bad; [ $(systemctl show --property=NRestarts --value tarn-attach@bad) = 0 ]
        journalctl --boot --output=cat | grep -F "/etc/tarn/attachtab:3: unknown option \"readonly\""
        dmesg | grep -F "tarn-attach-generator: /etc/tarn/attachtab:3"'
}

@test "names that systemd and udev spell otherwise" {
    [[ -n ${TARN_FULL-} ]] || skip "takes long here: ./dev test vm --full"
    vm 'name="my-data/a b\$HOME 100%"
        printf "%s\n" "my-data/a\\040b\$HOME\\040100%" > /etc/tarn/attachtab
        tarn create "$name" 16MiB; unit=$(systemd-escape --template=tarn-attach@.service "$name")
        systemctl daemon-reload; systemctl list-dependencies --plain remote-fs.target | grep -F "$unit"
        systemctl start "$unit"; tarn attached --json | jq -e --arg name "$name" ".attachments[] | select(.volume == \$name)"
        link=$(tarn attached --json | jq -r --arg name "$name" ".attachments[] | select(.volume == \$name).link")
        [ -b "$link" ]; systemctl stop "$unit"; within 10 fails [ -e "$link" ]
        echo -x > /etc/tarn/attachtab; tarn create -- -x 16MiB; unit=$(systemd-escape --template=tarn-attach@.service -- -x)
        systemctl start "$unit"; [ -b /dev/tarn/by-name/-x ]; systemctl stop "$unit"; within 10 fails [ -e /dev/tarn/by-name/-x ]'
}

@test "tarn attach returns when udev is done" {
    vm 'tarn create new 16MiB; for i in 1 2 3; do
            # Of those that are free, one at which udev does not look.
            said=$(tarn attach new 2>&1); echo "$said"; name=${said%% *}; name=${name#/dev/}
            [ "$said" = "/dev/$name  /dev/tarn/by-name/new" ]; [ "$(readlink -f /dev/tarn/by-name/new)" = "/dev/$name" ]
            grep -qx 1024 "/sys/block/$name/queue/max_sectors_kb"
            # What udev has set it does not set again: newer kernels wait for all requests of the device to do so.
            udevadm test -a change "/sys/block/$name" > /tmp/udev 2>&1; grep -q "60-tarn.rules" /tmp/udev
            fails grep -i "writing.*queue/\|queue/.*writing" /tmp/udev
            tarn detach new
        done'
}

@test "it warns when udev is not done within 10 s, and has attached all the same" {
    [[ -n ${TARN_FULL-} ]] || skip "takes long here: ./dev test vm --full"
    run vm 'udevadm settle; udevadm control --stop-exec-queue; trap "udevadm control --start-exec-queue" EXIT
        tarn attach new; udevadm control --start-exec-queue; udevadm settle; [ -b /dev/tarn/by-name/new ]; tarn detach new'
    assert_success
    assert_line --regexp '^/dev/nbd[0-9]+$'
    assert_line --regexp '^tarn: warning: /dev/nbd[0-9]+ works, but its links in /dev may come later: udev did not finish with it within 10 s'
}

# The first line installs what is here already.
@test "PostgreSQL on tarn in ten lines, and after a reboot" {
    [[ -n ${TARN_FULL-} ]] || skip "takes long here: ./dev test vm --full"
    local -r lines=$(sed -n '/^## PostgreSQL on tarn/,/^## Limits/ {/^```$/,/^```$/ {/^```$/d; s/100GiB/256MiB/; p}}' \
        "$BATS_TEST_DIRNAME/../../docs/block.md")
    [[ $(head -n 1 <<< "$lines") == "apt-get install --yes postgresql"* ]]
    # attachtab names db no longer, so that a stop of its unit unmounts nothing.
    vm 'systemctl stop srv.mount; systemctl stop tarn-attach@db; no_attachments
        sed -i "/by-name/d" /etc/fstab; rm /etc/tarn/attachtab; tarn delete db'
    vm "set -e; $(tail -n +2 <<< "$lines")"
    vm 'cd /; runuser -u postgres -- psql -qc "create table kept as select 42 as number"'
    vm_reboot
    run vm 'within 300 booted; within 120 systemctl is-active --quiet postgresql@15-main; cd /
        runuser -u postgres -- psql -qAtc "select number from kept"; findmnt --noheadings --output SOURCE /srv'
    assert_success
    assert_output --regexp $'^42\n/dev/nbd[0-9]+$'
}
