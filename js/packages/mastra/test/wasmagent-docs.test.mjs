// The programs of docs/from-wasmagent.md print what stands behind their lines.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { startEngine } from "../../client/test/engine.mjs";

const run = promisify(execFile);
const page = readFileSync(new URL("../../../../docs/from-wasmagent.md", import.meta.url), "utf8");
const programs = page.split(/\n\n(?! )/).flatMap((part) => part.split("\n\n    import ").slice(1).map((text) => `import ${text}`))
    .map((text) => text.split("\n").map((line) => line.replace(/^ {4}/, "")));
let own;

before(async () => { own = await startEngine(); });
after(async () => { await own.end(); });

for (const [i, lines] of programs.entries()) {
    test(`program ${i + 1}: ${lines[0]}`, async () => {
        const wanted = lines.filter((line) => line.startsWith("console.log(")).map((line) => line.split(/;\s+\/\/ /)[1]);
        const { stdout } = await run(process.execPath, ["--input-type=module", "-e", lines.join("\n")], { cwd: new URL("..", import.meta.url), env: { ...process.env, COVE_URL: own.cove.address } });
        assert.deepEqual(stdout.trimEnd().split("\n"), wanted);
    });
}

test("there are programs", () => assert.equal(programs.length, 2));
