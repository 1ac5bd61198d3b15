"""The API keeps what openapi.yaml says of it: a property-based tester sends every route of a live engine
requests that the document allows and requests that it forbids, and checks each answer against it.

Much of what it does is random; the seed is fixed, so that a run that was clean stays clean. COVE_SOAK=1: ten
times as many, from another seed each time."""
import json
import os
import pathlib
import random
import re
import subprocess
import sys

import pytest
import yaml

HERE = pathlib.Path(__file__).resolve().parent
import harness
import serving

DOCUMENT = harness.ROOT / "src/front/native/openapi.yaml"
PACKAGES = harness.BUILD / "python-api"
# Phases of the tester, and how many requests each sends at least. Together they would be one long test.
PHASES = {"examples,coverage": 1500, "fuzzing,stateful": 500}
CONFIG = """[boxes]
pool = 2
memory = 128M
disk = 32M
most_pids = 4194304
sandboxes = 500
[mounts]
here = /usr/share
"""  # most_pids: what the document allows, not what this server gives


def run_tester(server, *options):
    """Its whole output, and whether it found nothing."""
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", HERE / "schemathesis.toml",
               "run", DOCUMENT, "--url", f"http://127.0.0.1:{server.port}", "--no-color",
               "--header", f"Authorization: Bearer {server.key}", *options]
    environment = dict(os.environ, PYTHONPATH=str(PACKAGES), COVE_API_PORT=str(server.port),
                       COVE_API_SEEN=str(server.directory / "seen"), COVE_API_KEY=server.key,
                       SCHEMATHESIS_HOOKS=str(HERE / "hooks.py"), PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run(command, env=environment, cwd=server.directory, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=3600 * harness.PATIENCE, check=False)
    return done.returncode, done.stdout


def operations():
    document = yaml.safe_load(DOCUMENT.read_text(encoding="utf-8"))
    return {operation["operationId"] for item in document["paths"].values()
            for method, operation in item.items() if method != "parameters"}


@pytest.mark.parametrize("phases, least", PHASES.items())
def test_every_answer_is_as_the_document_says(tmp_path, phases, least):
    examples = 60 if harness.SOAK else 6
    seed = random.randrange(1 << 32) if harness.SOAK else 1
    with serving.Serve(tmp_path, config=CONFIG) as server:
        engine = server.engine_pid()
        status, said = run_tester(server, "--max-examples", str(examples), "--seed", str(seed),
                                  "--phases", phases)
        assert status == 0, f"seed {seed}\n{said}"
        assert server.engine_pid() == engine, server.said()
        cases = re.search(r"(\d+) generated, (\d+) passed", said)
        assert cases and cases[1] == cases[2] and int(cases[1]) > least, said
        assert f"Tested: {len(operations())}\n" in said, said
        if "examples" not in phases:
            return
        # What is checked of a success only was checked of each: hooks.py has an example for it. A terminal, a tunnel
        # and tools do not speak HTTP.
        seen = json.loads((tmp_path / "seen").read_text(encoding="utf-8"))
        assert set(seen) == operations()
        refused = {name: answer for name, answer in seen.items() if answer[0] >= 300}
        assert set(refused) == {"attachTerminal", "connectKernels", "openTunnel"}, refused
