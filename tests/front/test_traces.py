"""Traces as a collector gets them: a server that reads OTLP with the protocol's own messages."""
import http.server
import json
import re
import sys
import threading
import time

import pytest

import harness  # noqa: E402
import serving  # noqa: E402
from sandboxes import make, run  # noqa: E402

sys.path.append(str(harness.BUILD / "python"))
from google.protobuf import json_format  # noqa: E402
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (  # noqa: E402
    ExportTraceServiceRequest)

nothing_left, _, api = serving.one_for_all()


class Collector:
    """Keeps what it is sent; `hold` makes it answer nobody, `status` what it answers."""

    def __init__(self):
        self.spans, self.headers, self.posts = [], [], 0
        self.hold, self.status = threading.Event(), 200
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.posts += 1
                if collector.hold.is_set():
                    time.sleep(3600)
                if collector.status == 200:
                    collector.take(self.path, self.headers, body)
                self.send_response(collector.status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.block_on_close = False
        self.server.socket.settimeout(1)  # who hung up before he was heard holds nobody up
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, path, headers, body):
        assert path == "/v1/traces" and headers["Content-Type"] == "application/json"
        # Refuses fields that the protocol does not know, and values of another type.
        request = json_format.Parse(body, ExportTraceServiceRequest())
        resource = {item.key: item.value.string_value
                    for item in request.resource_spans[0].resource.attributes}
        assert resource["service.name"] == "cove-of-tests" and resource["service.version"]
        self.headers.append(dict(headers))
        for spans in json.loads(body)["resourceSpans"]:
            for scope in spans["scopeSpans"]:
                self.spans.extend(scope["spans"])

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def attributes(span):
    return {item["key"]: next(iter(item["value"].values())) for item in span["attributes"]}


@pytest.fixture(scope="module")
def collector():
    started = Collector()
    yield started
    started.close()


def config(collector, extra=""):
    return ("[boxes]\npool = 1\n[telemetry]\n"
            f"otlp_endpoint = {collector.url}/\nservice_name = cove-of-tests\n{extra}")


@pytest.fixture(scope="module")
def serve(tmp_path_factory, collector):
    directory = tmp_path_factory.mktemp("serve")
    headers = directory / "headers"
    headers.write_text("# of the collector\nX-Team: hunter2-team\n")
    headers.chmod(0o600)
    with serving.Serve(directory, config(collector, f"otlp_headers_file = {headers}\n")) as started:
        yield started


def span_of(collector, answer):
    wanted = answer.headers["Cove-Request-Id"]

    def find():
        return [span for span in list(collector.spans)
                if attributes(span).get("cove.request_id") == wanted]

    found = harness.wait_for(find, 20 * harness.PATIENCE, f"the span of {wanted}")
    assert len(found) == 1
    return found[0]


def children(collector, span, *names):
    """By their names: at least these, which may be in the next message."""
    def found():
        return {other["name"]: other for other in list(collector.spans)
                if other.get("parentSpanId") == span["spanId"]}

    harness.wait_for(lambda: found().keys() >= set(names), what=f"{names} of {span['name']}")
    return found()


def test_a_request_is_a_span_with_its_steps(collector, serve, api):
    before = time.time_ns()
    made = api.post("/v1/sandboxes", {"privileges": "plain", "disk_kind": "ephemeral"})
    path = made.headers["Location"]
    ran = api.post(f"{path}/exec", {"command": "sleep 0.1"})
    assert ran.status == 200
    span = span_of(collector, made)
    assert span["name"] == "POST /v1/sandboxes" and span["kind"] == 2
    assert re.fullmatch("[0-9a-f]{32}", span["traceId"])
    assert re.fullmatch("[0-9a-f]{16}", span["spanId"]) and "parentSpanId" not in span
    said = attributes(span)
    assert said["http.response.status_code"] == "201" and said["cove.tenant"] == "default"
    assert said["cove.sandbox"] == made.json["id"]
    begin, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
    assert before - 10**9 < begin < end < time.time_ns() + 10**9
    steps = children(collector, span, "keeper", "commit")
    assert set(steps) == {"keeper", "commit"}
    for step in steps.values():
        assert step["traceId"] == span["traceId"]
        assert begin - 10**6 <= int(step["startTimeUnixNano"]) <= int(step["endTimeUnixNano"])
        assert int(step["endTimeUnixNano"]) <= end + 10**6
    command = children(collector, span_of(collector, ran), "command")["command"]
    took = int(command["endTimeUnixNano"]) - int(command["startTimeUnixNano"])
    assert took >= 90 * 10**6
    assert api.delete(path).status == 204


def test_a_failure_says_its_code(collector, api):
    span = span_of(collector, api.get("/v1/sandboxes/c0nothing"))
    said = attributes(span)
    assert said["error.type"] == "sandbox_not_found" and said["http.response.status_code"] == "404"


def test_a_trace_that_began_elsewhere_is_gone_on_with(collector, api):
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    span = span_of(collector, api.get("/v1/sandboxes", headers={"traceparent": parent}))
    assert span["traceId"] == "0af7651916cd43dd8448eb211c80319c"
    assert span["parentSpanId"] == "b7ad6b7169203331"


def test_what_is_no_trace_begins_one(collector, api):
    wrong = ["", "00", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331", "x" * 55,
             "00-" + "0" * 32 + "-b7ad6b7169203331-01",
             "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
             "00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01",
             "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", "0" * 20000]
    answers = [api.get("/v1/sandboxes", headers={"traceparent": parent}) for parent in wrong]
    for answer in answers:
        span = span_of(collector, answer)
        assert "parentSpanId" not in span and span["traceId"] != "0" * 32


def test_what_the_caller_does_not_sample_and_probes_are_left_out(collector, api):
    quiet = [api.get("/v1/sandboxes", headers={
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}),
        api.get("/healthz"), api.get("/metrics")]
    span_of(collector, api.get("/v1/sandboxes"))
    ids = {attributes(span).get("cove.request_id") for span in collector.spans}
    assert not ids & {answer.headers["Cove-Request-Id"] for answer in quiet}


def test_its_headers_come_from_a_file_and_are_nowhere_else(collector, serve, api):
    span_of(collector, api.get("/v1/sandboxes"))
    assert all(headers["X-Team"] == "hunter2-team" for headers in collector.headers)
    assert "hunter2-team" not in serve.said()


def test_a_file_that_others_may_read_is_refused(tmp_path, collector):
    headers = tmp_path / "headers"
    headers.write_text("X-Team: a\n")
    headers.chmod(0o644)
    with pytest.raises(AssertionError, match="chmod 600"):
        with serving.Serve(tmp_path, config(collector, f"otlp_headers_file = {headers}\n")):
            pass


def test_no_secret_is_in_a_span(collector, api):
    path = make(api, env={"PASSWORD": "hunter2-env"})
    token = api.post(f"{path}/tokens", {"verbs": ["look"]}).json["token"]
    span_of(collector, api.get(path, query={"hunter2": "hunter2", "token": token}))
    run(api, path, "cat", stdin="hunter2-stdin")
    span_of(collector, api.delete(path))
    text = json.dumps(collector.spans)
    assert "hunter2" not in text and token not in text


def test_a_collector_that_is_slow_holds_nobody_up(tmp_path):
    slow = Collector()
    slow.hold.set()
    with serving.Serve(tmp_path, config(slow)) as serve:
        with serve.client() as client:
            client.get("/v1/sandboxes")
            harness.wait_for(lambda: slow.posts > 0, 20 * harness.PATIENCE, "the first post")
            for _ in range(5000):  # more than the queue holds
                assert client.get("/v1/sandboxes").status == 200
            text = client.get("/metrics").bytes.decode()
        dropped = int(re.search(r"^cove_spans_dropped_total (\d+)", text, re.M)[1])
        assert dropped > 0
        began = time.monotonic()
    assert time.monotonic() - began < 15 * harness.PATIENCE, "its end waits for no collector"
    slow.close()


def test_a_collector_that_refuses_or_is_not_there_is_told(tmp_path):
    closed = Collector()
    closed.status = 401
    with serving.Serve(tmp_path, config(closed)) as serve:
        with serve.client() as client:
            assert client.get("/v1/sandboxes").status == 200
            harness.wait_for(lambda: "telemetry_failed" in serve.said(), 20 * harness.PATIENCE,
                             "the log")
            closed.close()
            assert client.get("/v1/sandboxes").status == 200


def lost_the_last(directory):
    """How long the end took, if the last span was not sent before it."""
    collector = Collector()
    with serving.Serve(directory, config(collector)) as serve:
        with serve.client() as client:
            last = client.get("/v1/sandboxes").headers["Cove-Request-Id"]
        began = time.monotonic()
    took = time.monotonic() - began
    found = {attributes(span).get("cove.request_id") for span in collector.spans}
    collector.close()
    return None if last in found else took


def test_the_last_spans_are_sent_at_the_end(tmp_path):
    """The engine has two seconds for it, in which the collector may stand still."""
    lost = [lost_the_last(tmp_path / "0")]
    while lost[-1] is not None and len(lost) < 3:
        assert lost[-1] > 1.5, "it had the time"
        lost.append(lost_the_last(tmp_path / str(len(lost))))
    assert lost[-1] is None
