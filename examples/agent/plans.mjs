// The plans of the model: what it sees, says and does, step by step.
import { WORKSPACE_TOOLS } from "@mastra/core/workspace";
import { POEM } from "./poem.mjs";

export const PORT = 8000;
const { WRITE_FILE, EDIT_FILE, READ_FILE } = WORKSPACE_TOOLS.FILESYSTEM;
const { EXECUTE_COMMAND } = WORKSPACE_TOOLS.SANDBOX;

const PROGRAM = `import json

def report(path):
    lines = []
    for line in open(path):
        words = line.split()
        lines.append({"words": len(words), "longest": max(words, key=len)})
    return lines

if __name__ == "__main__":
    print(json.dumps(report("poem.txt")))
`;

const SERVER = `import http.server, json, stats

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps(stats.report("poem.txt")).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

server = http.server.ThreadingHTTPServer(("0.0.0.0", ${PORT}), Page)
print("listening on port ${PORT}", flush=True)
server.serve_forever()
`;

export const boxPlan = [
    { says: "I put the poem where the program will look for it.", calls: [WRITE_FILE, { path: "poem.txt", content: POEM }] },
    { says: "Now the program.", calls: [WRITE_FILE, { path: "stats.py", content: PROGRAM }] },
    { says: "I run it.", calls: [EXECUTE_COMMAND, { command: "python3 stats.py" }] },
    {
        sees: /ValueError: (max\(\) [^\n]*empty[^\n]*)[^]*Exit code: 1/,
        says: "It fails at the empty line, which has no longest word. I give it an empty one.",
        calls: [EDIT_FILE, { path: "stats.py", old_string: "max(words, key=len)", new_string: 'max(words, key=len, default="")' }],
    },
    { says: "Again.", calls: [EXECUTE_COMMAND, { command: "python3 stats.py" }] },
    { sees: /"longest": "lighthouse"/, says: "It works. Now a server that shows it.", calls: [WRITE_FILE, { path: "server.py", content: SERVER }] },
    { says: "I start it in the background.", calls: [EXECUTE_COMMAND, { command: "python3 server.py", background: true }] },
    {
        sees: /PID: (\S+)\)/,
        says: "I fetch from it, as soon as it listens.",
        calls: [EXECUTE_COMMAND, {
            command: `python3 - <<'END'
import time, urllib.request
for _ in range(600):
    try:
        print(urllib.request.urlopen("http://127.0.0.1:${PORT}/").read().decode())
        break
    except OSError:
        time.sleep(0.05)
else:
    raise SystemExit("nobody listens")
END`,
        }],
    },
    { sees: /"longest": "lighthouse"/, says: "It answers. Was it changed only where I meant to?", calls: [READ_FILE, { path: "stats.py" }] },
    { sees: /default=""/, says: `The report is served on port ${PORT}.` },
];

export const kernelPlan = [
    {
        says: "A program that asks the tools itself, in one go.",
        calls: ["execute_typescript", { code: `
const lines: string[] = await external_poem({});
const longest = (line: string): string => line.split(" ").filter(Boolean).reduce((a, b) => (b.length > a.length ? b : a));
return lines.map(longest);` }],
    },
    {
        sees: /[Rr]educe of empty array|empty array/,
        says: "It fails at the empty line. I begin with an empty word, and compare with the report.",
        calls: ["execute_typescript", { code: `
const [lines, page] = await Promise.all([external_poem({}), external_fetchPage({})]);
const longest = (line: string): string => line.split(" ").filter(Boolean).reduce((a, b) => (b.length > a.length ? b : a), "");
const report: { longest: string }[] = JSON.parse(page);
return { same: report.every((entry, i) => entry.longest === longest(lines[i])), longest: longest(lines.join(" ")) };` }],
    },
    { sees: /"same":\s*true/, says: "Both found the same words." },
];
