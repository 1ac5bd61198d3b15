"""What /metrics says, read by the parser of Prometheus' own Python client."""
import pathlib
import sys

import pytest
from prometheus_client.parser import text_string_to_metric_families

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "box"))
sys.path.insert(0, str(HERE))
import harness  # noqa: E402
import serving  # noqa: E402
from test_api import make, run  # noqa: E402


@pytest.fixture(autouse=True)
def nothing_left():
    """One engine serves all tests of this file, so it is after the last that nothing may be left."""


@pytest.fixture(scope="module")
def serve(tmp_path_factory):
    with serving.Serve(tmp_path_factory.mktemp("serve")) as started:
        yield started


@pytest.fixture
def api(serve):
    with serve.client() as client:
        yield client


def families(client):
    answer = client.get("/metrics")
    assert answer.status == 200, answer
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    return {family.name: family for family in text_string_to_metric_families(
        answer.bytes.decode())}


def value(client, name, **labels):
    """Of all samples with these labels, together."""
    return sum(sample.value for family in families(client).values() for sample in family.samples
               if sample.name == name and labels.items() <= sample.labels.items())


def test_it_is_for_operators(serve, api):
    made = api.post("/v1/keys", {"label": "a", "scopes": ["read", "write", "keys"]}).json
    with serve.tcp() as nobody:
        assert nobody.get("/metrics").code == "bad_key"
    with serve.tcp(made["secret"]) as tenant:
        assert tenant.get("/metrics").code == "forbidden"
    with serve.tcp(serve.key) as operator:
        assert operator.get("/metrics").status == 200
    assert api.delete(f"/v1/keys/{made['id']}").status == 204


def test_names_have_units_and_families_come_once(api):
    text = api.get("/metrics").bytes.decode()
    types = [line for line in text.splitlines() if line.startswith("# TYPE ")]
    assert len(types) > 20 and len(types) == len(set(types))
    assert text.count("# HELP ") == len(types) and text.endswith("\n")
    for line in types:
        _, _, name, kind = line.split()
        assert name.startswith(("cove_", "process_"))
        assert name.endswith("_total") == (kind == "counter"), name
        if kind == "histogram":
            assert name.endswith("_seconds"), name


def test_histograms_hold_together(serve, api):
    path = make(api)
    run(api, path, "true")
    run(api, path, "true")
    assert api.delete(path).status == 204
    found = families(api)
    for name in ("cove_create_duration_seconds", "cove_exec_duration_seconds",
                 "cove_first_exec_duration_seconds", "cove_store_commit_duration_seconds"):
        samples = found[name].samples
        buckets = [sample.value for sample in samples if sample.name == f"{name}_bucket"]
        bounds = [float(sample.labels["le"]) for sample in samples if "le" in sample.labels]
        count, = (sample.value for sample in samples if sample.name == f"{name}_count")
        total, = (sample.value for sample in samples if sample.name == f"{name}_sum")
        assert bounds == sorted(bounds) and bounds[-1] == float("inf")
        assert buckets == sorted(buckets) and buckets[-1] == count and count >= 1
        assert 0 < total < count * 60 * harness.PATIENCE


def test_what_happens_is_counted(serve, api):
    def numbers():
        return {
            "created": value(api, "cove_http_requests_total", method="POST",
                             route="/v1/sandboxes", status="201"),
            "missing": value(api, "cove_http_requests_total", route="/v1/sandboxes/{id}",
                             status="404"),
            "nowhere": value(api, "cove_http_requests_total", route="", status="404"),
            "first": value(api, "cove_first_exec_duration_seconds_count"),
            "exec": value(api, "cove_exec_duration_seconds_count"),
            "pool": value(api, "cove_pool_hits_total") + value(api, "cove_pool_misses_total"),
            "running": value(api, "cove_sandboxes", state="running"),
            "stopped": value(api, "cove_sandboxes", state="stopped"),
            "processes": value(api, "cove_processes"),
            "sent": value(api, "cove_http_sent_bytes_total"),
            "received": value(api, "cove_http_received_bytes_total"),
            "events": value(api, "cove_events_total"),
        }

    before = numbers()
    path, other = make(api), make(api)
    run(api, path, "true")
    run(api, path, "true")
    assert api.post(f"{path}/processes", {"command": "sleep 60"}).status == 201
    assert api.post(f"{other}/stop").status == 200
    assert api.get("/v1/sandboxes/c0nothing").status == 404
    assert api.get("/nothing").status == 404
    after = numbers()
    grown = {name: after[name] - before[name] for name in before}
    assert (grown["created"], grown["missing"], grown["nowhere"]) == (2, 1, 1)
    assert (grown["first"], grown["exec"], grown["pool"]) == (1, 1, 2)
    assert (grown["running"], grown["stopped"], grown["processes"]) == (1, 1, 1)
    assert grown["sent"] > 1000 and grown["received"] > 1000 and grown["events"] > 5
    assert api.delete(path).status == 204 and api.delete(other).status == 204
    assert numbers()["processes"] == before["processes"]


def test_tenants_are_counted_up_to_a_bound(serve, api):
    secrets = []
    for number in range(110):
        made = api.post("/v1/keys", {"tenant": f"many-{number}", "label": "k",
                                     "scopes": ["read", "write"]}).json
        secrets.append(made)
        with serve.tcp(made["secret"]) as client:
            assert client.get("/v1/sandboxes").status == 200
    found = families(api)["cove_tenant_requests"].samples
    names = {sample.labels["tenant"] for sample in found}
    assert "many-0" in names and "many-109" not in names and "" in names and len(names) <= 101
    with serve.tcp(secrets[0]["secret"]) as client:
        path = make(client, resources={"memory_bytes": 64 << 20})
        assert value(api, "cove_tenant_sandboxes", tenant="many-0") == 1
        assert value(api, "cove_tenant_running_sandboxes", tenant="many-0") == 1
        assert value(api, "cove_tenant_memory_limit_bytes", tenant="many-0") == 64 << 20
        assert client.delete(path).status == 204
    for made in secrets:
        assert api.delete(f"/v1/keys/{made['id']}").status == 204


def test_what_it_is_and_since_when(serve, api):
    assert value(api, "cove_build_info", version=api.get("/v1/version").json["version"]) == 1
    restarts = value(api, "cove_engine_restarts_total")
    began = value(api, "process_start_time_seconds")
    assert value(api, "process_resident_memory_bytes") > 1 << 20
    assert value(api, "process_open_fds") > 5 and value(api, "process_cpu_seconds_total") > 0
    serve.kill_engine()
    with serve.client() as client:
        assert value(client, "process_start_time_seconds") > began
        assert value(client, "cove_engine_restarts_total") == restarts + 1
