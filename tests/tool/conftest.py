"""A directory for each test, of which nothing outside of it may change."""
import os
import pathlib
import subprocess
import tempfile

import pytest


def directory(base):
    """Gone afterwards, whatever modes and depths a test left."""
    top = pathlib.Path(tempfile.mkdtemp(prefix="cove-test-tool-", dir=base))
    yield top
    subprocess.run(["chmod", "-R", "u+rwX", str(top)], check=False, stderr=subprocess.DEVNULL)
    subprocess.run(["rm", "-rf", str(top)], check=True)


@pytest.fixture
def place():
    yield from directory(os.environ.get("COVE_TEST_MADE", "/tmp"))


@pytest.fixture
def quick():
    """In memory, for many files."""
    yield from directory("/dev/shm")
