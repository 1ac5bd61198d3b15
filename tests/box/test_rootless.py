"""Without root: so far a refusal that says what to do, and nothing left of what was begun."""
import os
import subprocess

import harness


def test_without_root_a_box_is_refused_with_the_remedy():
    command = [harness.COVE, "run", "--", "/bin/true"]
    if os.geteuid() == 0:
        command = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *command]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 125 and "root" in result.stderr
    assert len(result.stderr.splitlines()) == 1
