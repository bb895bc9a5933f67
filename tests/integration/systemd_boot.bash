#!/bin/bash
# Started by systemd.bats in namespaces of its own, with the root of a system: makes that systemd's, and becomes it.
# usage: systemd_boot.bash ROOT TARGET
set -euo pipefail
root=$1
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mount -t sysfs sysfs "$root/sys"
mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
mkdir "$root"/sys/fs/cgroup/{systemd,unified}
mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"
mount --rbind /dev "$root/dev"
echo "$$" > "$root/run/started"
exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=other \
    /lib/systemd/systemd --system --unit="$2" --log-target=null
