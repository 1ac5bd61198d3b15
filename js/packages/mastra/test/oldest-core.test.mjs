// The oldest @mastra/core that the package may be used with does as the newest does, in the tests that ask most of it. It is
// put in the place of the newest by oldest-core.mjs.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import path from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";

const HOOK = path.join(import.meta.dirname, "oldest-core.mjs");
const FILES = ["agent.test.mjs", "filesystem.test.mjs", "contract/contract.test.mjs"].map((name) => path.join(import.meta.dirname, name));
const { NODE_TEST_CONTEXT: _, ...others } = process.env;
const env = { ...others, NODE_OPTIONS: `--import=${HOOK}` };
const run = (...words) => promisify(execFile)(process.execPath, words, { cwd: import.meta.dirname, env, maxBuffer: 64 << 20 });

test("the oldest release is what they get", async () => {
    const { stdout } = await run("--input-type=module", "-e", 'console.log(["@mastra/core", "@mastra/core/workspace", "@mastra/corean"].map((name) => { try { return import.meta.resolve(name) } catch (error) { return error.code } }).join("\\n"))');
    const [core, workspace, other] = stdout.trim().split("\n");
    for (const url of [core, workspace]) assert.match(url, /\/node_modules\/mastra-core-oldest\/dist\//);
    assert.equal(other, "ERR_MODULE_NOT_FOUND");
});

test("the contract, the files and the agent's tools are the same with it", async () => {
    const { stdout } = await run("--test", "--test-concurrency=2", "--test-reporter=spec", ...FILES)
        .catch((error) => assert.fail(`${error.message}\n${String(error.stdout).split("failing tests:").pop().slice(0, 8000)}`));
    assert.match(stdout, /^ℹ fail 0$/m);
    assert.ok(Number(/^ℹ pass (\d+)$/m.exec(stdout)?.[1]) > 400, stdout.slice(-500));
});
