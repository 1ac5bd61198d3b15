"""Sandboxes of a running `cove serve`, by its native API."""
import contextlib

import pytest

import harness

EPHEMERAL = {"privileges": "plain", "disk_kind": "ephemeral"}


def create(client, **fields):
    """What the engine says of it, which may have been there."""
    answer = client.post("/v1/sandboxes", {**EPHEMERAL, **fields})
    assert answer.status in (200, 201), answer
    return answer.json


def path_of(sandbox):
    return f"/v1/sandboxes/{sandbox['id']}"


def make(client, **fields):
    """The path of a new one, which runs."""
    answer = client.post("/v1/sandboxes", {**EPHEMERAL, **fields})
    assert answer.status == 201, answer
    assert answer.json["state"] == "running"
    assert answer.headers["Location"] == path_of(answer.json)
    return answer.headers["Location"]


def run(client, path, command, **more):
    """The result of a shell line, or of an `argv` if there is none."""
    answer = client.post(f"{path}/exec", {"command": command, **more})
    assert answer.status == 200, answer
    return answer.json


def printed(client, path, command, **more):
    return run(client, path, command, **more)["stdout"]


def start(client, path, command, **more):
    """The path of the process."""
    answer = client.post(f"{path}/processes", {"command": command, **more})
    assert answer.status == 201, answer
    assert answer.headers["Location"] == f"{path}/processes/{answer.json['id']}"
    return answer.headers["Location"]


@contextlib.contextmanager
def made(serve, **fields):
    """The path of one that is deleted at the end, by whom nothing of before is kept."""
    with serve.client() as client:
        path = make(client, **fields)
    yield path
    with serve.client() as client:
        assert client.delete(path).status == 204


def one_box(**fields):
    """The fixture of a file whose tests share a sandbox, in which they leave nothing that others would see: its path."""
    @pytest.fixture(scope="module")
    def box(serve):
        with made(serve, **fields) as path:
            yield path

    return box


def new_key(client, *scopes, **more):
    """What is told of it, and never again: `id`, `secret` and the rest."""
    answer = client.post("/v1/keys", {"label": "k", "scopes": list(scopes) or ["read", "write"], **more})
    assert answer.status == 201, answer
    return answer.json


def parent_of(serve, mark):
    """The host's pid of the process above the one with this in its command line: of init, unless a shell began it."""
    for pid in harness.children_of(serve.process.pid):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if mark in file.read().split(b"\0"):
                    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
                        return int(stat.read().rpartition(")")[2].split()[1])
    return None


class Sandbox:
    """One that is deleted at the end."""

    def __init__(self, client, **fields):
        self.client = client
        self.json = create(client, **fields)
        self.id = self.json["id"]
        self.path = path_of(self.json)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        assert self.ask("DELETE").status == 204

    def ask(self, method, rest="", body=None, **more):
        return self.client.ask(method, self.path + rest, body, **more)

    def run(self, *words, **fields):
        """The result of a shell line, or of a program and its arguments."""
        answer = self.ask("POST", "/exec", {**command_of(words), **fields})
        assert answer.status == 200, answer
        return answer.json

    def start(self, *words, **fields):
        """The path of the process."""
        answer = self.ask("POST", "/processes", {**command_of(words), **fields})
        assert answer.status == 201, answer
        return answer.headers["Location"]

    def output(self, *words, **fields):
        """What it prints, which ends well."""
        done = self.run(*words, **fields)
        assert done["process"]["exit_code"] == 0, done
        return done["stdout"]

    def type(self, process, text):
        """Gives it to a process that reads."""
        answer = self.ask("POST", f"{process.removeprefix(self.path)}/stdin", text.encode(),
                          headers={"Content-Type": "application/octet-stream"})
        assert answer.status in (200, 204), answer


def command_of(words):
    return {"command": words[0]} if len(words) == 1 else {"argv": words}
