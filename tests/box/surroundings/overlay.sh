#!/bin/sh
# Runs a command in a directory on an overlay, where a container's whole file system is one.
# usage: overlay.sh COMMAND...
set -eu

[ "${COVE_TEST_INNER:-}" = overlay ] ||
    COVE_TEST_INNER=overlay exec unshare -m --propagation private "$0" "$@"
unset COVE_TEST_INNER

mount -t tmpfs -o mode=755 tmpfs /media
mkdir /media/lower /media/upper /media/work /media/workspace
echo old >/media/lower/old
mount -t overlay overlay -o lowerdir=/media/lower,upperdir=/media/upper,workdir=/media/work \
    /media/workspace
cd /media/workspace
exec "$@"
