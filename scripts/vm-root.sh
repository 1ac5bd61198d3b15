#!/bin/sh
# Makes what a guest of scripts/test-vm.sh starts from, once: Debian's kernel, a small initramfs and
# an image of a Debian root. Packages are unpacked and not installed, so that the root of any
# machine is made on any other; what their scripts would have done and tests need is done here by
# hand. Nothing that changes with the source tree belongs in the image, or it would be made anew.
# usage: vm-root.sh ARCH DIRECTORY      (ARCH as Debian calls it)
set -eu

arch=$1
directory=$2
here=$(cd "$(dirname "$0")/.." && pwd)

# What the tests start, on the host and in boxes, what cove-engine is linked with, and what those
# packages take for granted.
packages='base-files,base-passwd,bash,busybox-static,coreutils,dash,diffutils,findutils,grep,gzip
    hostname,libc-bin,login,mawk,ncurses-base,passwd,sed,tar,util-linux
    attr,ca-certificates,e2fsprogs,erofs-utils,kmod,libcap2-bin,mount,procps,python3-pytest
    strace,sudo,uidmap
    iproute2,libc-ares2,libsqlite3-0,libssl3,libuv1,nftables,openssl,python3-websockets'
# For what is packed for that machine, which is tried nowhere else: scripts/test-packages.py and test-image.sh.
[ "$arch" != arm64 ] || packages="$packages crun,curl,fuse-overlayfs,podman,systemd-container"
# What is needed to get at the root, in the order of loading; what they depend on is loaded before
# them. The root has all of Debian's modules: the kernel asks for those of a box's network itself, as
# it does on every machine on which nothing else has loaded them.
modules='virtio_pci virtio_blk virtio_rng ext4 overlay erofs loop fuse'

# The image is as good as new while nothing that went into it has changed.
inputs=$(cat "$0" "$here/tests/vm/init" | sha256sum)
if [ -f "$directory/inputs" ] && [ "$(cat "$directory/inputs")" = "$inputs" ]; then
    exit 0
fi

say() {
    echo "vm: $*" >&2
}

[ "$(id -u)" = 0 ] || {
    say "the guest's root can be made by root only, for its files belong to many users"
    exit 1
}
rm -rf "$directory"
mkdir -p "$directory"
directory=$(cd "$directory" && pwd)
root=$directory/root
initramfs=$directory/initramfs

say "unpacking Debian 12 for $arch; this is done once"
# shellcheck disable=SC2016 # $1 is the hook's
mmdebstrap --quiet --mode=root --arch="$arch" --variant=extract \
    --include="$(echo "$packages" | tr -s ' \n' ',,'),linux-image-cloud-$arch" \
    --setup-hook='for name in bin sbin lib lib64; do
        mkdir -p "$1/usr/$name"; ln -s "usr/$name" "$1/$name"; done' \
    bookworm "$root"

say "finishing the root"
version=$(basename "$root"/lib/modules/*)
mv "$root/boot/vmlinuz-$version" "$directory/kernel"

# ---- the initramfs: busybox, and the modules in the order in which they load ----
depmod -b "$root" "$version"
mkdir -p "$initramfs/bin" "$initramfs/modules"
cp "$root/bin/busybox" "$initramfs/bin/"
cp "$here/tests/vm/init" "$initramfs/init"
chmod 755 "$initramfs/init"
# modules.dep has one line a module: its path, a colon, and what it needs, the nearest first.
for name in $modules; do
    line=$(sed -n "s|^\(.*/$name\.ko\):|\1|p" "$root/lib/modules/$version/modules.dep")
    reversed=
    for path in $line; do
        reversed="$path $reversed"
    done
    for path in $reversed; do
        file=$(basename "$path")
        [ ! -f "$initramfs/modules/$file" ] || continue
        cp "$root/lib/modules/$version/$path" "$initramfs/modules/"
        echo "$file" >>"$initramfs/modules/order"
    done
done
(cd "$initramfs" && find . | busybox cpio -o -H newc 2>/dev/null) >"$directory/initramfs.cpio"
rm -rf "$initramfs" "$root/boot"

# ---- what the scripts of the packages would have done ----
cp "$root/usr/share/base-passwd/passwd.master" "$root/etc/passwd"
cp "$root/usr/share/base-passwd/group.master" "$root/etc/group"
for user in user:1000 covetest:1001; do
    name=${user%:*} id=${user#*:}
    echo "$name:x:$id:$id::/home/$name:/bin/bash" >>"$root/etc/passwd"
    echo "$name:x:$id:" >>"$root/etc/group"
    mkdir -p "$root/home/$name"
    chown "$id:$id" "$root/home/$name"
done
sed 's/^\([^:]*\):.*/\1:*:19000:0:99999:7:::/' "$root/etc/passwd" >"$root/etc/shadow"
sed 's/^\([^:]*\):.*/\1:*::/' "$root/etc/group" >"$root/etc/gshadow"
chmod 640 "$root/etc/shadow" "$root/etc/gshadow"
echo 'covetest:100000:65536' | tee "$root/etc/subuid" >"$root/etc/subgid"
echo 'user ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/user"
chmod 440 "$root/etc/sudoers.d/user"
printf '127.0.0.1 localhost guest\n::1 localhost\n' >"$root/etc/hosts"
echo guest >"$root/etc/hostname"
printf 'passwd: files\ngroup: files\nshadow: files\nhosts: files\n' >"$root/etc/nsswitch.conf"
# Accounts without a password may not log in; who may become whom is asked of nobody else.
for stack in auth account password session; do
    echo "$stack required pam_unix.so" >"$root/etc/pam.d/common-$stack"
done
cp "$root/etc/pam.d/common-session" "$root/etc/pam.d/common-session-noninteractive"
mkdir -p "$root/etc/alternatives" "$root/etc/ssl/certs"
ln -s /usr/bin/mawk "$root/etc/alternatives/awk"
ln -s /etc/alternatives/awk "$root/usr/bin/awk"
cat "$root"/usr/share/ca-certificates/mozilla/*.crt >"$root/etc/ssl/certs/ca-certificates.crt"
# What the tests look for where they use a root of their own: this one serves as that, too.
echo -n "3 testroot" >"$root/.cove-test-root"
# Compiling all of pytest takes an emulated machine long. Bytecode is the same on every machine.
/usr/bin/python3 -m compileall -q -s "$root" --invalidation-mode unchecked-hash \
    "$root/usr/lib/python3.11" "$root/usr/lib/python3" >/dev/null || true
rm -rf "$root"/usr/share/doc "$root"/usr/share/man "$root"/usr/share/locale \
    "$root"/usr/lib/udev "$root"/usr/lib/linux-image-*

say "making the image"
# Sparse; no disk of a sandbox may be larger than what it lies on.
mkfs.ext4 -q -F -O ^has_journal -m 0 -L guest -d "$root" "$directory/root.ext4" 8G
rm -rf "$root"
echo "$inputs" >"$directory/inputs"
