#!/bin/sh
# Builds the packages that are TypeScript: js/packages/{client,mastra}/dist, as ES modules and as CommonJS, with
# types. What of the API is typed comes from the engine's openapi.yaml.
# usage: build-js.sh
set -eu

cd "$(dirname "$0")/../js"
bin=$PWD/node_modules/.bin
node=$bin/node
[ -x "$bin/tsc" ] || {
    echo "build-js.sh: the compiler is not there: run scripts/setup.sh node" >&2
    exit 1
}

api=packages/client/src/api.d.ts
exec 9>packages/.lock
flock 9
{ [ "$api" -nt ../src/front/native/openapi.yaml ] && [ "$api" -nt ../scripts/build-js.sh ]; } ||
    "$node" "$bin/openapi-typescript" ../src/front/native/openapi.yaml --default-non-nullable=false -o "$api" >/dev/null

for package in client mastra; do
    here=packages/$package
    [ ! -f "$here/dist/cjs/package.json" ] ||
        [ -n "$(find "$here"/src* "$here/package.json" tsconfig.json packages/client/dist/cjs/package.json \
            -newer "$here/dist/cjs/package.json" ! -path "packages/client/dist/*" -print -quit)" ] || continue
    rm -rf "$here/dist" "$here/.cjs"
    "$node" "$bin/tsc" -p "$here/tsconfig.json"
    # The same sources in a package that says it is CommonJS.
    mkdir "$here/.cjs"
    cp -r "$here/src" "$here/.cjs/src"
    [ ! -d "$here/src-cjs" ] || cp "$here/src-cjs/"* "$here/.cjs/src/"
    echo '{"type":"commonjs"}' >"$here/.cjs/package.json"
    echo '{"extends":"../../../tsconfig.json","compilerOptions":{"rootDir":"src","outDir":"../dist/cjs"},"include":["src"]}' \
        >"$here/.cjs/tsconfig.json"
    "$node" "$bin/tsc" -p "$here/.cjs/tsconfig.json"
    rm -rf "$here/.cjs"
    # api.d.ts is no source that is compiled, and is needed by who reads the types.
    for form in esm cjs; do
        [ ! -f "$here/src/api.d.ts" ] || cp "$here/src/api.d.ts" "$here/dist/$form/"
    done
    echo '{"type":"commonjs"}' >"$here/dist/cjs/package.json"
done
