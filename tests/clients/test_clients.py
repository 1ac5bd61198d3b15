"""What well-known generators make of openapi.yaml compiles and calls every operation of a running server. The server
says which were called: its metrics count the requests of each route by their status.

Python and Go fetch generators from their registries, so only make test-all runs these two."""
import os
import re
import subprocess
import sys

import pytest
import yaml

import harness
import serving

HERE = harness.ROOT / "tests" / "clients"
DOCUMENT = harness.ROOT / "src/front/native/openapi.yaml"
MODULES = harness.ROOT / "js" / "node_modules"
# No generator knows of upgrades. The plain request of each of these is answered that it has to be one.
UPGRADES = {"attachTerminal", "openTunnel", "connectKernels"}

nothing_left = serving.one_for_all()[0]


def operations():
    document = yaml.safe_load(DOCUMENT.read_text(encoding="utf-8"))
    return {(method.upper(), path): operation["operationId"] for path, item in document["paths"].items()
            for method, operation in item.items() if method != "parameters"}


def answered(server):
    """Method, route and status of what was asked for so far, as the server counts it."""
    with server.client() as client:
        said = client.get("/metrics").bytes.decode()
    found = re.findall(r'^cove_http_requests_total\{method="([^"]+)",route="([^"]+)",status="(\d+)"\}', said, re.MULTILINE)
    return {(method.replace("*", "GET"), route.replace("/**", "/{path}"), int(status)) for method, route, status in found}


def run(*command, cwd, **environment):
    done = subprocess.run([str(word) for word in command], cwd=cwd, env={**os.environ, **environment}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100 * harness.PATIENCE, check=False)
    assert done.returncode == 0, f"{command[0]} ...\n{done.stdout}"
    return done.stdout


def fetch():
    """Installs what is missing of the generators and of what their clients need."""
    run(harness.ROOT / "scripts/setup.sh", "clients", cwd=harness.ROOT, BUILD=str(harness.BUILD))


def typescript(place):
    tools = MODULES / ".bin"
    (place / "package.json").write_text('{"type":"module"}')
    (place / "node_modules").symlink_to(MODULES)
    (place / "calls.ts").write_bytes((HERE / "calls.ts").read_bytes())
    # Without the option, what has a default would have to be sent.
    run("node", tools / "openapi-typescript", DOCUMENT, "--default-non-nullable=false", "-o", "api.d.ts", cwd=place)
    options = "--strict --noUncheckedIndexedAccess --skipLibCheck --target es2023 --lib es2023,dom --module nodenext"
    run("node", tools / "tsc", *options.split(), "--types", "node", "calls.ts", cwd=place)
    return ["node", "calls.js"], {}


def python(place):
    fetch()
    packages = harness.BUILD / "python-clients"
    # An archive is bytes, which the generator has to be told.
    (place / "config.yaml").write_text("content_type_overrides: {application/x-tar: application/octet-stream}\n"
                                       "post_hooks: []\n")
    run(sys.executable, "-m", "openapi_python_client", "generate", "--config", "config.yaml", "--path", DOCUMENT,
        "--meta", "none", "--output-path", "cove_api", cwd=place, PYTHONPATH=str(packages),
        PATH=f"{packages / 'bin'}:{os.environ['PATH']}")
    run(sys.executable, "-m", "compileall", "-q", "cove_api", cwd=place)
    return [sys.executable, HERE / "python_calls.py"], {"PYTHONPATH": f"{place}:{packages}"}


def go(place):
    fetch()
    environment = {"GOFLAGS": "-mod=readonly -buildvcs=false -modcacherw", "GOMODCACHE": str(harness.BUILD / "go"),
                   "GOPROXY": "off", "GOTOOLCHAIN": "local"}
    for name in ("go.mod", "go.sum", "calls.go"):
        (place / name).write_bytes((HERE / "go" / name).read_bytes())
    (place / "api").mkdir()
    run("go", "tool", "oapi-codegen", "-generate", "types,client", "-package", "api", "-o", "api/api.go", DOCUMENT,
        cwd=place, **environment)
    run("go", "vet", "./...", cwd=place, **environment)
    run("go", "build", "-o", "calls", ".", cwd=place, **environment)
    return [place / "calls"], {}


@pytest.mark.parametrize("language", [typescript, pytest.param(python, marks=pytest.mark.registry),
                                      pytest.param(go, marks=pytest.mark.registry)],
                         ids=lambda language: language.__name__)
def test_a_generated_client_calls_every_operation(language, tmp_path):
    place = tmp_path / "made"
    place.mkdir()
    command, environment = language(place)
    (tmp_path / "notes").mkdir()
    with serving.Serve(tmp_path / "serve", f"{serving.USUAL}[mounts]\nnotes = {tmp_path}/notes\n") as server:
        run(*command, cwd=place, COVE_URL=f"http://127.0.0.1:{server.port}", COVE_API_KEY=server.key, **environment)
        said = answered(server)
        wanted = operations()
        good = {(method, route) for method, route, status in said if 200 <= status < 300}
        asked = {(method, route) for method, route, status in said if status == 426}
    assert len(wanted) > 60
    missing = {name for call, name in wanted.items() if call not in (asked if name in UPGRADES else good)}
    assert not missing, f"no request of the client came to {sorted(missing)}; the server counted {sorted(said)}"
