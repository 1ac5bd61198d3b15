// What a RemoteSandboxKernel runs in its box for Python: a process of the box's own python3 that executes what comes on its
// standard input, one JSON object a line, and keeps what was defined. Lines of standard output that begin with the mark are for
// the host; all others are what programs that the code started printed. What this needs after the code began it has taken before.
import { TEXT_MAX } from "./remote-lines.js";

/** Read by python3 in the box: `python3 -c DRIVER`, and then `{"mark": MARK}` on a line of its standard input. */
export const PYTHON_DRIVER = `
import ast, asyncio, inspect, io, json, math, os, select, sys, traceback, types
from ast import parse
from json import dumps, loads
from math import isfinite, isnan
from os import environ, read
from select import select as ready
from traceback import format_exc
from types import MappingProxyType

TEXT_MAX = ${TEXT_MAX}
mark, out, source, partial = "", os.fdopen(os.dup(1), "w", encoding="utf-8"), os.dup(0), b""
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
sys.argv = ["run.py"]
before = dict(environ)

def tell(frame):
    text = dumps(frame)
    if len(text) > TEXT_MAX - 256:
        if "log" in frame:
            frame = {"log": f"[an entry of {len(frame['log'])} characters did not fit into the log]"}
        elif "error" in frame:
            frame = {"id": frame["id"], "error": {"name": frame["error"]["name"][:256], "message": frame["error"]["message"][:65536]}}
        else:
            frame = {"id": frame["id"], "serialization": f"the result is too long: it takes more than {TEXT_MAX} bytes"}
        text = dumps(frame)
    out.write("\\n" + mark + text + "\\n")
    out.flush()

class Lines(io.TextIOBase):
    def __init__(self, prefix):
        self.prefix, self.partial = prefix, ""
    def writable(self):
        return True
    def write(self, text):
        *whole, self.partial = (self.partial + text).split("\\n")
        for line in whole:
            tell({"log": self.prefix + line})
        return len(text)
    def end(self):
        if self.partial:
            self.write("\\n")

may, scope = {}, {"__name__": "__main__", "__builtins__": __builtins__}

def below(path, granted, option):
    full = os.path.abspath(path)
    if any(full == one or full.startswith(one.rstrip("/") + "/") for one in granted):
        return full
    raise PermissionError(f"[Errno 13] Permission denied: '{full}': it is not granted; allow it with {option}")

class Files:
    def readFile(self, path):
        with open(below(path, may["reads"], "allowedReadPaths"), encoding="utf-8") as file:
            return file.read()
    def writeFile(self, path, data):
        with open(below(path, may["writes"], "allowedWritePaths"), "w", encoding="utf-8") as file:
            file.write(data)

def evaluate(code):
    tree = parse(code, "agent-step.py")
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    value = None
    for part, mode in ((tree, "exec"), (ast.Expression(last.value) if last else None, "eval")):
        if part is None:
            continue
        value = eval(compile(part, "agent-step.py", mode, flags=flags), scope)
        if inspect.iscoroutine(value):
            value = asyncio.run(value)
        if mode == "exec":
            value = None
    return value

def written(value):
    if isinstance(value, float) and not isfinite(value):
        return {"number": "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"}
    if value is None:
        return {}
    if callable(value):
        return {"serialization": "a function cannot be given as a result"}
    try:
        return {"json": dumps(value, allow_nan=False)}
    except (TypeError, ValueError, RecursionError) as error:
        return {"serialization": str(error)}

def run(request):
    global may
    may = request
    environ.clear()
    environ.update({**before, **request["env"]})
    scope["__env__"] = MappingProxyType(dict(request["env"])) if request["env"] else None
    scope["__fs__"] = Files()
    for name in ("__final_answer__", "__finalAnswer__"):
        scope.pop(name, None)
    sys.stdout, sys.stderr = Lines(""), Lines("[stderr] ")
    try:
        value = evaluate(request["code"])
        answers = [scope[name] for name in ("__final_answer__", "__finalAnswer__") if name in scope]
        answer = {**written(answers[0] if answers else value), "isFinal": bool(answers)}
    except SystemExit:
        raise
    except BaseException as error:
        answer = {"error": {"name": type(error).__name__, "message": str(error), "stack": format_exc()}}
    sys.stdout.end()
    sys.stderr.end()
    tell({"id": request["id"], **answer})

heard = 0
while ready([source], [], [], 3600)[0]:
    piece = read(source, 65536)
    if not piece:
        break
    *whole, partial = (partial + piece).split(b"\\n")
    for line in whole:
        # One whose end did not come is asked again: what is no whole line, or was heard before, is passed over.
        try:
            request = loads(line)
        except ValueError:
            continue
        if not mark and "mark" in request:
            mark = request["mark"]
            tell({"ready": True})
        if request.get("id", 0) > heard:
            heard = request["id"]
            run(request)
`;
