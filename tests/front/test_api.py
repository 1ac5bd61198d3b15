"""The native API as its clients see it: a running `cove serve`, raw HTTP over the unix socket and TCP."""
import base64
import contextlib
import hashlib
import http.client
import json
import os
import re
import resource
import select
import signal
import socket
import subprocess
import time

import pytest
import yaml

import harness
import serving
from sandboxes import EPHEMERAL, make, new_key, one_box, run, start

NATIVE = harness.ROOT / "src" / "front" / "native"


nothing_left, serve, api = serving.one_for_all(clock=True)
shared = one_box(labels={"of": "all"})


@pytest.fixture
def box(api):
    path = make(api)
    yield path
    assert api.delete(path).status == 204


def runs(client, process):
    return client.get(process).json["state"] in ("starting", "running")


# ---- the document ------------------------------------------------------------------------------

def document():
    return yaml.safe_load((NATIVE / "openapi.yaml").read_text())


def test_every_route_is_in_the_document_and_the_other_way_round():
    documented = {(method.upper(), path) for path, item in document()["paths"].items()
                  for method in item if method in ("get", "put", "post", "patch", "delete")}
    assert documented == set(serving.routes_of_source())


def test_every_route_of_the_document_is_served(serve):
    for path, item in document()["paths"].items():
        for method in item:
            if method == "parameters" or path in ("/v1/events",):
                continue
            with serve.client() as client:
                answer = client.ask(method.upper(), path.replace("{id}", "c0nothing").replace(
                    "{pid}", "1").replace("{name}", "nobody").replace("{port}", "80").replace("{path}", ""),
                    body=b"{" if method in ("post", "put", "patch") else None)
                assert answer.status in (200, 204, 400, 404, 422, 426), (method, path, answer)
                if answer.status == 404:
                    assert answer.code != "route_not_found", (method, path)


def test_every_code_is_in_the_document_and_the_other_way_round():
    codes = re.findall(r'^    \{"([a-z_]+)", [0-9]{3},', (NATIVE / "problem.c").read_text(), re.M)
    assert len(codes) > 30
    assert set(codes) == set(document()["components"]["schemas"]["Code"]["enum"])


def test_every_code_of_the_http_server_is_a_problem_of_the_api():
    rows = set(re.findall(r'^    \{"([a-z_]+)", ([0-9]{3}),', (NATIVE / "problem.c").read_text(),
                          re.M))
    used = {(code, status) for path in (harness.ROOT / "src" / "http").glob("*.c")
            for status, code in re.findall(r'(?<![0-9])([45][0-9]{2}),\s+"([a-z_]+)",',
                                           path.read_text())}
    assert len(used) > 10 and used <= rows, used - rows


def test_every_reference_of_the_document_leads_somewhere():
    whole = document()

    def references(node):
        if isinstance(node, dict):
            for key, value in node.items():
                if key == "$ref":
                    yield value
                else:
                    yield from references(value)
        elif isinstance(node, list):
            for value in node:
                yield from references(value)

    found = set(references(whole))
    assert len(found) > 40
    for reference in found:
        node = whole
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]
    for kind, members in whole["components"].items():
        if kind != "securitySchemes":
            for name in members:
                assert f"#/components/{kind}/{name}" in found, f"{kind} {name} is used nowhere"


def test_what_is_served_is_the_document(api):
    answer = api.get("/v1/openapi.yaml")
    assert answer.status == 200
    assert answer.bytes == (NATIVE / "openapi.yaml").read_bytes()


def test_every_answer_of_json_ends_its_line(api, shared):
    """So that the next prompt of a shell stands where it should, whatever asked."""
    large = {"argv": ["head", "-c", "300000", "/dev/zero"]}
    key = {"Idempotency-Key": "ends its line"}
    for answer in (api.get("/healthz"), api.get("/v1/version"), api.get("/v1/sandboxes"), api.get(shared),
                   api.get("/v1/sandboxes/none"), api.get("/v1/none"), api.post(f"{shared}/exec", {"command": "id"}),
                   api.post(f"{shared}/exec", large), api.post(f"{shared}/exec", {"command": 1}),
                   api.ask("POST", f"{shared}/exec", {"command": "id"}, key),
                   api.ask("POST", f"{shared}/exec", {"command": "id"}, key)):
        assert answer.bytes.endswith(b"}\n") and answer.bytes.count(b"\n") == 1, answer


def test_answers_have_the_fields_of_the_document(api, shared):
    schemas = document()["components"]["schemas"]
    sandbox = api.get(shared).json
    assert set(schemas["Sandbox"]["required"]) <= set(sandbox) <= set(
        schemas["Sandbox"]["properties"])
    result = run(api, shared, "true")
    assert set(result) == set(schemas["ExecResult"]["required"])
    process = result["process"]
    assert set(schemas["Process"]["required"]) <= set(process) <= set(
        schemas["Process"]["properties"])
    version = api.get("/v1/version").json
    assert set(version) == set(schemas["Version"]["required"])


# ---- who may ask -------------------------------------------------------------------------------

OPEN = ["/healthz", "/readyz", "/v1/version", "/v1/openapi.yaml"]


@pytest.mark.parametrize("path", OPEN)
def test_without_a_key_there_is_what_says_nothing(serve, path):
    with serve.tcp() as client:
        assert client.get(path).status == 200


@pytest.mark.parametrize("path", ["/v1/sandboxes", "/v1/roots", "/v1/keys", "/v1/events",
                                  "/v1/nothing", "/%68ealthz", "/healthz/", "//healthz"])
def test_tcp_needs_a_key(serve, path):
    with serve.tcp() as client:
        answer = client.get(path)
        assert (answer.status, answer.code) in [(401, "bad_key"), (404, "route_not_found")]
        if path.startswith("/v1/") and path != "/v1/nothing":
            assert answer.status == 401
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize("headers", [
    {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer "}, {"Authorization": "Bearer"},
    {"Authorization": "Basic Y292ZTpjb3Zl"}, {"X-API-Key": "wrong"}, {"X-API-Key": ""},
    {"Authorization": "Bearer " + "x" * 5000}])
def test_a_wrong_key_is_refused(serve, headers):
    with serve.tcp() as client:
        assert client.get("/v1/sandboxes", headers=headers).refusal == (401, "bad_key")
    with serve.client() as client:
        answer = client.get("/v1/sandboxes", headers=headers)
        assert answer.status == 401, "a wrong key is not made good by the socket"


def test_the_operators_key_is_good_in_both_headers(serve):
    for headers in ({"Authorization": f"Bearer {serve.key}"},
                    {"authorization": f"bearer   {serve.key}"}, {"X-API-Key": serve.key}):
        with serve.tcp() as client:
            assert client.get("/v1/sandboxes", headers=headers).status == 200
    mode = (serve.data / "engine" / "operator.key").stat().st_mode
    assert mode & 0o777 == 0o600


def raw(serve, request):
    with socket.create_connection(("127.0.0.1", serve.port), timeout=20) as client:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR) if b"close" not in request else None
        data = b""
        while part := client.recv(65536):
            data += part
        return data


def ask_as(serve, path, *lines):
    data = raw(serve, "\r\n".join([f"GET {path} HTTP/1.1", *lines, f"X-API-Key: {serve.key}",
                                   "Connection: close", "", ""]).encode("latin-1"))
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), body


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:{port}", "localhost.:{port}",
                                  "127.0.0.1:{port}", "127.9.9.9", "[::1]:{port}", "127.0.0.1."])
def test_names_of_loopback_are_known(serve, host):
    status, _ = ask_as(serve, "/v1/sandboxes", f"Host: {host.format(port=serve.port)}")
    assert status == 200


@pytest.mark.parametrize("path", ["/v1/sandboxes", "/v1/openapi.yaml", "/v1/version", "/readyz"])
@pytest.mark.parametrize("lines", [
    ["Host: rebind.example:{port}"], ["Host: localhost.rebind.example"],
    ["Host: 127.0.0.1.rebind.example"], ["Host: user@127.0.0.1:{port}"], ["Host: 10.0.0.1"],
    ["Host: [::2]"], ["Host: 2130706433"], ["Host: 0.0.0.0:{port}"], ["Host: "], [],
    ["Host: localhost", "Host: rebind.example"],
    ["Host: rebind.example", "Origin: http://rebind.example"]])
def test_a_name_that_was_made_to_point_here_gets_nothing(serve, path, lines):
    status, body = ask_as(serve, path, *[line.format(port=serve.port) for line in lines])
    assert status in (400, 403), body
    assert b"openapi:" not in body and b"sandboxes\"" not in body and b"level" not in body


@pytest.mark.parametrize("path", ["/v1/sandboxes", "/v1/openapi.yaml", "/healthz"])
@pytest.mark.parametrize("lines", [
    ["Origin: http://evil.example"], ["Origin: null"], ["Origin: http://127.0.0.1:1"],
    ["Origin: http://localhost:{port}"], ["Origin: "], ["Sec-Fetch-Site: cross-site"],
    ["Sec-Fetch-Site: same-site"], ["Origin: file://127.0.0.1:{port}"]])
def test_a_page_of_another_origin_gets_nothing(serve, path, lines):
    status, body = ask_as(serve, path, f"Host: 127.0.0.1:{serve.port}",
                          *[line.format(port=serve.port) for line in lines])
    assert status == 403 and b"forbidden_origin" in body
    assert b"openapi:" not in body


def test_a_page_of_this_very_host_is_welcome(serve):
    here = f"127.0.0.1:{serve.port}"
    status, _ = ask_as(serve, "/v1/sandboxes", f"Host: {here}", f"Origin: http://{here}",
                       "Sec-Fetch-Site: same-origin")
    assert status == 200


def test_nobody_is_told_that_other_origins_may_read(serve):
    data = raw(serve, f"OPTIONS /v1/sandboxes HTTP/1.1\r\nHost: 127.0.0.1:{serve.port}\r\n"
                      "Origin: http://evil.example\r\nAccess-Control-Request-Method: POST\r\n"
                      "Connection: close\r\n\r\n".encode())
    assert b" 403 " in data.split(b"\r\n")[0]
    assert b"access-control" not in data.lower()


def test_health_answers_to_any_name(serve):
    status, body = ask_as(serve, "/healthz", "Host: 10.1.2.3:7070")
    assert (status, json.loads(body)) == (200, {"status": "ok"})


def test_the_unix_socket_takes_any_host_but_no_page(api):
    assert api.get("/v1/sandboxes", headers={"Host": "whatever"}).status == 200
    assert api.get("/v1/sandboxes", headers={
        "Host": "whatever", "Origin": "http://whatever"}).code == "forbidden_host"
    assert api.get("/v1/sandboxes", headers={
        "Host": "localhost", "Origin": "http://evil.example"}).code == "forbidden_origin"


def test_keys_do_what_their_scopes_say_and_no_more(serve, api, shared):
    made = api.post("/v1/keys", {"tenant": "team-a", "label": "reader", "scopes": ["read"]})
    assert made.status == 201 and made.headers["Cache-Control"] == "no-store"
    key = made.json
    with serve.tcp(key["secret"]) as reader:
        assert reader.get("/v1/sandboxes").json == {"sandboxes": [], "next": None}
        assert reader.post("/v1/sandboxes", {}).code == "forbidden"
        for path in ("/v1/tenants/team-a/quota", "/v1/tenants/-/quota"):
            assert reader.get(path).json["tenant"] == "team-a"
            assert reader.ask("PUT", path, {}).code == "forbidden"
        for path, code in (("/v1/keys", "forbidden"), ("/v1/tenants/team-b/quota", "forbidden"),
                           ("/v1/sandboxes?all_tenants=true", "forbidden"), (shared, "sandbox_not_found"),
                           (f"{shared}/processes", "sandbox_not_found")):
            assert reader.get(path).code == code, path
    listed = [other for other in api.get("/v1/keys").json["keys"] if other["id"] == key["id"]]
    assert listed == [{name: key[name] for name in key if name != "secret"}]
    assert api.delete(f"/v1/keys/{key['id']}").status == 204
    assert api.delete(f"/v1/keys/{key['id']}").code == "key_not_found"
    with serve.tcp(key["secret"]) as reader:
        assert reader.get("/v1/sandboxes").code == "bad_key"


def test_nobody_gives_a_scope_that_he_has_not(serve, api):
    key = api.post("/v1/keys", {"tenant": "team-b", "label": "k", "scopes": ["read", "keys"]}).json
    with serve.tcp(key["secret"]) as client:
        assert client.post("/v1/keys", {"label": "x", "scopes": ["read"]}).status == 201
        for spec in ({"scopes": ["write"]}, {"scopes": ["operator"]}, {"tenant": "default", "scopes": ["read"]}):
            assert client.post("/v1/keys", {"label": "x", **spec}).code == "forbidden", spec
        assert {other["tenant"] for other in client.get("/v1/keys").json["keys"]} == {"team-b"}


def test_a_tenant_has_its_quota_and_its_rate(serve, api):
    path = "/v1/tenants/team-c/quota"
    # Nobody knows it yet, and its quota may be set all the same.
    assert set(api.get(path).json["used"].values()) == {0}
    assert set(api.get(path).json["quota"].values()) == {0}
    key = new_key(api, tenant="team-c")
    assert api.ask("PUT", path, {"sandboxes": 1, "cpus": 2.5}).json["quota"]["cpus"] == 2.5
    with serve.tcp(key["secret"]) as client:
        first = make(client, resources={"cpus": 0.5})
        assert client.post("/v1/sandboxes", {}).code == "quota"
        used = api.get(path).json["used"]
        assert used["sandboxes"] == 1
        assert client.delete(first).status == 204
        assert api.ask("PUT", path, {"requests_per_second": 2}).status == 200
        answers = [client.get("/v1/sandboxes") for _ in range(30)]
        refused = [answer for answer in answers if answer.status == 429]
        assert refused and refused[0].code == "too_many_requests"
        assert int(refused[0].headers["Retry-After"]) >= 1
    assert api.ask("PUT", path, {"ports": 2}).json["quota"]["ports"] == 2
    with serve.tcp(key["secret"]) as client:
        first = make(client, ports=[{"port": 8000}, {"port": 8001}])
        assert api.get(path).json["used"]["ports"] == 2
        assert client.post(f"{first}/ports", {"port": 8002}).refusal == (403, "quota")
        assert client.post("/v1/sandboxes", {**EPHEMERAL, "ports": [{"port": 8000}]}).refusal == (403, "quota")
        assert client.delete(first).status == 204
    assert api.ask("PUT", path, {"pids": 100}).json["quota"]["pids"] == 100
    with serve.tcp(key["secret"]) as client:
        assert client.post("/v1/sandboxes", EPHEMERAL).refusal == (403, "quota"), "as many as are usual"
        assert client.post("/v1/sandboxes", {**EPHEMERAL, "resources": {"pids": 8193}}).refusal == (400, "bad_request")
        first = make(client, resources={"pids": 60})
        assert api.get(path).json["used"]["pids"] == 60
        assert client.delete(first).status == 204
    assert api.ask("PUT", path, {"sandboxes": -1}).code == "bad_request"
    assert api.get("/v1/tenants/UPPER/quota").code == "bad_request"
    assert api.get("/v1/tenants/-/quota").json["tenant"] == "default"
    assert api.ask("PUT", "/v1/tenants/-/quota", {}).code == "bad_request", "what is set is named"


def refusal_of(serve, key):
    with serve.tcp(key) as client:
        answer = client.get("/v1/sandboxes")
        return answer.status >= 400 and answer.refusal


@pytest.mark.parametrize("request_of", [
    "GET /v1/events HTTP/1.1\r\n", "POST /v1/sandboxes HTTP/1.1\r\nContent-Length: 9\r\n"],
    ids=["streams", "bodies that do not come"])
def test_a_tenant_leaves_connections_for_others(serve, api, request_of):
    """Half of all 4,096 are the most for one. Behind a proxy all come from one address, as they do here."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most[1], most[1]))
    crowd = new_key(api, tenant="team-crowd")["secret"]
    request = f"{request_of}Host: localhost\r\nAuthorization: Bearer {crowd}\r\n\r\n".encode()
    with contextlib.ExitStack() as ends:
        for _ in range(4096):
            client = ends.enter_context(socket.create_connection(("127.0.0.1", serve.port), 60 * harness.PATIENCE))
            client.sendall(request)
        harness.wait_for(lambda: refusal_of(serve, crowd) == (429, "too_many_requests"), 30 * harness.PATIENCE,
                         "a refusal of the tenant that has half of all")
        with serve.tcp(new_key(api, tenant="team-late")["secret"]) as client:
            assert client.get("/v1/sandboxes").status == 200


def test_a_tenant_does_not_wait_for_a_crowd_of_another(serve, api):
    """Its first request on a connection from the crowd's own address stands in no line with theirs."""
    crowd = new_key(api, tenant="team-queue")["secret"]
    operator = new_key(api, "read", "operator", tenant="team-late")["secret"]

    def request(path, key):
        return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n".encode()

    with contextlib.ExitStack() as ends:
        clients = [ends.enter_context(socket.create_connection(("127.0.0.1", serve.port), 60 * harness.PATIENCE))
                   for _ in range(300)]
        late = ends.enter_context(serve.tcp(operator))
        late.connection.connect()
        with serve.tcp(operator) as last:
            assert last.get("/v1/sandboxes").status == 200  # so all that connected before are accepted
        os.kill(serve.engine_pid(), signal.SIGSTOP)
        for client in clients:
            client.sendall(request("/v1/sandboxes", crowd))
        late.send("GET", "/metrics")
        os.kill(serve.engine_pid(), signal.SIGCONT)
        asked = re.search(rb'cove_tenant_requests_total\{tenant="team-queue"\} (\d+)', late.receive().bytes)
        assert asked is None or int(asked[1]) < 100, "the crowd was answered first"
        assert all(client.recv(12) == b"HTTP/1.1 200" for client in clients)


@pytest.mark.parametrize("quota, spec, word", [
    ({"cpus": 1.5}, {"resources": {"cpus": 1}}, "processor"),
    ({"disk_bytes": 100 << 20}, {"resources": {"disk_bytes": 64 << 20}}, "disk"),
    ({"memory_bytes": 300 << 20}, {"resources": {"memory_bytes": 200 << 20}}, "memory")],
    ids=["cpus", "disk", "memory"])
def test_a_quota_is_for_all_sandboxes_of_its_tenant_together(serve, api, quota, spec, word):
    """One fits and two do not; what a stopped one gives back is another's, and not its disk."""
    path = "/v1/tenants/team-q/quota"
    key = new_key(api, tenant="team-q")
    assert api.ask("PUT", path, quota).status == 200
    with serve.tcp(key["secret"]) as client:
        first = make(client, **spec)
        refused = client.post("/v1/sandboxes", {"disk_kind": "ephemeral", **spec})
        assert refused.status == 403 and refused.code == "quota" and word in refused.json["detail"], refused
        assert len(client.get("/v1/sandboxes").json["sandboxes"]) == 1
        name = next(iter(quota))
        assert api.get(path).json["used"][name] == next(iter(spec["resources"].values()))
        assert client.post(f"{first}/stop").status == 200
        if name == "disk_bytes":
            assert client.post("/v1/sandboxes", {"disk_kind": "ephemeral", **spec}).code == "quota"
        else:
            second = make(client, **spec)
            assert client.post(f"{first}/start").code == "quota"
            assert client.get(first).json["state"] == "stopped"
            assert client.delete(second).status == 204
        assert client.post(f"{first}/start").status == 200
        assert client.delete(first).status == 204
        assert api.get(path).json["used"][name] == 0
    assert api.ask("PUT", path, {}).status == 200


AS_NOBODY = """
import socket, sys
client = socket.socket(socket.AF_UNIX)
client.connect("api.sock")
client.sendall(b"GET /v1/sandboxes HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n" +
               sys.argv[1].encode() + b"\\r\\n")
while part := client.recv(65536):
    sys.stdout.buffer.write(part)
"""

if harness.EXPECT.is_root:  # who else could become somebody else?
    def test_who_is_neither_root_nor_the_owner_needs_a_key_on_the_unix_socket(serve):
        serve.directory.chmod(0o755)
        serve.socket.chmod(0o666)
        for header, status in [("", b" 403 "), (f"X-API-Key: {serve.key}\r\n", b" 200 ")]:
            answer = subprocess.run(["/usr/bin/python3", "-c", AS_NOBODY, header], user=65534,
                                    cwd=serve.directory, capture_output=True, timeout=60,
                                    check=True).stdout
            assert status in answer.split(b"\r\n")[0], answer


# ---- requests that are wrong -------------------------------------------------------------------

@pytest.mark.parametrize("body, part", [
    (b"", "is empty"), (b"{", "no JSON"), (b"[]", "must be a JSON object"),
    (b'{"command":"true","a":1}', '"a" is unknown'), (b'{"command":"a\\u0000b"}', "no JSON"),
    (b'{"command":"\xff"}', "no JSON"), (b'{"command":"true","timeout_ms":-1}', '"timeout_ms"'),
    (b'{"command":"true","timeout_ms":1e30}', '"timeout_ms"'),
    (b'{"command":"true","output_limit":67108865}', '"output_limit"'),
    (b'{"command":"true","env":{"A=B":"x"}}', '"env.A=B"'), (b"[" * 100000, "deeper"),
    (b'{"command":"true","command":"false"}', "duplicate")])
def test_a_wrong_body_is_refused_by_name(api, shared, body, part):
    answer = api.post(f"{shared}/exec", body)
    assert answer.refusal == (400, "bad_request")
    assert part in answer.json["detail"], answer


def test_a_body_that_is_too_large_is_refused(api, shared):
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it is answered before all of it is sent
        api.send("POST", f"{shared}/exec", b'{"command":"' + b"x" * (5 << 20) + b'"}')
    answer = api.receive()
    assert answer.refusal == (413, "body_too_large")


def test_unknown_paths_methods_and_queries_are_told(api, shared):
    assert api.get("/v1/nothing").code == "route_not_found"
    answer = api.ask("PUT", "/v1/sandboxes", {})
    assert answer.refusal == (405, "method_not_allowed")
    assert "POST" in answer.headers["Allow"]
    for path in ("/v1/sandboxes", f"{shared}", f"{shared}/processes"):
        answer = api.get(path, query={"limt": 1})
        assert answer.code == "bad_request" and "limt" in answer.json["detail"]
    for query in ({"limit": 0}, {"limit": 1001}, {"limit": "x"}, {"state": "gone"},
                  {"label": "x"}, {"all_tenants": "1"}, {"cursor": "no cursor"}):
        assert api.get("/v1/sandboxes", query=query).code == "bad_request", query


# ---- sandboxes ---------------------------------------------------------------------------------

@pytest.mark.parametrize("target, part", [
    ("/v1/sandboxes?limit=1&limit=2", '"limit" is there twice'),
    ("/v1/sandboxes?state=running&label=a%3Db&state=running", '"state" is there twice'),
    ("/v1/roots?limit=1", '"limit" is unknown'),
])
def test_a_query_that_says_two_things_or_nothing_is_refused(api, target, part):
    answer = api.get(target)
    assert answer.code == "bad_request" and part in answer.json["detail"]


def test_create_with_a_name_is_get_or_create(api):
    spec = {"name": "a name / é", "disk_kind": "ephemeral", "labels": {"k": "v"}}
    first = api.post("/v1/sandboxes", spec)
    again = api.post("/v1/sandboxes", {**spec, "labels": {"k": "w"}})
    other = api.post("/v1/sandboxes", {**spec, "privileges": "plain"})
    try:
        assert (first.status, first.json["created"]) == (201, True)
        assert (again.status, again.json["created"]) == (200, False)
        assert again.json["id"] == first.json["id"] and again.json["labels"] == {"k": "v"}
        assert other.refusal == (409, "name_conflict")
        by_name = api.get("/v1/sandboxes/name:a%20name%20%2F%20%C3%A9")
        assert by_name.json["id"] == first.json["id"]
        assert by_name.headers["ETag"] == f'"{by_name.json["revision"]}"'
        assert api.get("/v1/sandboxes/a%20name%20%2F%20%C3%A9").json == by_name.json
    finally:
        assert api.delete(f"/v1/sandboxes/{first.json['id']}").status == 204


def test_a_bare_name_is_found_wherever_an_id_is_and_ids_win(api):
    def make(name):
        made = api.post("/v1/sandboxes", {"name": name, "disk_kind": "ephemeral", "privileges": "plain"})
        assert made.status == 201, made
        return made.json["id"]

    bare = make("bare")
    taker = make(bare)
    try:
        assert api.post("/v1/sandboxes/bare/exec", {"argv": ["echo", "x"]}).json["stdout"] == "x\n"
        for rest in ("", "/processes", "/processes/1", "/usage", "/ports", "/network", "/files/list?path=/tmp"):
            assert api.get(f"/v1/sandboxes/bare{rest}").status == 200, rest
        assert api.get(f"/v1/sandboxes/{bare}").json["name"] == "bare"
        assert api.get(f"/v1/sandboxes/name:{bare}").json["id"] == taker
        assert api.delete("/v1/sandboxes/bare").status == 204
        assert api.get("/v1/sandboxes/bare").code == "sandbox_not_found"
        assert api.get(f"/v1/sandboxes/{bare}").code == "sandbox_gone"
    finally:
        assert api.delete(f"/v1/sandboxes/{taker}").status == 204


def test_many_creates_of_one_name_make_one(serve, api):
    def create():
        with serve.client() as client:
            return client.post("/v1/sandboxes", {"name": "raced", "disk_kind": "ephemeral",
                                                 "privileges": "plain"})

    answers = serving.at_once(*[create] * 8)
    assert {answer.json["id"] for answer in answers} == {answers[0].json["id"]}
    assert sorted(answer.status for answer in answers) == [200] * 7 + [201]
    assert api.delete(f"/v1/sandboxes/{answers[0].json['id']}").status == 204


def test_a_sandbox_says_what_it_is(api):
    spec = {"env": {"A": "1"}, "cwd": "/tmp", "hostname": "h-1", "labels": {"x": "", "y": "a=b"},
            "resources": {"memory_bytes": 256 << 20, "cpus": 0.5, "pids": 50,
                          "disk_bytes": 64 << 20},
            "lifecycle": {"lifetime_ms": 3600000, "idle_ms": 600000, "then": "stop"}}
    path = make(api, **spec)
    seen = api.get(path).json
    assert seen["env"] == spec["env"] and seen["labels"] == spec["labels"]
    assert seen["resources"] == spec["resources"]
    assert (seen["cwd"], seen["hostname"], seen["root"]) == ("/tmp", "h-1", "host")
    assert (seen["privileges"], seen["disk_kind"]) == ("plain", "ephemeral")
    assert seen["lifecycle"]["then"] == "stop" and seen["lifecycle"]["idle_ms"] == 600000
    assert seen["lifecycle"]["deadline"].endswith("Z") and seen["tenant"] == "default"
    assert run(api, path, "echo $A $(pwd) $(hostname)")["stdout"] == "1 /tmp h-1\n"
    assert api.delete(path).status == 204


def test_a_change_is_made_to_the_revision_it_was_meant_for(api, box):
    seen = api.get(box).json
    answer = api.ask("PATCH", box, {"labels": {"n": "1"}, "lifecycle": {"lifetime_ms": 60000}},
                     headers={"If-Match": f'"{seen["revision"]}"'})
    assert answer.status == 200 and answer.json["labels"] == {"n": "1"}
    assert answer.json["revision"] > seen["revision"] and answer.json["lifecycle"]["deadline"]
    late = api.ask("PATCH", box, {"labels": {}}, headers={"If-Match": str(seen["revision"])})
    assert late.refusal == (409, "revision_conflict")
    answer = api.ask("PATCH", box, {"lifecycle": {"deadline": None}})
    assert answer.json["lifecycle"]["deadline"] is None and answer.json["labels"] == {"n": "1"}
    assert api.ask("PATCH", box, {}, headers={"If-Match": "x"}).code == "bad_request"
    assert api.ask("PATCH", box, {"lifecycle": {"deadline": "2001-01-01T00:00:00Z"}}
                   ).code == "bad_request"


def test_the_list_is_filtered_and_comes_in_pages(api):
    paths = [make(api, name=f"list-{i}", labels={"odd": str(i % 2)}) for i in range(5)]
    try:
        query = {"name_prefix": "list-", "limit": 2}
        names = []
        while True:
            answer = api.get("/v1/sandboxes", query=query).json
            names += [sandbox["name"] for sandbox in answer["sandboxes"]]
            assert len(answer["sandboxes"]) <= 2
            if answer["next"] is None:
                break
            query["cursor"] = answer["next"]
        assert names == [f"list-{i}" for i in range(5)]
        odd = api.get("/v1/sandboxes", query={"label": ["odd=1"], "state": "running"}).json
        assert [sandbox["name"] for sandbox in odd["sandboxes"]] == ["list-1", "list-3"]
        assert not api.get("/v1/sandboxes", query={"label": ["odd=1", "odd=0"]}).json["sandboxes"]
    finally:
        for path in paths:
            assert api.delete(path).status == 204


def test_a_page_of_the_list_has_an_end_in_bytes(api):
    env = {f"E{i}": "x" * 25_000 for i in range(4)}
    paths = [make(api, name=f"large-{i}", env=env) for i in range(12)]
    try:
        query = {"name_prefix": "large-", "limit": 1000}
        names = []
        pages = 0
        while True:
            answer = api.get("/v1/sandboxes", query=query)
            assert len(answer.bytes) < 1_200_000
            names += [sandbox["name"] for sandbox in answer.json["sandboxes"]]
            pages += 1
            if answer.json["next"] is None:
                break
            query["cursor"] = answer.json["next"]
        assert pages == 2 and names == [f"large-{i}" for i in range(12)]
    finally:
        for path in paths:
            assert api.delete(path).status == 204


def test_what_was_deleted_is_gone_and_what_never_was_is_not_found(api):
    path = make(api)
    assert api.delete(path).status == 204
    assert api.delete(path).status == 204
    for answer in (api.get(path), api.post(f"{path}/exec", {"command": "true"}),
                   api.post(f"{path}/start"), api.get(f"{path}/processes/1")):
        assert answer.refusal == (410, "sandbox_gone")
    never = "/v1/sandboxes/c0" + "z" * 18
    for answer in (api.get(never), api.delete(never), api.post(f"{never}/stop")):
        assert answer.refusal == (404, "sandbox_not_found")


def test_a_sandbox_is_stopped_and_started_on_its_disk(api):
    path = make(api, disk_kind="persistent", privileges="system")
    run(api, path, "echo kept > /root/file")
    stopped = api.post(f"{path}/stop")
    assert (stopped.status, stopped.json["state"]) == (200, "stopped")
    assert api.post(f"{path}/stop").status == 200
    assert api.post(f"{path}/exec", {"command": "true"}).refusal == (409, "sandbox_stopped")
    assert api.get(f"{path}/processes").status == 200, "what ran is known while it is stopped"
    assert run(api, path, "cat /root/file", start=True)["stdout"] == "kept\n"
    assert api.post(f"{path}/start", {}).json["state"] == "running"
    assert api.post(f"{path}/start", {"force": True}).code == "bad_request"
    assert api.delete(path).status == 204


@pytest.mark.parametrize("spec, status, code", [
    ({"root": "nowhere"}, 422, "unknown_root"), ({"root": "/etc"}, 422, "unknown_root"),
    ({"mounts": [{"name": "no", "target": "/m"}]}, 422, "unknown_mount"),
    ({"network": {"allow": ["no name"]}}, 422, "bad_policy"),
    ({"network": {"mode": "some"}}, 400, "bad_request"),
    ({"network": {"bytes_per_second": 1}}, 400, "bad_request"),
    ({"network": {"deny": ["example.com"]}}, 422, "bad_policy"),
    ({"volumes": None}, 422, "not_yet"),
    ({"nmae": "x"}, 400, "bad_request"), ({"name": ""}, 400, "bad_request"),
    ({"name": "x" * 257}, 400, "bad_request"),
    ({"resources": {"pids": 1}}, 400, "bad_request"),  # no command would start
    ({"resources": {"memory_bytes": 1}}, 400, "bad_request")])
def test_a_sandbox_that_cannot_be_is_refused(api, spec, status, code):
    answer = api.post("/v1/sandboxes", spec)
    assert answer.refusal == (status, code)


# ---- exec --------------------------------------------------------------------------------------

def test_exec_says_all_of_a_command(api, shared):
    result = run(api, shared, "echo out; echo err >&2; exit 7", tag="t-1")
    process = result["process"]
    assert (result["stdout"], result["stderr"]) == ("out\n", "err\n")
    assert (process["exit_code"], process["signal"], process["state"]) == (7, None, "exited")
    assert process["tag"] == "t-1" and "echo out" in process["command"]
    assert not process["timed_out"] and not process["oom_killed"]
    assert process["stdout"] == {"from": 0, "bytes": 4}
    assert result["stdout_dropped_bytes"] == 0 and "stdout_base64" not in result
    assert process["started_at"] <= process["ended_at"]


def test_exec_without_a_shell_takes_words_as_they_are(api, shared):
    answer = api.post(f"{shared}/exec", {"argv": ["printf", "%s|", "a b", "", "$HOME", "é"]})
    assert answer.json["stdout"] == "a b||$HOME|é|"


def test_exec_ends_by_a_signal(api, shared):
    process = run(api, shared, "kill -TERM $$")["process"]
    assert (process["exit_code"], process["signal"]) == (None, "SIGTERM")


def test_a_timeout_is_a_result(serve, api, shared):
    api.send("POST", f"{shared}/exec", {"command": "echo before; sleep 60 & sleep 60", "timeout_ms": 600000,
                                        "tag": "late"})
    with serve.client() as other:
        harness.wait_for(lambda: (late := process_tagged(other, shared, "late")) and late["stdout"]["bytes"],
                         what="its output")
    serve.clock.advance(600)
    result = api.receive().json
    assert result["stdout"] == "before\n"
    assert result["process"]["timed_out"] and result["process"]["exit_code"] == 124


def test_exec_answers_when_the_command_exits_not_when_its_pipes_close(api, shared):
    begun = time.monotonic()
    assert run(api, shared, "sleep 30 & echo done")["stdout"] == "done\n"
    assert time.monotonic() - begun < 10 * harness.PATIENCE


def test_exec_takes_its_own_environment_directory_and_input(api, shared):
    result = run(api, shared, "cat; echo $A; pwd", env={"A": "1"}, cwd="/tmp", stdin="in é\n")
    assert result["stdout"] == "in é\n1\n/tmp\n"
    assert run(api, shared, "cat")["stdout"] == "", "without input there is an end of file"


def test_exec_passes_any_bytes_in_and_out(api, shared):
    data = bytes(range(256)) * 5000
    result = run(api, shared, "cat", stdin_base64=base64.b64encode(data).decode(),
                 output_limit=len(data))
    assert base64.b64decode(result["stdout_base64"]) == data
    assert result["stdout"] == data.decode("utf-8", errors="replace")


def test_large_input_that_nobody_reads_does_no_harm(api, shared):
    result = run(api, shared, "exit 3", stdin="x" * (3 << 20))
    assert result["process"]["exit_code"] == 3


def test_exec_returns_the_newest_output_and_counts_the_rest(api, shared):
    result = run(api, shared, "seq 1 200000", output_limit=1000)
    whole = "".join(f"{i}\n" for i in range(1, 200001))
    assert result["stdout"] == whole[-1000:]
    assert result["stdout_dropped_bytes"] == len(whole) - 1000
    none = run(api, shared, "echo x", output_limit=0)
    assert (none["stdout"], none["stdout_dropped_bytes"]) == ("", 2)


def test_exec_does_not_cut_a_character(api, shared):
    for limit in range(1, 9):
        result = run(api, shared, "printf 'a😀€é'", output_limit=limit)
        data = "a😀€é".encode()
        wanted = data[-limit:].decode("utf-8", errors="ignore")
        assert result["stdout"] == wanted
        assert result["stdout_dropped_bytes"] == len(data) - len(wanted.encode())
        assert "stdout_base64" not in result


def test_exec_returns_megabytes_as_they_are(api, shared):
    result = run(api, shared, "seq 1 2000000; seq 1 300000 >&2", output_limit=32 << 20)
    assert result["stdout"] == "".join(f"{i}\n" for i in range(1, 2000001))
    assert result["stderr"] == "".join(f"{i}\n" for i in range(1, 300001))


@pytest.mark.parametrize("spec, code", [
    ({"argv": ["/no/such/program"]}, "command_not_found"),
    ({"argv": ["true"], "cwd": "/no/such/directory"}, "bad_cwd"),
    ({"argv": ["true"], "user": "nosuchuser"}, "user_not_found"),
    ({"argv": ["/etc/passwd"]}, "not_executable")])
def test_a_command_that_cannot_start_is_an_error(api, shared, spec, code):
    assert api.post(f"{shared}/exec", spec).refusal == (422, code)


def process_tagged(client, path, tag):
    found = [process for process in client.get(f"{path}/processes").json["processes"]
             if process["tag"] == tag]
    return found[0] if found else None


def test_the_command_of_a_client_that_goes_away_is_killed(serve, api, shared):
    client = serve.client()
    client.send("POST", f"{shared}/exec", {"command": "sleep 600 & sleep 600", "tag": "left"})
    harness.wait_for(lambda: process_tagged(api, shared, "left"), what="the command")
    client.close()
    harness.wait_for(lambda: process_tagged(api, shared, "left")["state"] == "exited",
                     what="its end")
    assert process_tagged(api, shared, "left")["signal"] == "SIGKILL"


def test_unless_it_said_otherwise(serve, api, shared):
    client = serve.client()
    client.send("POST", f"{shared}/exec", {"command": "sleep 1; echo finished", "tag": "stays",
                                           "detach_on_disconnect": True})
    harness.wait_for(lambda: process_tagged(api, shared, "stays"), what="the command")
    client.close()
    process = process_tagged(api, shared, "stays")
    ended = api.get(f"{shared}/processes/{process['id']}/wait").json
    assert (ended["exit_code"], ended["stdout"]["bytes"]) == (0, 9)


# ---- processes ---------------------------------------------------------------------------------

def test_a_process_is_started_waited_for_and_forgotten(api, shared):
    process = start(api, shared, "read line; exit 5", tag="bg", open_stdin=True)
    assert api.get(process).json["state"] == "running"
    assert api.get(f"{process}/wait", query={"timeout_ms": 0}).json["state"] == "running"
    assert api.get(f"{process}/wait", query={"timeout_ms": 20}).json["state"] == "running"
    assert api.post(f"{process}/stdin", b"go\n").status == 204
    ended = api.get(f"{process}/wait").json
    assert (ended["state"], ended["exit_code"]) == ("exited", 5)
    assert api.get(f"{process}/wait").json == ended
    assert any(other["id"] == ended["id"]
               for other in api.get(f"{shared}/processes").json["processes"])
    assert api.delete(process).status == 204
    assert api.get(process).refusal == (404, "process_not_found")
    assert api.delete(process).code == "process_not_found"


def test_a_process_is_killed_with_all_it_started(api, shared):
    process = start(api, shared, "trap '' TERM; setsid sleep 600 & echo trapped; sleep 600; true")
    harness.wait_for(lambda: api.get(f"{process}/output").bytes, what="the trap")
    assert api.get(process).json["pid"] > 0
    assert api.post(f"{process}/signal", {"signal": "TERM"}).status == 204
    assert runs(api, process)
    assert api.delete(process).status == 204
    ended = api.get(process).json
    assert (ended["state"], ended["signal"]) == ("exited", "SIGKILL")
    assert api.post(f"{process}/signal", {"signal": 9}).refusal == (409, "process_ended")


def test_input_is_streamed_as_fast_as_it_is_read(api, shared):
    process = start(api, shared, "sleep 0.5; sha256sum; echo end", open_stdin=True, stdin="first")
    data = b"first" + b"0123456789abcdef" * (1 << 19)
    assert api.ask("POST", f"{process}/stdin", data[5:], query={"close": "true"}).status == 204
    assert api.get(f"{process}/wait").json["exit_code"] == 0
    out = api.get(f"{process}/output").bytes.decode()
    assert out == f"{hashlib.sha256(data).hexdigest()}  -\nend\n"
    answer = api.post(f"{process}/stdin", b"more")
    assert answer.status == 409 and answer.code in ("process_ended", "stdin_closed")


def test_input_that_was_never_open_or_is_closed_is_refused(api, shared):
    process = start(api, shared, "sleep 600")
    assert api.post(f"{process}/stdin", b"x").code == "stdin_closed"
    assert api.delete(process).status == 204
    process = start(api, shared, "cat; sleep 600", open_stdin=True)
    assert api.post(f"{process}/stdin", b"a").status == 204
    assert api.post(f"{process}/stdin", query={"close": "true"}).status == 204
    assert api.post(f"{process}/stdin", b"b").code == "stdin_closed"
    harness.wait_for(lambda: api.get(f"{process}/output").bytes == b"a", what="what was written")
    assert api.delete(process).status == 204


def test_a_writer_that_goes_away_leaves_the_process_alone(serve, api, shared):
    process = start(api, shared, "sleep 600", open_stdin=True)
    client = serve.client()
    client.connection.putrequest("POST", f"{process}/stdin")
    client.connection.putheader("Content-Length", str(8 << 20))
    client.connection.endheaders()
    client.connection.sock.settimeout(1)
    with pytest.raises(TimeoutError):
        client.connection.sock.sendall(b"x" * (8 << 20))
    client.close()
    assert runs(api, process)
    assert api.delete(process).status == 204


def test_output_is_exact_and_addressed_by_offset(api, shared):
    process = start(api, shared, "printf '\\000\\377abc\\nxyz'; printf err >&2")
    api.get(f"{process}/wait")

    def read(**query):
        answer = api.get(f"{process}/output", query=query)
        assert answer.headers["Content-Type"] == "application/octet-stream"
        return answer.bytes, *[answer.headers[f"Cove-{name}"]
                               for name in ("From", "Next", "Dropped", "Ended")]

    assert read() == (b"\0\xffabc\nxyz", "0", "9", "0", "true")
    assert read(offset=2, limit=3) == (b"abc", "2", "5", "0", "false")
    assert read(tail=4) == (b"\nxyz", "5", "9", "0", "true")
    assert read(tail=100) == (b"\0\xffabc\nxyz", "0", "9", "0", "true")
    assert read(offset=9) == (b"", "9", "9", "0", "true")
    assert read(offset=1000) == (b"", "9", "9", "0", "true")
    assert read(stream="stderr") == (b"err", "0", "3", "0", "true")
    assert read(limit=0) == (b"", "0", "0", "0", "false")
    for query in ({"offset": 1, "tail": 1}, {"stream": "stdin"}, {"offset": -1}, {"tail": "x"}):
        assert api.get(f"{process}/output", query=query).code == "bad_request"


def test_large_output_is_whole(api, shared):
    process = start(api, shared, "seq 1 3000000")
    api.get(f"{process}/wait")
    answer = api.get(f"{process}/output")
    assert answer.bytes == "".join(f"{i}\n" for i in range(1, 3000001)).encode()
    assert int(answer.headers["Cove-Next"]) == len(answer.bytes)


def test_output_beyond_the_log_is_counted(api, shared):
    process = start(api, shared, "seq 1 500000", log_bytes=262144)
    ended = api.get(f"{process}/wait").json
    assert ended["stdout"]["from"] > 0
    answer = api.get(f"{process}/output")
    assert int(answer.headers["Cove-Dropped"]) == int(answer.headers["Cove-From"]) > 0
    whole = "".join(f"{i}\n" for i in range(1, 500001)).encode()
    assert answer.bytes == whole[int(answer.headers["Cove-From"]):]
    lines = list(serving.Lines(api, f"{process}/follow"))
    gap = lines[0]
    assert gap["type"] == "gap" and gap["from"] == 0 and gap["to"] > 0
    assert serving.text_of(lines, "stdout").encode() == whole[gap["to"]:]


def test_follow_tells_what_is_printed_as_it_is_printed(api, shared):
    process = start(api, shared, "echo a; read line; echo b >&2; read line; echo c; exit 3", open_stdin=True)
    lines = []
    for line in serving.Lines(api, f"{process}/follow"):
        lines.append(line)
        if line["type"] != "exit" and line["data"] != "c\n":
            with serving.Client(path=api.connection.path) as other:
                assert other.post(f"{process}/stdin", b"go\n").status == 204
    assert [(line["type"], line["from"], line["to"], line["data"]) for line in lines[:-1]] == [
        ("stdout", 0, 2, "a\n"), ("stderr", 0, 2, "b\n"), ("stdout", 2, 4, "c\n")]
    assert lines[-1]["type"] == "exit" and lines[-1]["process"]["exit_code"] == 3
    again = list(serving.Lines(api, f"{process}/follow", {"stdout_from": 2, "stream": "stdout"}))
    assert [line.get("data") for line in again] == ["c\n", None]


def test_follow_never_splits_a_character(api, shared):
    process = start(api, shared, "printf '\\360\\237'; read line; printf '\\230\\200\\342'; "
                                 "read line; printf '\\202\\254\\377\\303'", open_stdin=True)
    follow = serving.Lines(api, f"{process}/follow")
    lines = []
    with serving.Client(path=api.connection.path) as other:
        for size in (2, 5):
            harness.wait_for(lambda size=size: len(other.get(f"{process}/output").bytes) == size, what="its output")
            if size == 5:
                lines.append(next(follow))
            assert other.post(f"{process}/stdin", b"go\n").status == 204
    lines += follow
    assert serving.text_of(lines, "stdout") == "😀€��"
    assert [line["data"] for line in lines[:-1]] == ["😀", "€�", "�"]
    exact = list(serving.Lines(api, f"{process}/follow", {"encoding": "base64"}))
    data = b"".join(base64.b64decode(line["data"]) for line in exact[:-1])
    assert data == "😀€".encode() + b"\xff\xc3"


def test_follow_ends_with_the_command_unless_all_is_wanted(api, shared):
    process = start(api, shared, "rm -f /tmp/late; (until test -e /tmp/late; do sleep 0.1; done; echo late) & echo early")
    lines = list(serving.Lines(api, f"{process}/follow"))
    assert serving.text_of(lines, "stdout") == "early\n" and lines[-1]["type"] == "exit"
    run(api, shared, "touch /tmp/late")
    lines = list(serving.Lines(api, f"{process}/follow", {"until": "close"}))
    assert serving.text_of(lines, "stdout") == "early\nlate\n" and lines[-1]["type"] == "exit"


def test_follow_that_is_not_read_is_held_back_and_told_the_gap(serve, api, shared):
    process = start(api, shared, "echo begin; read line; seq 1 3000000; echo end",
                    log_bytes=1 << 20, open_stdin=True)
    slow = serve.client()
    lines = serving.Lines(slow, f"{process}/follow")
    assert next(lines)["data"] == "begin\n"
    assert api.post(f"{process}/stdin", b"go\n").status == 204
    ended = api.get(f"{process}/wait").json
    assert ended["exit_code"] == 0, "who does not read does not stop the command"
    rest = list(lines)
    slow.close()
    at = 6
    gaps = 0
    for line in rest[:-1]:
        if line["type"] == "keepalive":
            continue
        assert line["from"] == at, line
        at = line["to"]
        gaps += line["type"] == "gap"
    assert at == ended["stdout"]["bytes"] and gaps >= 1
    assert serving.text_of(rest, "stdout").endswith("2999999\n3000000\nend\n")


def test_head_of_a_stream_is_its_header_and_the_connection_goes_on(api, shared):
    process = start(api, shared, "sleep 600")
    for path in (f"{process}/follow", "/v1/events", f"{process}/output", "/healthz"):
        answer = api.ask("HEAD", path)
        assert (answer.status, answer.bytes) == (200, b""), path
    assert api.get(process).json["state"] == "running"
    assert api.delete(process).status == 204


def test_follow_is_kept_alive(serve, api, shared):
    """Not sooner than after 15 seconds; on a busy machine more may pass than the clock was set ahead."""
    begun = time.monotonic() + serve.clock.seconds
    process = start(api, shared, "echo begun; sleep 600")
    lines = serving.Lines(api, f"{process}/follow")
    assert next(lines)["type"] == "stdout"
    for count in (1, 2):
        serve.clock.until(lambda: select.select([lines.response], [], [], 0)[0], 16, "a line")
        assert time.monotonic() + serve.clock.seconds - begun >= 15 * count
        assert next(lines) == {"type": "keepalive"}
    with serving.Client(path=api.connection.path) as other:
        assert other.delete(process).status == 204
    assert list(lines)[-1]["type"] == "exit"


def test_streams_end_in_good_order_after_the_time_that_was_named(api, shared):
    """The connection stays: what comes after is the answer to the next request."""
    process = start(api, shared, "echo here; printf '\\303'; exec sleep 1000")
    harness.wait_for(lambda: api.get(f"{process}/output").bytes == b"here\n\xc3", what="what it prints")
    lines = list(serving.Lines(api, f"{process}/follow", {"for_ms": 300}))
    assert serving.text_of(lines, "stdout") == "here\n" and lines[-1]["type"] == "stdout"
    # Nor is half a character told: who goes on from `to` gets it whole.
    assert lines[-1]["to"] == 5
    assert list(serving.Lines(api, "/v1/events", {"for_ms": 1})) == []
    watched = list(serving.Lines(api, f"{shared}/files/watch", {"path": "/tmp", "for_ms": 300}))
    assert [line["type"] for line in watched] == ["watching"]
    assert api.delete(process).status == 204
    # A process that ends before ends it before.
    lines = list(serving.Lines(api, f"{start(api, shared, 'true')}/follow", {"for_ms": 86400000}))
    assert lines[-1]["type"] == "exit"


@pytest.mark.parametrize("value", ["0", "86400001", "-1", "1s", ""])
def test_a_time_for_a_stream_is_a_number(api, value):
    assert api.get("/v1/events", query={"for_ms": value}).code == "bad_request"


def test_follow_of_a_sandbox_that_is_deleted_ends(serve, api):
    path = make(api)
    process = start(api, path, "echo x; sleep 600")
    with serve.client() as follower:
        lines = serving.Lines(follower, f"{process}/follow")
        assert next(lines)["data"] == "x\n"
        assert api.delete(path).status == 204
        assert list(lines)[-1]["type"] == "exit"


def test_followers_that_go_away_are_forgotten(serve, api, shared):
    process = start(api, shared, "while :; do echo line; done", log_bytes=1 << 20)
    for _ in range(20):
        with serve.client() as follower:
            assert next(serving.Lines(follower, f"{process}/follow"))
    assert api.delete(process).status == 204


# ---- repeating ---------------------------------------------------------------------------------

def test_a_repeated_request_gets_the_first_answer(api, shared):
    body = {"command": "echo x >> /tmp/once; wc -l < /tmp/once"}
    first = api.post(f"{shared}/exec", body, headers={"Idempotency-Key": "k-exec"})
    again = api.post(f"{shared}/exec", body, headers={"Idempotency-Key": "k-exec"})
    assert first.status == 200 and first.json["stdout"] == "1\n"
    assert (again.status, again.bytes) == (200, first.bytes)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert first.headers["Idempotent-Replayed"] is None
    other = api.post(f"{shared}/exec", {"command": "true"}, headers={"Idempotency-Key": "k-exec"})
    assert other.refusal == (409, "idempotency_conflict")
    for key in ("", "a b", "x" * 256, "é"):
        answer = api.post(f"{shared}/exec", body, headers={"Idempotency-Key": key.encode()})
        assert answer.code == "bad_request", key


def test_a_repetition_waits_for_the_first(serve, shared):
    def ask():
        with serve.client() as client:
            return client.post(f"{shared}/exec", {"command": "sleep 0.5; echo x >> /tmp/waits; "
                                                             "wc -l < /tmp/waits"},
                               headers={"Idempotency-Key": "k-waits"})

    answers = serving.at_once(*[ask] * 5)
    assert {answer.json["stdout"] for answer in answers} == {"1\n"}


def test_a_first_that_goes_away_does_not_take_the_answer_from_others(serve, api, shared):
    body = {"command": "sleep 1.5; echo done", "tag": "shared"}
    headers = {"Idempotency-Key": "k-first-gone"}
    first = serve.client()
    first.send("POST", f"{shared}/exec", body, headers)
    harness.wait_for(lambda: process_tagged(api, shared, "shared"), what="the command")
    second = serve.client()
    second.send("POST", f"{shared}/exec", body, headers)
    serve.heed()
    first.close()
    assert second.receive().json["stdout"] == "done\n"
    second.close()


def test_a_command_that_was_killed_with_its_client_is_no_answer(serve, api, shared):
    body = {"command": "test -e /tmp/killed && exec echo again; touch /tmp/killed; sleep 600",
            "tag": "cut-short"}
    headers = {"Idempotency-Key": "k-cut-short"}
    first = serve.client()
    first.send("POST", f"{shared}/exec", body, headers)
    harness.wait_for(lambda: run(api, shared, "test -e /tmp/killed")["process"]["exit_code"] == 0,
                     what="the command")
    first.close()
    harness.wait_for(lambda: process_tagged(api, shared, "cut-short")["state"] == "exited",
                     what="its end")
    again = api.post(f"{shared}/exec", body, headers=headers)
    assert again.status == 200 and again.json["stdout"] == "again\n", again
    assert again.headers["Idempotent-Replayed"] is None


def test_what_failed_may_be_tried_again_with_its_key(api, box):
    headers = {"Idempotency-Key": "k-failed"}
    api.post(f"{box}/stop")
    body = {"command": "echo now"}
    assert api.post(f"{box}/exec", body, headers=headers).code == "sandbox_stopped"
    assert api.post(f"{box}/start").status == 200
    assert api.post(f"{box}/exec", body, headers=headers).json["stdout"] == "now\n"


def test_an_answer_that_is_too_large_is_not_given_twice_and_nothing_is_done_twice(api, shared):
    body = {"command": "echo x >> /tmp/large; seq 1 200000", "output_limit": 4 << 20}
    headers = {"Idempotency-Key": "k-large"}
    assert api.post(f"{shared}/exec", body, headers=headers).status == 200
    assert api.post(f"{shared}/exec", body, headers=headers).code == "idempotency_conflict"
    assert run(api, shared, "wc -l < /tmp/large")["stdout"] == "1\n"


def test_input_and_new_keys_take_no_idempotency_key(api, shared):
    headers = {"Idempotency-Key": "k"}
    process = start(api, shared, "sleep 600", open_stdin=True)
    assert api.ask("POST", f"{process}/stdin", b"x", headers=headers).code == "bad_request"
    assert api.delete(process).status == 204
    assert api.post("/v1/keys", {"label": "l", "scopes": ["read"]},
                    headers=headers).code == "bad_request"


# ---- events ------------------------------------------------------------------------------------

def test_events_tell_what_happens_and_go_on_where_one_was(serve, api):
    with serve.client() as listener:
        lines = serving.Lines(listener, "/v1/events")
        path = make(api)
        sandbox = path.rsplit("/", 1)[1]
        run(api, path, "true")
        assert api.delete(path).status == 204
        seen = []
        for line in lines:
            if line.get("sandbox") == sandbox:
                seen.append(line)
                if line["type"] == "sandbox.deleted":
                    break
    kinds = [line["type"] for line in seen]
    assert kinds[0] == "sandbox.created" and "process.exited" in kinds
    numbers = [line["sequence"] for line in seen]
    assert numbers == sorted(set(numbers))
    with serve.client() as listener:
        lines = serving.Lines(listener, "/v1/events", {"from": numbers[1]})
        again = [line for line in lines.until("sandbox.deleted") if line.get("sandbox") == sandbox]
    assert again == seen[1:]


def test_events_of_another_tenant_are_not_heard(serve, api):
    key = new_key(api, tenant="team-e")["secret"]
    with serve.tcp(key) as listener, serve.tcp(key) as other:
        lines = serving.Lines(listener, "/v1/events")
        assert api.delete(make(api)).status == 204
        path = make(other)
        assert next(lines)["sandbox"] == path.rsplit("/", 1)[1]
        assert other.delete(path).status == 204


def test_events_from_a_number_that_nobody_knows_begin_with_a_gap(serve):
    with serve.client() as listener:
        assert next(serving.Lines(listener, "/v1/events", {"from": 1 << 60}))["type"] == "gap"


# ---- what must hold over all of it -------------------------------------------------------------

def test_the_engine_may_die_at_any_moment(serve, api):
    path = make(api)
    process = start(api, path, "echo before; sleep 3; echo after")
    body = {"privileges": "plain", "disk_kind": "ephemeral"}
    headers = {"Idempotency-Key": "k-over-restart"}
    first = api.post("/v1/sandboxes", body, headers=headers).json
    serve.kill_engine()
    with serve.client() as client:
        again = client.post("/v1/sandboxes", body, headers=headers)
        assert again.json["id"] == first["id"] and again.json["name"] is None
        assert again.status == 201 and again.headers["Idempotent-Replayed"] == "true"
        other = client.post("/v1/sandboxes", {**body, "labels": {"a": "b"}}, headers=headers)
        assert other.code == "idempotency_conflict"
        assert client.delete(f"/v1/sandboxes/{first['id']}").status == 204
        assert client.get(f"{process}/wait").json["exit_code"] == 0
        assert client.get(f"{process}/output").bytes == b"before\nafter\n"
        assert client.delete(path).status == 204


def test_input_is_open_over_a_restart(serve, api):
    paths = [make(api) for _ in range(8)]
    processes = [start(api, path, "cat", open_stdin=True) for path in paths]
    for number in range(5):
        serve.kill_engine()
        with contextlib.ExitStack() as clients:
            ours = [clients.enter_context(serve.client()) for _ in processes]
            for client, process in zip(ours, processes):
                client.send("POST", f"{process}/stdin", f"{number}\n".encode())
            for client, process in zip(ours, processes):
                answer = client.receive()
                assert answer.status == 204, answer
    with serve.client() as client:
        for path, process in zip(paths, processes):
            assert client.post(f"{process}/stdin", query={"close": "true"}).status == 204
            assert client.get(f"{process}/wait").json["exit_code"] == 0
            assert client.get(f"{process}/output").bytes == b"0\n1\n2\n3\n4\n"
            assert client.delete(path).status == 204


def test_a_restart_ends_no_command(serve):
    with serve.client() as api, serve.client() as other:
        path = make(api)
        other.send("POST", f"{path}/exec", {"command": "until test -e /tmp/go; do sleep 0.1; done; echo on",
                                            "tag": "restart"})
        harness.wait_for(lambda: process_tagged(api, path, "restart"), what="the command")
        process = process_tagged(api, path, "restart")
        serve.kill_engine(signal.SIGTERM)
        told = other.receive()
        assert told.code == "still_running" and process["id"] in told.json["detail"]
    with serve.client() as api:
        assert run(api, path, "touch /tmp/go")["process"]["exit_code"] == 0
        ended = api.get(f"{path}/processes/{process['id']}/wait").json
        assert (ended["exit_code"], ended["signal"], ended["stdout"]["bytes"]) == (0, None, 3)
        assert api.delete(path).status == 204


def test_an_engine_that_is_told_to_end_again_and_again_ends_well(tmp_path):
    with serving.Serve(tmp_path) as serve:
        engine = serve.engine_pid()
        with contextlib.suppress(ProcessLookupError):
            while serve.engine_pid() == engine:
                os.kill(engine, signal.SIGTERM)
                time.sleep(0.0005)
        serve.wait_ready()
        assert "killed by signal" not in serve.said() and "signal 15:" in serve.said()


def test_streams_and_waits_do_not_hold_a_restart_up(serve):
    with serve.client() as api:
        path = make(api)
        process = start(api, path, "sleep 600")
        with serve.client() as events, serve.client() as follow, serve.client() as wait:
            lines = [serving.Lines(events, "/v1/events"),
                     serving.Lines(follow, f"{process}/follow")]
            wait.send("GET", f"{process}/wait")
            serve.heed()
            began = time.monotonic()
            serve.kill_engine(signal.SIGTERM)
            # It would have ten seconds for what is under way; after engines that were killed it starts later.
            assert time.monotonic() - began < 9 * harness.PATIENCE
            assert wait.receive().code == "draining"
            for stream in lines:
                with pytest.raises(http.client.IncompleteRead):
                    stream.response.read()
    with serve.client() as api:
        assert api.get(process).json["state"] == "running"
        assert api.delete(path).status == 204


def test_roots_are_listed_by_name(api):
    answer = api.get("/v1/roots").json
    assert set(answer) == {"roots", "mounts", "mounts_read_only"} and "/" not in "".join(answer["roots"])


def test_requests_may_be_many_at_once(serve, shared):
    def many():
        with serve.client() as client:
            return [run(client, shared, f"echo {i}")["stdout"] for i in range(harness.scaled(25, 2))]

    for results in serving.at_once(*[many] * 8):
        assert results == [f"{i}\n" for i in range(len(results))]


def test_no_secret_is_in_the_log(serve):
    """Last: after all the others have used theirs."""
    with serve.client() as client:
        secret = client.post("/v1/keys", {"label": "logged", "scopes": ["read"]}).json["secret"]
    with serve.tcp(secret) as client:
        client.get("/v1/sandboxes")
        client.get("/v1/sandboxes", headers={"Authorization": f"Bearer {secret}x"})
    assert secret not in serve.said() and serve.key not in serve.said()
    assert "cove_" not in serve.said()


def test_bodies_of_commands_that_run_leave_room_for_others(api, serve):
    """Their input is kept beyond what is kept of bodies, until they read it: so much of it for each tenant."""
    path = make(api)
    body = {"command": "sleep 1000", "stdin": "x" * 3_900_000}
    clients = [serve.client() for _ in range(17)]
    try:
        for client in clients:
            client.send("POST", f"{path}/exec", body)
        harness.wait_for(lambda: len(api.get(f"{path}/processes").json["processes"]) == 17,
                         20 * harness.PATIENCE, "all to run")
        assert api.post(f"{path}/exec", {"command": "true"}).status == 200
        assert api.post(f"{path}/exec", {"command": "cat", "stdin": "x" * 3_900_000}).code == "too_many_requests"
        other = {**api_key(api, "team-other"), "Content-Type": "application/json"}
        there = api.post("/v1/sandboxes", EPHEMERAL, headers=other).json["id"]
        done = api.post(f"/v1/sandboxes/{there}/exec", {"command": "wc -c", "stdin": "x" * 3_900_000}, headers=other)
        assert done.json["stdout"] == "3900000\n"
        assert api.delete(f"/v1/sandboxes/{there}", headers=other).status == 204
    finally:
        assert api.delete(path).status == 204
        for client in clients:
            client.close()


def api_key(api, tenant):
    return {"Authorization": f"Bearer {new_key(api, tenant=tenant)['secret']}"}