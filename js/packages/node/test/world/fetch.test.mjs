// In the network of test_fetch.py: what fetch() of a kernel reaches, and what it does not.
import assert from "node:assert/strict";
import { test } from "node:test";
import { createKernel, run } from "@cove/node";

const FOUR = "http://four.test:8080", SECURE = "https://four.test:8443";
const trusts = process.env.NODE_EXTRA_CA_CERTS !== undefined;

async function value(code, ...allowedHosts) {
    const got = await run(code, { allowedHosts: allowedHosts.length > 0 ? allowedHosts : ["four.test"], wallMs: 300_000 });
    assert.equal(got.error, null, JSON.stringify(got.error));
    return got.value;
}

async function refused(code, ...allowedHosts) {
    const { error } = await run(code, { allowedHosts: allowedHosts.length > 0 ? allowedHosts : ["four.test"], wallMs: 300_000 });
    assert.match(`${error?.name}`, /Error$/, JSON.stringify(error));
    return error.message;
}

// What a fetch throws has its code on itself or on its cause.
async function code(body, ...allowedHosts) {
    return value(`try { ${body}; 'nothing' } catch (e) { e.code ?? e.cause?.code }`, ...allowedHosts);
}

test("https, by Node's own certificates and those of NODE_EXTRA_CA_CERTS", async () => {
    const code = `const r = await fetch('${SECURE}/a'); [r.status, (await r.json()).path]`;
    if (!trusts) {
        assert.match(await refused(code), /certificate/);
        return;
    }
    assert.deepEqual(await value(code), [200, "/a"]);
    assert.deepEqual(await value(code.replace("four.test", "203.0.113.2"), "203.0.113.2"), [200, "/a"]);
    // The certificate is of another name.
    assert.match(await refused(code.replace("four.test", "both.test"), "both.test"), /altnames/);
});

if (trusts) {
    test("a request and its answer", async () => {
        const found = await value(`const r = await fetch('${FOUR}/a?b=c#d', { method: 'POST', body: 'héllo', headers: { 'X-Mine': '1',
            'Host': 'evil', 'Content-Length': '1' } }); [r.status, r.statusText, r.ok, r.url, r.redirected, r.headers.get('x-two'), await r.json()]`);
        assert.deepEqual(found.slice(0, 6), [200, "Fine", true, `${FOUR}/a?b=c#d`, false, "a"]);
        const asked = found[6];
        assert.deepEqual([asked.method, asked.path, asked.body], ["POST", "/a?b=c", "héllo"]);
        assert.deepEqual([asked.headers.host, asked.headers["x-mine"], asked.headers["content-length"], asked.headers["user-agent"],
            asked.headers["accept-encoding"]], ["four.test:8080", "1", "6", "cove", "identity"]);
        assert.equal((await value(`(await (await fetch('${FOUR}/x', { method: 'PUT' })).json()).headers`))["content-length"], "0");
    });

    test("bodies in all their forms", async () => {
        assert.deepEqual(await value(`const t = await (await fetch('${FOUR}/chunks')).text(); [t.slice(0, 9), t.length]`), ["one two x", 100008]);
        assert.equal(await value(`await (await fetch('${FOUR}/until-the-end')).text()`), "all of it");
        assert.deepEqual(await value(`const r = await fetch('${FOUR}/none'); [r.status, await r.text()]`), [204, ""]);
        assert.equal(await value(`(await (await fetch('${FOUR}/early')).json()).path`), "/early");
        assert.deepEqual(await value(`const r = await fetch('${FOUR}/x', { method: 'HEAD' }); [r.status, await r.text()]`), [200, ""]);
        assert.equal(await value(`let n = 0; for await (const piece of (await fetch('${FOUR}/chunks')).body) n += piece.length; n`), 100008);
        assert.equal(await value(`await fetch('${FOUR}/chunks'); const r = await fetch('${FOUR}/chunks'); await r.body.cancel(); 7`), 7);
    });

    test("many at once", async () => {
        assert.equal(await value(`const all = await Promise.all(Array.from({ length: 100 }, (_, i) => fetch('${FOUR}/' + i).then((r) => r.json())));
            all.every((one, i) => one.path === '/' + i)`), true);
        const most = await value(`const all = await Promise.allSettled(Array.from({ length: 300 }, (_, i) => fetch('${FOUR}/' + i)));
            [all.filter((one) => one.status === 'fulfilled').length, all.find((one) => one.status !== 'fulfilled').reason.message]`);
        assert.equal(most[0], 256);
        assert.match(most[1], /256 requests and answers are open/);
        assert.match(await refused(`for (let i = 0; i < 1001; i++) await (await fetch('${FOUR}/none')).text()`), /1000 requests/);
    });

    test("a redirect is followed hop by hop", async () => {
        const found = await value(`const r = await fetch('${FOUR}/moved', { method: 'POST', body: 'x' }); [r.url, r.redirected, await r.json()]`);
        assert.deepEqual([found[0], found[1], found[2].method, found[2].body], [`${FOUR}/here?x=1`, true, "GET", ""]);
        const headers = await value(`(await (await fetch('${FOUR}/other', { headers: { Authorization: 'secret' } })).json()).headers`, "four.test", "other.test");
        assert.equal(headers.authorization, undefined);
        assert.equal(await value(`(await fetch('${FOUR}/moved', { redirect: 'manual' })).status`), 302);
        assert.match(await refused(`await fetch('${FOUR}/round')`), /redirect count exceeded/);
        assert.match(await refused(`await fetch('${FOUR}/other')`), /'other.test'.* is denied: allow it with allowedHosts/);
        assert.match(await refused(`await fetch('${FOUR}/metadata')`, "four.test", "*"), /no rule can allow it/);
        assert.match(await refused(`await fetch('${FOUR}/file')`), /scheme/);
    });

    test("beyond its limits a request fails by the code of the documents' table", async () => {
        assert.equal(await code(`for (let i = 0; i < 1001; i++) await (await fetch('${FOUR}/none')).text()`), "EDQUOT");
        assert.equal(await code(`await Promise.all(Array.from({ length: 300 }, (_, i) => fetch('${FOUR}/' + i)))`), "EMFILE");
        assert.equal(await code(`await fetch('${FOUR}/', { method: 'POST', body: 'x'.repeat(16 * 1048576 + 1) })`), "EFBIG");
        // The server answers and closes before it has read all; Node may see only that it can write no more.
        assert.equal(await code(`for (let i = 0; i < 5; i++) try { await (await fetch('${FOUR}/early-no', { method: 'POST', body: 'x'.repeat(15 * 1048576) })).text(); }
            catch (e) { if (!['EPIPE', 'ECONNRESET'].includes(e.code ?? e.cause?.code)) throw e; }`), "EDQUOT");
        const headers = (count, size) => `await fetch('${FOUR}/', { headers: Array.from({ length: ${count} }, (_, i) => ['x-' + i, 'a'.repeat(${size})]) })`;
        assert.equal(await code(headers(120, 1)), "nothing");
        assert.equal(await code(headers(129, 1)), "EINVAL");
        assert.equal(await code(headers(100, 1000)), "EINVAL");
        assert.equal(await code(`await fetch('${FOUR}/many-heads')`), "EPROTO");
        assert.equal(await code("await fetch('http://four.test:1/')"), "ECONNREFUSED");
    });

    for (const [url, hosts, said] of [
        [`${FOUR}/`, ["other.test"], /'four\.test' is denied: allow it with allowedHosts/],
        [`${FOUR}/`, ["four.test:80"], /denied: allow it with allowedHosts/],
        ["http://private.test:8080/", ["private.test"], /private=yes/],
        ["http://own.test/", ["own.test"], /no rule can allow it: host/],
        ["http://loop.test/", ["*"], /no rule can allow it: loopback/],
        ["http://loop6.test/", ["*"], /no rule can allow it: loopback/],
        ["http://mapped.test/", ["*"], /no rule can allow it/],
        ["http://127.0.0.1/", ["*"], /no rule can allow it: loopback/],
        ["http://[::1]/", ["*"], /no rule can allow it: loopback/],
        ["http://0x7f.1/", ["*"], /no rule can allow it: loopback/],
        ["http://2130706433/", ["*"], /no rule can allow it: loopback/],
        ["http://0/", ["*"], /no rule can allow it/],
        ["http://10.77.0.2/", ["*"], /private/],
        ["http://meta.test/", ["*"], /no rule can allow it: metadata/],
        ["http://four.test:1/", ["four.test"], /cannot be reached/],
        ["http://nothing.test/", ["*"], /not known/],
        [`${FOUR}/cut`, ["four.test"], /ended the connection/],
        [`${FOUR}/noise`, ["four.test"], /is no HTTP/],
        [`${FOUR}/both`, ["four.test"], /is no HTTP/],
        ["https://four.test:8080/", ["four.test"], /four\.test/],
    ]) {
        test(`refused: ${url} with ${hosts}`, async () => {
            assert.match(await refused(`await (await fetch('${url}')).text()`, ...hosts), said);
        });
    }

    test("a name whose addresses are mixed is reached at those that may be", async () => {
        assert.equal(await value("(await fetch('http://mixed.test:8080/')).status", "mixed.test"), 200);
    });

    test("private addresses are reached when a rule says so", async () => {
        assert.equal(await value("(await fetch('http://private.test:8080/')).status", "private.test private=yes"), 200);
        assert.equal(await value("(await fetch('http://10.77.0.2:8080/')).status", "10.77.0.0/24"), 200);
    });

    test("what code puts into a request is one request", async () => {
        for (const init of ["{ headers: [['x', 'a\\r\\nb: c']] }", "{ headers: { 'x\\ny': 'a' } }", "{ method: 'GET / HTTP/1.1\\r\\nx: y' }"]) {
            const { error } = await run(`await fetch('${FOUR}/', ${init})`, { allowedHosts: ["four.test"] });
            assert.equal(error.name, "TypeError", init);
        }
        assert.equal(await value(`(await (await fetch('${FOUR}/a b\\r\\nx: y')).json()).path`), "/a%20bx:%20y");
    });

    test("all of it ends with the run", async () => {
        const kernel = await createKernel({ allowedHosts: ["four.test", "silent.test"] });
        const got = await kernel.run("await fetch('http://silent.test/')", { wallMs: 300 });
        assert.equal(got.error.kind, "wall");
        assert.equal((await kernel.run(`fetch('${FOUR}/chunks'); 1`)).value, 1);
        const controller = new AbortController();
        setTimeout(() => controller.abort(), 50);
        await assert.rejects(kernel.run("await fetch('http://silent.test/')", { signal: controller.signal }), { name: "AbortError" });
        assert.equal((await kernel.run(`(await fetch('${FOUR}/')).status`)).value, 200);
        kernel.dispose();
    });

    test("nothing granted, nothing asked", async () => {
        assert.match((await run(`await fetch('${FOUR}/')`)).error.message, /denied: allow it with allowedHosts/);
    });
}
