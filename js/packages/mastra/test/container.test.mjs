// Where there is no Linux: the line that starts a server in a container is said, and that server is found by itself. The
// server is a real one, at the port of that line, in a network of its own.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

const HERE = path.dirname(fileURLToPath(import.meta.url));
const ROOT = path.resolve(HERE, "../../../..");
const COVE = path.join(path.resolve(ROOT, process.env.BUILD ?? "build"), "cove");
const SAY = `export async function say(start) {
    return start().then((said) => String(said), (error) => error.code + ": " + error.message);
}`;
// A program of a user of that platform, and the container beside it.
const USE = `
import { spawn } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, writeFileSync } from "node:fs";
import { CoveSandbox } from "@cove/mastra";
import { Cove } from "@cove/client";
import { say } from "./say.mjs";
const dir = process.env.HOME;
const run = async (options) => {
    const sandbox = new CoveSandbox({ retryMs: 30000, ...options });
    try {
        return (await sandbox.executeCommand("echo", ["from a box"])).stdout;
    } finally {
        await sandbox._destroy().catch(() => {});
    }
};
const said = { before: await say(run), own: await say(() => new Cove({ engine: "private" }).connect()) };
const server = spawn(process.env.COVE, ["serve", "--private", "--listen", "127.0.0.1:7070", "--socket", dir + "/s.sock", "--data", dir + "/data"],
    { stdio: "ignore" });
const key = dir + "/data/engine/operator.key";
const answers = () => fetch("http://127.0.0.1:7070/readyz").then(({ ok }) => ok, () => false);
while (!existsSync(key) || !(await answers())) await new Promise((resolve) => setTimeout(resolve, 20));
said.keyless = await say(run);
mkdirSync(dir + "/.cove");
writeFileSync(dir + "/.cove/operator.key", "two words");
said.bad = await say(run);
copyFileSync(key, dir + "/.cove/operator.key");
said.after = await say(run);
const cove = new Cove();
said.address = await say(async () => (await cove.connect(), cove.address));
cove.close();
said.given = await say(() => run({ apiKey: "cove_wrong" }));
const ended = new Promise((resolve) => server.once("exit", resolve));
server.kill("SIGTERM");
await ended;
console.log(JSON.stringify(said));
process.exit(0);`;

let project;
before(() => {
    // Below the package, for that is where it finds the others.
    project = mkdtempSync(path.join(HERE, "container-"));
    writeFileSync(path.join(project, "say.mjs"), SAY);
    writeFileSync(path.join(project, "use.mjs"), USE);
});
after(() => rmSync(project, { recursive: true, force: true }));

for (const platform of ["darwin", "win32"]) {
    test(`on ${platform} a server of a container is found by itself`, () => {
        const home = mkdtempSync(path.join(tmpdir(), "cove-container-"));
        const preload = path.join(project, `${platform}.mjs`);
        writeFileSync(preload, `Object.defineProperty(process, "platform", { value: "${platform}" });`);
        const { COVE_URL, COVE_API_KEY, ...kept } = process.env;
        try {
            const ran = spawnSync(
                "unshare",
                ["-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", process.execPath, "--import", preload, path.join(project, "use.mjs")],
                { env: { ...kept, HOME: home, COVE }, encoding: "utf8", timeout: 100_000 },
            );
            assert.equal(ran.status, 0, ran.stderr);
            const said = JSON.parse(ran.stdout);
            const [line] = /docker run .* cove$/m.exec(readFileSync(path.join(ROOT, "docs/container.md"), "utf8"));
            for (const text of [said.before, said.own]) {
                assert.match(text, new RegExp(`^unsupported_platform: .*Linux.*${platform}`));
                assert.ok(text.includes(`: ${line} (`), text);
                assert.match(text, /\burl and apiKey\b/);
            }
            assert.match(said.keyless, /^no_key: .*127\.0\.0\.1:7070.*\.cove\/operator\.key.*COVE_API_KEY/);
            assert.match(said.bad, /^bad_option: .*operator\.key/);
            assert.doesNotMatch(said.bad, /two words/);
            assert.equal(said.after, "from a box\n");
            assert.equal(said.address, "http://127.0.0.1:7070");
            assert.match(said.given, /^bad_key: /);
        } finally {
            rmSync(home, { recursive: true, force: true });
        }
    });
}
