"""What the tester is told beyond openapi.yaml: things that are there, so that its requests get further than
404, and what to spare, so that it does not lock itself out.

Loaded by schemathesis, of COVE_API_PORT and COVE_API_KEY. It must never make a wrong request right: only
what stands for an id, a path or a time that is right already is replaced."""
import atexit
import base64
import collections
import copy
import http.client
import io
import json
import os
import re
import tarfile
import threading
import time
import urllib.parse
import zlib

import schemathesis
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation.meta import TestPhase

PORT = int(os.environ["COVE_API_PORT"])
KEY = os.environ["COVE_API_KEY"]
SPEC = {"disk_kind": "ephemeral", "resources": {"memory_bytes": 128 << 20, "disk_bytes": 32 << 20}}
FILE = b"a line\nanother\n"
KEPT = 8  # sandboxes and kernels that the tester made; the oldest goes
NDJSON = "application/x-ndjson"
SANDBOX = "/v1/sandboxes/{id}"
MOUNT = {"name": "here", "target": "/mnt/there", "read_only": True}
KERNELS = "/v1/kernels"
local = threading.local()


class Failed(Exception):
    pass


def ask(method, path, body=None):
    """A request of our own; its status, and what its JSON says."""
    is_kept = hasattr(local, "connection") and local.connection.sock is not None
    if not hasattr(local, "connection"):
        local.connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    headers = {"Authorization": f"Bearer {KEY}"}
    if body is not None and not isinstance(body, bytes):
        headers["Content-Type"] = "application/json"
        body = json.dumps(body)
    try:
        try:
            local.connection.request(method, path, body, headers)
            answer = local.connection.getresponse()
        except (http.client.RemoteDisconnected, BrokenPipeError):
            if not is_kept:
                raise
            local.connection.close()  # who asks nothing for a while is closed
            local.connection.request(method, path, body, headers)
            answer = local.connection.getresponse()
        said = answer.read()
    except (OSError, http.client.HTTPException):
        local.connection.close()
        raise
    is_json = answer.headers.get("Content-Type") == "application/json"
    return answer.status, json.loads(said) if is_json else None


def made(path, body):
    status, said = ask("POST", path, body)
    if status != 201:
        raise Failed(f"POST {path}: {status} {said}")
    return said["id"]


class Things:
    """What a request may be about. What has ended meanwhile is made again."""

    def __init__(self):
        self.sandboxes = {}
        self.process = self.a_kernel = self.bytes = None
        self.made = collections.deque()

    def sandbox(self, use):
        """`use`: "work" runs until the end, "life" may be stopped and deleted by any request."""
        known = self.sandboxes.get(use)
        if known is not None:
            status, said = ask("GET", f"/v1/sandboxes/{known}")
            if status == 200 and (use == "life" or said["state"] == "running"):
                return known
        self.sandboxes[use] = made("/v1/sandboxes", SPEC)
        return self.sandboxes[use]

    def running(self):
        sandbox = self.sandbox("work")
        if self.process is not None:
            path = f"/v1/sandboxes/{sandbox}/processes/{self.process}"
            status, said = ask("GET", path)
            if status == 200 and said["state"] == "running":
                return sandbox, self.process
        self.process = made(f"/v1/sandboxes/{sandbox}/processes",
                            {"command": "echo begun; cat", "open_stdin": True})
        return sandbox, self.process

    def file(self, name):
        """With something in it, and a line that is found."""
        sandbox = self.sandbox("work")
        ask("PUT", f"/v1/sandboxes/{sandbox}/files?path=/tmp/{name}", FILE)
        return f"/tmp/{name}"

    def mend(self):
        """Requests may have filled the disk, or made what they like of /tmp: then another one is there to
        work in."""
        for _ in range(2):
            path = f"/v1/sandboxes/{self.sandbox('work')}/files"
            if all(ask("PUT", f"{path}?path=/tmp/file-{i}", FILE)[0] == 200 for i in range(5)):
                return
            ask("DELETE", f"/v1/sandboxes/{self.sandboxes.pop('work')}")
        raise Failed("a new sandbox takes no files")

    def kernel(self):
        if self.a_kernel is None or ask("GET", f"/v1/kernels/{self.a_kernel}")[0] != 200:
            self.a_kernel = made("/v1/kernels", {"name": "kept"})
        return self.a_kernel

    def snapshot(self):
        """Its bytes, of which there is one kind."""
        if self.bytes is None:
            connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
            connection.request("POST", f"/v1/kernels/{self.kernel()}/snapshot",
                               headers={"Authorization": f"Bearer {KEY}"})
            answer = connection.getresponse()
            self.bytes = answer.read()
            connection.close()
            if answer.status != 200:
                raise Failed(f"a snapshot: {answer.status} {self.bytes[:200]}")
        return self.bytes

    def attribute(self, query):
        """One that the file of this query has."""
        if "path" in query:
            sandbox = self.sandbox("work")
            ask("PUT", f"/v1/sandboxes/{sandbox}/files/xattr?path={query['path']}&name=user.origin",
                b"here")
        return "user.origin"

    def mount(self):
        """Where one is of the sandbox."""
        ask("POST", f"/v1/sandboxes/{self.sandbox('work')}/mounts", MOUNT)
        return MOUNT["target"]

    def remember(self, path):
        self.made.append(path)
        while len(self.made) > KEPT:
            ask("DELETE", self.made.popleft())


things = Things()
own_key = None


def key_of_ours():
    """The id of the key that all requests are made with."""
    global own_key
    if own_key is None:
        _, said = ask("GET", "/v1/keys")
        own_key = [key["id"] for key in said["keys"] if "operator" in key["scopes"]]
    return own_key


def part(case):
    """Of 100, the same for the same request."""
    text = repr((case.method, case.path, case.path_parameters, case.query, case.body))
    return zlib.crc32(text.encode("utf-8", "replace")) % 100


def is_real(name):
    return re.fullmatch("[a-z][a-z0-9]{19}", str(name)) is not None


# ---- the document ----

@schemathesis.hook
def before_load_schema(context, raw_schema):
    """Over TCP nobody comes in without a key: that it is not needed is of the unix socket."""
    raw_schema["security"] = [one for one in raw_schema["security"] if one]
    for item in raw_schema["paths"].values():
        for operation in item.values():
            if isinstance(operation, dict) and "responses" in operation:
                check_lines(operation["responses"].get("200", {}))


def check_lines(answer):
    """What the document says of NDJSON is said of each line."""
    lines = answer.get("content", {}).get(NDJSON)
    if lines is not None:
        lines["schema"] = {"type": "array", "items": lines["schema"]}


@schemathesis.deserializer(NDJSON)
def read_lines(context, response):
    return [json.loads(line) for line in response.text.split("\n") if line]


# ---- ids ----

def follows_link(case):
    """It is about something that an answer before has named, which then is the point of it."""
    return case.meta is not None and case.meta.phase.name == TestPhase.STATEFUL


def put_sandbox(case, chance):
    """A real one in place of one that cannot be, and one that runs in place of one that need not."""
    is_life = case.path in (SANDBOX, f"{SANDBOX}/start", f"{SANDBOX}/stop") and case.method != "GET"
    if is_real(case.path_parameters["id"]) and (is_life or follows_link(case)):
        if is_life and case.path_parameters["id"] == things.sandboxes.get("work"):
            case.path_parameters["id"] = things.sandbox("life")
    elif chance < 85:
        if "pid" in case.path_parameters:
            case.path_parameters["id"], case.path_parameters["pid"] = things.running()
        else:
            case.path_parameters["id"] = things.sandbox("life" if is_life else "work")


def put_key(case, chance):
    if case.path_parameters["id"] in key_of_ours() or chance < 70:
        case.path_parameters["id"] = made("/v1/keys", {"label": "to be ended", "scopes": ["read"]})


def put_tenant(case):
    """A quota of our own tenant would end the run."""
    if case.path_parameters["name"] == "default":
        case.path_parameters["name"] = "another"


# ---- kernels ----

def put_kernel(case, chance):
    if chance < 85 and not (is_real(case.path_parameters["id"]) and follows_link(case)):
        case.path_parameters["id"] = things.kernel()


def mend_kernel_body(case, chance):
    """Code that runs, in many cases, and for no day; and a manifest that could be granted."""
    body = case.body
    if chance < 60 and isinstance(body.get("code"), str):
        body["code"] = "console.log(1); 1 + 1"
    for name in ("cpu_ms", "wall_ms"):
        value = body.get(name)
        if isinstance(value, int) and 1000 < value <= 86400000:
            body[name] = 1000
    if chance < 60:
        body.pop("allowed_hosts", None)
    for name in ("allowed_read_paths", "allowed_write_paths"):
        if chance < 80:
            body.pop(name, None)


# ---- ports ----

PORT_THERE = 8080
# Answers a GET, and anything else as a route with no other method does.
SERVER = """
import http.server, socketserver
class Handler(http.server.BaseHTTPRequestHandler):
    def handle_one_request(self):
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline or not self.parse_request():
            return
        is_get = self.command == "GET"
        text = b"here" if is_get else (b'{"type":"urn:cove:error:method_not_allowed","title":"GET only",'
                                       b'"status":405,"code":"method_not_allowed"}')
        self.send_response(200 if is_get else 405)
        self.send_header("Content-Type", "text/plain" if is_get else "application/problem+json")
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Allow", "GET")
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else text)
http.server.ThreadingHTTPServer(("127.0.0.1", 8080), Handler).serve_forever()
"""


def listens(sandbox):
    _, said = ask("GET", f"/v1/sandboxes/{sandbox}/ports")
    return said is not None and any(port["listening"] for port in said["ports"])


def put_port(case, chance):
    """One on which something listens: else the answer is 502, rightly. In most cases one that is open."""
    is_reached, port = case.path.endswith("/{path}"), case.path_parameters["port"]
    if isinstance(port, float) and port.is_integer():  # which is an integer to JSON, and none in a path
        port = case.path_parameters["port"] = int(port)
    sandbox = case.path_parameters.get("id")
    if not is_real(sandbox) or not is_whole(port) or not 1 <= int(port) <= 65535 or (
            chance >= 75 and not is_reached):
        return
    if is_reached and not listens(sandbox):
        status, _ = ask("POST", f"/v1/sandboxes/{sandbox}/processes", {"argv": ["python3", "-c", SERVER]})
        deadline = time.monotonic() + 60
        # One that is stopped, or gone, says so itself.
        while status == 201 and not listens(sandbox) and time.monotonic() < deadline:
            time.sleep(0.02)
    if case.method == "DELETE":
        ask("POST", f"/v1/sandboxes/{sandbox}/ports", {"port": PORT_THERE})
    case.path_parameters["port"] = PORT_THERE


# ---- what streams, and what waits ----

def is_whole(value):
    return re.fullmatch("[0-9]+", str(value)) is not None


SOON = {  # route: parameter, and the most that is legal
    "/v1/events": ("for_ms", 86400000),
    f"{SANDBOX}/processes/{{pid}}/follow": ("for_ms", 86400000),
    f"{SANDBOX}/files/watch": ("for_ms", 86400000),
    f"{SANDBOX}/processes/{{pid}}/wait": ("timeout_ms", 315576000000),
}


def make_short(case):
    name, most = SOON[case.path]
    value = case.query.get(name)
    if value is None or (is_whole(value) and 30 < int(value) <= most):
        case.query[name] = 30


# ---- what a schema cannot say: pairs of query parameters, opaque texts, the time of day ----

def only_one(query, *names):
    """Of those that exclude each other the last stays."""
    there = [name for name in names if name in query]
    for name in there[:-1]:
        del query[name]


def mend_query(case):
    query = case.query
    if case.path.endswith("/output"):
        only_one(query, "tail", "offset")
    if case.path.endswith("/files") and case.method == "PUT":
        if "offset" in query:
            query.pop("append", None)
            query.pop("new", None)
    # Only an answer before can say a right one.
    if "cursor" in query and not case.path.endswith("/watch"):
        del query["cursor"]


def mend_body(case, chance):
    """A deadline is not in the past; and in many cases what it names is there."""
    body = case.body
    lifecycle = body.get("lifecycle")
    if isinstance(lifecycle, dict) and lifecycle.get("deadline") is not None:
        lifecycle["deadline"] = "2999-01-31T12:00:00Z"
    resources = body.get("resources")
    if isinstance(resources, dict):  # no host has all that the API has numbers for
        for name in ("disk_bytes", "memory_bytes"):
            if isinstance(resources.get(name), int) and 1 << 30 < resources[name] <= 1 << 50:
                resources[name] = SPEC["resources"][name]
    network = body.get("network")
    if isinstance(network, dict) and chance < 60:
        for name in ("allow", "deny"):
            if isinstance(network.get(name), list):
                network[name] = ["example.com:443"]
    if isinstance(body.get("ports"), list):  # each once
        body["ports"] = list({port["port"]: port for port in body["ports"]}.values())
    if case.path.endswith("/exec"):
        value = body.get("timeout_ms")
        if value is None or (isinstance(value, (int, float)) and not 0 < value < 1000):
            body["timeout_ms"] = 1000
    if chance < 60 and case.path.endswith(("/sandboxes", "/exec", "/processes")):
        for name in ("root", "mounts", "user", "cwd"):
            body.pop(name, None)
        if isinstance(body.get("command"), str):
            body["command"] = "echo out; echo err >&2"
        if isinstance(body.get("argv"), list):
            body["argv"] = ["echo", "out"]
        # What is smaller than a program needs is right, and starts none.
        body.pop("limits", None)


# ---- files ----

FILES = (f"{SANDBOX}/files", f"{SANDBOX}/tar")
NEEDS_PATH = {"GET", "PUT", "DELETE"}
OF_DIRECTORIES = ("/list", "/find", "/grep", "/watch", "/tar")


def is_path(value):
    return isinstance(value, str) and value != ""


def there(case, chance):
    return "/tmp" if case.path.endswith(OF_DIRECTORIES) else things.file(f"file-{chance % 5}")


def put_query_path(case, chance):
    """One that is there, in most cases; and one at all, where one is needed."""
    query = case.query
    if case.path.endswith("/tar") and case.method == "GET":
        if chance < 75:
            query["path"] = ["/tmp"]
            query.pop("user", None)  # for whom others' files have no end, and that is a cut
        return
    if case.method not in NEEDS_PATH and "path" not in query and "path_base64" not in query:
        return
    only_one(query, "path_base64", "path")
    if "path_base64" in query:
        query["path_base64"] = base64.b64encode(there(case, chance).encode()).decode()
    elif "path" not in query or chance < 75:
        query["path"] = there(case, chance)
    if chance < 60:
        query.pop("user", None)
    if case.path.endswith("/xattr") and "name" in query and chance < 60:
        query["name"] = things.attribute(query)


def put_body_paths(case, chance):
    body = case.body
    for name in ("path", "from", "to"):
        is_made = name == "to" or case.path.endswith(("/symlink", "/mkdir"))
        target = f"/tmp/to-{chance}" if is_made else there(case, chance)
        if is_path(body.get(name)) and chance < 75:
            body[name] = target
        if is_path(body.get(f"{name}_base64")):
            body[f"{name}_base64"] = base64.b64encode(target.encode()).decode()
    paths = body.get("paths")
    if isinstance(paths, list) and paths and chance < 75:
        paths[0] = there(case, chance)
    if chance < 60:
        body.pop("user", None)
        if "owner" in body:
            body["owner"] = "0:0"


# ---- seeds: a request to each operation that succeeds ----

# Chance may find none of an operation that takes much, as exec: so each gets one whose ids alone are still to be put.
AT_FILE, AT_TMP = {"path": "/tmp/file-0"}, {"path": "/tmp"}
OVER = {"from": "/tmp/file-0", "replace": True}
SEEDS = {
    "createSandbox": {"body": SPEC},
    "changeSandbox": {"body": {"labels": {"a": "b"}}},
    "mountDirectory": {"body": MOUNT},
    "unmountDirectory": {"query": {"target": MOUNT["target"]}},
    "openPort": {"body": {"port": PORT_THERE}},
    "exec": {"body": {"command": "echo out; echo err >&2", "timeout_ms": 60000}},
    "startProcess": {"body": {"argv": ["true"]}},
    "writeStdin": {"body": b"typed\n"},
    "signalProcess": {"body": {"signal": "CONT"}},
    "readFile": {"query": AT_FILE},
    "writeFile": {"query": AT_FILE, "body": FILE},
    "writeFiles": {"query": AT_TMP, "body": {}, "media_type": "application/x-tar"},
    "statFile": {"query": AT_FILE},
    "statFiles": {"body": AT_FILE},
    "listFiles": {"query": AT_TMP},
    "makeDirectory": {"body": {"path": "/tmp/seed/directory", "parents": True}},
    "moveFile": {"body": {**OVER, "to": "/tmp/seed-moved"}},
    "copyFile": {"body": {**OVER, "to": "/tmp/seed-copied"}},
    "removeFile": {"body": AT_FILE},
    "changeFileMode": {"body": {**AT_FILE, "mode": "0600"}},
    "changeFileOwner": {"body": {**AT_FILE, "owner": "0:0"}},
    "makeSymlink": {"body": {"path": "/tmp/seed-link", "target": "file-0"}},
    "readFileAttribute": {"query": {**AT_FILE, "name": "user.origin"}},
    "writeFileAttribute": {"query": {**AT_FILE, "name": "user.origin"}, "body": b"here"},
    "removeFileAttribute": {"query": {**AT_FILE, "name": "user.origin"}},
    "findFiles": {"body": AT_TMP},
    "searchFiles": {"body": {**AT_TMP, "pattern": "line"}},
    "watchFiles": {"query": AT_TMP},
    "readTar": {"query": {"path": ["/tmp"]}},
    "writeTar": {"query": AT_TMP, "body": {}, "media_type": "application/x-tar"},
    "makeToken": {"body": {"verbs": ["look"]}},
    "signUrl": {"body": {"method": "GET", **AT_FILE}},
    "runKernel": {"body": {"code": "1 + 1"}},
    "runInKernel": {"body": {"code": "1 + 1"}},
    "restoreKernel": {"body": b"a snapshot"},
    "makeKey": {"body": {"label": "seed", "scopes": ["read"]}},
    "setQuota": {"body": {"sandboxes": 10}},
}
IN_PATHS = {"id": "x", "pid": "1", "port": PORT_THERE, "path": "seed", "name": "another"}


@schemathesis.hook
def before_add_examples(context, examples):
    operation = context.operation
    seed = SEEDS.get(operation.definition.raw["operationId"], {})
    media_type = None
    if "body" in seed:
        media_type = "application/octet-stream" if isinstance(seed["body"], bytes) else "application/json"
    names = re.findall("{([a-z]+)}", operation.path)
    examples.append(operation.Case(path_parameters={name: IN_PATHS[name] for name in names},
                                   **{"media_type": media_type, **copy.deepcopy(seed)}))


def is_seed(case):
    """What the tester has generated says how; a seed does not."""
    return case.meta is None


# ---- all of it, for what is right so far ----

def is_right(case, location):
    return case.meta is None or not case.meta.is_negative_at(location)


@schemathesis.hook
def before_call(context, case, kwargs):
    chance = 0 if is_seed(case) else part(case)
    if case.path.startswith(FILES) and chance < 10:
        things.mend()
    if case.path.startswith(SANDBOX) and "id" in (case.path_parameters or {}):
        put_sandbox(case, chance)
    elif case.path == "/v1/keys/{id}" and "id" in (case.path_parameters or {}):
        put_key(case, chance)
    elif "name" in (case.path_parameters or {}):
        put_tenant(case)
    elif case.path.startswith(KERNELS) and "id" in (case.path_parameters or {}):
        put_kernel(case, chance)
    if case.path == f"{KERNELS}/restore":
        if is_right(case, ParameterLocation.BODY) and chance < 80:
            case.body = things.snapshot()
        if is_right(case, ParameterLocation.HEADER) and "Cove-Manifest" in (case.headers or {}):
            case.headers["Cove-Manifest"] = '{"name": "restored", "env": {"A": "b"}}'
    if "port" in (case.path_parameters or {}):
        put_port(case, chance)
    if isinstance(case.query, dict):
        if case.path in SOON:
            make_short(case)
        if is_right(case, ParameterLocation.QUERY):
            mend_query(case)
            if case.path.startswith(FILES) and not is_seed(case):
                put_query_path(case, chance)
            elif case.path.endswith("/xattr") and is_seed(case):
                things.attribute(case.query)
            elif case.path.endswith("/mounts") and case.method == "DELETE" and chance < 60:
                case.query["target"] = things.mount()
    if not is_seed(case) and isinstance(case.body, dict) and is_right(case, ParameterLocation.BODY):
        mend_body(case, chance)
        if case.path.endswith("/mounts"):
            case.body.update(MOUNT if chance < 60 else {
                name: case.body[name][:most // 4] for name, most in (("name", 63), ("target", 255))})  # which are bytes
        if case.path.startswith(KERNELS):
            mend_kernel_body(case, chance)
        if case.path.startswith(FILES):
            put_body_paths(case, chance)


# ---- bodies and answers that are no JSON ----

@schemathesis.serializer("application/x-tar")
def write_tar(context, value):
    """A tar of one file: random bytes are none."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        entry = tarfile.TarInfo("from-a-tar")
        entry.size = 5
        tar.addfile(entry, io.BytesIO(b"bytes"))
    return whole.getvalue()


answered = {}


@atexit.register
def tell():
    """How each operation answered its seed, for the test."""
    with open(os.environ["COVE_API_SEEN"], "w", encoding="utf-8") as seen:
        json.dump(answered, seen)


@schemathesis.hook
def after_call(context, case, response):
    if is_seed(case):
        name, text = case.operation.definition.raw["operationId"], response.content[:300]
        answered.setdefault(name, [response.status_code, text.decode("utf-8", "replace")])
    if case.path == "/v1/sandboxes" and case.method == "POST" and response.status_code == 201:
        things.remember(f"/v1/sandboxes/{response.json()['id']}")
    # Who still ran has only been killed by that: a second request forgets it, as the first does one that had ended.
    if case.path.endswith("/processes/{pid}") and case.method == "DELETE" and response.status_code == 204:
        ask("DELETE", urllib.parse.urlsplit(response.request.url).path)
    if case.path.startswith(KERNELS) and response.status_code == 201:
        things.remember(f"/v1/kernels/{response.json()['id']}")
