"""The eraser of TypeScript beside TypeScript itself (tests/typescript, pinned): over the sources of published packages
both outputs are the same tree, over snippets they print the same when they are run. JavaScript of the same packages
comes back as it went in."""
import json
import os
import pathlib
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
import harness

ERASER = harness.BUILD / "asan" / "tests" / "typescript-eraser"
MODULES = harness.BUILD / "typescript" / "node_modules"
SOAK = bool(os.environ.get("COVE_SOAK"))
# How many sources of each there are, and how many of them are compared without COVE_SOAK.
PACKAGES = {"@tanstack/query-core": (20, 4), "chevrotain": (40, 8), "immer": (15, 3), "mobx": (55, 12), "openai": (200, 45),
            "redux": (15, 5), "rxjs/src": (240, 55), "zod": (250, 65)}
SECONDS = 300 * harness.PATIENCE


def compare(**jobs):
    done = subprocess.run(["node", HERE / "typescript.mjs", ERASER, MODULES.parent], capture_output=True, text=True,
                          input=json.dumps({name: [str(word) for word in job] for name, job in jobs.items()}),
                          timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def reports():
    """All in one process: TypeScript takes half a second to begin."""
    return compare(**{package: ("corpus", MODULES / package) for package in PACKAGES},
                   javascript=("javascript", MODULES / "typescript" / "lib"),
                   snippets=("run", HERE / "typescript_snippets.ts"), forms=("lines", HERE / "typescript_forms.ts"),
                   breaks=("breaks", HERE / "typescript_forms.ts"))


def sound(report):
    assert not report["refused"], report["refused"][:5]
    assert not report["different"], report["different"][:5]
    return report


@pytest.mark.parametrize("package", PACKAGES)
def test_published_sources_become_what_typescript_makes_of_them(reports, package):
    report = sound(reports[package])
    there, part = PACKAGES[package]
    assert report["found"] >= there and report["compared"] >= (there if SOAK else part), report
    assert not report["foreign"], report


def test_snippets_print_the_same_when_they_are_run(reports):
    assert sound(reports["snippets"])["compared"] >= 42


def test_each_form_becomes_what_typescript_makes_of_it(reports):
    report = sound(reports["forms"])
    assert report["compared"] >= 60 and not report["foreign"], report


def test_no_end_of_a_line_within_a_form_changes_what_it_means(reports):
    assert sound(reports["breaks"])["compared"] >= (3300 if SOAK else 270)


def test_javascript_of_a_compiler_comes_back_as_it_went_in(reports):
    """Nine megabytes in one file, among others."""
    assert sound(reports["javascript"])["unchanged"] >= 5


def test_the_comparison_sees_a_difference(tmp_path):
    """What is no TypeScript for both, and a namespace that both read but write otherwise, are seen."""
    (tmp_path / "one.ts").write_text("import { A } from './a';\nlet x: A;\nexport = x")
    assert compare(it=("lines", tmp_path / "one.ts"))["it"]["different"]
