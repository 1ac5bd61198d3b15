"""Files through the API, as clients see them: every route, against a running `cove serve`."""
import base64
import contextlib
import http.client
import io
import json
import os
import tarfile
import time
import urllib.parse

import pytest

import harness
import serving
from files import Files, form
from sandboxes import make, one_box

MIB = 1 << 20
NDJSON = {"Accept": "application/x-ndjson"}


nothing_left, serve, api = serving.one_for_all()
box = one_box()  # each test has a directory of its own in it


@pytest.fixture
def files(api, box):
    return Files(api, box)


@pytest.fixture
def here(files, request):
    path = f"/tmp/{request.node.name.partition('[')[0][:80]}-{os.urandom(3).hex()}"
    assert files.post("mkdir", path=path).status == 200
    return path


def names(answer):
    assert answer.status == 200, answer
    return sorted(entry["name"] for entry in answer.json["entries"])


# ---- one file up and down ----------------------------------------------------------------------

@pytest.mark.parametrize("size", [0, 1, 65536, 65537, 3 * MIB + 1])
def test_what_is_put_is_got(files, here, size):
    data = os.urandom(size)
    answer = files.put(f"{here}/file", data)
    assert answer.status == 200, answer
    assert answer.json["size"] == size and answer.json["type"] == "file"
    answer = files.get(f"{here}/file")
    assert answer.status == 200 and answer.bytes == data
    assert int(answer.headers["Content-Length"]) == size
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert 'filename="file"' in answer.headers["Content-Disposition"]


def test_a_body_without_a_length_is_put_as_it_comes(files, here):
    pieces = [os.urandom(100000) for _ in range(20)]
    connection = files.client.connection
    query = urllib.parse.urlencode({"path": f"{here}/chunked"})
    connection.request("PUT", f"{files.path}/files?{query}", iter(pieces), encode_chunked=True,
                       headers={"Transfer-Encoding": "chunked"})
    assert files.client.receive().status == 200
    assert files.get(f"{here}/chunked").bytes == b"".join(pieces)


def test_the_header_alone_is_answered_to_head(files, here):
    files.put(f"{here}/file", b"x" * 1000)
    answer = files.client.ask("HEAD", f"{files.path}/files", query={"path": f"{here}/file"})
    assert answer.status == 200 and answer.bytes == b""
    assert answer.headers["Content-Length"] == "1000" and answer.headers["ETag"]


def test_ranges_as_the_standard_has_them(files, here):
    data = bytes(range(256)) * 16
    files.put(f"{here}/file", data)
    for asked, start, end in (("bytes=0-9", 0, 10), ("bytes=100-", 100, 4096),
                              ("bytes=-16", 4080, 4096), ("bytes=4000-9999", 4000, 4096)):
        answer = files.get(f"{here}/file", {"Range": asked})
        assert answer.status == 206 and answer.bytes == data[start:end], asked
        assert answer.headers["Content-Range"] == f"bytes {start}-{end - 1}/4096"
    answer = files.get(f"{here}/file", {"Range": "bytes=4096-"})
    assert answer.status == 416 and answer.code == "bad_range"
    assert answer.headers["Content-Range"] == "bytes */4096"
    assert files.get(f"{here}/file", {"Range": "furlongs=1-2"}).status == 200
    answer = files.get(f"{here}/file", {"Range": "bytes=0-9", "If-Range": '"other"'})
    assert answer.status == 200 and answer.bytes == data
    answer = files.get(f"{here}/file", offset=10, length=5)
    assert answer.status == 200 and answer.bytes == data[10:15]


def test_what_has_not_changed_is_not_sent_again(files, here):
    files.put(f"{here}/file", b"one")
    tag = files.get(f"{here}/file").headers["ETag"]
    answer = files.get(f"{here}/file", {"If-None-Match": tag})
    assert answer.status == 304 and answer.bytes == b""
    files.put(f"{here}/file", b"two")
    answer = files.get(f"{here}/file", {"If-None-Match": tag})
    assert answer.status == 200 and answer.headers["ETag"] != tag


def test_a_file_is_written_in_place_or_at_its_end_where_that_is_asked(files, here):
    files.put(f"{here}/file", b"0123456789")
    assert files.put(f"{here}/file", b"xy", offset=3).status == 200
    assert files.get(f"{here}/file").bytes == b"012xy56789"
    assert files.put(f"{here}/file", b"end", append="true").status == 200
    assert files.get(f"{here}/file").bytes == b"012xy56789end"
    assert files.put(f"{here}/file", b"", offset=3, append="true").code == "bad_request"


def test_a_replaced_file_keeps_its_mode_and_a_new_one_gets_what_was_said(files, here):
    assert files.put(f"{here}/file", b"1", mode="0640").json["mode"] == "0640"
    assert files.put(f"{here}/file", b"2").json["mode"] == "0640"
    answer = files.put(f"{here}/file", b"3", new="true")
    assert answer.status == 409 and answer.code == "file_exists"
    assert files.get(f"{here}/file").bytes == b"2"
    assert files.put(f"{here}/file", b"1", mode="999").code == "bad_request"


def test_missing_directories_are_made_unless_not_wanted(files, here):
    assert files.put(f"{here}/a/b/c", b"1").status == 200
    answer = files.put(f"{here}/d/e", b"1", parents="false")
    assert answer.status == 404 and answer.code == "file_not_found"


def test_a_path_that_is_relative_begins_where_commands_do(files):
    where = files.run("pwd").strip()
    name = f"relative-{os.urandom(3).hex()}"
    assert files.put(name, b"1").status == 200
    assert files.get(f"{where}/{name}").bytes == b"1"
    assert files.post("remove", path=name).status == 200


def test_names_that_are_no_text_are_shown_and_reached_by_their_bytes(files, here):
    name = here.encode() + b"/\xff\xfe\n'\""
    path = {"path_base64": base64.b64encode(name).decode()}
    assert files.client.ask("PUT", f"{files.path}/files", b"bytes", {}, path).status == 200
    entry = files.list(here).json["entries"][0]
    assert base64.b64decode(entry["path_base64"]) == name
    assert "�" in entry["path"] and entry["path"].startswith(here)
    answer = files.client.ask("GET", f"{files.path}/files", None, {}, path)
    assert answer.bytes == b"bytes"
    assert files.post("remove", **path).status == 200


@pytest.mark.parametrize("query, code, status", [
    ({}, "bad_request", 400), ({"path": ""}, "bad_request", 400),
    ({"path": "a", "path_base64": "YQ=="}, "bad_request", 400),
    ({"path_base64": "*"}, "bad_request", 400), ({"path_base64": "AA=="}, "bad_request", 400),
    ({"path": "/" + "x" * 4095}, "name_too_long", 422),
    ({"path": "/tmp/" + "x" * 300}, "name_too_long", 422),
    ({"path": "/nothing/there"}, "file_not_found", 404),
    ({"path": "/etc/passwd/x"}, "not_a_directory", 409),
    ({"path": "/tmp"}, "is_a_directory", 409), ({"path": "/dev/null"}, "not_regular", 409),
    ({"path": "/tmp", "user": "nobody-of-this-name"}, "user_not_found", 422),
    ({"path": "/tmp", "unknown": "1"}, "bad_request", 400),
])
def test_each_mistake_has_its_code(files, query, code, status):
    answer = files.client.ask("GET", f"{files.path}/files", None, {}, query)
    assert (answer.code, answer.status) == (code, status), answer


def test_nobody_writes_where_the_user_may_not(files):
    for path in ("/etc/passwd", "/usr/bin/true", "/proc/1/mem", "/sys/kernel/x"):
        answer = files.put(path, b"evil", parents="false")
        assert answer.status in (403, 404, 409), (path, answer)
    answer = files.put("/etc/cove-test", b"1")
    assert answer.status == 403 and answer.code == "file_forbidden", answer


# ---- entries -----------------------------------------------------------------------------------

def test_an_entry_says_what_the_kernel_says(files, here):
    files.run(f"cd {here}; echo -n hello >file; chmod 4751 file; ln -s file link; mkfifo fifo")
    entry = files.stat(f"{here}/file").json
    there = files.run(f"stat -c '%s %a %u %g %i %h %Y' {here}/file").split()
    assert [entry["size"], entry["mode"][-4:].lstrip("0"), entry["uid"], entry["gid"],
            entry["inode"], entry["links"]] == [int(there[0]), there[1], *map(int, there[2:6])]
    assert entry["permissions"] == "-rwsr-x--x" and entry["name"] == "file"
    assert entry["modified_at"].startswith(time.strftime("%Y-%m-%dT%H:%M:%S",
                                                         time.gmtime(int(there[6]))))
    link = files.stat(f"{here}/link").json
    assert link["type"] == "symlink" and link["target"] == "file"
    assert files.stat(f"{here}/link", follow="true").json["inode"] == entry["inode"]
    assert files.stat(f"{here}/fifo").json["type"] == "fifo"
    assert files.stat("/dev/null").json["type"] == "character_device"
    answer = files.post("stat", paths=[f"{here}/file", f"{here}/none", here])
    assert [e.get("type", e.get("error", {}).get("code")) for e in answer.json["entries"]] == [
        "file", "file_not_found", "directory"]


def test_a_list_has_depth_and_globs_and_pages(files, here):
    files.run(f"cd {here}; mkdir -p a/b; touch one two.c .dot a/three.c a/b/four.c")
    assert names(files.list(here)) == [".dot", "a", "one", "two.c"]
    assert names(files.list(here, hidden="false")) == ["a", "one", "two.c"]
    assert "four.c" in names(files.list(here, depth=3))
    assert names(files.list(here, depth=9, glob="**/*.c")) == ["four.c", "three.c", "two.c"]
    found, cursor = [], None
    for _ in range(10):
        answer = files.list(here, limit=2, **({"cursor": cursor} if cursor else {}))
        found += [entry["name"] for entry in answer.json["entries"]]
        cursor = answer.json["next"]
        if cursor is None:
            break
    assert sorted(found) == [".dot", "a", "one", "two.c"]
    assert files.list(here, limit=10001).code == "bad_request"
    assert files.list(here, cursor="?").code == "bad_request"
    assert files.list(f"{here}/one/x").code == "not_a_directory"
    assert files.list(f"{here}/none").code == "file_not_found"


def test_a_list_streams(files, here):
    files.run(f"cd {here}; touch $(seq 2500)")
    answer = files.list(here, NDJSON)
    lines = [json.loads(line) for line in answer.bytes.splitlines()]
    assert lines[-1] == {"type": "done", "count": 2500, "truncated": False}
    assert {line["name"] for line in lines[:-1]} == {str(i + 1) for i in range(2500)}


# ---- changes -----------------------------------------------------------------------------------

def test_directories_are_made_moved_copied_and_removed(files, here):
    assert files.post("mkdir", path=f"{here}/a/b").code == "file_not_found"
    answer = files.post("mkdir", path=f"{here}/a/b", parents=True, mode="0700")
    assert answer.status == 200 and answer.json["mode"] == "0700"
    assert files.post("mkdir", path=f"{here}/a/b").code == "file_exists"
    files.put(f"{here}/a/b/file", b"1")
    assert files.post("copy", **{"from": f"{here}/a", "to": f"{here}/c"}).code == "is_a_directory"
    assert files.post("copy", **{"from": f"{here}/a", "to": f"{here}/c", "recursive": True}).status == 200
    assert files.get(f"{here}/c/b/file").bytes == b"1"
    assert files.post("move", **{"from": f"{here}/c", "to": f"{here}/d"}).json["name"] == "d"
    assert files.post("move", **{"from": f"{here}/d/b/file", "to": f"{here}/a/b/file"}
                      ).code == "file_exists"
    assert files.post("move", **{"from": f"{here}/d/b/file", "to": f"{here}/a/b/file",
                                 "replace": True}).status == 200
    answer = files.post("remove", path=f"{here}/a")
    assert answer.code in ("directory_not_empty", "is_a_directory")
    answer = files.post("remove", path=f"{here}/a", recursive=True)
    assert answer.status == 200 and answer.json["count"] == 3, answer
    assert files.post("remove", path=f"{here}/a").code == "file_not_found"
    assert files.post("remove", path=f"{here}/a", missing_ok=True).status == 200


def test_of_many_that_are_removed_each_is_answered_for(files, here):
    files.put(f"{here}/tree/deep/one", b"12345")
    files.put(f"{here}/tree/two", b"6")
    files.put(f"{here}/file", b"")
    files.put(f"{here}/stays/file", b"7")
    answer = files.post("remove", recursive=True, paths=[
        f"{here}/tree", f"{here}/none", f"{here}/file"])
    tree, none, file = answer.json["entries"]
    assert tree == {"path": f"{here}/tree", "count": 4, "bytes": 6}
    assert none["path"] == f"{here}/none" and none["error"]["code"] == "file_not_found"
    assert file == {"path": f"{here}/file", "count": 1, "bytes": 0}
    answer = files.post("remove", paths=[f"{here}/none", f"{here}/stays"], missing_ok=True)
    none, stays = answer.json["entries"]
    assert none == {"path": f"{here}/none", "count": 0, "bytes": 0}
    assert stays["error"]["code"] == "directory_not_empty"
    assert files.post("remove", path=f"{here}/stays", recursive=True).json == {"count": 2, "bytes": 1}


# ---- what goes wrong ---------------------------------------------------------------------------

def test_an_error_names_the_thing_the_cause_and_the_remedy(files, here):
    """The usual mistakes, as whoever made them reads of them."""
    files.put(f"{here}/file", b"1")
    files.put(f"{here}/tree/file", b"1")
    far, above = f"{here}/no/file", "the directory above it is not there; check the path, or make that directory first"
    missing = "there is no such file or directory; check the path, or list what is there"
    exists = "something of that name is there already; take another name, or replace or remove that"
    through = "what stands above it in the path is no directory; check the path"
    read_only = ("what is mounted there is read-only; take another path: only the host's directories and read-only mounts "
                 "cannot be changed")
    long = f"{here}/" + "n" * 256
    too_long = "the path is too long; take names of at most 255 bytes, and 4095 in all"
    for answer, code, path, sentence in (
            (files.get(f"{here}/none"), "file_not_found", "none", missing),
            (files.list(f"{here}/none"), "file_not_found", "none", missing),
            (files.post("remove", path=f"{here}/none"), "file_not_found", "none", missing),
            (files.post("move", **{"from": f"{here}/none", "to": f"{here}/b"}), "file_not_found", "none", missing),
            (files.get(far), "file_not_found", "no/file", above),
            (files.post("mkdir", path=far), "file_not_found", "no/file", above),
            (files.put(far, b"", parents="false"), "file_not_found", "no/file", above),
            (files.get(f"{here}/tree"), "is_a_directory", "tree", "it is a directory; list it, or fetch it as a tar"),
            (files.put(f"{here}/tree", b""), "is_a_directory", "tree", "it is a directory; name a file in it"),
            (files.post("copy", **{"from": f"{here}/tree", "to": f"{here}/b"}), "is_a_directory", "tree",
             'it is a directory; copy it with all that is in it by "recursive": true'),
            (files.get(f"{here}/file/x"), "not_a_directory", "file/x", through),
            (files.list(f"{here}/file/"), "not_a_directory", "file/", "it is no directory; name one"),
            (files.post("mkdir", path=f"{here}/file"), "file_exists", "file", exists),
            (files.post("symlink", path=f"{here}/file", target="x"), "file_exists", "file", exists),
            (files.post("copy", **{"from": f"{here}/file", "to": f"{here}/tree/file"}), "file_exists", "tree/file",
             exists),
            (files.put(f"{here}/file", b"", new="true"), "file_exists", "file",
             'it is there already; leave "new" out to replace it, or take another name'),
            (files.post("remove", path=f"{here}/tree"), "directory_not_empty", "tree",
             'the directory is not empty; remove it with all that is in it by "recursive": true'),
            (files.post("move", **{"from": f"{here}/tree", "to": f"{here}/tree/in"}), "file_failed", "tree/in",
             "a directory cannot be moved into itself; name another place for it"),
            (files.put("/usr/file", b""), "file_forbidden", "/usr/file",
             f"cannot make a file in its directory: {read_only}"),
            (files.post("mkdir", path="/usr/made"), "file_forbidden", "/usr/made",
             f"cannot make the directory: {read_only}"),
            (files.put(long, b""), "name_too_long", long, too_long),
            (files.stat(long), "name_too_long", long, too_long)):
        assert answer.code == code, answer
        said = answer.json["detail"]
        if path is not None:
            shown = path if path.startswith("/") else f"{here}/{path}"
            assert said.startswith(f"{shown[:200]}: "), said
        assert said.endswith(f": {sentence}"), said


def test_an_error_of_rights_says_who_may(files, here):
    files.put(f"{here}/file", b"1")
    files.post("chmod", path=f"{here}/file", mode="0600")
    other = files.run("id -u").strip() == "0" and "nobody" or "root"
    if other == "root":
        files.run(f"chmod 0 {here}/file")
        other = None
    answer = files.get(f"{here}/file", **({"user": other} if other else {}))
    assert answer.code == "file_forbidden"
    assert answer.json["detail"] == (f"{here}/file: cannot open it: the user may not; ask as another one "
                                     '("user"), such as root, or change permissions first')


def test_what_a_copy_cannot_read_is_named(files, here):
    """And not what was to be made of it."""
    files.put(f"{here}/tree/deep/secret", b"1")
    files.post("chmod", path=f"{here}/tree/deep/secret", mode="0000")
    who = {"user": "nobody"} if files.run("id -u").strip() == "0" else {}
    files.post("chmod", path=here, mode="0777")
    for source in (f"{here}/tree", f"{here}/tree/deep/secret"):
        answer = files.post("copy", **{"from": source, "to": f"{here}/new", "recursive": True, **who})
        assert answer.code == "file_forbidden", answer
        assert answer.json["detail"].startswith(f"{here}/tree/deep/secret: cannot open it: "), answer


def test_a_pattern_or_glob_that_is_none_says_where(files, here):
    answer = files.post("grep", path=here, pattern="a(b")
    assert answer.code == "bad_pattern"
    assert answer.json["detail"] == ('the pattern has a mistake at byte 3: missing closing parenthesis; correct it, '
                                     'or look for plain text by "fixed"')
    answer = files.post("find", path=here, globs=["[a"])
    assert answer.code == "bad_pattern"
    assert answer.json["detail"] == "the glob \"[a\" has a '[' without its ']'; correct it"


def test_an_attribute_that_the_disk_cannot_keep_says_what_helps(files, here):
    files.put(f"{here}/file", b"1")
    def put(name, value):
        return files.client.ask("PUT", f"{files.path}/files/xattr", value, {}, {"path": f"{here}/file", "name": name})
    answer = put("origin", b"x")
    assert answer.code == "file_failed" and answer.json["detail"] == (
        f"{here}/file: its file system keeps no attribute of that name; take a name that begins with \"user.\", or a "
        "file on the sandbox's disk")
    answer = put("trusted.x", b"x")
    assert answer.code == "file_forbidden" and "; take a name that begins with \"user.\"" in answer.json["detail"]


def test_rights_and_links(files, here):
    files.put(f"{here}/file", b"1")
    assert files.post("chmod", path=f"{here}/file", mode="0711").json["mode"] == "0711"
    assert files.post("chmod", path=f"{here}/file", mode="rwx").code == "bad_request"
    assert files.post("chmod", path=f"{here}/file").code == "bad_request"
    answer = files.post("symlink", path=f"{here}/link", target="file")
    assert answer.status == 200 and answer.json["target"] == "file"
    assert files.get(f"{here}/link").bytes == b"1"
    answer = files.post("chown", path=f"{here}/file", owner="0:0")
    assert answer.code == "file_forbidden", answer
    own = files.run("id -u").strip()
    assert files.post("chown", path=f"{here}/file", owner=own).status == 200
    answer = files.post("chmod", paths=[f"{here}/file", f"{here}/none"], mode="0600")
    assert [("mode" in entry) for entry in answer.json["entries"]] == [True, False]


def test_a_repeated_change_is_not_done_again(files, here):
    files.put(f"{here}/a", b"1")
    body = {"from": f"{here}/a", "to": f"{here}/b"}
    headers = {"Idempotency-Key": os.urandom(8).hex(), "Content-Type": "application/json"}
    answers = [files.client.ask("POST", f"{files.path}/files/move", json.dumps(body), headers)
               for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 200], answers
    assert answers[1].headers["Idempotent-Replayed"] == "true"


@pytest.fixture
def kept(api):
    """A sandbox whose root is root, on a disk that is kept: it has all that a file can have."""
    files = Files(api, make(api, privileges="system", disk_kind="persistent"))
    assert files.post("mkdir", path="/root/here").status == 200
    yield files
    assert api.delete(files.path).status == 204


def test_attributes(kept):
    assert kept.put("/root/file", b"1").status == 200

    def ask(method, body=None, **query):
        return kept.client.ask(method, f"{kept.path}/files/xattr", body, {},
                               {"path": "/root/file", **query})
    answer = ask("PUT", b"\x00value\xff", name="user.test")
    assert answer.status == 204, answer
    assert ask("GET", name="user.test").bytes == b"\x00value\xff"
    listed = ask("GET").json["attributes"]
    assert {"name": "user.test", "value_base64": base64.b64encode(b"\x00value\xff").decode()} in listed
    assert ask("DELETE", name="user.test").status == 204
    assert ask("GET", name="user.test").code == "file_not_found"
    assert ask("DELETE").code == "bad_request"


def owner_of(files, path):
    entry = files.stat(path).json
    return entry["uid"], entry["gid"]


def test_root_of_a_box_gives_what_is_uploaded_an_owner(kept):
    here = "/root/here"
    assert kept.put(f"{here}/put", b"1", owner="1001:1002", mode="0640").status == 200
    assert owner_of(kept, f"{here}/put") == (1001, 1002)
    assert kept.put(f"{here}/put", b"2").status == 200
    assert owner_of(kept, f"{here}/put") == (1001, 1002), "a file that is written again stays whose it was"
    assert kept.put(f"{here}/uid", b"1", owner="1001").status == 200
    assert owner_of(kept, f"{here}/uid") == (1001, 0)
    body, headers = form([(f"{here}/form/{i}", b"1") for i in range(3)])
    answer = kept.client.ask("POST", f"{kept.path}/files", body, headers, {"owner": "1003:1004"})
    assert answer.status == 200 and len(answer.json["files"]) == 3, answer
    assert {owner_of(kept, f"{here}/form/{i}") for i in range(3)} == {(1003, 1004)}
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, kind in (("d", tarfile.DIRTYPE), ("d/f", tarfile.REGTYPE), ("d/l", tarfile.SYMTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.uid, member.gid = kind, "f", 1005, 1006
            archive.addfile(member)
    for into, query, whose in (("said", {}, (1005, 1006)), ("given", {"owner": "1007:1008"}, (1007, 1008)),
                               ("named", {"owner": "nobody"}, None)):
        assert kept.post("mkdir", path=f"{here}/{into}").status == 200
        answer = kept.client.ask("PUT", f"{kept.path}/tar", made.getvalue(), {},
                                 {"path": f"{here}/{into}", **query})
        assert answer.status == 200, answer
        uid = int(kept.run("id -u nobody"))
        for name in ("d", "d/f", "d/l"):
            got = owner_of(kept, f"{here}/{into}/{name}")
            assert got == whose if whose else got[0] == uid, (into, name, got)


def test_root_of_a_box_changes_owners(kept):
    here = "/root/here"
    kept.run(f"cd {here}; mkdir -p d/sub; echo 1 >d/sub/f; ln -s sub/f d/l; echo 1 >alone; chmod 6755 alone || :")
    answer = kept.post("chown", path=f"{here}/alone", owner="1001:1002")
    assert answer.status == 200 and (answer.json["uid"], answer.json["gid"]) == (1001, 1002), answer
    assert kept.stat(f"{here}/alone").json["mode"] == "0755"
    assert kept.post("chown", path=f"{here}/d", owner="1003", recursive=True).status == 200
    assert kept.run(f"find {here}/d -printf '%U:%G\\n' | sort -u") == "1003:0\n"
    assert kept.post("chown", path=f"{here}/d/l", owner=":1004").status == 200
    assert kept.post("chown", path=f"{here}/d", owner="nobody:nogroup").status == 200
    assert kept.run(f"stat -c %U:%G {here}/d") == "nobody:nogroup\n"
    assert kept.post("chown", path=f"{here}/d", owner="4000000000").code == "user_not_found"
    assert kept.post("chown", path=f"{here}/none", owner="0").code == "file_not_found"
    answer = kept.post("chown", paths=[f"{here}/alone", f"{here}/none"], owner="0:0")
    assert ["error" in entry for entry in answer.json["entries"]] == [False, True], answer


# ---- many at once ------------------------------------------------------------------------------

def test_a_form_writes_many_files(files, here):
    parts = [(f"{here}/x/{i}", os.urandom(i * 1000)) for i in range(20)]
    body, headers = form([*parts, ("/proc/nothing/here", b"no")])
    answer = files.client.ask("POST", f"{files.path}/files", body, headers)
    assert answer.status == 200, answer
    outcome = answer.json["files"]
    assert len(outcome) == 21 and "error" in outcome[20]
    assert [entry["size"] for entry in outcome[:20]] == [i * 1000 for i in range(20)]
    for name, data in parts:
        assert files.get(name).bytes == data
    body, headers = form([("below", b"1")])
    answer = files.client.ask("POST", f"{files.path}/files", body, headers, {"path": here})
    assert answer.json["files"][0]["path"].endswith("/below"), answer
    assert files.get(f"{here}/below").bytes == b"1"


@pytest.mark.parametrize("body, headers", [
    (b"x", {"Content-Type": "multipart/form-data"}),
    (b"x", {"Content-Type": "multipart/form-data; boundary=b"}),
    (b"--b\r\n\r\n", {"Content-Type": "multipart/form-data; boundary=b"}),
    (form([("", b"1")])[0], form([])[1]), (b"{}", {"Content-Type": "application/json"}),
])
def test_a_form_that_is_none_is_refused(files, body, headers):
    answer = files.client.ask("POST", f"{files.path}/files", body, headers)
    assert answer.status == 400 and answer.code == "bad_request", answer
    files.client.close()


def test_a_tar_goes_in_and_comes_out(files, here):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in (("top/one", b"1"), ("top/" + "n" * 200, b"2" * 70000)):
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(data), 0o640, 1000000000
            archive.addfile(member, io.BytesIO(data))
        link = tarfile.TarInfo("top/link")
        link.type, link.linkname = tarfile.SYMTYPE, "one"
        archive.addfile(link)
    answer = files.client.ask("PUT", f"{files.path}/tar", made.getvalue(), {},
                              {"path": here, "strip": 1})
    assert answer.status == 200 and answer.json["count"] == 3, answer
    assert files.stat(f"{here}/one").json["mode"] == "0640"
    answer = files.client.get(f"{files.path}/tar", query={"path": [here]})
    assert answer.status == 200 and answer.headers["Content-Type"] == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(answer.bytes)) as archive:
        found = {member.name.rpartition("/")[2]: member for member in archive.getmembers()}
        assert found["one"].size == 1 and found["link"].linkname == "one"
        assert archive.extractfile(found["n" * 200]).read() == b"2" * 70000
    assert files.client.get(f"{files.path}/tar", query={"path": f"{here}/no"}).status == 404
    # Where it goes is made, unless the client would rather hear of a mistake.
    answer = files.client.ask("PUT", f"{files.path}/tar", made.getvalue(), {},
                              {"path": f"{here}/no/where/yet", "parents": "false"})
    assert answer.code == "file_not_found" and files.stat(f"{here}/no").status == 404
    answer = files.client.ask("PUT", f"{files.path}/tar", made.getvalue(), {}, {"path": f"{here}/no/where/yet"})
    assert answer.status == 200 and files.get(f"{here}/no/where/yet/top/one").bytes == b"1"
    answer = files.client.ask("PUT", f"{files.path}/tar", made.getvalue(), {}, {"path": f"{here}/one"})
    assert answer.code == "not_a_directory"
    assert files.client.get(f"{files.path}/tar").code == "bad_request"


# ---- searches ----------------------------------------------------------------------------------

def test_find_looks_for_names(files, here):
    files.run(f"cd {here}; mkdir -p a/b; touch a/x.py a/b/y.py a/b/z.txt; ln -s x.py a/l")
    lines = files.lines("find", path=here, globs=["**/*.py"])
    assert sorted(line["name"] for line in lines[:-1]) == ["x.py", "y.py"]
    assert lines[-1] == {"type": "done", "count": 2, "truncated": False}
    answer = files.post("find", path=here, type="directory", stream=False)
    assert "b" in names(answer) and answer.json["truncated"] is False
    answer = files.post("find", path=here, limit=2, stream=False)
    assert len(answer.json["entries"]) == 2 and answer.json["reason"] == "limit"
    assert files.post("find", path=f"{here}/none").code == "file_not_found"


def test_grep_looks_for_text(files, here):
    files.put(f"{here}/a.txt", "eins\nzwei drei\nvier ä drei\n".encode())
    files.put(f"{here}/b.bin", b"\0drei\n")
    lines = files.lines("grep", path=here, pattern="dr[e]i", before=1)
    matches = [line for line in lines if line["type"] == "match"]
    assert [(m["line"], m["text"]) for m in matches] == [(2, "zwei drei"), (3, "vier ä drei")]
    assert all("utf16" not in field for m in matches for field in m)
    for stream in (True, False):
        asked = {"path": here, "pattern": "dr[e]i", "utf16": True, "stream": stream}
        found = files.lines("grep", **asked)[:-1] if stream else files.post("grep", **asked).json["matches"]
        assert [(m["column"], m["length"], m["column_utf16"], m["length_utf16"]) for m in found] == [
            (5, 4, 5, 4), (8, 4, 7, 4)]
    assert files.post("grep", path=here, pattern="a", utf16=1).code == "bad_request"
    assert lines[-1]["type"] == "done" and lines[-1]["count"] == 2
    answer = files.post("grep", path=here, pattern="[", stream=False)
    assert answer.code == "bad_pattern" and answer.status == 422
    answer = files.post("grep", path=here, pattern="[", fixed=True, stream=False)
    assert answer.json == {"matches": [], "count": 0, "truncated": False}
    assert files.post("grep", path=here).code == "bad_request"


def test_a_search_that_takes_too_long_says_what_it_found(files, here):
    """No machine walks thousands of directories and reads so much in a millisecond."""
    files.run(f"cd {here}; mkdir -p $(seq -f d%g 3000); echo needle >a; "
              "head -c 30000000 /dev/zero | tr '\\0' '\\n' >big")
    for verb, more in (("grep", {"pattern": "needle"}), ("find", {"globs": ["a"]})):
        answer = files.post(verb, path=here, time_limit_ms=1, stream=False, **more)
        assert answer.status == 200, answer
        assert answer.json["truncated"] is True and answer.json["reason"] == "timeout", answer
        assert answer.json["count"] <= 1
        last = files.lines(verb, path=here, time_limit_ms=1, **more)[-1]
        assert last["type"] == "done" and last["reason"] == "timeout", last


def test_what_fails_below_stops_nothing(files, here):
    """A copy leaves out what is no file, says so, and does the rest; a search goes on, too."""
    files.run(f"cd {here}; mkdir -p tree/b; echo 1 >tree/b/1; echo 2 >tree/z; "
              "python3 -c 'import os, socket; os.chdir(\"tree\"); "
              "socket.socket(socket.AF_UNIX).bind(\"a-socket\")'")
    answer = files.post("copy", **{"from": f"{here}/tree", "to": f"{here}/copy"}, recursive=True)
    assert answer.status == 200, answer
    assert [error["path"] for error in answer.json["errors"]] == [f"{here}/tree/a-socket"]
    assert answer.json["errors"][0]["error"]["code"] == "not_regular"
    assert answer.json["errors_count"] == 1
    assert names(files.list(f"{here}/copy")) == ["b", "z"]
    assert files.post("copy", **{"from": f"{here}/none", "to": f"{here}/copy2"}, recursive=True).status == 404
    answer = files.post("chown", path=f"{here}/tree", owner="nobody-there")
    assert answer.status == 422 and answer.code == "user_not_found", answer


def test_a_search_below_what_may_not_be_read_goes_on(files, here):
    if files.run("id -u").strip() == "0":
        files.run(f"chown 1234 {here}")
        user = {"user": "1234"}
    else:
        user = {}
    files.post("mkdir", path=f"{here}/a", mode="0000", **user)
    files.post("mkdir", path=f"{here}/b", **user)
    answer = files.post("find", path=here, stream=False, **user)
    assert answer.status == 200, answer
    assert [entry["type"] for entry in answer.json["entries"]].count("directory") == 2, answer
    assert files.lines("find", path=here, **user)[-1]["type"] == "done"
    assert files.list(here, depth="2", **user).status == 200
    assert files.post("find", path=f"{here}/a", stream=False, **user).status == 403


# ---- watch -------------------------------------------------------------------------------------

class Watch(serving.Lines):
    def __init__(self, serve, box, path, **query):
        super().__init__(serve.client(), f"{box}/files/watch", {"path": path, **query})

    def seen(self):
        for line in self:
            if line["type"] != "keepalive":
                return line
        raise AssertionError("the watch has ended")


def test_a_watch_tells_what_happens_and_goes_on_after_a_cut(serve, files, box, here):
    watch = Watch(serve, box, here, recursive="true")
    assert watch.seen()["type"] == "watching"
    files.put(f"{here}/file", b"1")
    line = watch.seen()
    while line["type"] != "created" or not line["path"].endswith("/file"):
        line = watch.seen()
    watch.client.close()
    files.post("mkdir", path=f"{here}/while-away")
    again = Watch(serve, box, here, recursive="true", cursor=line["cursor"])
    line = again.seen()
    while not line.get("path", "").endswith("/while-away"):
        assert line["type"] != "gap"
        line = again.seen()
    assert line["type"] == "created" and line["is_directory"] is True
    again.client.close()
    other = Watch(serve, box, here, recursive="true", cursor=line["cursor"], user="0")
    assert other.seen()["type"] == "gap"  # by other rights it is another watch
    other.client.close()
    lost = Watch(serve, box, here, recursive="true", cursor="0123456789abcdef-7")
    assert lost.seen()["type"] == "gap" and lost.seen()["type"] == "watching"
    lost.client.close()


def test_who_comes_back_after_more_changes_than_are_kept_is_told_of_the_gap(serve, files, box, here):
    watch = Watch(serve, box, here)
    first = watch.seen()
    assert first["type"] == "watching"
    watch.client.close()
    files.run(f"cd {here}; mkdir $(seq 5000); mkdir last")

    def come_back():
        again = Watch(serve, box, here, cursor=first["cursor"])
        if again.seen()["type"] == "gap":
            return again
        again.client.close()  # the box has told too few of them yet
        return None
    again, line = harness.wait_for(come_back, what="a gap"), {}
    told = []
    while not line.get("path", "").endswith("/last"):
        line = again.seen()
        told = [] if line["type"] == "gap" else [*told, line]  # on a busy host it may be late a second time
    # What the box had not told when we came back is told live, beside what was kept.
    assert {line["type"] for line in told} == {"created"} and 100 < len(told) < 5001
    numbers = [int(os.path.basename(line["path"])) for line in told[:-1]]
    assert numbers == list(range(5001 - len(numbers), 5001)), "and from there on none is missing"
    again.client.close()


def tools_that_watch(files):
    return int(files.run("n=0; for p in /proc/[0-9]*; do case $(tr '\\0' ' ' <$p/cmdline) in "
                         "cove-tool\\ watch*) n=$((n+1));; esac; done; echo $n"))


def test_few_watches_linger_without_a_reader(serve, files, box, here):
    watches = [Watch(serve, box, here) for _ in range(6)]
    for watch in watches:
        assert watch.seen()["type"] == "watching"
    assert tools_that_watch(files) >= 6
    for watch in watches:
        watch.client.close()
    harness.wait_for(lambda: tools_that_watch(files) <= 4, 20 * harness.PATIENCE, "the end of the oldest watches")


def test_a_sandbox_is_the_same_for_its_watches_by_its_id_and_by_its_name(serve, api):
    path = make(api, name="watched")
    files = Files(api, path)
    watches = [Watch(serve, path if number % 2 else "/v1/sandboxes/name:watched", "/tmp") for number in range(6)]
    lines = [watch.seen() for watch in watches]
    for watch in watches:
        watch.client.close()
    harness.wait_for(lambda: tools_that_watch(files) <= 4, 20 * harness.PATIENCE, "the end of the oldest watches")
    again = Watch(serve, path, "/tmp", cursor=lines[4]["cursor"])
    files.post("mkdir", path="/tmp/new")
    assert again.seen()["type"] == "created", "what was watched by the name goes on by the id"
    again.client.close()
    assert api.delete(path).status == 204


def test_what_goes_while_its_watch_begins_was_watched_or_not_there(files, here):
    racer = files.client.post(f"{files.path}/processes", {
        "command": f"cd {here}; while :; do mkdir it; rmdir it; done"}).json["id"]
    seen = set()
    for _ in range(harness.scaled(200)):
        answer = files.client.get(f"{files.path}/files/watch", query={"path": f"{here}/it", "for_ms": 50})
        seen.add(answer.status)
        if answer.status == 200:
            lines = [json.loads(line)["type"] for line in answer.bytes.splitlines()]
            assert lines[0] == "watching" and lines[-1] in ("done", "watching", "unwatched"), lines
        else:
            assert answer.json["code"] == "file_not_found", answer
    assert 200 in seen, seen
    files.client.delete(f"{files.path}/processes/{racer}")


def test_what_cannot_be_watched_is_a_problem(files, here):
    answer = files.client.get(f"{files.path}/files/watch", query={"path": f"{here}/none"})
    assert answer.status == 404 and answer.code == "file_not_found"


# ---- clients that leave ------------------------------------------------------------------------

def test_an_upload_that_is_cut_leaves_the_old_file_and_nothing_else(serve, files, here):
    files.put(f"{here}/file", b"old")
    with serve.client() as client:
        query = urllib.parse.urlencode({"path": f"{here}/file"})
        client.connection.putrequest("PUT", f"{files.path}/files?{query}")
        client.connection.putheader("Content-Length", str(10 * MIB))
        client.connection.endheaders()
        client.connection.send(os.urandom(3 * MIB))
        harness.wait_for(lambda: files.tools() > 0, 20 * harness.PATIENCE, "the tool")
    harness.wait_for(lambda: files.tools() == 0, 20 * harness.PATIENCE, "the end of the tool")
    assert files.get(f"{here}/file").bytes == b"old"
    assert names(files.list(here)) == ["file"]


def test_a_download_that_is_cut_ends_its_tool(serve, files, here):
    files.run(f"truncate -s 4G {here}/large")
    client = serve.client()
    client.send("GET", f"{files.path}/files", query={"path": f"{here}/large"})
    response = client.connection.getresponse()
    assert len(response.read(MIB)) == MIB
    assert files.tools() > 0
    response.close()
    client.close()
    harness.wait_for(lambda: files.tools() == 0, 20 * harness.PATIENCE, "the end of the tool")


def test_a_file_that_shrinks_cuts_the_connection(serve, files, here):
    files.run(f"head -c 200000000 /dev/zero >{here}/file")
    with serve.client() as client:
        client.send("GET", f"{files.path}/files", query={"path": f"{here}/file"})
        response = client.connection.getresponse()
        assert int(response.headers["Content-Length"]) == 200000000
        response.read(100)
        files.run(f"truncate -s 1000 {here}/file")
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            response.read()
            raise ConnectionError  # for those that say nothing of what is missing


def test_who_reads_slowly_holds_up_nobody(serve, files, here):
    files.run(f"truncate -s 1G {here}/large")
    before = memory(serve)
    slow = serve.client()
    slow.send("GET", f"{files.path}/files", query={"path": f"{here}/large"})
    assert slow.connection.getresponse().read(1 << 20)
    for i in range(20):
        assert files.put(f"{here}/{i}", b"1").status == 200
    assert memory(serve) < before + 16 * MIB
    slow.close()


def memory(serve):
    with open(f"/proc/{serve.engine_pid()}/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    raise AssertionError("the engine has no memory")


@pytest.fixture
def roomy(api):
    """A sandbox whose memory, which is its disk, has room for large files."""
    path = make(api, resources={"memory_bytes": 1536 * MIB, "disk_bytes": 1280 * MIB})
    yield Files(api, path)
    assert api.delete(path).status == 204


def test_a_large_file_takes_no_memory(serve, roomy):
    """A gibibyte up and down."""
    size = harness.scaled(1024) * MIB
    before = memory(serve)
    peak = [0]

    def body():
        piece = bytes(MIB)
        for i in range(size // MIB):
            if i % 64 == 0:
                peak[0] = max(peak[0], memory(serve))
            yield piece

    query = urllib.parse.urlencode({"path": "/tmp/large"})
    roomy.client.connection.request("PUT", f"{roomy.path}/files?{query}", body(),
                                    headers={"Content-Length": str(size)})
    answer = roomy.client.receive()
    assert answer.status == 200 and answer.json["size"] == size, answer
    with serve.client() as client:
        client.send("GET", f"{roomy.path}/files", query={"path": "/tmp/large"})
        response = client.connection.getresponse()
        got = 0
        while piece := response.read(MIB):
            got += len(piece)
            if got % (64 * MIB) == 0:
                peak[0] = max(peak[0], memory(serve))
        assert got == size
    assert peak[0] < before + 16 * MIB, (before, peak[0])


def test_a_disk_that_is_full_keeps_the_old_file(serve, api):
    files = Files(api, make(api, resources={"disk_bytes": 8 * MIB}))
    assert files.put("/tmp/file", b"old").status == 200
    with serve.client() as client:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it is answered before all of it is sent
            client.send("PUT", f"{files.path}/files", bytes(16 * MIB), query={"path": "/tmp/file"})
        answer = client.receive()
    assert answer.status == 507 and answer.code == "disk_full", answer
    assert files.get("/tmp/file").bytes == b"old"
    assert api.delete(files.path).status == 204


def test_too_many_at_once_are_told_to_come_back(serve, roomy):
    files, here = roomy, "/tmp"
    files.run(f"truncate -s 1G {here}/large")
    clients, readers = [], []
    try:
        for _ in range(64):
            client = serve.client()
            clients.append(client)
            client.send("GET", f"{files.path}/files", query={"path": f"{here}/large"})
            readers.append(client.connection.getresponse())
            assert readers[-1].status == 200
        # To open them may have taken as long as one may take nothing.
        for _ in range(5):
            began = time.monotonic()
            for reader in readers:
                assert len(reader.read(MIB)) == MIB
            answer = files.stat(here)
            if time.monotonic() - began < 9:  # seconds; after ten who takes nothing makes room
                break
        assert answer.status == 503 and answer.code == "capacity", answer
        assert int(answer.headers["Retry-After"]) > 0
    finally:
        for client in clients:
            client.close()
    harness.wait_for(lambda: files.stat(here).status == 200, 20 * harness.PATIENCE, "room")


# ---- whose they are ----------------------------------------------------------------------------

def test_a_key_that_may_only_look_does_not_write(serve, files, here):
    with serve.client() as client:
        made = client.post("/v1/keys", {"label": "reader", "scopes": ["read"]}).json
    with serve.tcp(key=made["secret"]) as reader:
        theirs = Files(reader, files.path)
        files.put(f"{here}/file", b"1")
        assert theirs.get(f"{here}/file").bytes == b"1"
        assert theirs.list(here).status == 200
        for answer in (theirs.post("mkdir", path=f"{here}/x"),
                       theirs.post("remove", path=f"{here}/file")):
            assert answer.status == 403 and answer.code == "forbidden"
        assert theirs.put(f"{here}/file", b"2").code == "forbidden"
    assert files.get(f"{here}/file").bytes == b"1"


def test_a_token_of_a_directory_reaches_nothing_beside_it(serve, files, here):
    files.run(f"cd {here}; mkdir mine; echo in >mine/file; echo out >beside; ln -s ../beside mine/link; "
              "ln -s .. mine/up")
    made = files.client.post(f"{files.path}/tokens", {
        "verbs": ["files_read", "files_write"], "path": f"{here}/mine"}).json
    with serve.tcp(made["token"]) as holder:
        theirs = Files(holder, files.path)
        assert theirs.get(f"{here}/mine/file").bytes == b"in\n"
        assert theirs.put(f"{here}/mine/new", b"1").status == 200
        assert theirs.list(f"{here}/mine").status == 200
        for path in (f"{here}/beside", f"{here}/mine/link", f"{here}/mine/up/beside",
                     f"{here}/mine/../beside", "/etc/passwd", "../beside"):
            for answer in (theirs.get(path), theirs.stat(path, follow="true"),
                           theirs.put(path, b"evil", new="false", parents="false"),
                           theirs.post("chmod", path=path, mode="0777"),
                           theirs.post("remove", path=f"{here}/mine/up/beside"),
                           theirs.post("copy", **{"from": path, "to": f"{here}/mine/stolen"}),
                           theirs.post("move", **{"from": f"{here}/mine/new", "to": path,
                                                  "replace": True})):
                if answer.status == 200:  # a link of its own may be replaced or removed
                    assert path.endswith("/link") and b"out" not in answer.bytes, (path, answer)
                    files.run(f"cd {here}; ln -sf ../beside mine/link; echo 1 >mine/new")
        body, headers = form([(f"{here}/evil", b"1")])
        answer = holder.ask("POST", f"{files.path}/files", body, headers)
        assert answer.status != 200 or "error" in answer.json["files"][0], answer
        assert holder.ask("PUT", f"{files.path}/tar", b"", {}, {"path": here}).status != 200
        assert holder.get(f"{files.path}/tar", query={"path": here}).status != 200
    assert files.get(f"{here}/beside").bytes == b"out\n"
    assert sorted(names(files.list(here))) == ["beside", "mine"]


def test_a_token_to_look_reads_no_file(serve, files):
    made = files.client.post(f"{files.path}/tokens", {"verbs": ["look", "exec"]}).json
    with serve.tcp(made["token"]) as holder:
        assert Files(holder, files.path).get("/etc/passwd").code == "forbidden"


# ---- a sandbox that is stopped -----------------------------------------------------------------

def test_a_stopped_sandbox_without_a_disk_has_no_files(serve):
    with serve.client() as client:
        path = make(client)
        assert client.post(f"{path}/stop").status == 200
        answer = Files(client, path).stat("/tmp")
        assert answer.status == 409 and answer.code == "sandbox_stopped"
        assert "ephemeral" in answer.json["detail"]
        assert client.delete(path).status == 204
