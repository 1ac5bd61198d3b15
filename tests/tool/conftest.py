"""A directory for each test, of which nothing outside of it may change."""
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest


@pytest.fixture
def place():
    """Gone afterwards, whatever modes and depths a test left."""
    base = os.environ.get("COVE_TEST_MADE", "/tmp")
    top = pathlib.Path(tempfile.mkdtemp(prefix="cove-tool-", dir=base))
    yield top
    subprocess.run(["chmod", "-R", "u+rwX", str(top)], check=False, stderr=subprocess.DEVNULL)
    subprocess.run(["rm", "-rf", str(top)], check=True)
    shutil.rmtree(top, ignore_errors=True)
