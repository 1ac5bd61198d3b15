// The descriptor for Mastra's editor: what its form offers is what a CoveSandbox takes.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, test } from "node:test";
import { CoveSandbox, coveSandboxProvider, createCoveSandboxProvider } from "@cove/mastra";

process.env.COVE_URL = "https://cove.example.com";
after(() => { delete process.env.COVE_URL; delete process.env.COVE_API_KEY; });

// A value of each kind that a field of the form may have.
function samples(schema) {
    if (schema.anyOf) return schema.anyOf.flatMap(samples);
    if (schema.enum) return schema.enum;
    return [].concat(schema.type).flatMap((type) => {
        switch (type) {
        case "string": return [schema.description?.includes('"512M"') ? "64M" : schema.description?.includes("absolute path") ? "/tmp" : schema.description?.includes("COVE_URL") ? "https://COVE.example.com:443/" : "text"];
        case "number": return [1.5];
        case "integer": return [1];
        case "boolean": return [true, false];
        case "array": return [[], samples(schema.items)];
        case "object": return [schema.properties ? Object.fromEntries(Object.entries(schema.properties).map(([name, of]) => [name, samples(of)[0]])) : { A: "1" }];
        default: throw new Error(`a type that is not known: ${type}`);
        }
    });
}

test("it names itself", () => {
    const { id, name, description, configSchema } = coveSandboxProvider;
    assert.deepEqual([id, typeof name, typeof description, configSchema.type, configSchema.additionalProperties], ["cove", "string", "string", "object", false]);
    assert.deepEqual(JSON.parse(JSON.stringify(configSchema)), configSchema);
});

test("a sandbox is made of nothing, and of each field of the form", async () => {
    assert.ok(await coveSandboxProvider.createSandbox({}) instanceof CoveSandbox);
    for (const [field, schema] of Object.entries(coveSandboxProvider.configSchema.properties)) {
        for (const value of samples(schema)) {
            const made = await coveSandboxProvider.createSandbox({ [field]: value });
            assert.ok(made instanceof CoveSandbox, `${field}: ${JSON.stringify(value)}`);
            assert.equal(made.status, "pending");
        }
    }
});

test("what the form does not have is refused", () => {
    // Nor may it say where a key goes, or which program is run.
    for (const field of ["rot", "apiKey", "bin", "cove", "onStart"]) assert.throws(() => coveSandboxProvider.createSandbox({ [field]: "x" }), new RegExp(`"${field}"`));
});

// What a server is sent that a stored configuration names.
async function heard(provider, config) {
    const keys = [];
    const server = createServer((request, response) => {
        keys.push(request.headers.authorization ?? request.headers["x-api-key"] ?? "none");
        response.writeHead(401, { "content-type": "application/problem+json" }).end('{"code":"unauthorized","title":"no","status":401}');
    });
    await new Promise((done) => server.listen(0, "127.0.0.1", done));
    const url = `http://127.0.0.1:${server.address().port}`;
    try {
        const sandbox = await provider(url).createSandbox({ ...config, url });
        await assert.rejects(sandbox.cove.version());
        sandbox.cove.close();
        return keys.join();
    } finally {
        server.closeAllConnections();
        await new Promise((done) => server.close(done));
    }
}

test("a key goes to the servers that the program knows, and to no other", async () => {
    process.env.COVE_API_KEY = "key-of-the-environment";
    await assert.rejects(heard(() => coveSandboxProvider), /COVE_URL.*servers/);
    for (const url of ["unix:/run/other.sock", "https://cove.example.com@evil.example", "https://cove.example.com.evil.example", "http://cove.example.com", "ftp://cove.example.com", "text", 7]) {
        assert.throws(() => coveSandboxProvider.createSandbox({ url }), /names a server that this program does not know/, String(url));
    }
    assert.match(await heard((url) => createCoveSandboxProvider({ servers: { [`${url}/`]: "key-of-the-list" } })), /key-of-the-list/);
    assert.match(await heard((url) => {
        process.env.COVE_URL = url;
        return coveSandboxProvider;
    }), /key-of-the-environment/);
    assert.ok(createCoveSandboxProvider({ servers: { "unix:/run/other.sock": undefined } }).createSandbox({ url: "unix:/run/other.sock" }) instanceof CoveSandbox);
    assert.throws(() => createCoveSandboxProvider({ servers: { text: "key" } }), /no address/);
    assert.throws(() => createCoveSandboxProvider({ urls: [] }), /"urls"/);
});
