#!/bin/sh
# Makes a directory with links to the kernel's headers, for musl-gcc, which knows only musl's own.
# It must hold nothing else: any header of glibc in there would be mixed into musl programs.
# usage: kernel-headers.sh DIRECTORY MULTIARCH
set -eu

directory=$1
multiarch=$2

mkdir -p "$directory"
for name in linux asm-generic; do
    [ -d "/usr/include/$name" ] || {
        echo "kernel-headers.sh: /usr/include/$name is missing: install linux-libc-dev" >&2
        exit 1
    }
    ln -sfn "/usr/include/$name" "$directory/$name"
done
asm=/usr/include/$multiarch/asm
[ -d "$asm" ] || asm=/usr/include/asm
[ -d "$asm" ] || {
    echo "kernel-headers.sh: $asm is missing: install linux-libc-dev" >&2
    exit 1
}
ln -sfn "$asm" "$directory/asm"
