#!/bin/sh
# Runs a command as an ordinary user who has COUNT ids of his own in /etc/subuid and /etc/subgid, none
# if 0. The files are bound over the host's in a mount namespace; the user is in no file of the host.
# usage: user.sh COUNT COMMAND...
set -eu

name=covetest id=64999 first=1000000000
[ "${COVE_TEST_INNER:-}" = user ] ||
    COVE_TEST_INNER=user exec unshare -m --propagation private "$0" "$@"
unset COVE_TEST_INNER
count=$1
shift

# A tmpfs, in a place that every host has and nobody here needs; the binds outlive it.
mount -t tmpfs -o mode=755 tmpfs /media
{
    cat /etc/passwd
    echo "$name:x:$id:$id::/media/home:/bin/sh"
} >/media/passwd
{
    cat /etc/group
    echo "$name:x:$id:"
} >/media/group
: >/media/subids
[ "$count" = 0 ] || echo "$name:$first:$count" >/media/subids
for pair in passwd:passwd group:group subids:subuid subids:subgid; do
    [ -e "/etc/${pair#*:}" ] || {
        echo "user.sh: this host has no /etc/${pair#*:} to lay a file over" >&2
        exit 1
    }
    mount --bind "/media/${pair%:*}" "/etc/${pair#*:}"
done
mkdir -m 700 /media/home
chown "$id:$id" /media/home
# Where the user's own lock of ids lies, so that it ends with the command too.
if [ -d /run/user ]; then
    mount -t tmpfs -o mode=755 tmpfs /run/user
    mkdir -m 700 "/run/user/$id"
    chown "$id:$id" "/run/user/$id"
fi
# su and sudo leave none of the caller's session either.
unset XDG_RUNTIME_DIR DBUS_SESSION_BUS_ADDRESS
HOME=/media/home USER=$name LOGNAME=$name
export HOME USER LOGNAME
exec setpriv --reuid="$id" --regid="$id" --clear-groups "$@"
