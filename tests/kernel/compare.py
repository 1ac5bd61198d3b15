"""Runs snippets in the prelude's driver and in Node, and says where what they print differs."""
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PRELUDE = os.path.join(HERE, "..", "..", "src", "kernel", "js", "prelude")
NODE_ENV = {"PATH": os.environ["PATH"], "TZ": "UTC", "LANG": "en_US.UTF-8", "LC_ALL": "C.UTF-8"}


def cases(name):
    """The cases of a file: a line `//// name` begins each."""
    found, title, lines = [], None, []
    with open(os.path.join(HERE, "cases", name), encoding="utf-8") as file:
        for line in file:
            if line.startswith("//// "):
                if title is not None:
                    found.append((title, "".join(lines)))
                title, lines = line[5:].strip(), []
            else:
                lines.append(line)
    if title is not None:
        found.append((title, "".join(lines)))
    return found


# What a result says where it says nothing.
NOTHING = {"output": "", "type": "undefined", "is_final_answer": False, "logs": [], "stderr": "", "error": None, "exit_code": 0}


def run_driver(driver, requests):
    """Each request is {configure, root, runs}; the answer is a list of results for each."""
    text = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run([driver, PRELUDE], input=text, capture_output=True, text=True, timeout=600,
                          env={"TZ": "UTC", "PATH": os.environ["PATH"]}, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(requests), done.stderr
    for answer in answers:
        assert isinstance(answer, list), (answer, done.stderr)
    return [[{**NOTHING, **result} for result in answer] for answer in answers]


def printed(result):
    """What a run printed, as Node's two streams hold it."""
    out = err = ""
    for entry in result["logs"]:
        if entry["level"] in ("warn", "error"):
            err += entry["text"] + "\n"
        else:
            out += entry["text"] + "\n"
    error = result["error"]
    return {"stdout": out, "stderr": err, "error": f"{error['name']}: {error['message']}" if error else None,
            "value": None if error else result["output"]}


def run_ours(driver, sources, root=None, cwd="/"):
    configure = {"env": {"A": "b"}, "argv": [], "cwd": cwd, "tools": []}
    requests = [{"configure": configure, "root": root, "runs": [{"source": source}]} for source in sources]
    return [printed(answer[0]) for answer in run_driver(driver, requests)]


RECORDED = os.path.join(HERE, "cases", "node20.json")


def is_node_20():
    done = subprocess.run(["node", "-p", "process.versions.node"], capture_output=True, text=True, check=False)
    return done.returncode == 0 and done.stdout.startswith("20.")


def asked_of(source):
    """What a record was made of: of a case that has changed since, it says nothing."""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def as_node(name, directory):
    """What Node 20 prints for each case of a file, as it was recorded; it is asked for what was not, and under
    COVE_SOAK for all, for each takes it a tenth of a second. Other versions differ in small things (the layout of
    tables, the names of units)."""
    with open(RECORDED, encoding="utf-8") as file:
        recorded = json.load(file)
    found = {}
    for title, source in cases(name):
        known = recorded.get(f"{name}: {title}")
        if known is not None and known["of"] == asked_of(source) and not (os.environ.get("COVE_SOAK") and is_node_20()):
            found[title] = known
    asked = [(title, source) for title, source in cases(name) if title not in found]
    assert not asked or is_node_20(), f"not recorded: {asked[0][0]}; run tests/kernel/compare.py record, with Node 20"
    found.update(zip([title for title, _ in asked], ask_node(name, [source for _, source in asked], directory)))
    return [found[title] for title, _ in cases(name)]


def ask_node(name, sources, directory):
    if not sources:
        return []
    return run_node_alone(sources, directory) if name in ALONE else run_node(sources)


ALONE = ("files.js",)
FILES = ("inspect.js", "timers.js", "web.js", "buffer.js", "node.js", "intl.js", "streams.js") + ALONE


def record():
    """Writes down what Node 20 prints; stacks are left out, for they name this machine's paths."""
    out = {}
    for name in FILES:
        with tempfile.TemporaryDirectory() as directory:
            for (title, source), result in zip(cases(name), ask_node(name, [source for _, source in cases(name)], directory)):
                out[f"{name}: {title}"] = {"of": asked_of(source),
                                           **{key: without_frames(result[key]) for key in ("stdout", "stderr", "error")}}
    with open(RECORDED, "w", encoding="utf-8") as file:
        # A line for each, so that a change shows which cases it is of.
        lines = [f"{json.dumps(case)}: {json.dumps(out[case], ensure_ascii=False, sort_keys=True)}" for case in sorted(out)]
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


def run_node(sources):
    done = subprocess.run(["node", os.path.join(HERE, "node_oracle.js")], input=json.dumps(sources),
                          capture_output=True, text=True, timeout=600, env=NODE_ENV, check=True)
    return json.loads(done.stdout)


def run_node_alone(sources, directory):
    """One process for each, in a new directory of its own: for what touches files."""
    out = []
    for number, source in enumerate(sources):
        place = os.path.join(directory, f"node{number}")
        os.mkdir(place)
        script = f"(async () => {{\n{source}\n}})()"
        done = subprocess.run(["node", "-e", script], cwd=place, capture_output=True, text=True, timeout=120, env=NODE_ENV,
                              check=False)
        out.append({"stdout": done.stdout, "stderr": done.stderr, "error": None})
    return out


def run_ours_alone(driver, sources, directory):
    configure = {"env": {}, "argv": [], "cwd": "/", "tools": []}
    requests = []
    for number, source in enumerate(sources):
        place = os.path.join(directory, f"ours{number}")
        os.mkdir(place)
        requests.append({"configure": configure, "root": place, "runs": [{"source": source}]})
    return [printed(answer[0]) for answer in run_driver(driver, requests)]


def differences(ours, node):
    """Where a result differs. Stacks are left out: their files and columns are each engine's own."""
    out = []
    for key in ("stdout", "stderr", "error"):
        if without_frames(ours[key]) != without_frames(node[key]):
            out.append(f"{key}:\n  ours {ours[key]!r}\n  node {node[key]!r}")
    return out


# The frames of a stack, and what Node says where a cause's frames are the same as the error's.
FRAMES = re.compile(r"(?:\n *(?:at [^\n]*?|\.\.\. \d+ lines matching cause stack trace \.\.\.)(?=( \{)?(?:\n|$)))+( \{)?")


def without_frames(text):
    return None if text is None else FRAMES.sub(lambda found: found.group(2) or "", text)


if __name__ == "__main__":
    if sys.argv[1:] != ["record"] or not is_node_20():
        sys.exit("usage: compare.py record, with Node 20 on the path")
    record()
