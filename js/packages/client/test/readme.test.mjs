// The examples of the README do what they say.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { startEngine } from "./engine.mjs";

const README = new URL("../README.md", import.meta.url);
const INDEX = new URL("../dist/esm/index.js", import.meta.url).href;

let engine;
before(async () => {
    // Where a test runs as root the system's engine may be there; an example takes what it finds.
    engine = await startEngine();
});
after(() => engine?.end());

const examples = [...readFileSync(README, "utf8").matchAll(/^```js\n([^]*?)^```/gm)].map((each) => each[1]);
const expected = ["hello\n 3\nwritten from outside\n", "6\n"];

test("there is something to try", () => assert.equal(examples.length, expected.length));

for (const [i, example] of examples.entries())
    test(`example ${i + 1}`, () => {
        const code = example.replace('"@cove/client"', JSON.stringify(INDEX));
        const ran = spawnSync(process.execPath, ["--input-type=module", "-e", code], {
            env: { ...process.env, COVE_URL: `unix:${engine.socket}` },
            encoding: "utf8",
            timeout: 60_000,
        });
        assert.equal(ran.stderr, "");
        assert.equal(ran.stdout, expected[i]);
        assert.equal(ran.status, 0);
    });
