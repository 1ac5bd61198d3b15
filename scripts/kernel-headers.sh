#!/bin/sh
# Makes a directory with links to the kernel's headers, for musl-gcc, which knows only musl's own.
# Where they lie is asked of the compiler, which may be one for another machine. The directory must
# hold nothing else: any header of glibc in there would be mixed into musl programs.
# usage: kernel-headers.sh DIRECTORY COMPILER...
set -eu

directory=$1
shift

mkdir -p "$directory"
for name in linux asm asm-generic; do
    header=$(echo "#include <$name/types.h>" | "$@" -M -x c - 2>/dev/null | tr ' ' '\n' |
        grep "/$name/types\.h\$") || {
        echo "kernel-headers.sh: $* finds no <$name/types.h>: install linux-libc-dev" >&2
        exit 1
    }
    ln -sfn "$(realpath "${header%/types.h}")" "$directory/$name"
done
