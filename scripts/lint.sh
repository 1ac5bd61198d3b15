#!/usr/bin/env bash
# Everything that can be checked without running the code. Each check runs to its end and all
# findings are shown; two run at a time, for a build machine may have no more cores.
# usage: lint.sh [CHECK...]
set -euo pipefail

cd "$(dirname "$0")/.."
build=${BUILD:-build}/lint
mkdir -p "$build"

# A build directory of its own per compiler: warnings are errors, unit tests and switches included.
lint_build() {
    local name=$1
    shift
    if [ ! -f "$build/$name/build.ninja" ]; then
        meson setup "$build/$name" -Dtests=true -Dtest_switches=true -Dwerror=true \
            -Db_ndebug=false "$@" >/dev/null || return 1
    fi
    ninja -C "$build/$name" --quiet -k 0
}

check_format() {
    scripts/format.sh --check
}

check_rooms() {
    scripts/rooms.py
}

check_gcc() {
    CC=gcc lint_build gcc -Danalyzer=true
}

check_clang() {
    CC=clang-14 lint_build clang
}

# The sources that are ours, from the compile commands of the clang build; generated ones lie in
# the build directory and are left out.
sources() {
    git ls-files --cached --others --exclude-standard -- 'src/*.c' 'tests/*.c' 'bench/*.c' \
        'examples/*.c' 'js/*.c'
}

check_tidy() {
    # The generated files have to be there, or nothing that includes them can be parsed. Errexit
    # does not hold in here (the caller tests the result), so failures are passed on by hand.
    local failed=0
    check_clang || failed=1
    # A source that is built twice is read once: of its second reading version 14 says that every
    # va_list is uninitialized.
    mkdir -p "$build/tidy"
    python3 - "$build/clang/compile_commands.json" "$build/tidy/compile_commands.json" \
        >"$build/tidy-files" <<'PYTHON'
import json, os, sys
here = os.getcwd()
entries = {}
for entry in json.load(open(sys.argv[1])):
    entries.setdefault(entry["file"], entry)
json.dump(list(entries.values()), open(sys.argv[2], "w"))
for entry in entries.values():
    path = os.path.normpath(os.path.join(entry["directory"], entry["file"]))
    path = os.path.relpath(path, here)
    # What attacks and drives boxes misuses the system on purpose and trusts its arguments: the
    # compilers and cppcheck read it, and that is enough.
    if path.startswith(("src/", "tests/unit/", "bench/", "examples/")):
        print(path)
PYTHON
    sort -u "$build/tidy-files" |
        xargs -r -n 1 -P 2 clang-tidy-14 --quiet -p "$build/tidy" 2> >(
            grep -v -E 'warnings? (generated|treated)|^Suppressed|^Use -header' >&2
        ) || failed=1
    # Of the Node addon, which scripts/build-addon.sh compiles.
    git ls-files -- 'js/*.c' | while read -r file; do
        clang-tidy-14 --quiet "$file" -- -std=gnu17 -D_GNU_SOURCE -Isrc \
            -isystem js/node_modules/node-api-headers/include 2>/dev/null || exit 1
    done || failed=1
    return "$failed"
}

check_cppcheck() {
    sources | cppcheck --file-list=- --enable=warning,performance,portability \
        --error-exitcode=1 --inline-suppr --std=c11 --language=c --quiet -j 2 \
        -D_GNU_SOURCE -D__x86_64__ -DCOVE_TEST_SWITCHES=1 -DCOVE_VERSION='""' \
        -Isrc -Itests/unit --suppressions-list=scripts/cppcheck.txt
}

# Whether each row of tests/mutants still names one place.
check_mutants() {
    scripts/mutants.py --check
}

check_shell() {
    local file
    for file in scripts/*.sh examples/*.sh examples/*/*.sh bench/*.sh tests/box/surroundings/*.sh .ci/run; do
        [ -f "$file" ] || continue
        case $(head -n 1 "$file") in
        *bash) bash -n "$file" || return 1 ;;
        *) sh -n "$file" || return 1 ;;
        esac
    done
    python3 - <<'PYTHON'
import ast, pathlib
for top in ("scripts", "tests", "tools", "src", "bench", "js/packages"):
    for path in pathlib.Path(top).rglob("*.py"):
        ast.parse(path.read_text(), str(path))
PYTHON
}

run_check() {
    local name=$1 log="$build/$1.log" started=$SECONDS
    if "check_$name" >"$log" 2>&1; then
        echo "lint: $name: clean ($((SECONDS - started)) s)"
    else
        echo "lint: $name: FAILED ($((SECONDS - started)) s)"
        cat "$log"
        return 1
    fi
}

checks=("$@")
[ $# -gt 0 ] || checks=(format rooms shell mutants gcc cppcheck tidy)
status=0
# tidy builds with clang, so that the clang build needs no turn of its own.
for check in "${checks[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge 2 ]; do
        wait -n || status=1
    done
    run_check "$check" &
done
while [ "$(jobs -p | wc -l)" -gt 0 ]; do
    wait -n || status=1
done
[ "$status" = 0 ] && echo "lint: all clean" || echo "lint: FAILED"
exit "$status"
