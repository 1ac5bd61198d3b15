"""What /metrics says, read by the parser of Prometheus' own Python client."""

import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

import harness
import serving
from sandboxes import make, new_key, run


nothing_left, serve, api = serving.one_for_all(clock=True)


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
    for name in ("cove_create_duration_seconds", "cove_exec_duration_seconds", "cove_loop_turn_cpu_seconds",
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
        made = new_key(api, tenant=f"many-{number}")
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


def test_a_look_at_the_metrics_leaves_no_file_open(api):
    """Where each of them left one, their number would never rest."""
    before = harness.at_rest(lambda: value(api, "process_open_fds"))
    after = [value(api, "process_open_fds") for _ in range(20)][-1]
    assert after <= before + 2


# ---- what each tenant uses ---------------------------------------------------------------------

USE = {name: f"cove_tenant_{name}" for name in ("cpu_seconds_total", "memory_used_bytes",
                                                "received_bytes_total", "sent_bytes_total")}


def use_of(client, tenant):
    found = families(client)
    return {name: sum(sample.value for family in found.values() for sample in family.samples
                      if sample.name == full and sample.labels.get("tenant") == tenant)
            for name, full in USE.items()}


@pytest.fixture
def spender(api, serve):
    made = new_key(api, tenant="spender")
    with serve.tcp(made["secret"]) as client:
        yield client
    assert api.delete(f"/v1/keys/{made['id']}").status == 204


BUSY = "python3 -c 'import time\nwhile time.process_time() < 0.6: pass'; head -c 40M /dev/zero >/tmp/kept"


def test_what_a_sandbox_spends_is_counted_while_it_runs_and_stays_when_it_is_gone(serve, api, spender):
    before = use_of(api, "spender")
    path = make(spender)
    run(spender, path, BUSY)
    seen = [before]

    def grown():
        seen.append(use_of(api, "spender"))
        return (seen[-1]["cpu_seconds_total"] > before["cpu_seconds_total"] + 0.2 and
                seen[-1]["memory_used_bytes"] >= 40 << 20)

    serve.clock.until(grown, 20, "what it uses, of a look that is ten seconds old", step=10)
    assert spender.delete(path).status == 204
    seen.append(use_of(api, "spender"))
    assert seen[-1]["memory_used_bytes"] == 0
    # One that ended between two looks counts at once.
    path = make(spender)
    run(spender, path, BUSY)
    assert spender.post(f"{path}/stop").status == 200
    seen.append(use_of(api, "spender"))
    assert seen[-1]["cpu_seconds_total"] > seen[-2]["cpu_seconds_total"] + 0.2
    assert spender.delete(path).status == 204
    seen.append(use_of(api, "spender"))
    for name in USE:
        if name.endswith("_total"):
            values = [use[name] for use in seen]
            assert values == sorted(values), name


def test_bytes_are_those_of_whose_requests_they_are(serve, api, spender):
    path = make(spender)
    before, others = use_of(api, "spender"), use_of(api, "default")
    files = f"{path}/files"
    assert spender.ask("PUT", files, bytes(5 << 20), query={"path": "/tmp/file"}).status == 200
    assert len(spender.get(files, query={"path": "/tmp/file"}).bytes) == 5 << 20
    assert len(spender.get(files, query={"path": "/tmp/file"}).bytes) == 5 << 20
    # The last of them is counted when the engine has seen that it went.
    harness.wait_for(lambda: use_of(api, "spender")["sent_bytes_total"] - before["sent_bytes_total"] > 10 << 20)
    after = use_of(api, "spender")
    received = after["received_bytes_total"] - before["received_bytes_total"]
    sent = after["sent_bytes_total"] - before["sent_bytes_total"]
    assert 5 << 20 < received < (5 << 20) + 10000 and 10 << 20 < sent < (10 << 20) + 10000
    assert use_of(api, "default")["received_bytes_total"] < others["received_bytes_total"] + (1 << 20)
    # What lasts is counted while it does.
    process = spender.post(f"{path}/processes", {"command": "head -c 3M /dev/zero; sleep 1000"}).json["id"]
    with serve.tcp(spender.key) as follower:
        follower.send("GET", f"{path}/processes/{process}/follow")
        response = follower.connection.getresponse()
        response.read(3 << 20)
        harness.wait_for(lambda: use_of(api, "spender")["sent_bytes_total"] >=
                         after["sent_bytes_total"] + (3 << 20), 20 * harness.PATIENCE, "3 MiB")
    assert spender.delete(path).status == 204


def test_a_new_engine_does_not_count_again_what_the_last_has_counted(tmp_path):
    with serving.Serve(tmp_path, "[boxes]\npool = 0\n") as serve:
        with serve.client() as client:
            path = make(client)
            run(client, path, BUSY)
        serve.kill_engine()
        with serve.client() as client:
            harness.wait_for(lambda: use_of(client, "default")["memory_used_bytes"] >= 40 << 20,
                             40 * harness.PATIENCE, "a look")
            assert use_of(client, "default")["cpu_seconds_total"] < 0.2
            assert client.delete(path).status == 204
            assert use_of(client, "default")["cpu_seconds_total"] < 0.2


def escapes(size):
    """A JSON string of so many bytes, of the kind that takes longest to be read."""
    return b'"' + b"\\u0041" * ((size - 2) // 6) + b'"'


def code_of(size):
    return b'{"nothing":' + escapes(size - 12) + b"}"


def parsed(api):
    return value(api, "cove_http_bodies_parsed_total")


def parsing(api):
    return value(api, "cove_http_bodies_parsing")


@pytest.fixture
def tenants(api, serve):
    """Clients of a tenant each; each call makes another connection."""
    keys = [new_key(api, "read", "write", tenant=name) for name in ("large", "larger", "small")]
    yield [lambda key=key: serve.tcp(key["secret"]) for key in keys]
    for key in keys:
        assert api.delete(f"/v1/keys/{key['id']}").status == 204


def test_large_bodies_are_parsed_by_a_thread_and_small_ones_at_once(api, tenants):
    with tenants[0]() as client:
        before = parsed(api)
        assert client.post("/v1/kernels/run", code_of(60 << 10)).code == "bad_request"
        assert parsed(api) == before
        answer = client.post("/v1/kernels/run", code_of(70 << 10))
        assert answer.code == "bad_request" and "nothing" in answer.json["detail"], answer
        assert client.post("/v1/kernels/run", b'{"code":' + b" " * (70 << 10)).code == "bad_request"
        assert client.post("/v1/sandboxes/none/exec", code_of(70 << 10)).code == "bad_request"
        assert parsed(api) == before + 3 and parsing(api) == 0


def test_a_large_body_is_known_by_its_key_again(api, tenants):
    body = b'{"labels":{}' + b" " * (70 << 10)
    with tenants[0]() as client:
        before = parsed(api)
        first, again, other = (client.post("/v1/sandboxes", body + rest, headers={"Idempotency-Key": "large"})
                               for rest in (b"}", b"}", b" }"))
        assert parsed(api) == before + 3
        assert first.status == 201 and again.json == first.json, (first, again)
        assert again.headers["Idempotent-Replayed"] == "true" and other.code == "idempotency_conflict"
        assert client.delete(f"/v1/sandboxes/{first.json['id']}").status == 204


def test_a_tenant_does_not_wait_behind_all_large_bodies_of_others(api, tenants):
    answers, stop = [], threading.Event()

    def send_on(tenant):
        with tenant() as client:
            while not stop.is_set():
                answers.append(client.post("/v1/kernels/run", code_of(4 << 20)).status)

    senders = [threading.Thread(target=send_on, args=(tenant,)) for tenant in tenants[:2] for _ in range(6)]
    for sender in senders:
        sender.start()
    try:
        with tenants[2]() as client:
            body = code_of(70 << 10)
            client.send("POST", "/v1/kernels/run", body[:-1], {"Content-Length": str(len(body))})
            harness.wait_for(lambda: parsing(api) >= 10, 30 * harness.PATIENCE, "bodies that wait")
            before = len(answers)
            client.connection.sock.sendall(body[-1:])
            assert client.receive().code == "bad_request"
            assert len(answers) - before <= 5
    finally:
        stop.set()
        for sender in senders:
            sender.join()
    assert set(answers) == {400} and parsing(api) == 0


def test_a_client_that_leaves_while_its_body_is_parsed_has_asked_for_nothing(api, tenants):
    clients = [tenants[0]() for _ in range(6)]
    for client in clients:
        client.send("POST", "/v1/kernels/run", code_of(4 << 20))
    for client in clients:
        client.close()
    harness.wait_for(lambda: parsing(api) == 0, 30 * harness.PATIENCE, "the end of what was parsed")
    with tenants[0]() as client:
        assert client.post("/v1/kernels/run", code_of(70 << 10)).code == "bad_request"


def large_value(digit):
    return f"'{digit}'.repeat({(3 << 20) + digit})"


def test_large_results_of_kernels_are_printed_by_a_thread_and_come_whole(api, tenants):
    def printed():
        return value(api, "cove_kernel_results_printed_total")

    def run(digit):
        with tenants[0]() as client:
            answer = client.post("/v1/kernels/run", {"code": large_value(digit)},
                                 headers={"Idempotency-Key": f"large-{digit}"} if digit == 3 else {})
            assert answer.status == 200, answer
            return answer.json["value"]

    before = printed()
    values = serving.at_once(*(lambda digit=digit: run(digit) for digit in range(8)), seconds=120)
    assert values == [str(digit) * ((3 << 20) + digit) for digit in range(8)]
    assert printed() == before + 8
    with tenants[0]() as client:
        again = client.post("/v1/kernels/run", {"code": large_value(3)}, headers={"Idempotency-Key": "large-3"})
        assert again.code == "idempotency_conflict" and "too large" in again.json["detail"]
        lines = "for (let i = 0; i < 9000; i++) console.log('\\u0001'.repeat(100) + i); 'small'"
        answer = client.post("/v1/kernels/run", {"code": lines}).json
        assert answer["value"] == "small" and len(answer["logs"]) == 9000
        assert answer["logs"][8999]["text"] == "\u0001" * 100 + "8999"
        assert printed() == before + 9
        assert client.post("/v1/kernels/run", {"code": "'x'.repeat(1000)"}).json["value"] == "x" * 1000
    assert printed() == before + 9


def test_clients_that_leave_while_their_results_are_printed_hold_up_nobody(api, tenants):
    clients = [tenants[0]() for _ in range(8)]
    for client in clients:
        client.send("POST", "/v1/kernels/run", {"code": large_value(1)})
    before = value(api, "cove_kernel_results_printed_total")
    harness.wait_for(lambda: value(api, "cove_kernel_results_printed_total") > before, 60 * harness.PATIENCE, "a result")
    for client in clients:
        client.close()
    with tenants[0]() as client:
        assert client.post("/v1/kernels/run", {"code": large_value(2)}).json["value"] == "2" * ((3 << 20) + 2)
