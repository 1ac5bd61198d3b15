// In the network of test_wasmagent_fetch.py: what fetch() reaches in programs that were written for wasmagent, and the words of a denial.
import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { createCodeMode } from "@mastra/core/tools";
import { CoveCodeModeTransport } from "@cove/mastra";
import { createMastraSandbox, QuickJSKernel, RemoteSandboxKernel } from "@cove/mastra/wasmagent";
import { startEngine } from "../../../client/test/engine.mjs";

const FOUR = "http://four.test:8080";
const DENIED = (host) => `network access denied — host "${host}" not in allowedHosts`;
const said = (url) => `await fetch('${url}').then((answer) => answer.status, (error) => error.message)`;

test("a granted host is reached, and no other", async () => {
    const kernel = new QuickJSKernel();
    for (const [rule, isReached] of [["four.test", true], ["four.test:8080", true], ["*.test", true], ["*", true], ["four.test:80", false], ["*.four.test", false], ["test", false]]) {
        const { output } = await kernel.run(said(`${FOUR}/a`), { allowedHosts: [rule] });
        assert.equal(output, isReached ? 200 : DENIED("four.test:8080"), rule);
    }
    assert.deepEqual((await kernel.run(`const answer = await fetch('${FOUR}/a?b=c', { method: 'POST', body: 'x' }); const { method, path, body } = await answer.json(); [method, path, body]`,
        { allowedHosts: ["four.test"] })).output, ["POST", "/a?b=c", "x"]);
    await kernel[Symbol.asyncDispose]();
});

test("a redirect to a host that is not granted is denied by that host's name", async () => {
    const kernel = new QuickJSKernel({ capabilities: { allowedHosts: ["four.test"] } });
    assert.equal((await kernel.run(said(`${FOUR}/other`))).output, DENIED("other.test"));
    assert.equal((await kernel.run(said(`${FOUR}/moved`))).output, 200);
    const { output } = await kernel.run(said(`${FOUR}/metadata`), { allowedHosts: ["*"] });
    assert.ok(output.startsWith(`${DENIED("169.254.169.254")}: no rule can allow it`), output);
    await kernel[Symbol.asyncDispose]();
});

test("a private address says what would allow it", async () => {
    const kernel = new QuickJSKernel();
    const { output } = await kernel.run(said("http://private.test:8080/"), { allowedHosts: ["private.test"] });
    assert.ok(output.startsWith(`${DENIED("private.test:8080")}: `) && output.includes("private.test private=yes"), output);
    assert.equal((await kernel.run(said("http://private.test:8080/"), { allowedHosts: ["private.test private=yes"] })).output, 200);
    await kernel[Symbol.asyncDispose]();
});

test("through createMastraSandbox, from call to call", async () => {
    const kernel = new QuickJSKernel();
    const open = createMastraSandbox({ kernel, capabilities: { allowedHosts: ["four.test"] } }), shut = createMastraSandbox({ kernel });
    assert.equal((await open.execute("let got = await (await fetch('http://four.test:8080/a')).json(); got.path")).output, "/a");
    assert.deepEqual(await shut.execute("console.log('tries'); fetch('http://four.test:8080/a')"),
        { output: "", stderr: `KernelError: CapabilityDenied: ${DENIED("four.test:8080")}`, exitCode: 1 });
    assert.equal((await shut.execute("got.path")).output, "/a");
    await kernel[Symbol.asyncDispose]();
});

test("a program of Code Mode reaches the hosts that its transport was given", async () => {
    const run = async (options) => createCodeMode({ tools: {} }, new CoveCodeModeTransport(options)).tool.execute(
        { code: `return (await fetch('${FOUR}/a')).status` }, { observe: { span: (name, work) => work(), log() {} } });
    assert.equal((await run({ allowedHosts: ["four.test"] })).result, 200);
    assert.match((await run({})).error.message, /'four\.test' is denied/);
});

test("a box reaches what a run grants, and no more with the next", async () => {
    const own = await startEngine({ connect: false });
    await mkdir(join(own.env.XDG_CONFIG_HOME, "cove"));
    await writeFile(join(own.env.XDG_CONFIG_HOME, "cove", "cove.conf"), "[network]\nresolvers = 203.0.113.2\n");
    await own.cove.connect();
    process.env.COVE_URL = own.cove.address;
    const kernel = new RemoteSandboxKernel();
    try {
        assert.equal((await kernel.run(said(`${FOUR}/a`), { allowedHosts: ["four.test"] })).output, 200);
        assert.equal((await kernel.run(said(`${FOUR}/a`), { allowedHosts: ["*"] })).output, 200);
        assert.equal((await kernel.run(said(`${FOUR}/a`))).output, DENIED("four.test:8080"));
        assert.equal((await kernel.run(said(`${FOUR}/a`), { allowedHosts: ["four.test:80"] })).output, DENIED("four.test:8080"));
        // Not fetch() alone: what no rule names cannot be dialled by any program. Its connection is taken and reset, so that only an
        // answer says that it was reached.
        const dial = "await new Promise((done) => { const socket = require('node:net').connect(8080, '203.0.113.2'); "
            + "socket.on('data', () => done('reached')).on('error', () => done('refused')).on('close', () => done('refused')).write('GET /a HTTP/1.0\\r\\n\\r\\n'); })";
        assert.equal((await kernel.run(dial, { allowedHosts: ["other.test"] })).output, "refused");
        assert.equal((await kernel.run(dial, { allowedHosts: ["203.0.113.2"] })).output, "reached");
    } finally {
        await kernel[Symbol.asyncDispose]();
        await own.end();
    }
});
