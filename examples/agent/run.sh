#!/usr/bin/env bash
# Runs the agent of this directory with the cove of the build directory, and ends everything that it began: its
# engine is one of its own, in a directory that is removed.
# usage: COVE=build/cove examples/agent/run.sh
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
program=$(realpath -m "${COVE:-$here/../../build/cove}")
js=$here/../../js
[ -f "$js/packages/mastra/dist/esm/index.js" ] || {
    echo "agent: the packages are not built: run make run, or scripts/build-js.sh" >&2
    exit 1
}
# The packages as the workspace has them. Elsewhere it is: npm install @cove/mastra @mastra/core zod
[ -e "$here/node_modules" ] || ln -sfn ../../js/node_modules "$here/node_modules"

work=$(mktemp -d)
export XDG_RUNTIME_DIR=$work/run XDG_DATA_HOME=$work/data XDG_CONFIG_HOME=$work/config COVE_BIN=$program TMPDIR=$work
mkdir -m 700 "$XDG_RUNTIME_DIR" "$XDG_DATA_HOME" "$XDG_CONFIG_HOME"
unset COVE_URL COVE_API_KEY

# The engine's socket is named on its command line, and on those of its children. Prints the oldest of them.
engine() {
    local name words stat
    for name in /proc/[0-9]*; do
        mapfile -d '' -t words <"$name/cmdline" || continue
        [[ " ${words[*]} " == *" serve "*" $work/run/cove/cove.sock "* ]] || continue
        stat=$(<"$name/stat") && read -r -a words <<<"${stat##*) }" && echo "${words[19]} ${name#/proc/}"
    done 2>/dev/null | sort -n | head -n 1 | cut -d ' ' -f 2
}

finish() {
    local pid tries
    pid=$(engine)
    [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
    for ((tries = 0; tries < 300; tries++)); do
        [ -n "$(engine)" ] || break
        sleep 0.1
    done
    rm -rf "$work"
}
trap finish EXIT

"$js/node_modules/.bin/node" "$here/agent.mjs"
