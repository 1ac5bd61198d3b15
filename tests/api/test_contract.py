"""The API keeps what openapi.yaml says of it: a property-based tester sends every route of a live engine
requests that the document allows and requests that it forbids, and checks each answer against it.

Much of what it does is random; the seed is fixed, so that a run that was clean stays clean. COVE_SOAK=1: ten
times as many, from another seed each time."""
import os
import pathlib
import random
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "box"), str(HERE.parent / "engine")]
import harness  # noqa: E402
import serving  # noqa: E402

DOCUMENT = harness.ROOT / "src/front/native/openapi.yaml"
PACKAGES = harness.BUILD / "python-api"
CONFIG = """[boxes]
pool = 2
memory = 128M
disk = 32M
sandboxes = 500
"""


def run_tester(server, *options):
    """Its whole output, and whether it found nothing."""
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", HERE / "schemathesis.toml",
               "run", DOCUMENT, "--url", f"http://127.0.0.1:{server.port}", "--no-color",
               "--header", f"Authorization: Bearer {server.key}", *options]
    environment = dict(os.environ, PYTHONPATH=str(PACKAGES), COVE_API_PORT=str(server.port),
                       COVE_API_KEY=server.key, SCHEMATHESIS_HOOKS=str(HERE / "hooks.py"),
                       PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run(command, env=environment, cwd=server.directory, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=3600 * harness.PATIENCE, check=False)
    return done.returncode, done.stdout


def test_every_answer_is_as_the_document_says(tmp_path):
    soak = os.environ.get("COVE_SOAK")
    examples = 60 if soak else 6
    seed = random.randrange(1 << 32) if soak else 1
    with serving.Serve(tmp_path, config=CONFIG) as server:
        status, said = run_tester(server, "--max-examples", str(examples), "--seed", str(seed))
        assert status == 0, f"seed {seed}\n{said}"
        # It did what it was meant to, and the engine is the one that was started.
        assert "No issues found" in said, said
        assert "Unhandled" not in said, said
