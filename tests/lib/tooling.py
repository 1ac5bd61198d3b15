"""Runs the tools alone, as programs of the host below a temporary directory, and reads what they say.

In a box they do the same: what a box adds are walls, and those have tests of their own."""
import io
import os
import pathlib
import stat as stats
import struct
import subprocess
import tarfile
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
import harness

BUILD = pathlib.Path(os.environ.get("BUILD", ROOT / "build")).absolute()
TOOL = os.path.abspath(os.environ.get("COVE_TOOL", BUILD / "src/box/cove-tool"))
GREP = os.path.abspath(os.environ.get("COVE_GREP", BUILD / "src/box/cove-grep"))
IS_ROOT = os.geteuid() == 0
NOT_SAID = 0xFFFFFFFF
UNKNOWN = 0xFFFFFFFFFFFFFFFF

ENTRY, ERROR, DONE, BEGIN, MATCH, CHANGE, ATTRIBUTE, WROTE, GONE = range(1, 10)
FILE, DATA, COMMIT, FINISH, RESIZE = range(64, 69)
PARENTS, AT, APPEND, NEW, DIRECTORY = 1, 2, 4, 8, 16

HEAD = struct.Struct("=II")
ENTRY_FORMAT = struct.Struct("=IIII5QqqqII")
ERROR_FORMAT = struct.Struct("=ii32s200s")
DONE_FORMAT = struct.Struct("=QQII")
MATCH_FORMAT = struct.Struct("=QQIIIIII")
CHANGE_FORMAT = struct.Struct("=QII")
FILE_FORMAT = struct.Struct("=IIIIQQ")


class Entry(types.SimpleNamespace):
    @classmethod
    def parse(cls, payload):
        (operand, mode, uid, gid, size, inode, device, links, blocks, modified, changed, accessed,
         depth, _) = ENTRY_FORMAT.unpack_from(payload)
        rest = payload[ENTRY_FORMAT.size:]
        texts = rest.split(b"\0") if rest else [b""] * 5
        assert len(texts) == 5 and texts[4] == b"", payload
        path, target, user, group = texts[:4]
        return cls(operand=operand, mode=mode, uid=uid, gid=gid, size=size, inode=inode,
                   device=device, links=links, blocks=blocks, modified_ns=modified,
                   changed_ns=changed, accessed_ns=accessed, depth=depth, path=path,
                   target=target, user=user, group=group)


class Failure(types.SimpleNamespace):
    @classmethod
    def parse(cls, payload):
        operand, errnum, code, text = ERROR_FORMAT.unpack_from(payload)
        path = payload[ERROR_FORMAT.size:]
        assert path.endswith(b"\0") and path.count(b"\0") == 1, payload
        text, code = text.split(b"\0")[0].decode(), code.split(b"\0")[0].decode()
        assert text and "%" not in text
        return cls(operand=operand, errnum=errnum, code=code, text=text, path=path[:-1])


class Said(types.SimpleNamespace):
    """All that a tool said: lists by kind, `data` of its bytes, and `done` or `error`, the end."""

    @property
    def paths(self):
        return [entry.path for entry in self.entries]


def parse_change(payload):
    sequence, kind, is_directory = CHANGE_FORMAT.unpack_from(payload)
    path, to, end = payload[CHANGE_FORMAT.size:].split(b"\0")
    assert end == b""
    return types.SimpleNamespace(sequence=sequence, kind=kind, is_directory=is_directory,
                                 path=path, to=to)


def parse_match(payload):
    line, offset, column, length, column16, length16, is_cut, is_context = MATCH_FORMAT.unpack_from(payload)
    path, text = payload[MATCH_FORMAT.size:].split(b"\0", 1)
    return types.SimpleNamespace(line=line, offset=offset, column=column, length=length,
                                 column16=column16, length16=length16, is_cut=is_cut, is_context=is_context, path=path,
                                 text=text)


def parse(output, status):
    said = Said(entries=[], errors=[], wrote=[], matches=[], changes=[], attributes={}, gone=[], data=b"",
                begin=None, done=None, error=None, status=status)
    at = 0
    while at < len(output):
        assert said.done is None and said.error is None, "something comes after the end"
        kind, size = HEAD.unpack_from(output, at)
        payload = output[at + HEAD.size:at + HEAD.size + size]
        assert len(payload) == size, "a frame that is cut"
        at += HEAD.size + size
        if kind == ENTRY:
            said.entries.append(Entry.parse(payload))
        elif kind == WROTE:
            said.wrote.append(Entry.parse(payload))
        elif kind == ERROR:
            failure = Failure.parse(payload)
            if failure.operand < 0:
                said.error = failure
            else:
                said.errors.append(failure)
        elif kind == DONE:
            count, size, is_truncated, _ = DONE_FORMAT.unpack(payload)
            said.done = types.SimpleNamespace(count=count, bytes=size, is_truncated=is_truncated)
        elif kind == BEGIN:
            length, offset = struct.unpack_from("=QQ", payload)
            said.begin = types.SimpleNamespace(size=length, offset=offset,
                                               entry=Entry.parse(payload[16:]))
            if length != UNKNOWN:
                said.data = output[at:at + length]
                at += length
        elif kind == DATA:
            said.data += payload
        elif kind == MATCH:
            said.matches.append(parse_match(payload))
        elif kind == CHANGE:
            said.changes.append(parse_change(payload))
        elif kind == ATTRIBUTE:
            name, value = payload.split(b"\0", 1)
            said.attributes[name] = value
        elif kind == GONE:
            operand, _, count, size = struct.unpack_from("=IIQQ", payload)
            assert payload.endswith(b"\0") and payload.count(b"\0", 24) == 1, payload
            said.gone.append(types.SimpleNamespace(operand=operand, count=count, bytes=size,
                                                   path=payload[24:-1]))
        else:
            raise AssertionError(f"a frame of type {kind}")
    return said


def command(verb, *arguments, paths=(), program=TOOL):
    return [program, verb, *map(os.fspath, arguments), "--", *map(os.fspath, paths)]


def run(verb, *arguments, paths=(), stdin=b"", program=TOOL, cwd=None, timeout=60, may_fail=False):
    """The tool ends by itself, with an end frame and the exit status that goes with it."""
    got = subprocess.run(command(verb, *arguments, paths=paths, program=program), input=stdin,
                         stdout=subprocess.PIPE, cwd=cwd, timeout=timeout * harness.PATIENCE,
                         check=False)
    said = parse(got.stdout, got.returncode)
    assert (said.done is None) == (got.returncode == 1), (got.returncode, said)
    assert got.returncode in (0, 1) and (said.done or said.error), got
    if not may_fail:
        assert said.done and not said.errors, said
    return said


def fails(verb, *arguments, **named):
    """As run(), of what must go wrong: the one error."""
    said = run(verb, *arguments, may_fail=True, **named)
    failures = said.errors + ([said.error] if said.error else [])
    assert len(failures) == 1, said
    return failures[0]


# ---- input ----

def frame(kind, payload=b""):
    return HEAD.pack(kind, len(payload)) + payload


def file_head(path, mode=NOT_SAID, uid=NOT_SAID, gid=NOT_SAID, flags=0, offset=0, size=UNKNOWN):
    return frame(FILE, FILE_FORMAT.pack(mode, uid, gid, flags, offset, size) +
                 os.fsencode(path) + b"\0")


def data(content, piece=1 << 20):
    return b"".join(frame(DATA, content[at:at + piece]) for at in range(0, len(content), piece))


def file(path, content=b"", piece=1 << 20, **named):
    return file_head(path, **named) + data(content, piece) + frame(COMMIT)


def write(*files, **named):
    return run("write", stdin=b"".join(files) + frame(FINISH), **named)


def mode_of(path):
    return stats.S_IMODE(os.lstat(path).st_mode)


def tree_of(top):
    """What is below: type, mode, content or target, by relative path."""
    found = {}
    for base, directories, files in os.walk(os.fsencode(top)):
        for name in directories + files:
            path = os.path.join(base, name)
            st = os.lstat(path)
            what = [stats.S_IFMT(st.st_mode), stats.S_IMODE(st.st_mode)]
            if stats.S_ISLNK(st.st_mode):
                what = [stats.S_IFMT(st.st_mode), os.readlink(path)]
            elif stats.S_ISREG(st.st_mode):
                what.append(pathlib.Path(os.fsdecode(path)).read_bytes())
            found[os.path.relpath(path, os.fsencode(top))] = what
    return found


def member(name, kind=tarfile.REGTYPE, target="", content=b"", **fields):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, len(content)
    info.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


def archive_of(*members, format=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()
