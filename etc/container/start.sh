#!/bin/sh
# Starts the server in a container: the image's entry point, below tini, which reaps and passes signals on. It makes
# room for the cgroups of boxes, shows the operator's key to whoever mounted a directory for it, and becomes the server.
# A command in place of options is run instead: docker run --rm cove cove doctor.
# The key is never said: it goes from file to file.
set -eu

data=/var/lib/cove
key=$data/engine/operator.key
shown=/run/cove-key
groups=/sys/fs/cgroup

case ${1-} in
'' | -*) ;;
*) exec "$@" ;;
esac

# Where the container may not mount, the engine reaches its own directory, and nothing else, through this one.
chmod 711 $data

# With cgroup v2 a group with processes of its own has none with limits below it. This process returns to the
# container's own group below, and --delegated has the server leave that, too. Where the container sees the host's groups
# it is in one of them and not at the root: there it stays, with its limits.
if grep -q '^0::/$' /proc/self/cgroup && [ -w $groups/cgroup.procs ] && mkdir $groups/cove-container; then
    while read -r pid; do
        [ "$pid" = 0 ] || echo "$pid" >$groups/cove-container/cgroup.procs || true # 0: of outside of the container
    done <$groups/cgroup.procs
fi 2>/dev/null

# The file belongs to the owner of the directory, and takes the place of an earlier server's. Other processes of that user
# may put links there, so its name is new, and nothing is followed.
show_key() {
    until [ -s $key ]; do sleep 0.2; done
    new=$(mktemp $shown/.operator.key.XXXXXX)
    cat $key >"$new"
    chown -h --reference=$shown "$new" 2>/dev/null || true
    mv -fT "$new" $shown/operator.key
}

if [ -d $shown ]; then
    (show_key &) # of tini, which reaps it
else
    echo "cove-container: read the operator's key with: docker exec CONTAINER cat $key" >&2
fi

[ ! -d $groups/cove-container ] || echo $$ >$groups/cgroup.procs || true
# Which addresses of the host lead here is for the line that starts the container to say.
exec /usr/local/libexec/cove/cove-keeper --delegated --listen 0.0.0.0:7070 --insecure-http "$@"
