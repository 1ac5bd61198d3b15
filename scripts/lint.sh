#!/usr/bin/env bash
# Everything that can be checked without running the code. Each check runs to its end and all
# findings are shown; two run at a time, for a build machine may have no more cores.
# With --quick what takes seconds: layout, rooms, calls between files, shell, mutants' rows, marks, ages, and clang-tidy
# of the sources that changed since the commit in .ci/tidied, the last one that all of it was clean at.
# usage: lint.sh [--quick | CHECK...]
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
    scripts/rooms.py || return 1
    # Code that two files of tests need is in tests/lib.
    ! git grep -nE '^ *(from|import) +test_' -- 'tests/*.py' 'js/*.py'
}

# Which files need which: of the release and of the build with the tests, which make test has made before.
check_calls() {
    scripts/rooms.py "${BUILD:-build}" "${BUILD:-build}/asan"
}

# This build has every source, so the whole lint asks of its objects which files need which.
check_gcc() {
    CC=gcc lint_build gcc -Danalyzer=true && scripts/rooms.py "$build/gcc"
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

# Of a build's compile commands one for each source: of its second reading version 14 says that every va_list is
# uninitialized. Writes them into the directory $2, and prints the sources that are read.
tidy_commands() {
    mkdir -p "$2"
    python3 - "$1/compile_commands.json" "$2/compile_commands.json" <<'PYTHON'
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
}

# Reads the sources that are named on its input, by the compile commands in $1.
tidy() {
    xargs -r -n 1 -P 2 clang-tidy-14 --quiet -p "$1" --extra-arg=-Wno-unknown-warning-option 2> >(
        grep -v -E 'warnings? (generated|treated)|^Suppressed|^Use -header' >&2
    )
}

check_tidy() {
    # The generated files have to be there, or nothing that includes them can be parsed. Errexit
    # does not hold in here (the caller tests the result), so failures are passed on by hand.
    local failed=0
    check_clang || failed=1
    tidy_commands "$build/clang" "$build/tidy" | sort -u >"$build/tidy-files"
    tidy "$build/tidy" <"$build/tidy-files" || failed=1
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

# Tests of walls say so: a run that forgives one is worth nothing.
check_marks() {
    python3 - <<'PYTHON'
import ast, pathlib, re, sys
WALLS = re.compile(r"posture|filesystem|test_kernel$|leaks|resources|attacks|walls|tokens|filter|policy|shut_in|confine|lies|holes|test_races")
def is_marked(path):
    """Whether all tests of the file carry the mark."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and any(getattr(name, "id", "") == "pytestmark" for name in node.targets):
            if "pytest.mark.wall" in ast.unparse(node.value):
                return True
    return False
unmarked = [str(path) for path in sorted(pathlib.Path("tests").rglob("test_*.py"))
            if WALLS.search(path.stem) and not is_marked(path)]
for path in unmarked:
    print(f"{path}: tests of walls, which no run may forgive; add: pytestmark = pytest.mark.wall")
units = pathlib.Path("tests/meson.build").read_text()
listed = re.search(r"wall_tests = \[(.*?)\]", units, re.S)
named = set(re.findall(r"'(\w+)'", listed[1])) if listed else set()
for path in sorted(pathlib.Path("tests").rglob("test_*.c")):
    if WALLS.search(path.stem) and path.stem not in named:
        print(f"{path}: a test of walls, which no run may forgive; add it to wall_tests in tests/meson.build")
        unmarked.append(path)
# And each file of tests is in a suite.
import fnmatch, json, subprocess
what = [word for row in json.loads(pathlib.Path("tests/suites.json").read_text()) for word in row["what"]]
tracked = subprocess.run(["git", "ls-files", "tests", "js/packages"], capture_output=True, text=True, check=True).stdout.split()
for file in tracked:
    path = pathlib.Path(file)
    if path.parent.name == "vm": # of guests, which scripts/test-vm.sh starts
        continue
    if fnmatch.fnmatch(path.name, "test_*.py"):
        is_there = any(path.is_relative_to(word) for word in what)
    elif "/test/" in file and fnmatch.fnmatch(path.name, "*.test.*js") and "world" not in path.parts:
        is_there = any(path.relative_to("js").match(word.replace("**/", "")) or fnmatch.fnmatch(file, f"js/{word}") for word in what)
    else:
        continue
    if not is_there:
        print(f"{file}: no suite of tests/suites.json runs it")
        unmarked.append(path)
sys.exit(bool(unmarked))
PYTHON
}

# docs/tested.md says when everything was run last.
check_tested() {
    local commit count
    commit=$(sed -n 's/^| `\([0-9a-f]\{7,40\}\)` .*/\1/p' docs/tested.md | tail -n 1)
    [ -n "$commit" ] || {
        echo "docs/tested.md names no commit; run make test-all, which writes it there"
        return 1
    }
    [ "$(git rev-parse --is-shallow-repository)" = false ] || return 0
    count=$(git rev-list --count "$commit..HEAD") || return 1
    [ "$count" -le 300 ] || {
        echo "make test-all passed last $count commits ago, at $commit; run it: 300 is the most"
        return 1
    }
}

# The sources that changed since all of them were clean, and those that include a header that did, by the compile
# commands of the build with the tests.
check_tidied() {
    local since commands=${BUILD:-build}/asan
    since=$(cat .ci/tidied)
    git cat-file -e "$since^{commit}" 2>/dev/null || {
        echo ".ci/tidied names a commit that is not there: $since"
        return 1
    }
    [ -f "$commands/compile_commands.json" ] || scripts/build.sh asan "$commands" || return 1
    {
        git diff --name-only --diff-filter=d "$since" -- '*.c'
        git ls-files --others --exclude-standard -- '*.c'
        git diff --name-only --diff-filter=d "$since" -- 'src/*.h' | sed 's|^src/||' | while read -r header; do
            git grep -l -F "#include \"$header\"" -- '*.c' || true
        done
    } | sort -u >"$build/changed-files"
    tidy_commands "$commands" "$build/tidied" | sort -u | comm -12 - "$build/changed-files" | tidy "$build/tidied"
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
[ $# -gt 0 ] || checks=(format rooms shell mutants marks tested gcc cppcheck tidy)
[ "${1:-}" != --quick ] || checks=(format rooms calls shell mutants marks tested tidied)
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
# From now on make test reads the sources that change after this commit.
if [ "$status" = 0 ] && [ $# = 0 ] && [ -z "$(git status --porcelain)" ]; then
    git rev-parse HEAD >.ci/tidied
    echo "lint: .ci/tidied names this commit; commit it"
fi
[ "$status" = 0 ] && echo "lint: all clean" || echo "lint: FAILED"
exit "$status"
