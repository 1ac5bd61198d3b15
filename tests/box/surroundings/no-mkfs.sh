#!/bin/sh
# Runs a command where there is no mkfs.ext4 that can be run. Where it is, a file that is none lies over it, in a mount
# namespace that ends with the command.
# usage: no-mkfs.sh COMMAND...
set -eu

[ "${COVE_TEST_INNER:-}" = no-mkfs ] ||
    COVE_TEST_INNER=no-mkfs exec unshare -m --propagation private "$0" "$@"
unset COVE_TEST_INNER

for directory in /usr/bin /usr/sbin /bin /sbin /usr/local/bin /usr/local/sbin; do
    [ ! -x "$directory/mkfs.ext4" ] || mount --bind /dev/null "$directory/mkfs.ext4"
done
exec "$@"
