#!/usr/bin/env bash
# Makes what the virtual machines of these tests boot from, once on each machine, and prints the directory of it:
#   root.ext4   a small Debian with the programs that the tests run, and the modules of both kernels
#   vmlinux     its kernel, unpacked, so that QEMU enters it at once
#   linux.uml   user-mode Linux, the other kernel
#   initrd      which mounts root.ext4 with a tmpfs above it: nothing of it ever changes
# TARN_VM_KERNEL=bookworm-backports: vmlinux is the newer kernel that Debian has there.
# Needs root. Changes nothing outside of its cache ($TARN_VM_CACHE).
set -euo pipefail
export PATH=/usr/sbin:/usr/bin:/sbin:/bin  # of the machine, and of what is in its root
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

suite=bookworm
kernel=${TARN_VM_KERNEL:-$suite} # the suite that it is from
packages=(kmod udev systemd iproute2 procps util-linux fdisk dmsetup python3 e2fsprogs xfsprogs fuse3 fio nbd-client
    nbdkit libnbd-bin qemu-utils jq postgresql-15
    liburing2 libstdc++6 libisal2 libblkid1 libgnutls30 libsystemd0 libtomlplusplus3 libnl-genl-3-200)
# What the kernels need before they have their root, in the order of loading.
early_modules=(virtio_pci virtio_blk virtio_console 9pnet_virtio 9p crc32c_generic ext4 overlay)
early_modules_of_uml=(overlay)
# Folders of modules that no test has a use for, and which are most of them.
left_out=(sound drivers/{gpu,media,staging,usb,hid,input,iio,isdn,infiniband/hw,net/ethernet,net/wireless,net/usb}
    drivers/{platform,hwmon,i2c,comedi,thunderbolt,firewire,mtd,power,rtc,leds,mfd,pinctrl,bluetooth,video}
    net/wireless)

mirror=$(apt-cache policy libc6 | grep -oE 'https?://[^ ]+' | head -n 1)
cache=${TARN_VM_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/tarn-vm}
image=$cache/$(cat "$here/image.bash" "$here/init" <(echo "$kernel") | sha256sum | cut -c 1-16)

# The ELF kernel in a compressed one: behind the first place that looks like the beginning of compressed data and is.
unpack_kernel() {
    python3 - "$1" "$2" << 'END'
import re, subprocess, sys
data = open(sys.argv[1], "rb").read()
for magic, program in ((b"\xfd7zXZ\0", "xz"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"\x1f\x8b\x08", "gzip")):
    for found in re.finditer(re.escape(magic), data):
        kernel = subprocess.run([program, "-dcq"], input=data[found.start():], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL).stdout
        if kernel.startswith(b"\x7fELF"):
            open(sys.argv[2], "wb").write(kernel)
            sys.exit()
sys.exit("no kernel found in " + sys.argv[1])
END
}

# make_root ROOT UML: and the kernel of user-mode Linux. mmdebstrap runs the hooks, with the root as their argument.
# PostgreSQL is to make no cluster of its own, and comes without its compiler, which is larger than everything else.
# shellcheck disable=SC2016
make_root() {
    local -r kernel_sources=(${TARN_VM_KERNEL:+"deb $mirror $kernel main"})
    mmdebstrap --quiet --variant=minbase --include="$(IFS=, && echo "${packages[*]}")" \
        --essential-hook='mkdir "$1/etc/postgresql-common"
            echo "create_main_cluster = false" > "$1/etc/postgresql-common/createcluster.conf"' \
        --customize-hook='chroot "$1" apt-get -qq install --download-only --no-install-recommends \
            user-mode-linux linux-image-amd64/'"$kernel" \
        --customize-hook='dpkg-deb --fsys-tarfile "$1"/var/cache/apt/archives/linux-image-[0-9]*.deb |
            tar -x --keep-directory-symlink -C "$1"' \
        --customize-hook='dpkg-deb --fsys-tarfile "$1"/var/cache/apt/archives/user-mode-linux_*.deb |
            tar -x -C "$1" ./usr/bin/linux.uml ./usr/lib/uml' \
        "$suite" "$1" "deb $mirror $suite main" "${kernel_sources[@]}"
    release=$(ls "$1/lib/modules")
    uml_release=$(ls "$1/usr/lib/uml/modules")
    mv "$1/usr/lib/uml/modules/$uml_release" "$1/lib/modules/"
    mv "$1/usr/bin/linux.uml" "$2"
    rm -rf "$1"/usr/share/{doc,man,locale} "$1"/var/{cache,lib}/apt/* "$1"/usr/lib/*/lib{LLVM,z3}* \
        "${left_out[@]/#/$1/lib/modules/$release/kernel/}" "${left_out[@]/#/$1/lib/modules/$uml_release/kernel/}"
    chroot "$1" depmod "$release"
    chroot "$1" depmod "$uml_release"
    mkdir -p "$1/vm" "$1/tarn"
}

make_initrd() {
    local -r root=$1 to=$2
    mkdir -p "$to"/{bin,proc,sys,dev,modules}
    cp "$(command -v busybox)" "$to/bin/busybox"
    cp "$here/init" "$to/init"
    add_modules "$root" "$to" "$release" "${early_modules[@]}"
    add_modules "$root" "$to" "$uml_release" "${early_modules_of_uml[@]}"
    (cd "$to" && find . | cpio --quiet -o -H newc)
}

# add_modules ROOT INITRD RELEASE MODULE...: with what they need, and a list of all in the order of loading.
add_modules() {
    local -r root=$1 to=$2/modules/$3
    local module
    mkdir "$to"
    chroot "$root" modprobe --set-version "$3" --all --show-depends "${@:4}" |
        awk '$1 == "insmod" && !seen[$2]++ {print $2}' > "$to/list"
    while read -r module; do
        case $module in
            *.xz) xz -dc "$root$module" > "$to/$(basename "$module" .xz)" ;;
            *) cp "$root$module" "$to/" ;;
        esac
    done < "$to/list"
    sed -i 's|.*/||; s|\.xz$||' "$to/list"
}

mkdir -p "$cache"
exec 9> "$cache/lock"
flock 9
if [[ ! -e $image ]]; then
    work=$(mktemp -d "$cache/work.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    mkdir "$work/image"
    make_root "$work/root" "$work/image/linux.uml" >&2
    unpack_kernel "$work/root/boot/vmlinuz-$release" "$work/image/vmlinux"
    rm -rf "$work/root/boot"
    make_initrd "$work/root" "$work/initrd" > "$work/image/initrd"
    size_mib=$(du -sm "$work/root" | cut -f 1)
    mke2fs -q -t ext4 -O ^has_journal -d "$work/root" "$work/image/root.ext4" $((size_mib + size_mib / 4 + 64))M >&2
    mv "$work/image" "$image"
    # Of earlier versions of these scripts.
    find "$cache" -mindepth 1 -maxdepth 1 -type d ! -path "$image" ! -path "$work" -mtime +7 -exec rm -rf {} +
fi
echo "$image"
