"""The files of a sandbox, by their routes; and every verb there is, asked of any path."""
import io
import json
import tarfile

import sandboxes
import serving


class Files:
    """The routes of one sandbox's files."""

    def __init__(self, client, path):
        self.client = client
        self.path = path

    def get(self, path, headers=None, **query):
        return self.client.ask("GET", f"{self.path}/files", None, headers, {"path": path, **query})

    def put(self, path, data, **query):
        return self.client.ask("PUT", f"{self.path}/files", data, {}, {"path": path, **query})

    def stat(self, path, **query):
        return self.client.get(f"{self.path}/files/stat", query={"path": path, **query})

    def list(self, path, headers=None, **query):
        return self.client.ask("GET", f"{self.path}/files/list", None, headers,
                               {"path": path, **query})

    def post(self, verb, **body):
        return self.client.post(f"{self.path}/files/{verb}", body)

    def lines(self, verb, **body):
        answer = self.post(verb, **body)
        assert answer.status == 200, answer
        assert answer.headers["Content-Type"] == "application/x-ndjson"
        return [json.loads(line) for line in answer.bytes.splitlines()]

    def run(self, command, **more):
        """What it prints, which ends well."""
        done = sandboxes.run(self.client, self.path, command, **more)
        assert done["process"]["exit_code"] == 0, done
        return done["stdout"]

    def tools(self):
        """How many of ours run in the sandbox; those that watch do so for a while after their reader."""
        return int(self.run("n=0; for p in /proc/[0-9]*; do case $(tr '\\0' ' ' <$p/cmdline) in "
                            "cove-tool\\ watch*) ;; cove-tool*|cove-grep*) n=$((n+1));; esac; done; "
                            "echo $n"))


def form(parts, boundary="cove-boundary"):
    body = b"".join(b"--%s\r\nContent-Disposition: form-data; name=\"file\"; filename=\"%s\"\r\n"
                    b"Content-Type: application/octet-stream\r\n\r\n%s\r\n"
                    % (boundary.encode(), name.encode(), data) for name, data in parts)
    return body + f"--{boundary}--\r\n".encode(), {
        "Content-Type": f"multipart/form-data; boundary={boundary}"}


def archive(*members):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as opened:
        for name, kind, target, data in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size, member.mode = kind, target, len(data), 0o6755
            if kind in (tarfile.CHRTYPE, tarfile.BLKTYPE):
                member.devmajor, member.devminor = 1, 5
            opened.addfile(member, io.BytesIO(data))
    return made.getvalue()


OUT = tarfile.REGTYPE, "", b"evil"


def asked(method, route, body=None, headers=None, **query):
    return lambda files, path, own: files.client.ask(
        method, f"{files.path}/{route}", body, headers or {}, {"path": path, **query})


def told(verb, **body):
    return lambda files, path, own: files.post(verb, path=path, **body)


def formed(files, path, own):
    body, headers = form([(path, b"evil")])
    return files.client.ask("POST", f"{files.path}/files", body, headers, {"parents": "false"})


def unpacked_onto(files, path, own):
    above, _, name = path.rpartition("/")
    return files.client.ask("PUT", f"{files.path}/tar", archive((name, *OUT)), {},
                            {"path": above, "parents": "false"})


def from_to(verb, backwards=False, **more):
    """Between the path and `own`, a name beside it, or the other way round."""
    def ask(files, path, own):
        pair = (f"{own}/ok", path) if backwards else (path, f"{own}/got")
        return files.post(verb, **{"from": pair[0], "to": pair[1], **more})
    return ask


def watched(files, path, own):
    """Only what it begins with: a watch has no end."""
    with serving.Client(path=files.client.connection.path) as client:
        client.send("GET", f"{files.path}/files/watch", query={"path": path})
        response = client.connection.getresponse()
        return serving.Answer(response, response.readline() if response.status == 200 else response.read())


# Every verb with a path, asked of it.
VERBS = {
    "get": asked("GET", "files"),
    "get-range": asked("GET", "files", headers={"Range": "bytes=0-3"}),
    "get-offset": asked("GET", "files", offset="1", length="2"),
    "stat": asked("GET", "files/stat"),
    "stat-follow": asked("GET", "files/stat", follow="true"),
    "list": asked("GET", "files/list"),
    "list-deep": asked("GET", "files/list", depth="9"),
    "find": told("find", stream=False),
    "find-pattern": told("find", stream=False, pattern="."),
    "grep": told("grep", stream=False, pattern="."),
    "watch": watched,
    "tar-out": asked("GET", "tar"),
    "tar-out-follow": asked("GET", "tar", follow="true"),
    "getxattr": asked("GET", "files/xattr"),
    "put": asked("PUT", "files", b"evil", parents="false"),
    "put-append": asked("PUT", "files", b"evil", parents="false", append="true"),
    "put-offset": asked("PUT", "files", b"evil", parents="false", offset="0"),
    "form": formed,
    "tar-in": asked("PUT", "tar", archive(("f", *OUT)), parents="false"),
    "tar-onto": unpacked_onto,
    "mkdir": told("mkdir"),
    "symlink": told("symlink", target="x"),
    "copy-from": from_to("copy"),
    "copy-tree-from": from_to("copy", recursive=True),
    "copy-to": from_to("copy", backwards=True, replace=True),
    "move-to": from_to("move", backwards=True, replace=True),
    "chmod": told("chmod", mode="0700"),
    "chmod-tree": told("chmod", mode="0700", recursive=True),
    "chown": told("chown", owner="0:0"),
    "setxattr": asked("PUT", "files/xattr", b"v", name="user.x"),
    "removexattr": asked("DELETE", "files/xattr", name="user.x"),
    "move-from": from_to("move", replace=True),
    "remove": told("remove", recursive=True),
}
# What asks for a directory, or for a name that is free, or for what the user may not, of a file.
NOT_OF_A_FILE = {"tar-in": "not_a_directory", "mkdir": "file_exists", "symlink": "file_exists",
                 "removexattr": "file_not_found"}


def outcome(answer):
    """The code of what went wrong, or of the only part of it."""
    if answer.status >= 400:
        return answer.code
    parts = answer.json.get("files", []) if answer.bytes.startswith(b'{"files"') else []
    return next((part["error"]["code"] for part in parts if "error" in part), None)
