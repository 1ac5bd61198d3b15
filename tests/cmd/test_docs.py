"""Every example of every page, run in the order in which it stands there: what is printed must be what the
page shows. And every command and every operation of the API must be shown somewhere.

An example is `    $ COMMAND`, with what it prints below it; `...` stands for anything in its line, alone for
any number of lines, and a command that ends in a backslash goes on in the next one. Each page has one shell,
in a directory of its own, and the server that all pages share; it leaves nothing on that."""
import itertools
import os
import re
import runpy
import select
import shlex
import signal
import subprocess
import time
import types

import pytest
import yaml

import harness
import serving
import testroot
import wares
import worlds

DOCS = harness.ROOT / "docs"
CONTRIBUTING = harness.ROOT / "CONTRIBUTING.md"
PAGES = [harness.ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("verbs/*.md"))]


def name_of(page):
    return str(page.relative_to(harness.ROOT))


# ---- reading pages -------------------------------------------------------------------------------

def examples(page):
    """(command, what it prints) in the order of the page."""
    found, is_open, goes_on = [], False, False
    for line in page.read_text(encoding="utf-8").splitlines():
        text = line[4:] if line.startswith("    ") else None
        if text is None:
            is_open = False
        elif goes_on:
            found[-1][0] += "\n" + text
        elif text.startswith("$ "):
            found.append([text[2:], []])
            is_open = True
        elif is_open:
            found[-1][1].append(text)
        goes_on = text is not None and is_open and not found[-1][1] and text.endswith("\\")
    return [(command, "\n".join(shown)) for command, shown in found]


def simple_commands(command):
    """The words of each program that a line of shell calls."""
    words = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars=True)
    words.whitespace_split = True
    calls = [[]]
    for word in words:
        if set(word) <= set("|;&()"):
            calls.append([])
        else:
            calls[-1].append(word)
    return [call for call in calls if call]


def programs(command):
    """The same, and what `$(...)` calls."""
    inner = re.findall(r"\$\(([^()]*)\)", command)
    for text in [command, *inner]:
        yield from simple_commands(text)


# ---- running them --------------------------------------------------------------------------------

class Shell:
    """What a person has before him: one shell for all commands of a page."""

    def __init__(self, env, directory):
        self.process = subprocess.Popen(["bash", "--norc", "--noprofile"], env=env, cwd=directory,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, start_new_session=True)
        self.numbers = itertools.count()

    def run(self, command, seconds=60 * harness.PATIENCE):
        """What it printed, on both outputs."""
        mark = f"\x01end {next(self.numbers)}\x01".encode()
        self.process.stdin.write(b"{ %s\n} </dev/null; printf '%%s' '%s'\n" % (command.encode(), mark))
        self.process.stdin.flush()
        said = b""
        deadline = time.monotonic() + seconds
        while not said.endswith(mark):
            ready, _, _ = select.select([self.process.stdout], [], [], deadline - time.monotonic())
            assert ready, f"$ {command}\ndoes not end; so far it said {said!r}"
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, f"$ {command}\nended the shell, which said {said!r}"
            said += data
        return said[:-len(mark)].decode(errors="replace")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def plain(text):
    """Without what differs and does not matter: the width of columns, lines with nothing in them, and the
    warning of a host where boxes are weaker."""
    text = harness.WARNING.sub(b"", text.replace("\r\n", "\n").encode()).decode()
    lines = (re.sub(" +", " ", line).rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def pieces_fit(pieces, said, length, find):
    """Whether `said` is these pieces in this order, with anything between each two; find(piece, said, at)
    is where the first such piece lies from there on, or -1."""
    at = 0
    for number, piece in enumerate(pieces):
        is_first, is_last = number == 0, number == len(pieces) - 1
        start = max(at, len(said) - length(piece)) if is_last and not is_first else at
        found = find(piece, said, start)
        if found < 0 or (is_first and found != 0) or (is_last and found + length(piece) != len(said)):
            return False
        at = found + length(piece)
    return True


def line_fits(shown, said):
    """`...` stands for anything in this line."""
    return pieces_fit(shown.split("..."), said, len, lambda piece, text, at: text.find(piece, at))


def fits(shown, said):
    """A line that is `...` and nothing else stands for any number of lines."""
    runs = [[]]
    for line in shown.splitlines():
        if line == "...":
            runs.append([])
        else:
            runs[-1].append(line)

    def find(run, lines, at):
        for start in range(at, len(lines) - len(run) + 1):
            if all(map(line_fits, run, lines[start:])):
                return start
        return -1
    return pieces_fit(runs, said.splitlines(), len, find)


@pytest.mark.parametrize("shown, said, is_it", [
    ("a", "a", True), ("a", "ab", False), ("a", "", False), ("", "", True), ("", "a", False),
    ("a...c", "abc", True), ("a...c", "ac", True), ("a...", "b", False), ("a...a", "a", False),
    ("a...b...c", "axbxbxc", True), ("a...b...c", "axc", False), ("a...", "a\nb", False),
    ("a\n...", "a\nb\nc", True), ("...\nc", "a\nb\nc", True), ("a\n...\nc", "a\nc", True),
    ("a\n...\nc", "a\nb", False), ("a\n...\nb\n...\nd", "a\nb\nc\nd", True), ("...", "", True),
])
def test_what_the_dots_stand_for(shown, said, is_it):
    assert fits(shown, said) == is_it


nothing_left = serving.one_for_all()[0]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Those of whom the pages speak are there; the rest is what it is."""
    names = {f"{host}.example.com": [worlds.SERVER] for host in ("api", "git")}
    names["db.example.com"] = [worlds.PRIVATE]
    with worlds.World(tmp_path_factory.mktemp("world"), names, wares.make(), beyond=True) as made:
        yield made


@pytest.fixture(scope="module")
def serve(world, tmp_path_factory):
    with world.serve(tmp_path_factory.mktemp("serve")) as started:
        yield started


@pytest.fixture
def desk(serve, tmp_path):
    """A directory to work in, the variables of a shell there, and a text as it reads on this machine: of
    what the pages say, the addresses of the server are other ones."""
    (tmp_path / "build").symlink_to(harness.COVE.parent)
    (tmp_path / "examples").symlink_to(harness.ROOT / "examples")
    (tmp_path / "debian").symlink_to(testroot.debian())
    (tmp_path / "cove.pc").write_text(
        "Name: cove\nDescription: as it was built\nVersion: 0\n"
        f"Cflags: -I{harness.ROOT}/include\nLibs: -L{harness.BUILD}/src/lib -lcove\n")
    path = f"{harness.COVE.parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    env = {"PATH": path, "HOME": str(tmp_path), "LANG": "C.UTF-8", "TZ": "UTC", "TERM": "xterm",
           "COVE_URL": f"unix:{serve.socket}", 
           "PKG_CONFIG_PATH": str(tmp_path),
           "LD_LIBRARY_PATH": str(harness.BUILD / "src" / "lib")}

    def here(text):
        return (text.replace("/run/cove/cove.sock", str(serve.socket))
                .replace("127.0.0.1:7070", f"127.0.0.1:{serve.port}")
                .replace("/var/lib/cove", str(serve.data)))
    return types.SimpleNamespace(directory=tmp_path, env=env, here=here)


def things(client):
    """All that a page can leave on the server, each with the address that ends it."""
    for sandbox in client.get("/v1/sandboxes").json["sandboxes"]:
        yield f"sandbox {sandbox['name'] or sandbox['id']}", f"/v1/sandboxes/{sandbox['id']}"
    for key in client.get("/v1/keys").json["keys"]:
        if key["label"] != "operator":
            yield f"key {key['label']}", f"/v1/keys/{key['id']}"


def names(client):
    return client.get("/v1/roots").json


@pytest.fixture
def cleared(serve, desk):
    """The page has cleared away what it made; what it has not is told, and gone before the next one."""
    with serve.client() as client:
        before = names(client)
        yield
        left = list(things(client))
        for _, address in left:
            client.delete(address)
        after = names(client)
        for kind in ("root", "mount"):
            for name in set(after[f"{kind}s"]) - set(before[f"{kind}s"]):
                subprocess.run([harness.COVE, kind, "rm", name], env=desk.env, check=False)
        assert not left and after == before, f"the page leaves {[name for name, _ in left]}, {after}"


# One of its examples installs from a registry.
FAR = {"docs/network.md"}


@pytest.mark.parametrize("page", [pytest.param(page, marks=pytest.mark.registry) if name_of(page) in FAR else page
                                  for page in PAGES], ids=name_of)
def test_the_page_shows_what_happens(page, desk, cleared):
    with Shell(desk.env, desk.directory) as shell:
        for command, shown in examples(page):
            expected = plain(desk.here(shown))
            # What is fetched from beyond this machine may fail by itself.
            for _ in range(3 if re.search(r"\b(pip|npm|apt-get) ", command) else 1):
                said = plain(shell.run(desk.here(command), 300 * harness.PATIENCE))
                if fits(expected, said):
                    break
            assert fits(expected, said), f"$ {command}\n{said}\n\nis not what the page shows:\n{expected}"


# ---- completeness --------------------------------------------------------------------------------

def all_examples():
    return [command for page in PAGES for command, _ in examples(page)]


def blocks(page):
    """The indented blocks of a page, and the fenced ones with the line that opens them; but for what
    scripts/walk.py types, which takes minutes and a root of its own."""
    found, fence = [[]], False
    text = re.sub(r"^## From an empty machine\n.*?(?=^## )", "", page.read_text(encoding="utf-8"),
                  flags=re.MULTILINE | re.DOTALL)
    for line in text.splitlines():
        if line.startswith("```"):
            fence = not fence
            found.append([line] if fence else [])
        elif fence or line.startswith("    "):
            found[-1].append(line.strip())
        elif found[-1]:
            found.append([])
    return [block for block in found if block]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_command_of_the_page_is_without_its_output(page):
    for block in blocks(page):
        assert block[0] not in ("```", "```sh", "```bash", "```console"), f"nothing runs what follows: {block}"
        if not block[0].startswith("$ "):
            assert not [line for line in block if re.match(r"(\S*/)?(cove|curl|api|tar|source) ", line)], \
                f"nothing runs this: {block}"


def commands():
    """Of the table behind `cove help`, with their verbs."""
    said = harness.cove("help").out.decode().split("Exit status:")[0]
    for name in re.findall(r"^  ([a-z]+) +\S", said, re.MULTILINE):
        verbs = re.findall(rf"^  cove {name} ([a-z]+) ", harness.cove("help", name).out.decode(), re.MULTILINE)
        yield from ([name, verb] for verb in verbs) if verbs else [[name]]


def test_each_command_has_a_page_that_shows_it():
    found = list(commands())
    assert len(found) > 25
    for words in found:
        page = DOCS / "verbs" / f"{words[0]}.md"
        assert page.exists(), f"cove {' '.join(words)} has no page"
        calls = [call for command, _ in examples(page) for call in programs(command)]
        assert any(call[i:i + 1 + len(words)] == ["cove", *words]
                   for call in calls for i in range(len(call))), f"{page.name}: no {words}"


METHOD_OF_OPTION = {"-T": "PUT", "-d": "POST", "--data-binary": "POST", "-F": "POST", "-I": "HEAD"}


def request_of(words):
    """(method, path) of a call of curl."""
    method, path, said = None, None, None
    for word, following in zip(words, [*words[1:], ""]):
        method = METHOD_OF_OPTION.get(word, method)
        if word == "-X":
            said = following
        found = re.fullmatch(r"(?:http://)?(?:localhost|127\.0\.0\.1:7070)(/[^?]*)(\?.*)?", word)
        path = found[1] if found else path
    return said or method or "GET", path


def test_each_operation_of_the_api_is_shown():
    requests = {request_of(call) for command in all_examples() for call in programs(command)
                if call[0] == "curl"}
    document = yaml.safe_load((harness.ROOT / "src/front/native/openapi.yaml").read_text(encoding="utf-8"))
    missing = []
    for template, operations in document["paths"].items():
        pattern = re.sub(r"\\?\{[a-z]+\\?\}", "[^/]+", re.escape(template))
        for method, operation in operations.items():
            if method in ("get", "put", "post", "patch", "delete") and not any(
                    shown == method.upper() and path and re.fullmatch(pattern, path)
                    for shown, path in requests):
                missing.append(f"{operation['operationId']}: {method.upper()} {template}")
    assert not missing, missing


def test_each_page_is_in_the_index_and_each_link_leads_somewhere():
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    for page in [*PAGES, CONTRIBUTING, harness.ROOT / "SECURITY.md"]:
        text = page.read_text(encoding="utf-8")
        if DOCS in page.parents and page.name != "README.md":
            assert f"({page.relative_to(DOCS)})" in index, f"docs/README.md has no {name_of(page)}"
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (page.parent / target).exists(), f"{name_of(page)}: {target} is not there"


# ---- the walk through the source -----------------------------------------------------------------

TOPS = ("bench", "docs", "etc", "examples", "include", "js", "scripts", "src", "tests")


def words_of_code(text):
    """The words of what stands in backticks or is indented as a line of shell."""
    for code in [*re.findall(r"`([^`\n]+)`", text), *re.findall(r"^    (\S.*)$", text, re.MULTILINE)]:
        yield from code.split()


def names_of_files():
    """Of the sources of all rooms and tests, without what is built or fetched."""
    for top in TOPS:
        for _, directories, files in os.walk(harness.ROOT / top):
            directories[:] = [name for name in directories if name not in ("node_modules", "__pycache__")]
            yield from files


def missing_paths(text):
    """A path from the top, which may be a pattern, and a file's name alone that no directory has."""
    names = set(names_of_files())
    for word in words_of_code(text):
        if re.fullmatch(rf"({'|'.join(TOPS)})/[\w./*-]*", word):
            if not any(harness.ROOT.glob(word)):
                yield word
        elif re.fullmatch(r"[\w-]+\.(c|h|S|py|sh|mjs|toml|yaml|txt)", word) and word not in names:
            yield word


def test_a_path_that_is_not_there_is_noticed():
    assert list(missing_paths("`src/box/box.h` `src/box/no_such*.c` `box.h`, `make lint`, `build/x.c`")) == ["src/box/no_such*.c"]
    assert list(missing_paths("`src/box/nothing.h` and `no_such_file.c`\n\n    scripts/nothing.py --all\n")) == [
        "src/box/nothing.h", "no_such_file.c", "scripts/nothing.py"]


@pytest.mark.parametrize("page", [CONTRIBUTING, DOCS / "architecture.md"], ids=lambda page: page.name)
def test_each_path_that_contributors_are_led_to_is_there(page):
    assert not list(missing_paths(page.read_text(encoding="utf-8")))


def rooms():
    """Those that are there, from the ground up, each with its folders that hold sources."""
    floors = runpy.run_path(str(harness.ROOT / "scripts" / "rooms.py"))["FLOORS"]
    found = {path.name: sorted({source.parent.name for source in path.glob("*/*.c")})
             for path in (harness.ROOT / "src").iterdir() if path.is_dir()}
    assert found.keys() <= set(floors)
    return {room: found[room] for room in floors if room in found}


def walk_of(text):
    """The numbered rooms of the walk, each with what is said of it."""
    return dict(re.findall(r"^\d+\. `src/(\w+)/`(.*?)(?=^\d|\n\n)", text, re.MULTILINE | re.DOTALL))


def test_the_walk_passes_through_every_room_and_its_folders_in_reading_order():
    walk = walk_of(CONTRIBUTING.read_text(encoding="utf-8"))
    assert list(walk) == list(rooms())
    assert [folder for room, folders in rooms().items() for folder in folders if f"src/{room}/{folder}/" not in walk[room]] == []


def test_the_architecture_draws_every_room_and_its_folders_from_the_top_down():
    drawing = (DOCS / "architecture.md").read_text(encoding="utf-8").split("\n## Rooms\n")[1].split("\n## ")[0]
    drawn = dict(re.findall(r"^    src/(\w+) (.*?)(?=^    src/|\n\n)", drawing, re.MULTILINE | re.DOTALL))
    assert list(drawn) == list(reversed(rooms()))
    assert {room: sorted(re.findall(r"^      \| +(\w+)/ ", text, re.MULTILINE)) for room, text in drawn.items()} == rooms()
