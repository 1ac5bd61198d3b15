#!/bin/sh
# Makes the machine code of the JavaScript kernel: clang compiles engine and guest to WebAssembly,
# wasm2c makes C of it, gcc an object whose only names are those of the module.
#
# It takes a minute of two cores, and every kind of build wants the same object, so that it is made
# once, into the cache, under the hash of all that goes into it. It is never instrumented: what the
# sanitizers are to see is the runtime around it.
# usage: build-kernel.sh GCC OBJECT HEADER GUEST_SOURCE... : of which machine, what is written, and what is compiled
set -eu

gcc=$1
object=$2
header=$3
shift 3
sources=$(for file in "$@"; do realpath "$file"; done)
object=$(realpath -m "$object")
header=$(realpath -m "$header")
cd "$(dirname "$0")/.."

name=js
cache=${COVE_CACHE:-$PWD/build/cache}
keep=8 # results, of both machines; each is 3 MB
parts=16
adapt=src/kernel/js/adapt.py # the changes that the engine's source gets, if there are any
jobs=$(nproc)
[ "$jobs" -le 4 ] || jobs=4

# The stack is the lowest part of the memory, so that what runs over its end leaves the slot.
# The sizes are those of src/kernel/guest_shared.h.
wasm_flags='--target=wasm32-wasi -O2 -D_GNU_SOURCE -DNDEBUG
    -D_WASI_EMULATED_SIGNAL -funsigned-char -mbulk-memory -msign-ext -mnontrapping-fptoint'
wasm_link='-mexec-model=reactor -lwasi-emulated-signal -Wl,--strip-all,-z,stack-size=4194304,--stack-first'
# libm is nobody's dependency for one function: runtime.c has it. Position-independent, for the object also becomes part of a shared library. Checks of the stack
# for the guard below it. The rest is what wasm2c's output needs to mean what WebAssembly says.
c_flags='-Dnearbyint=kernel_nearest -std=gnu17 -O2 -fPIC -fvisibility=hidden -fstack-clash-protection -fwrapv
    -fno-strict-aliasing -fno-math-errno -w'
case $("$gcc" -dumpmachine) in
x86_64-*) c_flags="$c_flags -fcf-protection=full" ;;
aarch64-*) c_flags="$c_flags -mbranch-protection=standard" ;;
esac

fail() {
    echo "build-kernel.sh: $*" >&2
    exit 1
}

for command in clang-14 wasm-ld-14 wasm2c "$gcc" python3; do
    command -v "$command" >/dev/null || fail "$command is missing: run scripts/setup.sh build"
done
engine=$(scripts/kernel-inputs.sh)

# All that decides about the result.
# shellcheck disable=SC2086 # a list of words
key=$({
    clang-14 --version
    "$gcc" --version
    wasm2c --version
    cat /usr/include/wasm-rt.h scripts/build-kernel.sh scripts/split-wasm.py src/kernel/guest_shared.h src/kernel/js/*.h
    cat $sources
    [ ! -f "$adapt" ] || cat "$adapt"
    basename "$engine"
} | sha256sum | cut -c 1-32)
result=$cache/kernel-$name-$key

build() {
    work=$(mktemp -d "$cache/.kernel.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    mkdir "$work/wasm" "$work/c" "$work/engine"
    if [ -f "$adapt" ]; then
        "$adapt" "$engine/quickjs.c" "$work/engine/quickjs.c" || fail "$adapt failed"
    fi

    # engine.c includes the engine itself: the warnings of both are not ours.
    # shellcheck disable=SC2086 # lists of words
    for file in $sources "$engine/libregexp.c" "$engine/libunicode.c" "$engine/dtoa.c"; do
        case $file in
        "$engine"/* | */engine.c) warn=-w ;;
        *) warn='-Wall -Wextra -Wno-unused-parameter' ;;
        esac
        echo clang-14 $wasm_flags $warn -isystem "$work/engine" \
            -isystem "$engine" -Isrc -c "$file" \
            -o "$work/wasm/$(basename "$file").o"
    done | tr '\n' '\0' | xargs -0 -P "$jobs" -I '{}' sh -c '{}' >&2 ||
        fail "the guest does not compile"
    # shellcheck disable=SC2086 # lists of words
    clang-14 $wasm_flags "$work"/wasm/*.o $wasm_link -o "$work/$name.wasm" >&2 ||
        fail "the guest does not link"

    wasm2c -n "$name" -o "$work/$name.c" "$work/$name.wasm" >&2 || fail "wasm2c failed"
    scripts/split-wasm.py "$work/$name.c" "$work/c" "$parts" >&2 || fail "the split failed"
    cp "$work/$name.h" "$work/c/"
    # shellcheck disable=SC2086 # lists of words
    for file in "$work"/c/*.c; do
        echo "$file"
    done | xargs -P "$jobs" -I '{}' "$gcc" $c_flags -I "$work/c" -c '{}' -o '{}.o' >&2 ||
        fail "what wasm2c made does not compile"

    # One object; the thousands of names in it are nobody else's business.
    "$("$gcc" -print-prog-name=ld)" -r -o "$work/all.o" "$work"/c/*.o
    "$("$gcc" -print-prog-name=objcopy)" --wildcard --keep-global-symbol="Z_${name}*" "$work/all.o" "$work/object.o"
    mkdir "$work/result"
    mv "$work/object.o" "$work/result/$name.o"
    mv "$work/c/$name.h" "$work/result/$name.h"
    mv "$work/$name.wasm" "$work/result/$name.wasm"
    mv "$work/result" "$result"
}

mkdir -p "$cache"
exec 8>"$cache/.kernel.lock"
flock 8
if [ ! -d "$result" ]; then
    echo "compiling the JavaScript kernel (once for this source)" >&2
    build
fi
touch "$result"
# shellcheck disable=SC2012 # the names are our own
ls -dt "$cache/kernel-$name-"* | tail -n +$((keep + 1)) | while read -r old; do
    rm -rf "$old"
done

cp "$result/$name.o" "$object"
cmp -s "$result/$name.h" "$header" || cp "$result/$name.h" "$header"
