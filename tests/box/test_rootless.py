"""Without root: a box that works, or one sentence that says what to do."""
import os
import subprocess

import harness


def test_an_ordinary_user_gets_a_box_or_one_sentence():
    command = [harness.COVE, "run", "--", "sh", "-c", "id -u; echo x > /usr/file"]
    if os.geteuid() == 0:
        command = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *command]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if result.returncode == 125:
        assert result.stdout == "" and "root" in result.stderr
        assert len(result.stderr.splitlines()) == 1
    else:
        assert result.returncode != 0 and result.stdout == "1000\n", result.stderr
