"""Unit tests on the kernel of a guest: those that `units` names, each a program that prints what failed."""
import os
import pathlib
import resource
import subprocess

import pytest

PROGRAMS = pathlib.Path(os.environ.get("BUILD", "build"), "test/tests")
UNITS = [line for line in pathlib.Path(__file__).with_name("units").read_text().split("\n") if line and line[0] != "#"]


@pytest.mark.parametrize("name", UNITS)
def test_a_program_of_unit_tests_passes(name):
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # as cove-keeper sets it for itself
    image = str(PROGRAMS / "kernel-test.image")
    done = subprocess.run([PROGRAMS / name], env={**os.environ, "KERNEL_TEST_IMAGE": image}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, check=False,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)))
    assert done.returncode == 0, done.stdout
