// The programs in the documents (but for from-wasmagent.md and the client's README, which have tests of their own) run as they stand there, and print what they say. Of what shows a difference the new side is run.
// A line `console.log(...); // TEXT` says what it prints.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { startEngine } from "../../client/test/engine.mjs";

const here = path.dirname(fileURLToPath(import.meta.url)), js = path.resolve(here, "..", "..", ".."), top = path.dirname(js);
const PAGES = ["docs/mastra.md", "docs/from-localsandbox.md", "docs/from-e2b.md", "docs/from-daytona.md",
    "js/packages/mastra/README.md"];
let engine, directory;

before(async () => {
    engine = await startEngine();
    directory = fs.mkdtempSync(path.join(os.tmpdir(), "docs-"));
    fs.symlinkSync(path.join(js, "node_modules"), path.join(directory, "node_modules"));
});

after(async () => {
    await engine.end();
    fs.rmSync(directory, { recursive: true });
});

function programs(text) {
    return [...text.matchAll(/^```(js|ts|diff)\n([^]*?)^```$/gm)].map(([, kind, code]) => (kind !== "diff" ? code
        : code.split("\n").filter((line) => !line.startsWith("-")).map((line) => line.slice(1)).join("\n")));
}

for (const page of PAGES) {
    programs(fs.readFileSync(path.join(top, page), "utf8")).forEach((code, i) => {
        test(`${page}, program ${i + 1}`, async () => {
            const file = path.join(directory, `${path.basename(page)}-${i}.mts`);
            fs.writeFileSync(file, `${code}\nprocess.exit(0);\n`);
            const { stdout } = await promisify(execFile)(process.execPath, ["--disable-warning=ExperimentalWarning", "--experimental-strip-types", file],
                { cwd: directory, encoding: "utf8", env: { ...engine.env, PATH: process.env.PATH } });
            const wanted = [...code.matchAll(/console\.log\(.*\); \/\/ (.*)$/gm)].map(([, text]) => text);
            assert.deepEqual(stdout.split("\n").filter((line) => line !== "").slice(0, Math.max(wanted.length, 1)), wanted);
        });
    });
}

test("there are programs in them", () => {
    assert.ok(PAGES.flatMap((page) => programs(fs.readFileSync(path.join(top, page), "utf8"))).length >= 6);
});
