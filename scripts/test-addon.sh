#!/bin/sh
# Builds the Node addon and tests it, under the Node that js/package-lock.json pins: its API, limits, tools and the process around it;
# then, by root, fetch() in a network of its own. Results in JUnit's form.
# usage: BUILD=build test-addon.sh RESULTS
set -eu

cd "$(dirname "$0")/.."
results=$(realpath "$1")
status=0

scripts/build-addon.sh
# No sanitizer's settings are meant for Node.
unset ASAN_OPTIONS UBSAN_OPTIONS
(cd js && node_modules/.bin/node --test --test-concurrency=2 --test-reporter=spec --test-reporter-destination=stdout \
    --test-reporter=junit --test-reporter-destination="$results/addon.xml" packages/node/test/*.test.js) || status=1
/usr/bin/python3 -m pytest -q --junitxml="$results/addon-fetch.xml" js/packages/node/test || status=1
exit "$status"
