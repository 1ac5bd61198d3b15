"""fetch() of kernels in the engine: it reaches what is granted and nothing else, each run and tenant has bounds and
turns, and no server and no worker that was taken over gets more out of it. A driver stands for the engine
(fetch_driver.c); what it asks of it is what a worker may say, be it ever so wrong."""
import json
import os
import pathlib
import queue
import threading
import time

import pytest

import certificates
import fetch_servers as servers
import harness
import worlds
from fetch_servers import FOUR, PORT

DRIVER = pathlib.Path(os.environ.get("FETCH_DRIVER", harness.BUILD / "asan" / "tests" / "fetch-driver"))
SECONDS = 30 * harness.PATIENCE
NAMES = {
    "turns.test": {"turns": [[worlds.SERVER], ["127.0.0.1"]], "ttl": 0},
    "later.test": {"turns": [[worlds.SERVER], [worlds.PRIVATE]], "ttl": 0},
    "half.test": [worlds.PRIVATE, worlds.SERVER],
    "zero.test": ["0.0.0.0"],
}


class Driver:
    def __init__(self, world, *words):
        """Whom it believes is the world's authority alone, at the place where the host's are."""
        enter = ["nsenter", f"--net=/proc/{world.inner}/ns/net", "unshare", "-m", "--propagation", "private", "sh", "-c",
                 'mount --bind "$0" /etc/ssl/certs/ca-certificates.crt && exec "$@"', world.authority.file]
        self.program = world.start(*enter, DRIVER, *words)
        self.answers = {}
        self.others = queue.Queue()
        self.runs = self.calls = 0
        self.lock = threading.Lock()
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.program.stdout:
            said = json.loads(line)
            self.answer_of(said["run"], said["call"]).put(said) if "call" in said else self.others.put(said)

    def answer_of(self, run, call):
        with self.lock:
            return self.answers.setdefault((run, call), queue.Queue())

    def say(self, **what):
        self.program.stdin.write((json.dumps(what) + "\n").encode())
        self.program.stdin.flush()

    def ask(self, **what):
        self.say(**what)
        return self.others.get(timeout=SECONDS)

    def count(self):
        return self.ask(count=True)

    def run(self, *hosts, tenant="one"):
        self.runs += 1
        assert self.ask(new=self.runs, tenant=tenant, hosts=hosts)["error"] is None
        return Run(self, self.runs)

    def end(self):
        self.program.stdin.close()
        assert self.program.wait(SECONDS) == 0, "something was left in the loop, or a sanitizer complained"
        self.reader.join()


class Run:
    def __init__(self, driver, number):
        self.driver, self.number = driver, number

    def begin(self, op, meta, **more):
        self.driver.calls += 1
        self.driver.say(run=self.number, call=self.driver.calls, op=op, meta=meta, **more)
        return self.driver.answer_of(self.number, self.driver.calls)

    def start(self, url, method="GET", headers=(), **more):
        return self.begin("fetch.start", {"method": method, "url": url, "headers": list(headers)}, **more)

    def fetch(self, url, *words, **more):
        said = self.start(url, *words, **more).get(timeout=SECONDS)
        assert "meta" in said, said
        return said["meta"]

    def refused(self, url, *words, **more):
        said = self.start(url, *words, **more).get(timeout=SECONDS)
        assert "text" in said, said
        return f"{said['code']}: {said['text']}"

    def read(self, stream):
        return self.begin("fetch.read", {"stream": stream}).get(timeout=SECONDS)

    def body(self, meta, most=None):
        """All of it; what failed is raised."""
        whole, ended = b"", meta.get("stream") is None
        while not ended and (most is None or len(whole) < most):
            said = self.read(meta["stream"])
            if "text" in said:
                raise OSError(f"{said['code']}: {said['text']}")
            whole += bytes.fromhex(said["bytes"] or "")
            ended = said["meta"]["end"]
        return whole

    def json(self, url, *words, **more):
        return json.loads(self.body(self.fetch(url, *words, **more)))

    def cancel(self, meta):
        self.driver.say(run=self.number, call=0, op="fetch.cancel", meta={"stream": meta["stream"]})

    def free(self):
        self.driver.say(free=self.number)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    assert harness.EXPECT.is_root, "these tests make networks"
    with worlds.World(tmp_path_factory.mktemp("world"), names=NAMES) as made:
        made.authority = certificates.Authority(made.directory / "ours")
        servers.start(made, *servers.make_certificates(made))
        yield made


@pytest.fixture
def driver(world):
    made = Driver(world, worlds.SERVER)
    yield made
    made.end()


def settled(driver, fds):
    """Nothing is open any more that was not before, but for questions about names."""
    fds += 4
    harness.wait_for(lambda: driver.count()["open"] == 0 and driver.count()["fds"] <= fds, SECONDS, "the end of all")


def test_a_request_and_its_answer(driver):
    run = driver.run("four.test")
    meta = run.fetch(f"{FOUR}/a?b=c#d", "POST", [["X-Mine", "1"], ["x-empty", ""], ["Host", "evil"], ["Content-Length", "1"],
                                                 ["Transfer-Encoding", "chunked"], ["Proxy-Authorization", "x"]], body="hello")
    assert (meta["status"], meta["statusText"], meta["url"]) == (200, "Fine", f"{FOUR}/a?b=c#d")
    assert ["X-Two", "a"] in meta["headers"]
    asked = json.loads(run.body(meta))
    assert (asked["method"], asked["path"], asked["body"]) == ("POST", "/a?b=c", "hello")
    assert sorted(line.lower() for line in asked["lines"]) == [
        "accept-encoding: identity", "accept: */*", "connection: close", "content-length: 5",
        f"host: four.test:{PORT}", "user-agent: cove", "x-empty:", "x-mine: 1"]


def test_methods_and_bodies(driver):
    run = driver.run("four.test")
    for method in ("GET", "DELETE", "PATCH", "QUERY"):
        assert run.json(f"{FOUR}/", method)["method"] == method
    assert run.json(f"{FOUR}/", "PUT")["headers"]["content-length"] == "0"
    assert run.json(f"{FOUR}/", "PATCH", body="x")["body"] == "x"
    head = run.fetch(f"{FOUR}/", "HEAD")
    assert head["status"] == 200 and run.body(head) == b""
    assert run.json(f"{FOUR}/", "POST", zeros=3 << 20)["size"] == 3 << 20
    early = run.fetch(f"{FOUR}/early-no", "POST", zeros=8 << 20)
    assert early["status"] == 413


def test_answers_in_all_their_forms(driver):
    run = driver.run("four.test")
    chunks = run.body(run.fetch(f"{FOUR}/chunks"))
    assert chunks == b"one two " + b"x" * 100000
    assert run.body(run.fetch(f"{FOUR}/until-the-end")) == b"all of it"
    none = run.fetch(f"{FOUR}/none")
    assert none["status"] == 204 and run.body(none) == b""
    early = run.fetch(f"{FOUR}/early")
    assert early["status"] == 200 and "X-Early" not in dict(early["headers"]) and b"early" in run.body(early)
    assert run.fetch(f"{FOUR}/moved")["status"] == 302, "who asked follows, or not"
    for size in (1, 16384, 65535, 65536, 65537, 131072, 1 << 20):
        assert run.body(run.fetch(f"{FOUR}/sized?{size}")) == servers.sized(size), size
    assert driver.count()["open"] == 0


def test_nothing_is_decoded_and_nothing_kept(driver):
    run = driver.run("four.test")
    assert run.body(run.fetch(f"{FOUR}/gzip")) == servers.BOMB
    run.fetch(f"{FOUR}/cookie")
    assert "cookie" not in run.json(f"{FOUR}/")["headers"]
    assert run.fetch(f"{FOUR}/login")["status"] == 401


@pytest.mark.parametrize("path, said", [
    ("/cut", "ended the connection"), ("/cut-chunk", "ECONNRESET"), ("/noise", "is no HTTP"),
    ("/bad-chunk", "ECONNRESET"), ("/large-chunk", "ECONNRESET"), ("/two-lengths", None), ("/minus", None),
    ("/many-heads", "too many"), ("/endless-head", "too large"), ("/endless-line", None),
    ("/endless-early", "too large"), ("/endless-trailer", "too large"), ("/switch", None), ("/both", None),
    ("/gzip-transfer", None),
])
def test_what_servers_do_wrong_is_an_error_or_bounded(driver, path, said):
    run = driver.run("four.test")
    answer = run.start(f"{FOUR}{path}").get(timeout=SECONDS)
    try:
        if "text" in answer:
            raise OSError(f"{answer['code']}: {answer['text']}")
        body = run.body(answer["meta"])
        assert said is None and len(body) <= 10 << 20, body[:100]
    except OSError as error:
        assert said is None or said in str(error), error
    assert driver.count()["open"] == 0
    assert run.json(f"{FOUR}/next")["path"] == "/next"


@pytest.mark.parametrize("url, hosts, said", [
    (f"{FOUR}/", [], "allow it with allowed_hosts ('four.test')"),
    (f"{FOUR}/", ["other.test"], "allow it with allowed_hosts ('four.test')"),
    (f"{FOUR}/", ["four.test:80"], "(port 8080) is denied"),
    (f"http://203.0.113.2:{PORT}/", ["four.test"], "allowed_hosts ('203.0.113.2')"),
    (f"http://private.test:{PORT}/", ["private.test"], "private=yes"),
    (f"http://private.test:{PORT}/", ["*"], "private=yes"),
    ("http://meta.test/", ["meta.test private=yes", "*"], "no rule can allow it: metadata"),
    ("http://169.254.169.254/", ["*"], "no rule can allow it: metadata"),
    ("http://[::ffff:169.254.169.254]/", ["*"], "no rule can allow it: metadata"),
    ("http://own.test/", ["own.test private=yes"], "no rule can allow it: host"),
    ("http://203.0.113.1/", ["*", "203.0.113.0/24"], "no rule can allow it: host"),
    ("http://10.77.0.1/", ["10.0.0.0/8"], "no rule can allow it: host"),
    ("http://loop.test/", ["*"], "no rule can allow it: loopback"),
    ("http://loop6.test/", ["*"], "no rule can allow it: loopback"),
    ("http://mapped.test/", ["*"], "no rule can allow it"),
    ("http://nat.test/", ["*"], "no rule can allow it"),
    ("http://zero.test/", ["*"], "no rule can allow it"),
    ("http://127.0.0.1/", ["*"], "no rule can allow it: loopback"),
    ("http://[::1]/", ["*"], "no rule can allow it: loopback"),
    ("http://0.0.0.0/", ["*"], "no rule can allow it"),
    ("http://0x7f.1/", ["*"], "no name of a host"),
    ("http://2130706433/", ["*"], "no name of a host"),
    ("http://0177.0.0.1/", ["*"], "no name of a host"),
    ("http://127.1/", ["*"], "no name of a host"),
    ("http://[::1%25lo]/", ["*"], "no name of a host"),
    ("http://four.test@127.0.0.1/", ["*", "four.test"], "EINVAL"),
    ("http://127.0.0.1\\@four.test/", ["*"], "EINVAL"),
    ("http://four.test:1/", ["four.test"], "cannot be reached"),
    ("http://nothing.test/", ["*"], "there is no host"),
    ("file:///etc/passwd", ["*"], "only http and https"),
    ("ftp://four.test/", ["*"], "only http and https"),
    ("gopher://four.test:8080/_GET", ["*"], "only http and https"),
    ("HTTP://four.test/", ["*"], "only http and https"),
    ("http:///", ["*"], "EINVAL"), ("http://", ["*"], "EINVAL"), ("http://:80/", ["*"], "EINVAL"),
    ("http://four.test:0/", ["*"], "port"), ("http://four.test:65536/", ["*"], "port"), ("http://four.test:/", ["*"], "port"),
    (f"http://four.test:{PORT}/a b", ["*"], "character"), (f"http://four.test:{PORT}/\r\nX: y", ["*"], "character"),
    (f"http://four.test:{PORT}/\0", ["*"], "no URL"), ("http://four.test/" + "x" * 70000, ["*"], "too long"),
    (f"https://four.test:{PORT}/", ["four.test"], "no TLS connection"),
])
def test_what_is_refused(driver, url, hosts, said):
    assert said in driver.run(*hosts).refused(url)
    assert driver.count()["open"] == 0


@pytest.mark.parametrize("method, headers, more", [
    ("GET", [["x", "a\r\ny: b"]], {}), ("GET", [["x", "a\nb"]], {}), ("GET", [["x\r\ny", "b"]], {}), ("GET", [["x:y", "b"]], {}),
    ("GET", [["", "b"]], {}), ("GET", [["x", 1]], {}), ("GET", ["x"], {}), ("GET / HTTP/1.1\r\nX:", [], {}), ("", [], {}),
    ("CONNECT", [], {}), ("trace", [], {}), (None, [], {}), ("GET", [], {"body": "x"}), ("HEAD", [], {"body": "x"}),
    ("GET", [["x", "y" * 70000]], {}), ("GET", [[f"x{i}", "y"] for i in range(200)], {}),
    ("POST", [], {"zeros": (16 << 20) + 1}), ("G" * 100, [], {}),
])
def test_what_would_be_another_request_is_refused(driver, method, headers, more):
    run = driver.run("four.test")
    said = run.refused(f"{FOUR}/", method, headers, **more)
    assert said.startswith(("EINVAL", "EFBIG")), said
    harness.wait_for(lambda: run.json(f"{FOUR}/next")["open"] == 1, what="that the server has but this one")


def test_calls_that_mean_nothing_are_told_so(driver):
    run = driver.run("four.test")
    assert run.begin("fs.open", {}).get(timeout=SECONDS)["code"] == "none"
    for meta in ({}, [], 7, "x", {"stream": 99}, {"stream": -1}, {"stream": "1"}, {"stream": 1e99}):
        assert run.begin("fetch.read", meta).get(timeout=SECONDS)["code"] == "EBADF"
        driver.say(run=run.number, call=0, op="fetch.cancel", meta=meta)
    for meta in ({}, [], 7, {"url": 7, "method": "GET"}, {"url": f"{FOUR}/", "method": []}):
        assert run.begin("fetch.start", meta).get(timeout=SECONDS)["code"] == "EINVAL"
    assert run.json(f"{FOUR}/")["path"] == "/"


def test_tls_is_believed_where_it_is_to_be(driver):
    run = driver.run("four.test", "other.test", "203.0.113.2", "203.0.113.3")
    found = run.json(f"https://four.test:{servers.TLS_PORT}/a", "POST", body="x" * 100000)
    assert found["size"] == 100000 and found["headers"]["host"] == f"four.test:{servers.TLS_PORT}"
    assert run.body(run.fetch(f"https://four.test:{servers.TLS_PORT}/sized?300000")) == servers.sized(300000)
    assert run.json(f"https://203.0.113.2:{servers.TLS_PORT}/a")["path"] == "/a"
    for url in (f"https://other.test:{servers.TLS_PORT}/", f"https://203.0.113.3:{servers.TLS_PORT}/",
                f"https://four.test:{servers.FOREIGN_PORT}/"):
        said = run.refused(url)
        assert said.startswith("bad_tls") and "can be trusted" in said, said
    assert driver.count()["open"] == 0
    assert run.body(run.fetch(f"https://four.test:{servers.TLS_PORT}/endless"), most=1 << 20)


def test_private_addresses_are_reached_when_a_rule_says_so(driver):
    for rule, host in (("private.test private=yes", "private.test"), ("10.77.0.0/24", "10.77.0.2")):
        assert driver.run(rule).json(f"http://{host}:{PORT}/")["path"] == "/"
    assert driver.run("2001:db8:77::2").refused(f"http://[2001:db8:77::2]:{PORT}/").endswith("cannot be reached")


def test_a_name_that_turns_is_judged_each_time(driver, world):
    run = driver.run("turns.test private=yes", "later.test", "half.test")
    assert run.json(f"http://turns.test:{PORT}/")["headers"]["host"] == f"turns.test:{PORT}"
    assert "loopback" in run.refused(f"http://turns.test:{PORT}/")
    assert run.json(f"http://later.test:{PORT}/")["path"] == "/"
    assert "private" in run.refused(f"http://later.test:{PORT}/")
    assert run.json(f"http://half.test:{PORT}/")["path"] == "/", "of two addresses the one that is allowed"


def test_names_that_are_not_granted_are_not_looked_up(driver, world):
    run = driver.run("four.test")
    run.refused("http://secret-of-mine.evil.test/")
    run.json(f"{FOUR}/")
    assert not any("evil.test" in line for line in world.said())


def test_a_body_comes_as_fast_as_it_is_read(driver):
    run = driver.run("four.test")
    meta = run.fetch(f"{FOUR}/endless")
    assert len(run.body(meta, most=1 << 20)) >= 1 << 20
    before = driver.count()["bytes_in"]
    run.json(f"{FOUR}/another")  # while the first is not read
    assert driver.count()["bytes_in"] - before < 4096
    run.cancel(meta)
    assert run.read(meta["stream"])["code"] == "EBADF"
    slow = run.fetch(f"{FOUR}/slow")
    assert len(run.body(slow, most=5)) >= 5
    waiting = run.begin("fetch.read", {"stream": run.fetch(f"{FOUR}/slow")["stream"]})
    assert waiting.get(timeout=SECONDS)["bytes"] != ""
    assert driver.count()["gap_ms"] < 5000 * harness.PATIENCE


def test_chunks_of_a_byte_are_heard_in_turns(driver):
    """A turn hears 64 at most; what else was read by then comes in the next, and nothing is lost."""
    run = driver.run("four.test")
    meta = run.fetch(f"{FOUR}/tiny-chunks")
    first = run.read(meta["stream"])
    assert len(first["bytes"]) <= 2 * 64
    assert len(first["bytes"]) // 2 + len(run.body(meta)) == 100000


def test_a_run_takes_all_that_is_its_own_with_it(driver):
    """What waits, is dialled, asks, is read, and is read by nobody."""
    first = driver.run("four.test", tenant="other")
    first.json(f"{FOUR}/")
    fds = driver.count()["fds"]
    run = driver.run("four.test", "silent.test")
    run.fetch(f"{FOUR}/endless")
    meta = run.fetch(f"{FOUR}/slow")
    run.begin("fetch.read", {"stream": meta["stream"]})
    for _ in range(40):
        run.start(f"{FOUR}/silent")
        run.start("http://silent.test/")
    harness.wait_for(lambda: first.json(f"{FOUR}/")["open"] > 10, SECONDS, "requests that nobody answers")
    driver.count()  # behind all that it was told until now
    before = {call: list(answer.queue) for (number, call), answer in driver.answers.items() if number == run.number}
    run.free()
    settled(driver, fds)
    harness.wait_for(lambda: first.json(f"{FOUR}/")["open"] == 1, SECONDS, "connections that are closed")
    told = [list(answer.queue)[len(before.get(call, [])):]
            for (number, call), answer in driver.answers.items() if number == run.number]
    assert "text" not in str(told), "who is gone is told nothing"


def test_all_ends_while_everything_is_under_way(driver):
    run = driver.run("four.test", "silent.test")
    run.fetch(f"{FOUR}/endless")
    for path in ("/silent", "/slow", "/endless"):
        run.start(f"{FOUR}{path}")
    run.start("http://silent.test/")


def test_a_run_has_so_many_requests_and_no_more(driver):
    run = driver.run("four.test")
    for _ in range(250):
        for answer in [run.start(f"{FOUR}/none") for _ in range(4)]:
            assert answer.get(timeout=SECONDS)["meta"]["status"] == 204
    assert "a run has at most 1000 requests" in run.refused(f"{FOUR}/none")
    assert driver.run("four.test").fetch(f"{FOUR}/none")["status"] == 204


def test_a_run_sends_and_hears_so_much_and_no_more(driver):
    run = driver.run("four.test")
    for _ in range(4):
        assert run.json(f"{FOUR}/", "POST", zeros=16 << 20)["size"] == 16 << 20
    assert "bytes of requests" in run.refused(f"{FOUR}/", "POST", body="x")
    meta = {"stream": run.fetch(f"{FOUR}/endless")["stream"]}
    assert "bytes of answers" in run.begin("fetch.read", meta, drain=True).get(timeout=10 * SECONDS)["text"]
    assert (255 << 20) < driver.count()["bytes_in"] <= 256 << 20


def test_open_answers_are_bounded(driver):
    run = driver.run("four.test")
    metas = [run.fetch(f"{FOUR}/endless") for _ in range(256)]
    assert "are open: read them or cancel them first" in run.refused(f"{FOUR}/")
    run.cancel(metas[0])
    assert run.json(f"{FOUR}/")["path"] == "/"


def test_ten_thousand_at_once_hold_nobody_else_up(driver):
    fds = driver.count()["fds"]
    loud, quiet = [driver.run("four.test", "silent.test", tenant="loud") for _ in range(10)], driver.run("four.test", tenant="quiet")
    quiet.json(f"{FOUR}/")
    driver.count()
    answers = [run.start(f"{FOUR}/silent" if i % 2 else f"{FOUR}/slow") for i in range(1000) for run in loud]
    for i in range(20):
        assert quiet.json(f"{FOUR}/{i}")["path"] == f"/{i}"
    count = driver.count()
    assert count["open"] <= 1024 and count["gap_ms"] < 5000 * harness.PATIENCE
    refused = [answer.get_nowait() for answer in answers if not answer.empty()]
    assert len([one for one in refused if "text" in one]) >= 10000 - 1024 - 10
    for run in loud:
        run.free()
    settled(driver, fds)


def test_many_tls_connections_at_once_do_not_stop_the_loop(driver):
    """What one tenant has the engine compute is paced, a run for each or not; another one does not wait for it."""
    loud = [driver.run("four.test", tenant="loud") for _ in range(5)]
    quiet = driver.run("four.test", tenant="quiet")
    began = time.monotonic()
    answers = [run.start(f"https://four.test:{servers.TLS_PORT}/none") for _ in range(40) for run in loud]
    assert quiet.json(f"https://four.test:{servers.TLS_PORT}/")["path"] == "/"
    for answer in answers:
        assert answer.get(timeout=SECONDS)["meta"]["status"] == 204
    assert time.monotonic() - began > 3, "of 200 that are begun 184 wait for 20 ms each"
    assert driver.count()["gap_ms"] < 5000 * harness.PATIENCE


def test_runs_of_one_tenant_take_turns(driver):
    first, second = (driver.run("four.test", tenant="t") for _ in range(2))
    for _ in range(200):
        first.start(f"{FOUR}/silent")
    assert second.json(f"{FOUR}/")["path"] == "/"


@pytest.mark.parametrize("names", [False, True])
def test_the_way_is_by_the_operator_s_proxy(world, names):
    """It is told what was judged, by CONNECT, be it TLS or not; and what is denied is not told at all."""
    driver = Driver(world, worlds.SERVER, f"http://mine:secret@{worlds.SERVER}:{servers.PROXY_PORT}", *(["names"] if names else []))
    run = driver.run("four.test", "other.test:80")
    asked = {}

    def is_alone():
        asked.update(run.json(f"{FOUR}/"))
        return asked["open"] == 1

    harness.wait_for(is_alone, SECONDS, "connections that are closed")
    assert "proxy-authorization" not in asked["headers"]
    assert asked["from"] == ("four.test" if names else worlds.SERVER)
    assert "loopback" in driver.run("*").refused("http://127.0.0.1/")
    assert "is denied" in run.refused(f"http://other.test:{PORT}/")
    assert "cannot be reached" in run.refused("http://other.test/"), "the proxy says no"
    driver.end()
