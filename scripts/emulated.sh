#!/bin/sh
# Runs a command in which programs for arm64 run, too, under qemu-aarch64: for roots of that machine, whose packages have
# scripts. Where the kernel does not know that emulator, it is told so in a user namespace of its own, which wants root
# and Linux 6.7: nothing of the host changes. There no device can be made.
# usage: emulated.sh COMMAND...
set -eu

register=/proc/sys/fs/binfmt_misc

fail() {
    echo "emulated.sh: $*" >&2
    exit 1
}

if [ "${1-}" = --inside ]; then
    shift
    mount --make-rprivate /
    mount -t binfmt_misc binfmt_misc $register 2>/dev/null ||
        fail "this kernel tells no user namespace of emulators: use Linux 6.7, or install binfmt-support"
    # An ELF file of 64 bits for machine 183; F: the emulator is opened now, and so found in every root.
    magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
    mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
    printf '%s' ":qemu-aarch64:M::$magic:$mask:$(command -v qemu-aarch64-static):F" >$register/register
    exec "$@"
fi

if [ "$(uname -m)" = aarch64 ] || [ -e $register/qemu-aarch64 ]; then
    exec "$@"
fi
command -v qemu-aarch64-static >/dev/null || fail "qemu-aarch64-static is missing: run scripts/setup.sh arm64"
[ "$(id -u)" = 0 ] || fail "the kernel does not know qemu-aarch64, and only root can tell it: install binfmt-support, or be root"
directory=$(mktemp -d)
trap 'rm -r "$directory"' EXIT
mkfifo "$directory/mapped"
# The ids are those of the host, which only a process outside can say. Until then it is nobody.
exec 3<>"$directory/mapped"
unshare --user --mount --pid --fork sh -c 'read -r _ <&3 && exec 3<&- "$0" --inside "$@"' "$0" "$@" &
# Its child is the first process there, and ends with all others by this signal alone.
trap 'kill -KILL $(cat "/proc/$!/task/$!/children" 2>/dev/null) 2>/dev/null || true; rm -r "$directory"' EXIT
trap 'exit 143' INT TERM
until [ "$(readlink "/proc/$!/ns/user")" != "$(readlink /proc/$$/ns/user)" ]; do sleep 0.05; done
for map in uid_map gid_map; do
    echo '0 0 4294967295' >"/proc/$!/$map"
done
echo mapped >&3
wait $!
