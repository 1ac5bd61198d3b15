"""The engine in our build beside the very same module in Node's own WebAssembly: the image that is booted from the
prelude is the same, byte for byte, and so is all that is told of each test of a published set of ECMAScript tests
(tests/conformance, pinned): what passes there, passes here. COVE_SOAK=1 runs all 30,000 of them, else it is one of
a hundred, by the hash of their names."""
import filecmp
import json
import os
import pathlib
import shutil
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
import harness

SOAK = bool(os.environ.get("COVE_SOAK"))
PARTS, LEAST = (1, 29700) if SOAK else (100, 300)
ASAN = harness.BUILD / "asan"
SET = harness.BUILD / "conformance" / "node_modules" / "@gerhobbelt" / "test262"


def module():
    """What wasm2c made our object of."""
    cache = pathlib.Path(os.environ.get("COVE_CACHE", harness.ROOT / "build" / "cache"))
    ours = ASAN / "src" / "kernel" / "kernel_js.o"
    return next(kept / "js.wasm" for kept in cache.glob("kernel-js-*") if filecmp.cmp(kept / "js.o", ours, shallow=False))


def compare(parts, prelude=harness.ROOT / "src" / "kernel" / "js" / "prelude"):
    done = subprocess.run(["node", HERE / "conformance.mjs", ASAN / "tests" / "kernel-conformance", module(),
                           ASAN / "src" / "kernel" / "js.image", prelude, SET, str(parts)], capture_output=True, text=True,
                          check=False, timeout=(3600 if SOAK else 300) * harness.PATIENCE)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def report():
    return compare(PARTS)


def test_the_image_is_the_one_that_boots_in_node(report):
    assert report["image"] == "same"


def test_what_passes_in_node_passes_here(report):
    assert not report["different"], report["different"][:3]
    assert not report["ended"], report["ended"]
    assert report["both"] >= LEAST and report["both"] > 20 * report["neither"], report


def test_the_comparison_sees_a_difference(tmp_path):
    """Of an image, and of what a run prints, where one side has another prelude."""
    other = tmp_path / "prelude"
    shutil.copytree(harness.ROOT / "src" / "kernel" / "js" / "prelude", other)
    (other / "other.js").write_text("(function (host, native, share) { const { run } = share;"
                                    # So that no run is a plain one, which is begun without it.
                                    " share.pulse.hasListeners = true;"
                                    " share.run = (source, options) => run(`console.log('other');${source}`, options); })")
    with open(other / "order", "a", encoding="utf-8") as order:
        order.write("other.js\n")
    found = compare(3000, other)
    assert found["image"] != "same" and found["tests"] >= 5 and len(found["different"]) >= found["tests"] / 2, found
