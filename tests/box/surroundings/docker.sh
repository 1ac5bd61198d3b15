#!/bin/sh
# Runs a command as root of a container that Docker starts without options: a masked /proc,
# read-only cgroups, its filter and its capabilities. In this order, for each takes what the next
# ones do not leave.
# usage: docker.sh COMMAND...
set -eu

here=$(dirname "$0")
exec "$here/masked-proc.sh" "$here/read-only-cgroup.sh" "$here/seccomp.py" docker \
    "$here/capabilities.sh" "$@"
