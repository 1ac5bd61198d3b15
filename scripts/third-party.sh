#!/bin/sh
# Writes the licences of what others wrote and cove's binaries have in them, as their own sources say them:
# each distinct one at the head of a file of the JavaScript engine, and those of the Debian packages whose
# code is compiled into it, or linked into other programs. THIRD-PARTY.md names them. Nobody may get a binary without
# this text.
# usage: third-party.sh OUTPUT PACKAGE... : what is linked beside the kernels
set -eu

output=$(realpath -m "$1")
shift
cd "$(dirname "$0")/.."
engine=$(scripts/kernel-inputs.sh)
# Elsewhere until it is whole: whoever copies the package meanwhile finds no half of it.
new=$(mktemp)
trap 'rm -f "$new" "$output.$$"' EXIT
trap 'exit 1' HUP INT TERM

fail() {
    echo "third-party.sh: $*" >&2
    exit 1
}

{
    echo "QuickJS-ng: the JavaScript engine. What stands at the heads of its files:"
    for file in "$engine"/*.c "$engine"/*.h; do
        # The first comment that is a licence. The rest of a large table need not be looked at.
        head -n 100 "$file" | awk -v name="$(basename "$file")" '
            /^\/\*/ { text = ""; is_open = 1 }
            is_open { text = text $0 "\n" }
            is_open && /\*\// {
                is_open = 0
                if (text ~ /Permission is hereby granted|UNICODE LICENSE/) {
                    printf "\n%s:\n%s", name, text
                    exit
                }
            }'
    done
    for package in wasi-libc libclang-rt-14-dev-wasm32 wabt "$@"; do
        copyright=/usr/share/doc/$package/copyright
        [ -f "$copyright" ] || fail "$copyright is missing: run scripts/setup.sh build"
        printf '\n\n%s, of which there are parts in what was built:\n\n' "$package"
        cat "$copyright"
    done
    printf '\n\nGNU LESSER GENERAL PUBLIC LICENSE 2.1, of glibc (libc6-dev):\n\n'
    cat /usr/share/common-licenses/LGPL-2.1
} >"$new"
for word in "Fabrice Bellard" "Ben Noordhuis" "UNICODE LICENSE" "wasi-libc"; do
    grep -q "$word" "$new" || fail "the licence that names '$word' was not found"
done
if ! cmp -s "$new" "$output"; then
    install -m 644 "$new" "$output.$$"
    mv -f "$output.$$" "$output"
fi
